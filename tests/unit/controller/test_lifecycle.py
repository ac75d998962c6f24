"""The lifecycle of a workload with the whole driver: ledger, engine, effects, and the ledger's clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from queuectl.controller import loop
from queuectl.core.decisions import Verdict
from queuectl.core.model.device_use import IdlePolicy, UseFinding, UseVerdict
from queuectl.core.model.events import DeviceUseFound
from queuectl.core.model.policy import LocalQueue, RequeuingStrategy, SchedulingConfiguration, StopPolicy
from queuectl.core.model.reasons import Code
from queuectl.core.model.usage_limits import LimitTarget
from queuectl.core.model.workload import Phase, Workload, WorkloadId
from tests.builders import GPU, T0, local_queue, pod_set, policy, priority, queue, workload
from tests.unit.controller.site import Site

A = workload("a", gpus=2)


def phase(site: Site, name: str = "a") -> Phase | None:
    stored = site.store.workloads.get(WorkloadId(f"uid-{name}"))
    return stored.phase if stored is not None else None


def code(site: Site, name: str = "a") -> Code | None:
    """The reason for which it is pending."""
    stored = site.store.workloads.get(WorkloadId(f"uid-{name}"))
    waits = stored is not None and stored.phase is Phase.PENDING
    return stored.reason.code if waits and stored is not None and stored.reason is not None else None


def verdicts(site: Site, name: str = "a") -> list[str]:
    return [row.verdict for row in site.store.decisions if row.ref is not None and row.ref.name == name]


def outcome(site: Site, name: str = "a") -> object:
    rows = [row for row in site.store.decisions if row.ref is not None and row.ref.name == name]
    return rows[-1].payload.get("outcome") if rows and rows[-1].verdict == Verdict.RETIRED else None


def evictions(site: Site, name: str = "a") -> list[Code]:
    rows = [row for row in site.store.decisions if row.ref is not None and row.ref.name == name]
    return [row.reason.code for row in rows if row.verdict == Verdict.EVICTED and row.reason is not None]


def used(site: Site) -> int:
    return sum(line.pods * line.amount for lines in site.store.holds.values() for line in lines)


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the controller read the ledger's clock again at once; each read advances it by a tick."""
    monkeypatch.setattr(loop, "_LONGEST_SLEEP", 0.002)


async def running(site: Site, *names: str) -> None:
    await site.until(lambda: site.cluster.running() == sorted(names))


async def test_a_workload_past_its_run_time_is_stopped_and_over_also_for_the_next_leader() -> None:
    site = Site(tick=10)
    one = replace(A, max_run_seconds=100)
    async with site.leading():
        site.cluster.submit(one)
        await site.until(lambda: outcome(site) == "TimedOut")
        assert evictions(site) == [Code.MAXIMUM_EXECUTION_TIME_EXCEEDED]
        assert (site.cluster.running(), used(site)) == ([], 0)
    async with site.leading():
        site.cluster.submit(workload("b", gpus=1))
        await running(site, "b")
    assert outcome(site) == "TimedOut"


async def test_an_event_says_that_the_pods_of_an_evicted_workload_do_not_end() -> None:
    site = Site(SchedulingConfiguration(terminating_alarm=30), tick=10)
    site.cluster.mute, site.cluster.patience = True, 1e9  # it is not said that the stop was seen
    async with site.leading():
        site.cluster.submit(replace(A, max_run_seconds=100))
        await site.until(lambda: any(one.reason == "StillTerminating" for one in site.cluster.notices))
    (said,) = (one for one in site.cluster.notices if one.reason == "StillTerminating")
    assert said.warning
    assert said.message.startswith("was evicted, and 30 s later not all of its pods have ended")


async def test_the_driver_sleeps_until_the_next_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    site = Site(tick=0)
    async with site.leading():
        site.cluster.submit(replace(A, max_run_seconds=1))
        await running(site, "a")
        before = site.ticks
        await site.until(lambda: outcome(site) == "TimedOut")
    assert site.ticks - before < 15, "it reads the clock when there is something to do, not to wait"
    at = {row.verdict: row.now for row in site.store.decisions}
    assert (at[Verdict.EVICTED] - at[Verdict.ADMITTED]).total_seconds() >= 1


async def test_run_time_adds_up_over_leaders_and_attempts() -> None:
    site = Site(tick=10)
    one = replace(A, max_run_seconds=1000)
    async with site.leading():
        site.cluster.submit(one)
        await running(site, "a")
        site.cluster.label(replace(one, hold=True))
        await site.until(lambda: code(site) is Code.ON_HOLD)
    before = site.store.workloads[one.id].past.run_ms
    assert 0 < before < 1000_000
    site.cluster.jobs[one.id].workload = one
    async with site.leading():
        await site.until(lambda: outcome(site) == "TimedOut")
    assert evictions(site) == [Code.USER_HOLD, Code.MAXIMUM_EXECUTION_TIME_EXCEEDED]
    second = [row for row in site.store.decisions if row.verdict == Verdict.ADMITTED][-1].now
    stopped = [row for row in site.store.decisions if row.verdict == Verdict.EVICTED][-1].now
    assert (stopped - second).total_seconds() * 1000 >= 1000_000 - before


async def test_a_workload_without_ready_pods_is_evicted_and_requeued_after_a_backoff() -> None:
    site = Site(
        SchedulingConfiguration(pods_ready_timeout=30, requeueing=RequeuingStrategy(base_seconds=20)), tick=5
    )
    async with site.leading():
        site.cluster.submit(A, workload("b", gpus=2, created=1))
        await running(site, "a")
        site.cluster.tell("a", ready=False)
        await running(site, "b")
        assert evictions(site) == [Code.PODS_READY_TIMEOUT]
        site.cluster.tell("a", ready=None)
        site.cluster.finish("b")
        await running(site, "a")
        site.cluster.tell("a", ready=True)
        await site.until(lambda: verdicts(site)[-1] == Verdict.AMENDED)
    assert site.store.workloads[A.id].past.failures == 0


async def test_the_next_leader_keeps_the_backoff() -> None:
    site = Site(
        SchedulingConfiguration(pods_ready_timeout=30, requeueing=RequeuingStrategy(base_seconds=3600)),
        tick=5,
    )
    async with site.leading():
        site.cluster.submit(A)
        await running(site, "a")
        site.cluster.tell("a", ready=False)
        await site.until(lambda: code(site) is Code.BACKING_OFF)
        site.cluster.tell("a", ready=None)
    until = site.store.workloads[A.id].past.until
    assert until is not None
    async with site.leading() as controller:
        await site.until(lambda: controller.ready)
        site.cluster.submit(workload("b", gpus=2, created=1))
        await running(site, "b")
        site.cluster.finish("b")
        await site.until(lambda: phase(site, "b") is None)
        assert code(site) is Code.BACKING_OFF
    site.jump_to(until)
    async with site.leading():
        await running(site, "a")


async def test_more_failures_than_allowed_deactivate_a_workload() -> None:
    site = Site(
        SchedulingConfiguration(pods_ready_timeout=30, requeueing=RequeuingStrategy(base_seconds=1, limit=1)),
        tick=5,
    )
    async with site.leading():
        site.cluster.submit(A)
        await running(site, "a")
        site.cluster.tell("a", ready=False)
        await site.until(lambda: code(site) is Code.DEACTIVATED)
    assert evictions(site) == [Code.PODS_READY_TIMEOUT] * 2


async def test_pods_that_have_ended_for_good_free_quota() -> None:
    site = Site()
    wide = workload("a", pods=[pod_set(2, {GPU: 1})])
    async with site.leading():
        site.cluster.submit(wide, workload("b", gpus=1, created=1))
        await running(site, "a")
        await site.until(lambda: code(site, "b") is Code.WAITING_FOR_QUOTA)
        site.cluster.tell("a", ended=1)
        await running(site, "a", "b")
        assert used(site) == 2
        site.cluster.finish("a")
        site.cluster.finish("b")
        await site.until(lambda: used(site) == 0)
    assert verdicts(site) == ["Queued", "Admitted", "Shrunk", "Retired"]


async def test_the_next_leader_holds_a_shrunk_workload_at_its_smaller_size() -> None:
    site = Site()
    async with site.leading():
        site.cluster.submit(workload("a", pods=[pod_set(2, {GPU: 1})]))
        await running(site, "a")
        site.cluster.tell("a", ended=1)
        await site.until(lambda: used(site) == 1)
    async with site.leading():
        site.cluster.submit(workload("b", gpus=1, created=1))
        await running(site, "a", "b")
    assert verdicts(site).count("Shrunk") == 1


async def test_a_new_priority_of_a_running_workload_is_in_the_ledger() -> None:
    site = Site()
    async with site.leading() as controller:
        controller.emit([priority("high", 9)])
        site.cluster.submit(A)
        await running(site, "a")
        site.cluster.label(replace(A, priority_class="high"))
        await site.until(lambda: site.store.workloads[A.id].priority == 9)
    assert (phase(site), verdicts(site)[-1]) == (Phase.ADMITTED, "Amended")


async def test_a_pending_workload_moves_to_another_queue() -> None:
    site = Site()
    site.policies += [queue("other", 2), local_queue("lo", "other")]
    async with site.leading():
        site.cluster.submit(workload("first", gpus=2, created=-1), A)
        await site.until(lambda: code(site) is Code.WAITING_FOR_QUOTA)
        site.cluster.label(replace(A, queue="lo"))
        await running(site, "a", "first")
    assert site.store.workloads[A.id].cluster_queue == "other"


async def stopped_by(how: StopPolicy, which: Callable[[StopPolicy], object]) -> Site:
    """A running workload and a pending one; then the queue is stopped, and resumed."""
    site = Site()
    waits: Workload = workload("b", gpus=2, created=1)
    async with site.leading() as controller:
        site.cluster.submit(A, waits)
        await running(site, "a")
        controller.emit([policy(which(how))])  # type: ignore[arg-type]
        await site.until(lambda: code(site, "b") is Code.SUSPENDED)
        if how is StopPolicy.HOLD_AND_DRAIN:
            await site.until(lambda: code(site) is Code.SUSPENDED)
            assert (site.cluster.running(), used(site)) == ([], 0)
        else:
            assert site.cluster.running() == ["a"]
            site.cluster.finish("a")
            await site.until(lambda: used(site) == 0)
        controller.emit([policy(which(StopPolicy.NONE))])  # type: ignore[arg-type]
        await running(site, "a" if how is StopPolicy.HOLD_AND_DRAIN else "b")
    return site


def a_local_queue(how: StopPolicy) -> LocalQueue:
    return local_queue("lq", "cq", stop=how)


async def test_a_held_queue_admits_nothing_and_stops_nothing() -> None:
    for which in (lambda how: queue("cq", 2, stop=how), a_local_queue):
        assert evictions(await stopped_by(StopPolicy.HOLD, which)) == []


async def test_a_drained_queue_stops_running_work_until_it_is_resumed() -> None:
    site = await stopped_by(StopPolicy.HOLD_AND_DRAIN, lambda how: queue("cq", 2, stop=how))
    assert evictions(site) == [Code.CLUSTER_QUEUE_STOPPED]
    site = await stopped_by(StopPolicy.HOLD_AND_DRAIN, a_local_queue)
    assert evictions(site) == [Code.LOCAL_QUEUE_STOPPED]


@pytest.mark.parametrize("cancels", [False, True])
async def test_idle_devices_are_told_and_then_stopped_by_the_next_leader_once_a_check_confirms_it(
    monkeypatch: pytest.MonkeyPatch, cancels: bool
) -> None:
    monkeypatch.setattr(loop, "_SAY_EVERY", 0.002)
    site = Site(tick=60)
    target = LimitTarget("ClusterQueue", "cq")
    site.policies.append(
        IdlePolicy(name="p", target=target, notify_after=600, hold_after=9000, cancels=cancels, dry_run=False)
    )

    def now() -> datetime:
        return T0 + timedelta(seconds=60 * site.ticks)

    def check() -> DeviceUseFound:
        idle = UseFinding(UseVerdict.IDLE, 2, 2, 1.0)
        return DeviceUseFound(A.id, 1, idle, now(), now() + timedelta(days=9))

    def told() -> set[str]:
        return {one.key for one in site.cluster.notices if one.reason == "IdleDevices"}

    async with site.leading() as controller:
        site.cluster.submit(A)
        await running(site, "a")
        controller.emit([check()])
        await site.until(lambda: len(told()) == 1)
    async with site.leading() as controller:
        late = now() + timedelta(seconds=9100)
        await site.until(lambda: now() > late)
        assert evictions(site) == []
        controller.emit([check()])
        if cancels:
            await site.until(lambda: outcome(site) == "Cancelled")
        else:
            await site.until(lambda: code(site) is Code.DEACTIVATED)
    assert evictions(site) == [Code.IDLE_CANCELLED if cancels else Code.IDLE_DEVICES]
    assert len(told()) == 1, "the next leader tells of the same notice, or of none"
    assert used(site) == 0
