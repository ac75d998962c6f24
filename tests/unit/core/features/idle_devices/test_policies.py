"""IdlePolicies: a notice, then a hold; a dry run does nothing (I1 to I5)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from queuectl.core.decisions import Amend, Decision, Evict, Retire
from queuectl.core.model.device_use import DeviceUse, IdleNotice, IdlePolicy, UseFinding, UseVerdict
from queuectl.core.model.events import (
    DeviceUseFound,
    EffectSettled,
    Listed,
    PodsCounted,
    PolicyGone,
    Result,
    TimeCame,
)
from queuectl.core.model.policy import Cohort, Preemption, PreemptionPolicy
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.usage_limits import LimitTarget
from queuectl.core.model.workload import ConfigKey, WorkloadId, WorkloadOutcome
from queuectl.kinds.stop_annotations import recorded_stop, render_stop
from tests.builders import World, local_queue, observed, policy, priority, queue, workload
from tests.doubles import engine_state

A = WorkloadId("uid-a")
TARGET = LimitTarget("ClusterQueue", "cq")
HOLDS = IdlePolicy(name="p", target=TARGET, notify_after=600, hold_after=1000, dry_run=False)
TELLS = replace(HOLDS, hold_after=None)
TRIES = replace(HOLDS, dry_run=True)
NO_END = datetime.max.replace(tzinfo=UTC)
IDLE = UseFinding(UseVerdict.IDLE, 4, 4, 0.98)
HANG = UseFinding(UseVerdict.HANG, 4, 4, 0.98)
BUSY = UseFinding(UseVerdict.BUSY, 4)
UNKNOWN = UseFinding(UseVerdict.UNKNOWN, 4)


def running(*policies: IdlePolicy) -> World:
    """A world in which workload `a` runs with 4 GPUs."""
    world = World(
        queue("cq", 4, cohort="c"), Cohort(name="c", parent="all"), local_queue("lq", "cq"), *policies
    )
    world.submit(workload("a", gpus=4))
    world.run()
    world.settle()
    world.tell(observed(workload("a", gpus=4), suspended=False, generation=2))
    assert world.run() == []
    return world


def find(world: World, finding: UseFinding, *, lasts: float = 3600) -> list[Decision]:
    """Tell of a finding now, and return what is decided."""
    world.tell(DeviceUseFound(A, 1, finding, world.now, world.now + timedelta(seconds=lasts)))
    world.pass_time(0)
    return world.run()


def after(world: World, seconds: float) -> list[Decision]:
    world.pass_time(seconds)
    return world.run()


def use(world: World) -> DeviceUse:
    found = engine_state.state(world.engine).entries[A].past.use
    assert found is not None
    return found


def notice(world: World) -> IdleNotice | None:
    return use(world).notice


def told(world: World) -> list[str]:
    return [alarm.message for alarm in world.engine.take_alarms()]


def test_a_notice_is_given_and_then_the_workload_is_held_until_its_user_acts() -> None:
    world = running(HOLDS)
    find(world, IDLE)
    assert after(world, 599) == []
    assert told(world) == []
    assert [type(one) for one in after(world, 1)] == [Amend]
    assert notice(world) == IdleNotice(
        policy="p", at=world.now, hold_at=world.now + timedelta(seconds=400), dry_run=False
    )
    assert told(world) == [
        "leaves devices idle: 4 of 4 are Idle since 2030-01-01T00:00:00Z, coverage 98 %; IdlePolicy/p stops "
        "and holds it at 2030-01-01T00:16:40Z unless they work before, and preemption chooses it first"
    ]
    assert after(world, 399) == []
    (evicted,) = after(world, 1)
    assert isinstance(evicted, Evict)
    assert (evicted.reason.code, evicted.reason.node) == (Code.IDLE_DEVICES, "IdlePolicy/p")
    assert evicted.reason.detail == (
        "4 of 4 are Idle since 2030-01-01T00:00:00Z, coverage 98 %, notice was given at 2030-01-01T00:10:00Z"
    )
    world.settle(generation=3)
    world.tell(observed(workload("a", gpus=4), suspended=True, generation=3, quiet=True))
    world.run()
    for probe in world.probes:
        world.tell(PodsCounted(probe.workload, probe.attempt, alive=False))
    world.run()
    reason = world.reason("a")
    assert reason is not None
    assert (reason.code, reason.node) == (Code.DEACTIVATED, "IdlePolicy/p")
    assert (reason.detail or "").startswith("4 of 4 are Idle since ")
    assert after(world, 10**6) == []
    held = workload("a", gpus=4, hold=True)
    world.tell(observed(held, suspended=True, generation=3, quiet=True))
    world.run()
    world.tell(observed(workload("a", gpus=4), suspended=True, generation=3, quiet=True))
    assert [type(one).__name__ for one in world.run()] == ["Admit"]


def test_another_class_leaves_no_policy_of_the_class_of_the_admission() -> None:
    world = running(replace(HOLDS, target=LimitTarget("WorkloadPriorityClass", "default")))
    world.tell(priority("other", 5))
    find(world, IDLE)
    after(world, 600)
    other = workload("a", gpus=4, priority_class="other")
    world.tell(observed(other, suspended=False, generation=2))
    world.run()
    assert notice(world) is not None
    assert [type(one) for one in after(world, 400)] == [Evict]


def test_a_dry_run_records_what_would_be_done_and_does_nothing() -> None:
    world = running(TRIES)
    find(world, IDLE)
    after(world, 600)
    given = world.now
    assert notice(world) == IdleNotice(
        policy="p", at=given, hold_at=given + timedelta(seconds=400), dry_run=True
    )
    assert [type(one) for one in after(world, 400)] == [Amend]
    found = notice(world)
    assert found is not None
    assert found.held_at == world.now
    assert after(world, 10**6)[1:] == []  # the finding is too old by then: it is unknown
    assert told(world) == []


def test_after_a_notice_a_workload_is_cancelled_and_over() -> None:
    world = running(replace(HOLDS, cancels=True))
    find(world, IDLE)
    after(world, 600)
    assert "IdlePolicy/p cancels it at 2030-01-01T00:16:40Z unless" in told(world)[0]
    (evicted,) = after(world, 400)
    assert isinstance(evicted, Evict)
    assert (evicted.reason.code, evicted.reason.node) == (Code.IDLE_CANCELLED, "IdlePolicy/p")
    (effect,) = world.engine.take_effects()
    record = render_stop(effect)
    world.tell(EffectSettled(effect.key, Result.DONE, 3))
    stopped = recorded_stop(record, A)
    assert stopped is not None
    state = {"suspended": True, "generation": 3, "quiet": True, "stopped": stopped}
    world.tell(observed(workload("a", gpus=4), **state))
    world.run()
    for probe in world.probes:
        world.tell(PodsCounted(probe.workload, probe.attempt, alive=False))
    (retired,) = world.run()
    assert retired == Retire(A, evicted.ref, 1, WorkloadOutcome.CANCELLED)
    world.tell(observed(workload("a", gpus=4), **state))
    assert world.run() == []  # also by a process that does not know it


def test_a_notice_of_a_hold_is_none_of_a_cancellation() -> None:
    world = running(HOLDS)
    find(world, IDLE)
    after(world, 600)
    world.tell(policy(replace(HOLDS, cancels=True)))
    world.run()
    after(world, 399)
    assert notice(world) == IdleNotice(
        policy="p",
        at=world.now - timedelta(seconds=399),
        hold_at=world.now + timedelta(seconds=1),
        cancels=True,
        dry_run=False,
    )


LOWERS = replace(TELLS, lower_after=1000, lower_class="scavenge")


def priorities(world: World) -> list[int]:
    """Return the priorities that the ledger had for the workload while it ran, in order, without repeats."""
    found = [one.priority for one in world.decided if isinstance(one, Amend)]
    return [one for one, before in zip(found, [0, *found], strict=False) if one != before]


def test_after_a_notice_it_has_a_lower_priority_until_it_works_again() -> None:
    world = running(LOWERS)
    world.tell(priority("scavenge", -10))
    find(world, IDLE)
    after(world, 600)
    assert told(world) == [
        "leaves devices idle: 4 of 4 are Idle since 2030-01-01T00:00:00Z, coverage 98 %; IdlePolicy/p lowers "
        "its priority at 2030-01-01T00:16:40Z unless they work before, and preemption chooses it first"
    ]
    after(world, 399)
    assert priorities(world) == []
    after(world, 1)
    assert priorities(world) == [-10]
    find(world, UNKNOWN)
    assert priorities(world) == [-10]
    find(world, BUSY)
    assert priorities(world) == [-10, 0]


@pytest.mark.parametrize(
    ("changed", "exists"), [(LOWERS, False), (replace(LOWERS, dry_run=True), True), (TELLS, True)]
)
def test_nothing_is_lowered_without_its_class_or_in_a_dry_run(changed: IdlePolicy, exists: bool) -> None:
    world = running(changed)
    if exists:
        world.tell(priority("scavenge", -10))
    find(world, IDLE, lasts=10**6)
    after(world, 5000)
    after(world, 5000)
    assert priorities(world) == []


def test_what_is_lowered_has_its_own_priority_without_its_policy() -> None:
    world = running(LOWERS)
    world.tell(priority("scavenge", -10))
    find(world, IDLE)
    after(world, 600)
    after(world, 400)
    world.tell(PolicyGone(ConfigKey("IdlePolicy", "", "p")))
    world.run()
    assert priorities(world) == [-10, 0]


def test_what_a_dry_run_recorded_is_no_notice_when_it_is_over() -> None:
    world = running(TRIES)
    find(world, IDLE)
    after(world, 600)
    after(world, 400)
    world.tell(policy(HOLDS))
    assert [type(one) for one in world.run()] == [Amend]
    assert len(told(world)) == 1
    assert after(world, 399) == []
    assert [type(one) for one in after(world, 1)] == [Evict]


def test_a_policy_without_a_hold_tells_once() -> None:
    world = running(TELLS)
    find(world, HANG)
    assert [type(one) for one in after(world, 600)] == [Amend]
    (message,) = told(world)
    assert message == (
        "leaves devices idle: 4 of 4 are Hang since 2030-01-01T00:00:00Z, coverage 98 %; IdlePolicy/p asks "
        "to end what does not need them, and preemption chooses it first"
    )
    for _ in range(9):
        world.pass_time(3000)
        assert find(world, HANG) == []
    assert told(world) == []


def test_time_stands_still_while_the_verdict_is_unknown() -> None:
    world = running(HOLDS)
    find(world, IDLE)
    world.pass_time(300)
    find(world, UNKNOWN)
    assert after(world, 3000) == []
    find(world, IDLE)
    assert after(world, 299) == []
    assert [type(one) for one in after(world, 1)] == [Amend]
    find(world, UNKNOWN)
    assert after(world, 3000) == [], "nothing is held while nothing is known"
    find(world, IDLE)
    assert after(world, 399) == []
    assert [type(one) for one in after(world, 1)] == [Evict]


def test_work_ends_the_notice_and_the_next_idleness_is_told_anew() -> None:
    world = running(HOLDS)
    find(world, IDLE)
    after(world, 600)
    find(world, BUSY)
    assert notice(world) is None
    find(world, IDLE)
    assert after(world, 599) == []
    after(world, 1)
    assert len(told(world)) == 1
    assert after(world, 399) == []
    assert [type(one) for one in after(world, 1)] == [Evict]


def test_a_finding_that_no_check_confirms_leads_to_nothing() -> None:
    world = running(HOLDS)
    find(world, IDLE, lasts=900)
    after(world, 600)
    assert [type(one) for one in after(world, 400)] == [Amend]  # it became unknown at 900 s
    assert use(world).finding.verdict is UseVerdict.UNKNOWN


def test_the_time_between_notice_and_hold_begins_when_the_notice_is_decided() -> None:
    """The ledger was unavailable when the notice was due."""
    world = running(HOLDS)
    find(world, IDLE)
    world.now += timedelta(seconds=600)
    world.tell(TimeCame(world.now))
    world.now += timedelta(seconds=500)
    world.run()
    found = notice(world)
    assert found is not None
    assert (found.at, found.hold_at) == (world.now, world.now + timedelta(seconds=400))
    assert after(world, 399) == []
    assert [type(one) for one in after(world, 1)] == [Evict]


def test_a_shorter_time_does_not_hold_before_the_notice_said() -> None:
    world = running(replace(HOLDS, hold_after=2000))
    find(world, IDLE)
    after(world, 600)
    world.tell(policy(HOLDS))
    assert world.run() == []
    assert after(world, 1399) == []
    assert [type(one) for one in after(world, 1)] == [Evict]


@pytest.mark.parametrize(
    "target",
    [
        LimitTarget("ClusterQueue", "cq"),
        LimitTarget("LocalQueue", "lq", "ns"),
        LimitTarget("Cohort", "c"),
        LimitTarget("Cohort", "all"),
        LimitTarget("WorkloadPriorityClass", "default"),
    ],
    ids=str,
)
def test_a_policy_is_for_the_workloads_of_its_target(target: LimitTarget) -> None:
    world = running(replace(TELLS, target=target))
    find(world, IDLE)
    assert [type(one) for one in after(world, 600)] == [Amend]


@pytest.mark.parametrize(
    "target",
    [
        LimitTarget("ClusterQueue", "other"),
        LimitTarget("LocalQueue", "lq", "other"),
        LimitTarget("WorkloadPriorityClass", "high"),
    ],
    ids=str,
)
def test_a_policy_is_for_no_other_workloads(target: LimitTarget) -> None:
    world = running(replace(TELLS, target=target))
    find(world, IDLE)
    assert after(world, 600) == []


def test_of_several_policies_the_first_by_name_counts() -> None:
    first = replace(TRIES, name="a", target=LimitTarget("Cohort", "all"))
    world = running(HOLDS, first)
    find(world, IDLE)
    after(world, 600)
    found = notice(world)
    assert found is not None
    assert found.policy == "a"
    assert after(world, 400) != []
    world.tell(PolicyGone(ConfigKey("IdlePolicy", "", "a")))
    world.run()
    found = notice(world)
    assert found is not None
    assert (found.policy, found.at) == ("p", world.now)


def test_a_policy_that_is_gone_takes_its_notice_along() -> None:
    world = running(HOLDS)
    find(world, IDLE)
    after(world, 600)
    world.tell(PolicyGone(ConfigKey("IdlePolicy", "", "p")))
    assert [type(one) for one in world.run()] == [Amend]
    assert notice(world) is None
    assert after(world, 2000) == []


def test_a_workload_that_is_exempt_is_not_judged() -> None:
    world = running(HOLDS)
    find(world, IDLE)
    after(world, 600)
    find(world, IDLE)
    world.tell(observed(workload("a", gpus=4, idle_exempt=NO_END), suspended=False, generation=2))
    assert [type(one) for one in world.run()] == [Amend]
    assert (use(world).finding, notice(world)) == (UseFinding(UseVerdict.EXEMPT, 4), None)
    world.pass_time(3000)
    assert find(world, IDLE) == []
    assert use(world).wasted_at(world.now) == 4 * 600_000
    world.tell(observed(workload("a", gpus=4), suspended=False, generation=2))
    assert [type(one) for one in world.run()] == [Amend]
    assert after(world, 599) == []


def test_an_exemption_with_an_end_counts_as_work_until_then() -> None:
    world = running(HOLDS)
    ends = world.now + timedelta(seconds=1000)
    world.tell(observed(workload("a", gpus=4, idle_exempt=ends), suspended=False, generation=2))
    find(world, IDLE)
    assert use(world).finding.verdict is UseVerdict.EXEMPT
    assert after(world, 999) == []
    assert [type(one) for one in after(world, 1)] == [Amend]
    assert (use(world).finding, use(world).idle_since) == (IDLE, ends)
    assert after(world, 599) == []
    assert [type(one) for one in after(world, 1)] == [Amend]
    given = notice(world)
    assert given is not None
    assert given.at == ends + timedelta(seconds=600)
    assert [type(one) for one in after(world, 400)] == [Evict]


def test_the_notice_says_what_is_wrong_with_its_exemption() -> None:
    world = running(HOLDS)
    fault = Reason(code=Code.MISCONFIGURED, detail="'until tomorow' is no exemption")
    world.tell(observed(workload("a", gpus=4, problem=fault), suspended=False, generation=2))
    find(world, IDLE)
    after(world, 600)
    (message,) = told(world)
    assert message.endswith("; Misconfigured: 'until tomorow' is no exemption")
    assert use(world).finding == IDLE


def test_a_workload_whose_exemption_ended_while_no_check_was_made_is_unknown() -> None:
    world = running(HOLDS)
    ends = world.now + timedelta(seconds=1000)
    world.tell(observed(workload("a", gpus=4, idle_exempt=ends), suspended=False, generation=2))
    find(world, IDLE, lasts=900)
    assert [type(one) for one in after(world, 1000)] == [Amend]
    assert use(world).finding.verdict is UseVerdict.UNKNOWN


def test_policies_are_listed_before_anything_is_decided_after_a_restart() -> None:
    world = running(HOLDS)
    find(world, IDLE)
    after(world, 600)
    world.engine.handle([Listed("policies")])
    assert world.run() == []


def test_a_workload_that_is_exempt_by_the_time_of_its_hold_is_not_held() -> None:
    world = running(HOLDS)
    find(world, IDLE)
    after(world, 600)
    find(world, IDLE)
    world.now += timedelta(seconds=400)
    exempt = observed(workload("a", gpus=4, idle_exempt=NO_END), suspended=False, generation=2)
    found = DeviceUseFound(A, 1, IDLE, world.now, world.now + timedelta(seconds=60))
    world.tell(TimeCame(world.now), exempt, found)
    assert [type(one) for one in world.run()] == [Amend]
    assert use(world).finding.verdict is UseVerdict.EXEMPT


@pytest.mark.parametrize(
    ("given", "finding", "victim"),
    [
        (TELLS, IDLE, "a"),
        (TELLS, HANG, "a"),
        (replace(TELLS, dry_run=True), IDLE, "b"),
        (replace(TELLS, notify_after=10**6), IDLE, "b"),
        (TELLS, BUSY, "b"),
        (TELLS, UNKNOWN, "b"),
    ],
)
def test_what_was_told_of_idle_devices_is_preempted_first_and_only_where_preemption_is_allowed(
    given: IdlePolicy, finding: UseFinding, victim: str
) -> None:
    """`b` has a lower priority than `a`, and was admitted later."""
    for allowed in (True, False):
        within = PreemptionPolicy.LOWER_PRIORITY if allowed else PreemptionPolicy.NEVER
        rules = Preemption(within_cluster_queue=within)
        world = World(queue("cq", 8, preemption=rules), local_queue("lq", "cq"), given)
        world.tell(priority("low", 1), priority("high", 2), priority("top", 3))
        for name, of in (("a", "high"), ("b", "low")):
            one = workload(name, gpus=4, priority_class=of)
            world.submit(one)
            world.run()
            world.settle()
            world.tell(observed(one, suspended=False, generation=2))
        find(world, IDLE, lasts=10**6)
        after(world, 700)
        find(world, finding, lasts=10**6)
        assert after(world, 10**5) == []  # nothing is preempted because of a notice alone
        world.submit(workload("c", gpus=4, priority_class="top"))
        evicted = [one.ref.name for one in world.run() if isinstance(one, Evict)]
        assert evicted == ([victim] if allowed else [])
