"""A controller that waits for the Lease has read the cluster when it gets it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from queuectl.app.controller import ControllerParts, Startup, lead_once
from queuectl.app.kinds import job_kinds
from queuectl.kinds.labels import OWN
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.session import Session
from queuectl.kube.transport import Response, Transport
from queuectl.metrics.registry import Metrics
from queuectl.settings import Settings
from tests.doubles.ledger import MemoryLedger, MemoryStore
from tests.integration.kube.sites import SITES, Site, jobs
from tests.walks import _furnish

SETTINGS = Settings.model_validate({"kinds": ["Pod"]})
KINDS = job_kinds(SETTINGS)


class Held:
    """A Lease of another process, until `free` is set."""

    def __init__(self) -> None:
        self.free = asyncio.Event()

    async def acquire(self) -> None:
        await self.free.wait()

    async def lost(self) -> None:
        await asyncio.Event().wait()

    async def release(self) -> None:
        return


class Lists:
    """Carries requests, and counts the lists of Jobs."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.number = 0

    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, *, stream: bool
    ) -> Response:
        self.number += method == "GET" and not stream and target.startswith("/apis/batch/v1/jobs")
        return await self._inner.request(method, target, headers, body, stream=stream)

    async def close(self) -> None:
        return None


@pytest.mark.asyncio
async def test_a_takeover_lists_no_jobs(tmp_path: Path) -> None:
    async with asyncio.timeout(60), SITES["in_process"](tmp_path) as site:
        await _furnish(site)
        await site.job("before")
        lists, lease, startup = Lists(site.session._transport), Held(), Startup()
        session = Session(lists, site.session._identity)
        parts = ControllerParts(
            key="cluster",
            honoured=OWN,
            ledger=MemoryLedger(lambda: datetime(2026, 11, 21, 10, tzinfo=UTC), MemoryStore()),
            cluster=KubeCluster(session, KINDS.registry),
            receiver=lambda emit: emit,
            lease=lease,
        )
        async with asyncio.TaskGroup() as tasks:
            standby = tasks.create_task(lead_once(SETTINGS, KINDS, parts, session, Metrics(), startup))
            assert startup.unready() is not None
            await _ready(startup)
            assert (startup.stands_by, lists.number) == (True, 1)
            await site.job("while-it-stands-by")
            await site.job("gone")
            await site.session.delete(jobs("gone"))
            lease.free.set()
            while await _waiting(site):
                await asyncio.sleep(0)
            await _ready(startup)
            assert (startup.stands_by, lists.number) == (False, 1)
            startup.stop(standby)
            assert await standby is False


async def _ready(startup: Startup) -> None:
    while startup.unready() is not None:
        await asyncio.sleep(0)


async def _waiting(site: Site) -> bool:
    items = (await site.session.get(jobs()))["items"]
    assert len(items) == 2
    return any(job["spec"]["suspend"] for job in items)
