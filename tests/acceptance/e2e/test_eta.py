"""A forecast over REST, and the start of the Job that it is about, on a real API server."""

from __future__ import annotations

from datetime import datetime, timedelta

import aiohttp
import pytest

from benchmarks.eta_live import rest
from benchmarks.following import path_of
from benchmarks.load import over
from benchmarks.objects import gang_job, separate_queues
from benchmarks.sessions import Delays, Past, Task, write
from benchmarks.site import Site, says, site
from queuectl.answers.forecast.samples import LEAST_RUNS
from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.control_plane import find_assets
from tests.acceptance.e2e.conftest import NO_ASSETS
from tests.acceptance.e2e.site import Json, eventually
from tests.integration.ledger.places import reachable_folder

pytestmark = pytest.mark.skipif(find_assets() is None, reason=NO_ASSETS)

TEAM = "team"
RUN = 20.0
"""Seconds of each run, of the past and of now."""
HOURS = 26


async def _submit(place: Site, name: str) -> Json:
    path = f"/apis/batch/v1/namespaces/{TEAM}/jobs"
    return await place.tenant.request("POST", path, gang_job(name, 1, 1))


async def _started(place: Site, job: Json) -> datetime:
    """When queuectl admitted it, once it is started in the cluster."""

    async def look() -> bool:
        return not (await place.api.request("GET", path_of(job)))["spec"]["suspend"]

    name = job["metadata"]["name"]
    await eventually(f"{name} is started", look)
    found: datetime = await place.ask(
        f"SELECT admitted_at FROM queuectl.attempt WHERE workload = '{job['metadata']['uid']}'"
    )
    return found


async def test_a_job_that_waits_for_one_of_a_known_run_time_starts_when_the_forecast_said() -> None:
    queues = list(separate_queues({TEAM: 1}))
    with reachable_folder() as folder:
        async with site(folder, queues) as place:
            await _forecast_and_start(place, queues)


async def _forecast_and_start(place: Site, queues: list[Json]) -> None:
    begins = await place.ask("SELECT clock_timestamp()") - timedelta(hours=HOURS)
    runs = [Task(3600.0 * number, TEAM, f"train-{number}", 1, RUN) for number in range(LEAST_RUNS)]
    past = Past(begins, queues, runs, Delays(held=(), evicted=()))
    past.run(HOURS * 3600)
    await write(past, place.postgres.url, await place.cluster())
    controller = await place.controller()
    try:
        await says(controller, "leading with epoch")
        async with rest(place) as url, aiohttp.ClientSession() as client:
            first = await _submit(place, "train-100")
            began = await _started(place, first)
            waits = await _submit(place, "train-101")

            async def forecast() -> Json | None:
                path = f"{url}/api/v1/workloads/{TEAM}/job/train-101/eta"
                async with client.get(path) as answer:
                    told: Json = await answer.json()
                    return told if answer.status == 200 and told["unknown"] is None else None

            found: Json = await eventually("there is a forecast", forecast)
            at = datetime.fromisoformat(found["at"])
            ends = began + timedelta(seconds=RUN)
            assert at < ends, "the machine is too slow for a run of these seconds"
            told = [found[f"{key}Seconds"] for key in ("low", "median", "high")]
            assert told == [pytest.approx((ends - at).total_seconds(), abs=0.002)] * 3

            async def is_over() -> bool:
                return bool(await place.ask("SELECT clock_timestamp()") >= ends)

            await eventually("the run is over", is_over)
            status = over(first["metadata"]["creationTimestamp"])
            await place.api.request("PATCH", f"{path_of(first)}/status", status, content_type=MERGE_PATCH)
            assert await _started(place, waits) >= at + timedelta(seconds=told[0])
    finally:
        await controller.stop(20.0)
