"""The asyncio driver: order of writes, crashes at each boundary, fencing, unknown outcomes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace

import pytest

from queuectl.controller import commits, effects, loop
from queuectl.core.model.capacity import NO_FLAVOR, AwaitedLimit, PodDemand
from queuectl.core.model.events import (
    ContextGone,
    ContextObserved,
    PodObserved,
    PolicyInvalid,
    PolicyObserved,
    WorkloadGone,
)
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import Node, RequeuingStrategy, SchedulingConfiguration
from queuectl.core.model.reasons import Code
from queuectl.core.model.start_conditions import AfterOutcome, AfterWorkload, NamedWorkload, StartConditions
from queuectl.core.model.workload import AttemptState, WorkloadId, WorkloadOutcome
from queuectl.kinds.policy import policy_event
from queuectl.ports.ledger import LostLeadership
from tests.builders import GPU, local_queue, observed, queue, workload
from tests.unit.controller.fakes import PATIENCE, Crash, opened
from tests.unit.controller.site import DEADLINE, Site
from tests.unit.core.node_worlds import node


async def test_a_start_is_committed_before_it_is_sent() -> None:
    site = Site()
    async with site.leading():
        site.cluster.submit(workload("a"))
        await site.until(lambda: site.cluster.running() == ["a"])
    passed = [name for name in site.crashes.passed if name.endswith(("commit", "start"))]
    assert passed[:2] == ["before commit", "after commit"]
    assert passed.index("before start") > passed.index("after commit")


async def test_an_acknowledged_start_is_not_sent_again_by_the_next_leader() -> None:
    site = Site()
    async with site.leading():
        site.cluster.submit(workload("a"))
        await site.until(lambda: site.cluster.running() == ["a"])
    assert site.store.effects == {}
    async with site.leading() as controller:
        await site.until(lambda: controller.ready)
    assert site.crashes.passed.count("before start") == 1


async def test_a_pending_workload_gets_one_event_and_starts_when_quota_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "_SAY_EVERY", 0.001)
    site = Site()
    site.event_seconds = 0.0
    async with site.leading():
        site.cluster.submit(workload("a", gpus=2), workload("b", gpus=2, created=1))
        await site.until(lambda: "Pending" in [notice.reason for notice in site.cluster.notices])
        site.cluster.finish("a")
        await site.until(lambda: site.cluster.running() == ["b"])
    told = [(notice.ref.name, notice.reason) for notice in site.cluster.notices]
    assert sorted(told) == [("a", "Admitted"), ("b", "Admitted"), ("b", "Pending")]


async def test_a_workload_that_starts_soon_gets_no_event_for_having_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "_SAY_EVERY", 0.001)
    site = Site()
    site.event_seconds = 3600.0
    async with site.leading():
        site.cluster.submit(workload("a", gpus=2), workload("b", gpus=2, created=1))
        await site.until(lambda: any(one.reason is not None for one in site.store.workloads.values()))
        site.cluster.finish("a")
        await site.until(lambda: len(site.cluster.notices) == 2)
    assert [notice.reason for notice in site.cluster.notices] == ["Admitted", "Admitted"]


async def test_readers_learn_how_many_pods_are_ready_without_a_decision() -> None:
    site = Site()
    ready = site.store.pods_ready
    async with site.leading():
        site.cluster.submit(workload("a"))
        site.cluster.tell("a", pods_ready=0)
        await site.until(lambda: site.cluster.running() == ["a"])
        await site.until(lambda: [one.ready for _, one in ready.values()] == [0])
        decided = len(site.store.decisions)
        site.cluster.tell("a", pods_ready=1)
        await site.until(lambda: [one.ready for _, one in ready.values()] == [1])
        assert len(site.store.decisions) == decided
    async with site.leading():  # it may have changed while no controller led
        site.cluster.tell("a", pods_ready=2)
        await site.until(lambda: [one.ready for _, one in ready.values()] == [2])


async def test_readers_learn_of_capacity_and_demand_as_they_change() -> None:
    site = Site()
    async with site.leading():
        await site.until(lambda: set(site.store.capacities) == {NO_FLAVOR, "default"})
        site.cluster.submit(workload("a", gpus=2))
        await site.until(lambda: site.cluster.running() == ["a"])
        site.cluster.submit(workload("b", gpus=1, created=1))
        waits = PodDemand(
            flavor="default", awaits=AwaitedLimit.QUOTA, workloads=1, pods=1, requests=((GPU, 1),)
        )
        await site.until(lambda: [one.demand for _, one in site.store.demands.values()] == [(waits,)])
        site.cluster.emit([ContextObserved(node("n", 2))])
        await site.until(lambda: site.store.capacities["default"][1].nodes == (("Ready", 1),))
        site.cluster.finish("a")
        await site.until(lambda: [one.demand for _, one in site.store.demands.values()] == [()])
    assert {one.flavor for _, one in site.store.past_capacities} == {NO_FLAVOR, "default"}


async def test_readers_learn_of_nodes_as_they_change_and_a_new_leader_tells_only_what_differs() -> None:
    site = Site()

    def there() -> set[str]:
        return {name for name, (_, one) in site.store.nodes.items() if not one.gone}

    async with site.leading():
        site.cluster.emit([ContextObserved(node(name, 2)) for name in ("a", "b", "c")])
        await site.until(lambda: there() == {"a", "b", "c"})
        site.cluster.emit([ContextGone(Node, "c"), ContextObserved(node("a", 4))])
        await site.until(lambda: there() == {"a", "b"})
        assert site.store.nodes["a"][1].node == node("a", 4)
    before = site.store.nodes["a"]
    async with site.leading():
        site.cluster.emit([ContextObserved(node("a", 4)), ContextObserved(node("d", 2))])
        await site.until(lambda: there() == {"a", "d"})
    assert site.store.nodes["a"] == before


async def test_a_pod_that_is_not_scheduled_though_there_was_room_is_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "_SAY_EVERY", 0.001)
    site = Site()
    async with site.leading():
        site.cluster.emit([ContextObserved(node("n", 2))])
        site.cluster.submit(workload("a"))
        await site.until(lambda: site.cluster.running() == ["a"])
        lost = Pod(
            uid="p",
            namespace="ns",
            name="a-0",
            node=None,
            requests=((GPU, 1),),
            workload=WorkloadId("uid-a"),
            unschedulable="0/1 nodes are available",
        )
        site.cluster.emit([PodObserved(lost), PodObserved(replace(lost, uid="q", name="a-1"))])
        site.cluster.submit(workload("b", created=1))
        await site.until(lambda: site.cluster.running() == ["a", "b"])
        await site.until(lambda: len(site.cluster.notices) == 3)
    [said] = [one for one in site.cluster.notices if one.reason == "NotScheduled"]
    assert said.ref.name == "a"
    assert said.message == (
        "kube-scheduler places pod a-0 nowhere, though nodes had room: 0/1 nodes are available"
    )


async def test_ready_pods_that_cannot_be_stored_keep_no_decision_from_being_stored() -> None:
    site = Site()
    site.ledger.fails_pods = True
    async with site.leading():
        site.cluster.submit(workload("a"))
        await site.until(lambda: site.cluster.running() == ["a"])
        site.cluster.tell("a", pods_ready=1)
        await site.until(lambda: site.ledger.failed_pods > 0)
        site.cluster.submit(workload("b"))
        await site.until(lambda: site.cluster.running() == ["a", "b"])
    assert not site.store.pods_ready


async def test_a_new_leader_says_no_reason_again_that_did_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_SAY_EVERY", 0.001)
    site = Site()
    site.event_seconds = 0.0
    async with site.leading():
        waiting = [workload(f"b{number}", gpus=2, created=number + 1) for number in range(20)]
        site.cluster.submit(workload("a", gpus=2), *waiting)
        await site.until(lambda: len(site.cluster.notices) == 21)
    async with site.leading():
        site.cluster.delete("b19")
        await site.until(lambda: len(site.store.workloads) == 20)
    assert len(site.cluster.notices) == 21


async def test_an_unavailable_ledger_pauses_admission_and_nothing_else() -> None:
    site = Site()
    async with site.leading():
        site.cluster.submit(workload("a"))
        await site.until(lambda: site.cluster.running() == ["a"])
        site.ledger.unavailable = 2
        site.cluster.submit(workload("b"))
        await site.until(lambda: site.ledger.unavailable < 2)
        assert site.cluster.running() == ["a"]
        await site.until(lambda: site.cluster.running() == ["a", "b"])


async def test_a_leader_stops_while_the_ledger_is_unavailable_and_the_next_continues() -> None:
    site = Site()
    async with site.leading():
        site.cluster.submit(workload("a"))
        await site.until(lambda: site.cluster.running() == ["a"])
        site.ledger.unavailable = away = 1_000
        site.cluster.submit(workload("b"))
        await site.until(lambda: site.ledger.unavailable < away)
    assert site.cluster.running() == ["a"]
    site.ledger.unavailable = 0
    async with site.leading():
        await site.until(lambda: site.cluster.running() == ["a", "b"])
    assert site.cluster.jobs[workload("a").id].starts == [1]


async def test_a_refused_status_write_does_not_delay_other_queues() -> None:
    site = Site()
    site.policies += [local_queue("aa", "cq"), local_queue("zz", "cq")]
    site.cluster.refuses_status_of = "aa"
    async with site.leading():
        await site.until(lambda: {one.name.name for one in site.cluster.published} == {"lq", "zz"})
        site.cluster.refuses_status_of = ""
        await site.until(lambda: {one.name.name for one in site.cluster.published} == {"aa", "lq", "zz"})


async def test_a_defect_triggered_by_one_workload_does_not_stop_the_others() -> None:
    site = Site()
    site.cluster.defect = "a"
    async with site.leading():
        site.cluster.submit(workload("a"), workload("b"))
        await site.until(lambda: site.cluster.running() == ["b"])
    site.cluster.defect = ""
    async with site.leading():
        await site.until(lambda: site.cluster.running() == ["a", "b"])


async def test_a_commit_with_a_lost_response_is_stored_once_by_the_loop() -> None:
    site = Site()
    site.ledger.lost_acks = 3
    async with site.leading():
        site.cluster.submit(workload("a"))
        await site.until(lambda: site.cluster.running() == ["a"])
    assert site.cluster.jobs[workload("a").id].starts == [1]
    sequences = [row.sequence for row in site.store.decisions]
    assert sequences == list(range(1, len(sequences) + 1))


async def test_a_root_refused_by_the_ledger_is_frozen_and_reloaded_while_others_continue() -> None:
    site = Site()
    site.policies += [queue("bad", 2), local_queue("bad", "bad")]
    async with site.leading():
        site.cluster.submit(workload("x", "bad", gpus=2), workload("b", "bad", created=1))
        await site.until(lambda: site.cluster.running() == ["x"] and len(site.cluster.notices) == 1)
        site.ledger.refuses = "bad"
        site.cluster.finish("x")
        site.cluster.submit(workload("new", "bad", created=2), workload("a", "lq", created=3))
        await site.until(lambda: site.cluster.running() == ["a"])

        def told() -> bool:
            stored = {one.ref.name: one.reason for one in site.store.workloads.values()}
            reason = stored.get("b")
            return reason is not None and reason.code is Code.LEDGER_MISMATCH

        await site.until(told)
        site.cluster.finish("a")
        await site.until(lambda: "uid-a" not in site.store.workloads)
        site.ledger.refuses = None
        await site.until(lambda: site.cluster.running() == ["b", "new"])
    sequences = [row.sequence for row in site.store.decisions]
    assert sequences == list(range(1, len(sequences) + 1))


async def test_a_start_is_sent_once_when_the_api_server_is_back() -> None:
    site = Site()
    site.cluster.unavailable = 2
    async with site.leading():
        site.cluster.submit(workload("a"))
        await site.until(lambda: site.cluster.running() == ["a"])
    assert site.cluster.jobs[workload("a").id].starts == [1]


async def test_a_denied_start_frees_its_quota_and_is_retried_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(effects, "_FIRST_RETRY", 0.001)
    site = Site(SchedulingConfiguration(requeueing=RequeuingStrategy(base_seconds=1)))
    site.cluster.denies = "a"
    async with site.leading():
        site.cluster.submit(workload("a", gpus=2), workload("b", gpus=2, created=1))
        await site.until(lambda: site.cluster.running() == ["b"])
        site.cluster.denies = None
        site.cluster.finish("b")
        await site.until(lambda: site.cluster.running() == ["a"])
    assert site.cluster.jobs[workload("a").id].starts == [site.cluster.jobs[workload("a").id].attempt]


async def test_a_start_that_was_sent_before_it_was_given_up_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A former leader that stood still between its decision and its request, for example."""
    monkeypatch.setattr(effects, "_FIRST_RETRY", 0.001)
    site = Site(SchedulingConfiguration(requeueing=RequeuingStrategy(base_seconds=600)))
    async with site.leading():
        site.cluster.unanswered = 1
        site.cluster.submit(workload("a", gpus=2))
        await site.until(lambda: bool(site.cluster.late))
        site.cluster.denies = "a"
        site.cluster.submit(workload("b", gpus=2, created=1))
        await site.until(lambda: site.cluster.running() == ["b"])
        site.cluster.denies = None
        await site.cluster.arrive()
    assert site.cluster.running() == ["b"]


async def test_a_start_that_is_denied_once_after_an_outage_of_the_api_server_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While it restarts, an API server denies writes until it has read its rules."""
    monkeypatch.setattr(effects, "_FIRST_RETRY", 0.001)
    site = Site()
    async with site.leading():
        site.cluster.unavailable, site.cluster.denies, site.cluster.denials = 8, "a", 2
        site.cluster.submit(workload("a"))
        await site.until(lambda: site.cluster.running() == ["a"])
    assert site.cluster.jobs[workload("a").id].starts == [1]


async def test_a_deposed_leader_stores_nothing_and_ends() -> None:
    site = Site()
    controller = site.controller()
    controller.emit(site.listed())
    task = asyncio.ensure_future(controller.run())  # noqa: TID251 (it may be killed)
    await site.until(lambda: controller.ready)
    await site.memory.take_epoch("another")
    before = len(site.store.decisions)
    site.cluster.submit(workload("a"))
    with pytest.raises(BaseExceptionGroup) as raised:
        async with asyncio.timeout(DEADLINE):
            await task
    assert raised.group_contains(LostLeadership)
    assert len(site.store.decisions) == before
    assert site.cluster.running() == []


async def _rival(site: Site) -> None:
    site.cluster.submit(workload("a"))
    await site.until(lambda: site.cluster.running() == ["a"] and not site.store.effects)
    await site.memory.take_epoch("another")


async def test_a_deposed_leader_with_nothing_to_decide_detects_it_and_ends() -> None:
    site = Site()
    site.confirm_seconds = 0.01
    deposed = site.controller()
    deposed.emit(site.listed())
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(ExceptionGroup) as ended:
            await asyncio.gather(deposed.run(), _rival(site))
    assert ended.group_contains(LostLeadership)
    assert site.cluster.running() == ["a"]


async def test_a_hold_stops_a_running_workload_and_its_end_requeues_it() -> None:
    site = Site()
    async with site.leading():
        site.cluster.submit(workload("a"))
        await site.until(lambda: site.cluster.running() == ["a"])
        site.cluster.edit(workload("a", hold=True))
        await site.until(lambda: site.cluster.running() == [])
        site.cluster.edit(workload("a"))
        await site.until(lambda: site.cluster.running() == ["a"])
    assert site.cluster.jobs[workload("a").id].starts == [1, 2]


async def test_a_start_whose_outcome_is_not_known_is_settled_before_its_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise it may still arrive when its quota is given to another workload."""
    monkeypatch.setattr(effects, "_FIRST_RETRY", 0.05)
    site = Site()
    site.cluster.unanswered = 1
    async with site.leading():
        site.cluster.submit(workload("a", gpus=2), workload("b", gpus=2, created=1))
        await site.until(lambda: bool(site.cluster.late))
        site.cluster.label(workload("a", gpus=2, hold=True))
        await site.until(lambda: site.cluster.running() == ["b"])
        await site.cluster.arrive()
    assert site.cluster.running() == ["b"]


async def test_a_stop_does_not_wait_for_a_count_that_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "_FIRST_RETRY", 0.001)
    site = Site()
    async with site.leading():
        site.cluster.submit(workload("a"))
        await site.until(lambda: site.cluster.running() == ["a"] and not site.store.effects)
        site.cluster.counted = asyncio.Event()
        site.cluster.emit([WorkloadGone(workload("a").id)])  # it has lost its label
        await site.until(lambda: bool(site.cluster.counts))
        site.cluster.label(workload("a", hold=True))
        await site.until(lambda: bool(site.store.effects))
        site.cluster.counted.set()
        await site.until(lambda: site.cluster.running() == [])


async def _hold_the_first_of_two(site: Site) -> None:
    """Hold `a` while it runs; `b` waits for its quota."""
    site.cluster.submit(workload("a", gpus=2), workload("b", gpus=2, created=1))
    await site.until(lambda: site.cluster.running() == ["a"])
    site.cluster.edit(workload("a", gpus=2, hold=True))


async def test_quota_of_a_stopped_job_returns_when_its_status_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(effects, "_FIRST_RETRY", 1000.0)
    site = Site()
    site.cluster.mute = True
    async with site.leading():
        await _hold_the_first_of_two(site)
        await site.until(lambda: bool(site.cluster.counts))
        site.cluster.mute = False
        monkeypatch.setattr(effects, "_FIRST_RETRY", 0.0)
        site.cluster.tell("a", ready=0)
        await site.until(lambda: site.cluster.running() == ["b"])


async def _hold_with_a_silent_controller(site: Site) -> None:
    """Hold `a`, of which the controller says nothing: `b` gets its quota in the end."""
    site.cluster.mute = True
    async with site.leading():
        await _hold_the_first_of_two(site)
        await site.until(lambda: site.cluster.running() == ["b"])


async def test_a_controller_that_never_says_that_it_has_seen_a_stop_does_not_keep_quota_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(effects, "_FIRST_RETRY", 0.0)
    site = Site()
    await _hold_with_a_silent_controller(site)
    *waited, last = site.cluster.counts
    assert waited[0] == 0
    assert max(waited) < PATIENCE <= last


async def test_a_controller_is_not_silent_while_the_api_server_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(effects, "_FIRST_RETRY", 0.0)
    site = Site()
    site.cluster.away_at = 1
    await _hold_with_a_silent_controller(site)
    assert site.cluster.counts[:2] == [0, 0], "the time begins again"
    assert site.cluster.counts[-1] >= PATIENCE


async def test_a_job_deleted_while_it_runs_gives_its_quota_to_the_next() -> None:
    site = Site()
    async with site.leading():
        site.cluster.submit(workload("a", gpus=2), workload("b", gpus=2, created=1))
        await site.until(lambda: site.cluster.running() == ["a"])
        site.cluster.delete("a")
        await site.until(lambda: site.cluster.running() == ["b"])
    assert opened(await site.memory.load()) == {"b": AttemptState.ADMITTED}


# --- crashes at every boundary --------------------------------------------------------------------------


async def live(site: Site) -> None:
    """Three jobs in a queue for two: one is edited, one is held and resumed, all end."""
    if not site.cluster.jobs:
        site.cluster.submit(*(workload(name, created=n) for n, name in enumerate("abc")))
    begun = any(job.finished or job.stops for job in site.cluster.jobs.values())
    await site.until(lambda: begun or len(site.cluster.running()) == 2)
    if site.cluster.jobs[workload("a").id].stops == 0 and "a" in site.cluster.running():
        site.cluster.edit(workload("a", hold=True))
        await site.until(lambda: "a" not in site.cluster.running())
    if site.cluster.jobs[workload("a").id].workload.hold:
        site.cluster.edit(workload("a"))
    while not _over(site):
        await site.until(lambda: bool(site.cluster.running()) or _over(site))
        for name in site.cluster.running():
            if name != "a" or site.cluster.jobs[workload("a").id].stops:
                site.cluster.finish(name)
        await asyncio.sleep(0)
    await site.until(lambda: not site.store.workloads)


def _over(site: Site) -> bool:
    return all(job.finished for job in site.cluster.jobs.values())


async def _boundaries() -> int:
    site = Site()
    async with site.leading():
        await live(site)
    return len(site.crashes.passed)


async def _crash_and_go_on(at: int) -> tuple[Site, bool]:
    """Kill the first controller at boundary `at`, then let another one finish the job."""
    site = Site()
    site.crashes.at = at
    crashed = False
    with contextlib.suppress(Crash, BaseExceptionGroup):
        async with site.leading() as controller:
            living = asyncio.ensure_future(live(site))  # noqa: TID251 (it may be killed)
            await site.until(lambda: living.done() or len(site.crashes.passed) >= at)
            crashed = not living.done() or bool(living.exception())
            living.cancel()
            with contextlib.suppress(BaseException):
                await living
            assert controller is not None
    site.crashes.at = None
    async with site.leading():
        await live(site)
    return site, crashed


async def test_a_crash_at_any_boundary_loses_nothing_and_starts_nothing_twice() -> None:
    boundaries = await _boundaries()
    assert boundaries > 15
    hit = 0
    for at in range(1, boundaries + 1):
        site, crashed = await _crash_and_go_on(at)
        hit += crashed
        for job in site.cluster.jobs.values():
            # Each attempt was started at most once, and each start is in the ledger.
            assert job.starts == sorted(set(job.starts)), (at, site.crashes.passed[at - 1])
            assert job.finished
        sequences = [row.sequence for row in site.store.decisions]
        assert sequences == list(range(1, len(sequences) + 1))
        assert site.store.holds == {}, f"quota leaked after a crash at {site.crashes.passed[at - 1]}"
        assert site.store.effects == {}
    assert hit > boundaries / 2


async def test_while_the_ledger_is_unavailable_only_the_latest_of_each_job_is_kept() -> None:
    site = Site()
    async with site.leading() as controller:
        site.cluster.submit(workload("a"))
        await site.until(lambda: site.cluster.running() == ["a"])
        site.ledger.unavailable = 1_000_000
        site.cluster.submit(workload("b"))
        await site.until(lambda: site.ledger.unavailable < 1_000_000)
        one = workload("c")
        for _ in range(1000):
            controller.emit([observed(one)])
        assert len(controller._inbox) <= 4
        site.ledger.unavailable = 0
        await site.until(lambda: WorkloadId("uid-c") in site.store.workloads)


async def test_acknowledged_writes_are_stored_with_the_next_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "_ALONE", 3600.0)
    site = Site()
    async with site.leading() as controller:
        await site.until(lambda: bool(site.store.capacities and site.store.demands))
        site.cluster.submit(workload("a"))
        await site.until(lambda: site.cluster.running() == ["a"])
        await site.until(lambda: bool(controller._commits._acknowledged))
        before = site.crashes.passed.count("before commit")
        assert [key.workload for key in site.store.effects] == ["uid-a"]
        site.cluster.submit(workload("b"))
        await site.until(lambda: site.cluster.running() == ["a", "b"])
        assert [key.workload for key in site.store.effects] == ["uid-b"]
        assert site.crashes.passed.count("before commit") == before + 1


async def test_acknowledged_writes_are_stored_soon_if_nothing_is_decided() -> None:
    site = Site()
    async with site.leading():
        site.cluster.submit(workload("a"))
        await site.until(lambda: site.cluster.running() == ["a"])
        await site.until(lambda: not site.store.effects)


async def test_plans_are_further_apart_where_transactions_take_long() -> None:
    controller = Site().controller()
    pauses = []
    for seconds in (0.0, 0.01, 10.0):
        controller._commits._seconds = seconds
        pauses.append(controller._commits._pause)
    assert pauses == [0.02, 0.04, 0.1]


async def test_a_dependent_starts_by_the_outcome_in_the_ledger_when_the_object_is_gone() -> None:
    site = Site()
    async with site.leading():
        site.cluster.submit(workload("good"), workload("bad"))
        await site.until(lambda: site.cluster.running() == ["bad", "good"])
        site.cluster.finish("good")
        site.cluster.finish("bad", WorkloadOutcome.FAILED)
        await site.until(lambda: not site.store.workloads)
    async with site.leading():
        for name in ("good", "bad"):
            start = StartConditions(after=(AfterWorkload(AfterOutcome.OK, "Job", name),))
            site.cluster.submit(workload(f"after-{name}", start=start))
        await site.until(lambda: site.cluster.running() == ["after-good"])
        await site.until(lambda: site.store.workloads[WorkloadId("uid-after-bad")].reason is not None)
    reason = site.store.workloads[WorkloadId("uid-after-bad")].reason
    assert reason is not None
    assert reason.code is Code.DEPENDENCY_NEVER_SATISFIED


async def test_names_that_a_tenant_makes_up_are_read_between_decisions_about_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "_MOST_READ", 1)
    names = [AfterWorkload(AfterOutcome.OK, "Job", f"never-{n}") for n in range(16)]
    site, reads = Site(), 0
    outcomes = site.ledger.outcomes

    async def read(asked: Sequence[NamedWorkload]) -> Sequence[tuple[NamedWorkload, WorkloadOutcome | None]]:
        nonlocal reads
        assert len(asked) == 1
        reads += 1
        return await outcomes(asked)

    monkeypatch.setattr(site.ledger, "outcomes", read)
    async with site.leading():
        site.cluster.submit(
            workload("waits", start=StartConditions(after=tuple(names))), workload("other", created=1)
        )
        await site.until(lambda: any(one.attempt for one in site.store.workloads.values()))
        assert reads < len(names)
        await site.until(lambda: reads == len(names))


async def test_the_last_valid_spec_of_a_policy_object_stays_in_force_for_the_next_leader() -> None:
    def limit(running: object) -> PolicyObserved | PolicyInvalid:
        target, subject = {"kind": "ClusterQueue", "name": "cq"}, {"kind": "All"}
        spec = {"target": target, "subject": subject, "running": running}
        return policy_event({"kind": "UsageLimit", "metadata": {"name": "one"}, "spec": spec})

    site = Site()
    site.extra = [limit(1)]
    async with site.leading():
        site.cluster.submit(workload("a"))
        await site.until(lambda: site.cluster.running() == ["a"])
    site.extra = [limit("many")]
    assert isinstance(site.extra[0], PolicyInvalid)
    async with site.leading():
        site.cluster.submit(workload("b", created=1))
        await site.until(lambda: len(site.store.workloads) == 2)
        await site.until(lambda: all(one.attempt or one.reason for one in site.store.workloads.values()))
    reasons = [one.reason.code for one in site.store.workloads.values() if one.reason is not None]
    assert reasons == [Code.WAITING_FOR_USAGE_LIMIT]
