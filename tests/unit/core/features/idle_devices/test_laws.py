"""Laws of verdicts and IdlePolicies in random histories, judged by the rows of the ledger (B18, I1 to I5)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.decisions import Evict
from queuectl.core.model.device_use import IdlePolicy, UseFinding, UseVerdict
from queuectl.core.model.events import DeviceUseFound
from queuectl.core.model.policy import WorkloadPriorityClass
from queuectl.core.model.priorities import lowered_by
from queuectl.core.model.reasons import Code
from queuectl.core.model.usage_limits import LimitTarget
from queuectl.core.model.workload import PastAttempts, Phase, WorkloadId
from queuectl.ledger.codec import past_from_json
from tests.doubles import engine_state
from tests.unit.core import actions, laws, profiles
from tests.unit.core.actions import JOBS, ON_QUOTA, SETUP, any_of
from tests.unit.core.driver import Driver
from tests.unit.core.plans import Law, PlanContext, When, law
from tests.unit.core.trees import Dice, random_setup

WASTE = ("Idle", "Hang")
CLASS = "scavenge"
STOPS = (Code.IDLE_DEVICES, Code.IDLE_CANCELLED)
SCRIPT = st.lists(st.binary(min_size=28, max_size=28), min_size=8, max_size=30)


class DriverWithChecks(Driver):
    """Remembers what was found, and told to users."""

    def __init__(self, *args: Any, dry: bool, **more: Any) -> None:
        self.dry = dry
        self.found: dict[WorkloadId, list[DeviceUseFound]] = {}
        self.told: set[tuple[WorkloadId, str]] = set()
        super().__init__(*args, **more)

    def everything(self) -> list[Any]:
        """A new process is told again of what the last check found."""
        return [*super().everything(), *(events[-1] for events in self.found.values())]

    def take_effects(self) -> None:
        super().take_effects()
        for alarm in self.engine.take_alarms():
            if alarm.reason == Code.IDLE_DEVICES.value:
                self.told.add((alarm.workload, alarm.key))


def find(driver: Driver, dice: Dice) -> None:
    """A check of a workload: most often the one that was found last time."""
    assert isinstance(driver, DriverWithChecks)
    running = sorted(one.id for one in driver.loaded().workloads if one.attempt is not None)
    if not running:
        return
    uid = dice.pick(*running)
    attempt = next(one.attempt for one in driver.loaded().workloads if one.id == uid)
    assert attempt is not None
    verdict = dice.pick(*[UseVerdict.IDLE] * 5, UseVerdict.HANG, UseVerdict.UNKNOWN, UseVerdict.BUSY)
    idle = 2 if verdict.value in WASTE else dice.below(2) if verdict is UseVerdict.BUSY else 0
    until = driver.now + timedelta(seconds=dice.pick(900, 3600, 7200))
    event = DeviceUseFound(
        uid, dice.pick(*[attempt.number] * 7, 9), UseFinding(verdict, 2, idle, 0.95), driver.now, until
    )
    driver.watch.append(event)
    if event.attempt == attempt.number:
        driver.found.setdefault(uid, []).append(event)
    driver.deliver()


def change_idle_policy(driver: Driver, dice: Dice) -> None:
    assert isinstance(driver, DriverWithChecks)
    name = dice.pick("x", "y")
    if name in driver.policy.idle and dice.below(3) == 2:
        driver.unset("IdlePolicy", name)
        return
    target = dice.pick(
        LimitTarget("ClusterQueue", dice.pick(*sorted(driver.policy.queues))),
        *(LimitTarget("Cohort", one) for one in sorted(driver.policy.cohorts)),
        LimitTarget("LocalQueue", dice.pick(*driver.setup.locals), "ns"),
    )
    notify = dice.pick(600, 1200)
    hold = dice.pick(None, notify + 300, notify + 900)
    dry = driver.dry or dice.below(4) == 3
    lower = dice.pick(None, notify + 300, notify + 600)
    driver.set(
        IdlePolicy(
            name=name,
            target=target,
            notify_after=notify,
            hold_after=hold,
            cancels=hold is not None and dice.below(3) == 2,
            lower_after=lower,
            lower_class=None if lower is None else CLASS,
            dry_run=dry,
        )
    )


def watched(data: bytes, *more: Law, dry: bool = False) -> Driver:
    dice = Dice(data)
    wait, others = actions.wait(100, 300, 400, 900), any_of(ON_QUOTA, change_idle_policy, actions.restart)
    driver = DriverWithChecks(
        random_setup(dice),
        *LAWS,
        *more,
        dry=dry,
        actions=any_of(find, wait, actions.decide(), find, wait, actions.decide(), others),
    )
    driver.set(WorkloadPriorityClass(CLASS, -10))
    for number in range(2):
        change_idle_policy(driver, Dice(data[::-1][number:]))
    driver.deliver()
    return driver


# --- slow code


def past_in(row: Any) -> PastAttempts:
    return past_from_json(row.payload.get("past"))


def use_in(row: Any) -> Any:
    return past_in(row).use


def uses(driver: Driver, uid: WorkloadId, attempt: int) -> Sequence[tuple[datetime, Any]]:
    """Return what the decisions of an attempt say of its devices, with their times, oldest first."""
    rows = [row for row in driver.ledger.store.decisions if row.workload == uid and row.attempt == attempt]
    found = [(row.now, use_in(row)) for row in rows if row.verdict == "Amended"]
    return [(now, use) for now, use in found if use is not None and use.attempt == attempt]


def idle_seconds(rows: Sequence[tuple[datetime, Any]], now: datetime) -> float:
    """Return how long the verdicts were Idle or Hang since the last other one, Unknown left out."""
    changes = {use.since: use.finding.verdict.value for _, use in rows}
    total = 0.0
    ends = [*sorted(changes)[1:], now]
    for since, until in zip(sorted(changes), ends, strict=True):
        if changes[since] in WASTE:
            total += (until - since).total_seconds()
        elif changes[since] != "Unknown":
            total = 0.0
    return total


# --- laws


@law(When.COMMIT)
def a_hold_follows_a_notice_and_idleness_that_lasted(context: PlanContext) -> None:
    driver = context.driver
    assert isinstance(driver, DriverWithChecks)
    for evicted in context.plan.decisions:
        if not isinstance(evicted, Evict) or evicted.reason.code not in STOPS:
            continue
        assert not driver.dry
        uid, now = evicted.workload, context.plan.now
        rows = uses(driver, uid, evicted.attempt)
        last = rows[-1][1]
        assert last.finding.verdict.value in WASTE
        found = driver.found[uid][-1]
        assert found.finding.verdict.value in WASTE
        assert found.at <= now < found.until, "the last check says nothing any more"
        assert idle_seconds(rows, now) >= 900, "the shortest time of all policies"
        notice = last.notice
        assert notice is not None
        assert not notice.dry_run
        assert notice.hold_at <= now
        assert notice.cancels == (evicted.reason.code is Code.IDLE_CANCELLED)
        given = next(at for at, use in rows if use.notice == notice)
        assert given == notice.at, "its time is that of the decision"
        assert (notice.hold_at - given).total_seconds() >= 300
        assert (uid, f"{evicted.attempt}/{notice.at:%Y-%m-%dT%H:%M:%SZ}") in driver.told
        assert evicted.reason.node == f"IdlePolicy/{notice.policy}"


@law(When.COMMIT)
def sums_are_those_of_all_verdicts(context: PlanContext) -> None:
    driver = context.driver
    for stored in driver.loaded().workloads:
        use = stored.past.use
        if use is None or stored.attempt is None or use.attempt != stored.attempt.number:
            continue
        rows = {one.since: one for _, one in uses(driver, stored.id, use.attempt)}
        times = sorted(rows)
        wasted = sum(
            rows[since].finding.idle_devices * (until - since) // timedelta(milliseconds=1)
            for since, until in pairwise(times)
        )
        assert use.wasted_ms == wasted
        assert use.idle_at(driver.now) == 1000 * idle_seconds(list(rows.items()), driver.now)


@law(When.COMMIT)
def memory_is_what_the_ledger_has(context: PlanContext) -> None:
    driver = context.driver
    known = engine_state.state(driver.engine).entries
    for stored in driver.loaded().workloads:
        assert known[stored.id].past == stored.past


@law(When.COMMIT)
def what_is_lowered_was_told_and_is_idle_still(context: PlanContext) -> None:
    driver = context.driver
    assert isinstance(driver, DriverWithChecks)
    for stored in driver.loaded().workloads:
        lowered, use = lowered_by(stored.past.lowered, "IdlePolicy"), stored.use
        if lowered is None or stored.phase is not Phase.ADMITTED:
            continue
        assert not driver.dry
        assert use is not None
        assert use.finding.verdict.value in (*WASTE, "Unknown")
        notice = use.notice
        assert notice is not None
        assert lowered.policy == f"IdlePolicy/{notice.policy}"
        assert notice.lower_at is not None
        assert notice.lower_at <= context.plan.now
        assert (notice.lower_at - notice.at).total_seconds() >= 300
        assert stored.priority <= lowered.priority


@law(When.COMMIT)
def a_dry_run_tells_nobody(context: PlanContext) -> None:
    driver = context.driver
    assert isinstance(driver, DriverWithChecks)
    assert not driver.told or not driver.dry


LAWS = (
    what_is_lowered_was_told_and_is_idle_still,
    a_hold_follows_a_notice_and_idleness_that_lasted,
    sums_are_those_of_all_verdicts,
    memory_is_what_the_ledger_has,
    a_dry_run_tells_nobody,
)


@profiles.sequences(150)
@given(SETUP, JOBS, SCRIPT)
def test_nothing_is_held_without_a_verdict_that_lasted_and_a_notice(
    setup: bytes, jobs: list[bytes], script: list[bytes]
) -> None:
    actions.play(watched(setup), jobs, script)


@profiles.sequences(100)
@given(SETUP, JOBS, SCRIPT)
def test_dry_runs_hold_nothing_and_tell_nobody(setup: bytes, jobs: list[bytes], script: list[bytes]) -> None:
    actions.play(watched(setup, dry=True), jobs, script)


@profiles.sequences(100)
@given(SETUP, JOBS, SCRIPT)
def test_a_new_process_decides_nothing_else_with_verdicts(
    setup: bytes, jobs: list[bytes], script: list[bytes]
) -> None:
    actions.play(watched(setup, laws.a_new_process_decides_nothing), jobs, script)


@pytest.mark.acceptance
def test_the_histories_have_notices_holds_and_dry_runs() -> None:
    """The laws are about something."""
    held = cancelled = told = dry = lowered = 0
    for seed in range(40):
        random = Random(seed)
        driver = watched(random.randbytes(420), dry=seed % 4 == 3)
        jobs = [random.randbytes(36) for _ in range(4)]
        actions.play(driver, jobs, [random.randbytes(28) for _ in range(60)])
        assert isinstance(driver, DriverWithChecks)
        rows = driver.ledger.store.decisions
        held += sum(row.reason is not None and row.reason.code is Code.IDLE_DEVICES for row in rows)
        cancelled += sum(row.reason is not None and row.reason.code is Code.IDLE_CANCELLED for row in rows)
        told += len(driver.told)
        lowered += sum(bool(past_in(row).lowered) for row in rows)
        pasts = [use_in(row) for row in rows]
        dry += sum(one is not None and one.notice is not None and one.notice.dry_run for one in pasts)
    assert min(held, cancelled, told, dry, lowered) >= 3, (held, cancelled, told, dry, lowered)
