"""A controller that waits for the Lease has read the cluster when it gets it, and lists what is new since."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from queuectl.app.controller import ControllerParts, Startup, lead_once
from queuectl.app.kinds import job_kinds
from queuectl.kinds import workloads
from queuectl.kinds.jobs import JobKind
from queuectl.kinds.labels import OWN
from queuectl.kube import sources
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
    """Carries requests, and counts lists of Jobs. Where it is silent, watches of Jobs are not answered."""

    def __init__(self, inner: Transport, silent: bool) -> None:
        self._inner = inner
        self._silent = silent
        self.number = 0

    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, *, stream: bool
    ) -> Response:
        jobs = target.startswith("/apis/batch/v1/jobs")
        self.number += method == "GET" and not stream and jobs
        if stream and jobs and self._silent:
            await asyncio.Event().wait()
        return await self._inner.request(method, target, headers, body, stream=stream)

    async def close(self) -> None:
        return None


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.asyncio
async def test_a_takeover_lists_again_and_reads_only_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    metadata: list[dict[str, str]] = []
    observe = workloads.observe

    def seen(kind: JobKind, obj: dict[str, Any], *rest: Any, **more: Any) -> Any:
        metadata.append(obj["metadata"])
        return observe(kind, obj, *rest, **more)

    monkeypatch.setattr(sources, "observe", seen)
    async with asyncio.timeout(60), SITES["in_process"](tmp_path) as site:
        await _furnish(site)
        await site.job("before")
        async with asyncio.TaskGroup() as tasks:
            lists, lease, startup, standby = _process(site, tasks, MemoryStore(), silent=silent)
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
            assert (startup.stands_by, lists.number) == (False, 2)
            read = [(seen["name"], seen["resourceVersion"]) for seen in metadata]
            assert sorted(set(read)) == sorted(read), "an object was read twice"
            assert {name for name, _ in read} >= {"before", "while-it-stands-by"}
            startup.stop(standby)
            assert await standby is False


@pytest.mark.asyncio
async def test_who_takes_over_from_a_leader_that_has_stopped_lists_no_job_again(tmp_path: Path) -> None:
    store = MemoryStore()

    async with asyncio.timeout(60), SITES["in_process"](tmp_path) as site, asyncio.TaskGroup() as tasks:
        await _furnish(site)

        _, held, first, leader = _process(site, tasks, store)
        held.free.set()
        await _ready(first)
        lists, lease, second, standby = _process(site, tasks, store)
        await _ready(second)
        await site.job("before")
        while await _waiting(site, number=1):
            await asyncio.sleep(0)
        await site.job("after")
        first.stop(leader)
        assert await leader is False
        lease.free.set()
        while await _waiting(site):
            await asyncio.sleep(0)
        await _ready(second)
        assert lists.number == 1
        assert store.read_up_to[1]
        second.stop(standby)
        assert await standby is False


def _process(
    site: Site, tasks: asyncio.TaskGroup, store: MemoryStore, *, silent: bool = False
) -> tuple[Lists, Held, Startup, asyncio.Task[bool]]:
    """A controller that waits for a Lease."""
    lists, lease, startup = Lists(site.session._transport, silent), Held(), Startup()
    session = Session(lists, site.session._identity)
    parts = ControllerParts(
        key="cluster",
        honoured=OWN,
        ledger=MemoryLedger(lambda: datetime(2026, 11, 21, 10, tzinfo=UTC), store),
        cluster=KubeCluster(session, KINDS.registry),
        receiver=lambda emit: emit,
        lease=lease,
    )
    leading = lead_once(SETTINGS, KINDS, parts, session, Metrics(), startup)
    return lists, lease, startup, tasks.create_task(leading)


async def _ready(startup: Startup) -> None:
    while startup.unready() is not None:
        await asyncio.sleep(0)


async def _waiting(site: Site, number: int = 2) -> bool:
    items = (await site.session.get(jobs()))["items"]
    assert len(items) == number
    return any(job["spec"]["suspend"] for job in items)
