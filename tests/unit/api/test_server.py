"""The server: addresses, shutdown, and robustness."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal

import aiohttp
import pytest
import trustme

from queuectl.answers.what_if.engines import TriedWhatIfs
from queuectl.api.authorization import Reviewer
from queuectl.api.server import serve
from tests.job_kinds import JOB_KINDS
from tests.unit.api.canned import AWAY, CannedReadings, two_teams, workload
from tests.unit.api.conftest import KEY, Clock
from tests.unit.api.reviews import CannedReviews


@asynccontextmanager
async def serving(readings: CannedReadings, **how: Any) -> AsyncIterator[str]:
    """Base URL of a server; `how`: arguments of `serve`."""
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(
            serve(
                readings,
                kinds=JOB_KINDS,
                what_ifs=TriedWhatIfs(),
                address=("127.0.0.1", 0),
                cursor_key=KEY,
                refresh_seconds=0.01,
                started=started.set_result,
                **how,
            )
        )
        yield await started
        task.cancel()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", ""])
async def test_beyond_loopback_the_server_listens_only_with_identity_and_tls(host: str) -> None:
    reviewer = Reviewer(CannedReviews(), ["queuectl"], Clock())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pytest.raises(ValueError, match="not loopback: clients must authenticate"):
        await served(address=(host, 0), cursor_key=KEY)
    with pytest.raises(ValueError, match="not loopback: clients must authenticate"):
        await serve(
            two_teams(), kinds=JOB_KINDS, what_ifs=TriedWhatIfs(), address=(host, 0), cursor_key=KEY, tls=tls
        )
    with pytest.raises(ValueError, match="without TLS"):
        await serve(
            two_teams(),
            kinds=JOB_KINDS,
            what_ifs=TriedWhatIfs(),
            address=(host, 0),
            cursor_key=KEY,
            reviewer=reviewer,
        )


served = partial(serve, two_teams(), kinds=JOB_KINDS, what_ifs=TriedWhatIfs())


async def test_with_tls_the_server_answers_only_over_tls_and_under_any_name() -> None:
    authority, reviews = trustme.CA(), CannedReviews()
    reviews.tenant("alice", "default")
    tls, trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.configure_trust(trust)
    reviewer = Reviewer(reviews, ["queuectl"], Clock())
    async with serving(two_teams(), reviewer=reviewer, tls=tls) as url:
        assert url.startswith("https://127.0.0.1:")
        headers = {"Authorization": "Bearer alice", "Host": "queuectl-api.queuectl-system.svc"}
        async with aiohttp.ClientSession(url, headers=headers) as client:
            async with client.get("/api/v1/workloads", ssl=trust) as answer:
                assert answer.status == 200
            with pytest.raises(aiohttp.ClientError):
                await client.get(url.replace("https", "http") + "/healthz")


async def test_responses_are_reported_by_route_and_code() -> None:
    class Noting:
        def __init__(self) -> None:
            self.answers: Counter[tuple[str, int]] = Counter()
            self.reviews: Counter[tuple[str, bool]] = Counter()

        def answered(self, endpoint: str, code: int, seconds: float) -> None:
            assert seconds >= 0
            self.answers[endpoint, code] += 1

        def reviewed(self, kind: Literal["token", "access"], remembered: bool) -> None:
            self.reviews[kind, remembered] += 1

    noted, reviews = Noting(), CannedReviews()
    reviews.tenant("alice", "default")
    reviewer = Reviewer(reviews, ["queuectl"], Clock(), observer=noted)
    one = "/api/v1/workloads/{namespace}/{kind}/{name}"
    async with (
        serving(two_teams(), reviewer=reviewer, observer=noted) as url,
        aiohttp.ClientSession(url, headers={"Authorization": "Bearer alice"}) as client,
    ):
        for path in ("default/job/waits", "default/job/waits", "other/job/waits", "default/job/x y"):
            await client.get(f"/api/v1/workloads/{path}")
        await client.get("/a/b/c")
        await client.post("/api/v1/workloads")
        await client.get("/api/v1/workloads", headers={"Authorization": "Bearer nobody"})
    assert noted.answers == {
        (one, 200): 2,
        (one, 404): 2,
        ("other", 404): 1,
        ("other", 405): 1,
        ("/api/v1/workloads", 401): 1,
    }
    assert noted.reviews["access", True] >= 1
    assert noted.reviews["token", False] == 2


async def test_a_port_in_use_is_an_error_at_once() -> None:
    async with serving(two_teams()) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(OSError, match=str(port)):
            await serve(
                two_teams(),
                kinds=JOB_KINDS,
                what_ifs=TriedWhatIfs(),
                address=("127.0.0.1", port),
                cursor_key=KEY,
            )


async def test_the_server_keeps_reading_the_ledger_and_survives_its_outage() -> None:
    readings = two_teams()
    async with serving(readings) as url, aiohttp.ClientSession(url) as client:

        async def look(path: str) -> tuple[int, dict[str, object]]:
            async with client.get(path) as answer:
                return answer.status, await answer.json(content_type=None)

        readings.down = AWAY
        while "stale" not in (await look("/api/v1/workloads"))[1]:
            await asyncio.sleep(0.005)
        assert (await look("/readyz"))[0] == 200
        readings.down = None
        readings.commit(workload("news", 70))
        while (await look("/api/v1/workloads/default/job/news"))[0] != 200:
            await asyncio.sleep(0.005)
