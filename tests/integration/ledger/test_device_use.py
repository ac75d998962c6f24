"""Which attempts hold devices, their last check, and verdicts in the row of the workload."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.app.idle import watch
from queuectl.core.decisions import Amend, Decision
from queuectl.core.model.device_use import DeviceUse, UseFinding, UseVerdict
from queuectl.core.model.events import DeviceUseFound
from queuectl.core.model.workload import Assignment, PastAttempts, PodSetAssignment
from queuectl.ledger.codec import past_from_json, past_to_json
from queuectl.ledger.device_use import LedgerDeviceUse
from queuectl.ports.idle import DeviceCheck, DeviceHolder
from queuectl.settings.idle import IdleSettings, PrometheusSettings
from tests.integration.ledger.edits import World
from tests.integration.ledger.plans import GPU, admit, enqueue, evict, plan, ref, release, shrink, wid


class Site:
    def __init__(self, pool: AsyncEngine, cluster: str) -> None:
        self.records = LedgerDeviceUse(pool, cluster)
        self._readings = LedgerDeviceUse(pool, cluster)

    async def found(self) -> DeviceCheck:
        return await self._readings.device_check()


@pytest.fixture
def site(pool: AsyncEngine, cluster: str) -> Site:
    return Site(pool, cluster)


class Pods:
    """A session with one pod, of workload `runs`."""

    async def pages(self, path: str, **asked: Any) -> AsyncIterator[Any]:
        labels = {"queuectl.dev/workload": wid("runs")}
        yield {"items": [{"metadata": {"namespace": "ns", "name": "runs-0", "labels": labels}}]}


async def test_the_task_beside_the_controller_tells_what_prometheus_answers(
    site: Site, world: World, pool: AsyncEngine
) -> None:
    now = await world.ledger.now()
    decisions: list[Decision] = [enqueue("runs"), admit("runs", now=now)]
    await world.ledger.commit(plan(*decisions, now=now), (), epoch=world.epoch, batch="1")

    async def answer(request: web.Request) -> web.Response:
        query = str((await request.post())["query"])
        value = "60" if "count_over_time" in query else "0"
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
        told = asyncio.Queue[list[tuple[str, DeviceUseFound]]]()
        watching = tasks.create_task(
            watch(settings, pool, world.cluster, session, lambda found: told.put_nowait(list(found)))
        )
        ((queue, event),) = await told.get()
        watching.cancel()
    assert (queue, event.workload, event.attempt) == ("team-a", wid("runs"), 1)
    assert event.finding == UseFinding(UseVerdict.IDLE, 8, 8, 1.0, 0.0, 0.0)
    assert await site.found() == DeviceCheck(event.at, None)
    assert event.until - event.at == timedelta(minutes=15)


async def test_without_a_prometheus_nothing_is_checked(site: Site, pool: AsyncEngine, world: World) -> None:
    session: Any = Pods()
    await watch(IdleSettings(), pool, world.cluster, session, lambda _: None)
    assert (await site.found()).checked_at is None


async def test_before_the_first_check_nothing_is_known(site: Site) -> None:
    assert await site.found() == DeviceCheck(None, None)


async def test_the_last_check_is_stored_with_the_time_of_the_ledger(site: Site) -> None:
    first = await site.records.store_check("Prometheus: HTTP 503", [GPU])
    assert await site.found() == DeviceCheck(first, "Prometheus: HTTP 503")
    second = await site.records.store_check(None, [GPU])
    assert second > first
    assert await site.found() == DeviceCheck(second, None)


async def test_a_verdict_is_read_again_as_it_was_decided(world: World) -> None:
    now = await world.ledger.now()
    finding = UseFinding(UseVerdict.HANG, 8, 8, 0.9 + 0.05, 1 / 3, None)
    use = DeviceUse(
        attempt=1,
        since=now,
        finding=finding,
        wasted_ms=2**40,
        idle_ms=7,
        idle_since=now - timedelta(seconds=3),
    )
    amend = Amend(wid("runs"), ref("runs"), 1, 0, PastAttempts(use=use))
    decisions: list[Decision] = [enqueue("runs"), admit("runs", now=now), amend]
    await world.ledger.commit(plan(*decisions, now=now), (), epoch=world.epoch, batch="1")
    (stored,) = (await world.ledger.load()).workloads
    assert stored.past.use == use
    # A verdict without what may be missing.
    again = DeviceUse(attempt=1, since=now, finding=UseFinding(UseVerdict.UNKNOWN, 8))
    assert past_from_json(past_to_json(PastAttempts(use=again))) == PastAttempts(use=again)


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
    expected = [
        DeviceHolder(ref(name).namespace, wid(name), 1, "team-a", devices, None)
        for name, devices in sorted(held.items())
    ]
    for names in ([GPU], ["nvidia.com/*"], ["amd.com/gpu", "nvidia.com/g*"], [GPU, "nvidia.com/*"]):
        assert await site.records.holders(names) == expected
    for names in (["nvidia.com/gp"], ["nvidia.com/mig-*"], ["%"], ["amd.com/*"]):
        assert await site.records.holders(names) == []


async def test_what_one_attempt_holds_beyond_all_numbers_hides_no_other(site: Site, world: World) -> None:
    now = await world.ledger.now()
    most = 2**63 - 1
    top = PodSetAssignment(name="main", count=most, requests=((GPU, most),), flavors=((GPU, "a100"),))
    huge = admit("huge", now=now)
    assignment = Assignment(cluster_queue="team-a", pod_sets=(top,))
    decisions: list[Decision] = [
        *(enqueue("huge"), enqueue("runs"), admit("runs", now=now)),
        replace(huge, attempt=replace(huge.attempt, assignment=assignment)),
    ]
    await world.ledger.commit(plan(*decisions, now=now), (), epoch=world.epoch, batch="1")
    holders = [(one.workload, one.devices) for one in await site.records.holders([GPU])]
    assert holders == [(wid("huge"), most), (wid("runs"), 8)]
