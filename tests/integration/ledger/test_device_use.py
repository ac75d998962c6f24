"""Verdicts about devices: a row for each change, and what was wasted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.app.idle import watch
from queuectl.core.decisions import Decision
from queuectl.core.model.workload import WorkloadId
from queuectl.ledger.read.device_use import LedgerDeviceUseReadings
from queuectl.ledger.write.device_use import LedgerDeviceUse
from queuectl.ports.idle import DeviceHolder, DeviceUse, UseFinding, UseVerdict
from queuectl.settings.idle import IdleSettings, PrometheusSettings
from tests.integration.ledger.edits import World
from tests.integration.ledger.plans import GPU, admit, enqueue, evict, plan, release, shrink, wid

KEY = (WorkloadId("one"), 1)
IDLE = UseFinding(UseVerdict.IDLE, 8, 8, 1.0, 0.0001, 0.0)
BUSY = UseFinding(UseVerdict.BUSY, 8, 0, 0.95, 0.9, 0.8)


class Site:
    def __init__(self, pool: AsyncEngine, cluster: str) -> None:
        self.records = LedgerDeviceUse(pool, cluster)
        self._readings = LedgerDeviceUseReadings(pool, cluster)
        self._pool = pool
        self._cluster = cluster

    async def sql(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        async with self._pool.begin() as connection:
            found = await connection.execute(text(statement), {"c": self._cluster, **values})
            return [tuple(row) for row in found] if found.returns_rows else []

    async def found(self) -> DeviceUse:
        return await self._readings.device_use()

    async def verdicts(self) -> dict[tuple[str, int], tuple[str, int, int]]:
        found = (await self.found()).verdicts
        return {
            (str(one.workload), one.attempt): (
                one.finding.verdict.value,
                one.finding.devices,
                one.finding.idle_devices,
            )
            for one in found
        }


@pytest.fixture
def site(pool: AsyncEngine, cluster: str) -> Site:
    return Site(pool, cluster)


class Pods:
    """A session with one pod, of workload `runs`."""

    async def pages(self, path: str, **asked: Any) -> AsyncIterator[Any]:
        labels = {"queuectl.dev/workload": wid("runs")}
        yield {"items": [{"metadata": {"namespace": "ns", "name": "runs-0", "labels": labels}}]}


async def test_the_task_beside_the_controller_records_what_prometheus_answers(
    site: Site, world: World, pool: AsyncEngine
) -> None:
    now = await world.ledger.now()
    decisions: list[Decision] = [enqueue("runs"), admit("runs", now=now)]
    await world.ledger.commit(plan(*decisions, now=now), (), epoch=world.epoch, batch="1")

    async def answer(request: web.Request) -> web.Response:
        query = str((await request.post())["query"])
        value = "60" if query.startswith("count") else "0"
        result = [
            {"metric": {"namespace": "ns", "pod": "runs-0", "UUID": str(number)}, "value": [1, value]}
            for number in range(8)
        ]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    app = web.Application()
    app.router.add_post("/api/v1/query", answer)
    async with TestServer(app) as server, asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        settings = IdleSettings(prometheus=PrometheusSettings(url=str(server.make_url("/"))))
        session: Any = Pods()
        told: list[tuple[str, UseFinding]] = []
        watching = tasks.create_task(watch(settings, pool, world.cluster, session, told.extend))
        while not (found := await site.verdicts()):
            await asyncio.sleep(0.01)
        watching.cancel()
    assert found == {("uid-runs", 1): ("Idle", 8, 8)}
    assert [(queue, one.verdict) for queue, one in told] == [("team-a", UseVerdict.IDLE)]


async def test_without_a_prometheus_nothing_is_checked(site: Site, pool: AsyncEngine, world: World) -> None:
    session: Any = Pods()
    await watch(IdleSettings(), pool, world.cluster, session, lambda _: None)
    assert (await site.found()).checked_at is None


async def test_before_the_first_check_nothing_is_known(site: Site) -> None:
    assert await site.found() == DeviceUse(None, None, [])


async def test_a_verdict_is_stored_when_it_changes(site: Site) -> None:
    for finding in (IDLE, IDLE._replace(engine=0.0002), IDLE, BUSY, IDLE):
        await site.records.store({KEY: finding}, None)
    rows = await site.sql(
        "SELECT verdict, until IS NULL, engine FROM queuectl.idle_verdict "
        "WHERE cluster_id = :c ORDER BY since"
    )
    assert rows == [
        ("Idle", False, 0.0001),
        ("Busy", False, 0.9),
        ("Idle", True, 0.0001),
    ]
    found = await site.found()
    assert found.checked_at is not None
    assert [(one.since <= found.checked_at, one.finding) for one in found.verdicts] == [(True, IDLE)]


async def test_an_attempt_that_is_not_judged_any_more_has_no_verdict_in_force(site: Site) -> None:
    other = (WorkloadId("two"), 1)
    await site.records.store({KEY: IDLE, other: BUSY}, None)
    await site.records.store({other: BUSY}, None)
    assert await site.verdicts() == {("two", 1): ("Busy", 8, 0)}
    await site.records.store({(WorkloadId("two"), 2): BUSY}, None)
    assert await site.verdicts() == {("two", 2): ("Busy", 8, 0)}
    await site.records.store({}, "Prometheus: HTTP 503")
    assert await site.verdicts() == {}
    assert (await site.found()).problem == "Prometheus: HTTP 503"


async def test_what_is_wasted_is_the_sum_of_all_verdicts_of_the_attempt(site: Site) -> None:
    """Idle devices times seconds, up to the last check: 8 for 100 s, none for 50 s, 3 for 10 s."""
    for finding in (IDLE, BUSY, BUSY._replace(idle_devices=3)):
        await site.records.store({KEY: finding}, None)
    now = (await site.found()).checked_at
    assert now is not None
    times = [(160, 60), (60, 10), (10, None)]
    stored = await site.sql("SELECT since FROM queuectl.idle_verdict WHERE cluster_id = :c ORDER BY since")
    for (since,), (begins, ends) in zip(stored, times, strict=True):
        changed: dict[str, Any] = {
            "old": since,
            "since": now - timedelta(seconds=begins),
            "until": None if ends is None else now - timedelta(seconds=ends),
        }
        await site.sql(
            "UPDATE queuectl.idle_verdict SET since = :since, until = :until "
            "WHERE cluster_id = :c AND since = :old",
            **changed,
        )
    assert [one.wasted for one in (await site.found()).verdicts] == [8 * 100 + 3 * 10]


async def test_admitted_attempts_that_hold_devices_are_judged(site: Site, world: World) -> None:
    now = await world.ledger.now()
    decisions: list[Decision] = [
        *(enqueue(name) for name in ("runs", "stops", "shrinks", "over")),
        *(admit(name, now=now) for name in ("runs", "stops", "shrinks", "over")),
        evict("stops"),
        shrink("shrinks", workers=1),
        evict("over"),
        release("over"),
    ]
    await world.ledger.commit(plan(*decisions, now=now), (), epoch=world.epoch, batch="1")
    held = {"runs": 8, "shrinks": 4}
    expected = [DeviceHolder(wid(name), 1, "team-a", devices, None) for name, devices in sorted(held.items())]
    for names in ([GPU], ["nvidia.com/*"], ["amd.com/gpu", "nvidia.com/g*"], [GPU, "nvidia.com/*"]):
        assert await site.records.holders(names) == expected
    for names in (["nvidia.com/gp"], ["nvidia.com/mig-*"], ["%"], ["amd.com/*"]):
        assert await site.records.holders(names) == []
