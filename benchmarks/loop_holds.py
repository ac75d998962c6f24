"""How long each path of REST holds the event loop at 50,000 workloads, without a turn for other requests.

    python -m benchmarks.loop_holds [WORKLOADS] [PATH ...]

In one process, on constructed rows, without a ledger. Each path is asked twice: the second answer finds what
the first one has kept. `first` and `second` are their longest holds, in milliseconds of CPU time.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from aiohttp.test_utils import TestClient, TestServer

from queuectl.answers.what_if.engines import TriedWhatIfs
from queuectl.api.server import application
from queuectl.api.view import View
from queuectl.core.model.workload import ConfigKey, Phase
from queuectl.kinds.policy import parse_policy
from tests.job_kinds import JOB_KINDS
from tests.unit.api.canned import EPOCH_START, WAITS, CannedReadings, local_spec, queue_spec, workload
from tests.unit.api.test_what_ifs import manifest

WORKLOADS: Final = 50_000
QUEUES: Final = 1_000
SINCE: Final = "since=2026-01-05T09:00:00Z"


def rows(number: int) -> CannedReadings:
    """`number` workloads wait in QUEUES ClusterQueues of one cohort, each of which has one that runs."""
    readings = CannedReadings()
    preempts: dict[str, Any] = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    configs: dict[ConfigKey, str | None] = {
        ConfigKey("ResourceFlavor", "", "a100"): "{}",
        ConfigKey("Cohort", "", "all"): "{}",
    }
    found = []
    for queue in range(QUEUES):
        name, namespace = f"q{queue}", f"ns{queue}"
        configs[ConfigKey("ClusterQueue", "", name)] = queue_spec(8, cohort="all", preemption=preempts)
        configs[ConfigKey("LocalQueue", namespace, "main")] = local_spec(name)
        configs[ConfigKey("Namespace", "", namespace)] = json.dumps({"labels": {}})
        holds: dict[str, Any] = {"phase": Phase.ADMITTED, "gpus": 9}
        found.append(workload(f"run{queue}", queue + 1, namespace=namespace, cluster_queue=name, **holds))
    for one in range(number):
        queue = one % QUEUES
        reason = replace(WAITS, node=f"ClusterQueue/q{queue}")
        name, namespace = f"q{queue}", f"ns{queue}"
        waits = workload(
            f"job{one}", QUEUES + one + 1, namespace=namespace, cluster_queue=name, reason=reason
        )
        found.append(replace(waits, labels=(("team", f"t{one % 50}"),)))
    readings.commit(*found, configs=configs)
    readings.keep(EPOCH_START)
    return readings


def questions() -> Iterator[tuple[str, Any]]:
    """Paths, and the body of a POST."""
    for query in (
        "limit=1000",
        "name=zzz",
        "labelSelector=team%3Dzzz",
        "submitter=nobody",
        "sinceSeconds=1",
        "namespace=ns5",
        "clusterqueue=q5&order=position",
        "queue=none",
        "asOf=2026-01-05T10:00:00Z&name=zzz",
    ):
        yield f"/api/v1/workloads?{query}", None
    for part in ("", "/history", "/story", "/waited", "/counterfactuals", "/eta", "/exposure"):
        yield f"/api/v1/workloads/ns5/job/job5{part}", None
    yield "/api/v1/workloads/ns5/job/run5", None
    yield "/api/v1/workloads/ns5/job/run5/exposure", None
    for kind, name in (("clusterqueues", "q5"), ("cohorts", "all"), ("resourceflavors", "a100")):
        yield f"/api/v1/{kind}?limit=1000", None
        yield f"/api/v1/{kind}/{name}", None
    for kind, name in (("clusterqueues", "q5"), ("cohorts", "all")):
        yield f"/api/v1/{kind}/{name}/share", None
        yield f"/api/v1/{kind}/{name}/share?{SINCE}&steps=4", None
    yield "/api/v1/localqueues?limit=1000", None
    yield "/api/v1/localqueues/ns5/main", None
    yield "/api/v1/capacity", None
    yield "/api/v1/capacity/a100", None
    yield "/api/v1/demand?limit=1000", None
    yield "/api/v1/demand/q5", None
    yield "/api/v1/demand?asOf=2026-01-05T10:00:00Z", None
    yield "/api/v1/decisions?limit=1000", None
    yield f"/api/v1/preemptions?{SINCE}", None
    yield "/openapi.json", None
    yield "/docs", None
    yield "/readyz", None
    yield "/api/v1/quote", manifest(pods=1, namespace="ns5")
    yield "/api/v1/plan", {"objects": [{"kind": "Cohort", "metadata": {"name": "all"}}]}
    many = [{"kind": "ResourceFlavor", "metadata": {"name": f"f{one}"}} for one in range(15_000)]
    yield "/api/v1/plan", {"objects": many}


async def held(client: TestClient[Any, Any], path: str, body: Any) -> tuple[int, int, float, float]:
    """Status, bytes, seconds of the answer, and the most CPU time of the loop without a turn for others."""
    worst, done = 0.0, False

    async def beat() -> None:
        nonlocal worst
        while not done:
            begun = time.thread_time()  # not that of other threads and processes
            await asyncio.sleep(0)
            worst = max(worst, time.thread_time() - begun)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(beat())
        begun = time.perf_counter()
        if body is None:
            answer = await client.get(path)
        else:
            headers = {"Content-Type": "application/json"}
            answer = await client.post(path, data=body, headers=headers)
        size = len(await answer.read())
        seconds = time.perf_counter() - begun
        done = True
    return answer.status, size, seconds, worst


async def main(number: int, chosen: list[str]) -> None:
    readings = rows(number)
    view = View(readings, parse_policy)
    await view.refresh()
    gc.freeze()  # as the server does
    app = application(
        view,
        readings,
        kinds=JOB_KINDS,
        cursor_key=b"k" * 32,
        what_ifs=TriedWhatIfs(),
        forecasts=readings,
    )
    print(f"{'path':70} code   bytes  seconds   first  second")
    async with TestClient(TestServer(app)) as client:
        for path, body in questions():
            if chosen and not any(one in path for one in chosen):
                continue
            data = None if body is None else json.dumps(body).encode()
            tries = [await held(client, path, data) for _ in range(2)]
            status, size, seconds, _ = tries[-1]
            first, second = (one[3] * 1000 for one in tries)
            print(f"{path[:70]:70} {status:4} {size:7} {seconds:8.3f} {first:7.0f} {second:7.0f}", flush=True)


if __name__ == "__main__":
    numbers = [int(one) for one in sys.argv[1:] if one.isdigit()]
    asyncio.run(main((numbers or [WORKLOADS])[0], [one for one in sys.argv[1:] if not one.isdigit()]))
