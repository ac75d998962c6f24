"""The server as a process has it: where it listens, how it ends, what it survives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from queuectl.api.server import serve
from tests.api.canned import AWAY, CannedReadings, two_teams, workload
from tests.api.conftest import KEY


@asynccontextmanager
async def serving(readings: CannedReadings, host: str = "127.0.0.1") -> AsyncIterator[str]:
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(
            serve(
                readings,
                host=host,
                port=0,
                cursor_key=KEY,
                refresh_seconds=0.01,
                started=started.set_result,
            )
        )
        yield await started
        task.cancel()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", ""])
async def test_it_listens_on_loopback_only(host: str) -> None:
    with pytest.raises(ValueError, match="not loopback"):
        await serve(two_teams(), host=host, port=0, cursor_key=KEY)


async def test_a_port_in_use_is_an_error_at_once() -> None:
    async with serving(two_teams()) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(OSError, match=str(port)):
            await serve(two_teams(), host="127.0.0.1", port=port, cursor_key=KEY)


async def test_it_keeps_looking_for_news_and_survives_a_ledger_that_is_away() -> None:
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
