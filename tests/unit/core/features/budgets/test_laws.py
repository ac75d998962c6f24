"""Laws of Budgets in random histories, judged by the rows of the ledger alone (Y1 to Y7)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given

from queuectl.core.decisions import Admit
from queuectl.core.features.budgets.balances import Balances, SubjectsKey
from queuectl.core.features.budgets.over_budget import lowered_by
from queuectl.core.model.budgets import (
    HOUR,
    Budget,
    BudgetEntry,
    BudgetMode,
    BudgetPeriods,
    EntryKind,
    OnExhausted,
    Period,
    PeriodKind,
)
from queuectl.core.model.policy import WorkloadPriorityClass
from queuectl.core.model.reasons import Code
from queuectl.core.model.usage_limits import LimitSubject, LimitTarget, SubjectKind
from queuectl.core.model.workload import Workload
from tests.builders import GPU, T0
from tests.doubles import engine_state
from tests.unit.core import actions, laws, profiles
from tests.unit.core.actions import JOBS, ON_QUOTA, SCRIPT_ON_NODES, SETUP, any_of
from tests.unit.core.driver import Driver
from tests.unit.core.plans import Law, PlanContext, When, law
from tests.unit.core.trees import Dice, random_setup

USERS = ("ann", "bob")
NAMES = ("x", "y")
CLASS = "scavenge"
PERIODS = (
    BudgetPeriods(PeriodKind.MONTH),
    BudgetPeriods(PeriodKind.WEEK, "Asia/Kathmandu"),
    BudgetPeriods(PeriodKind.DATES, dates=Period(T0 - timedelta(days=9), T0 + timedelta(hours=9))),
)


class DriverWithBudgets(Driver):
    lowered: set[str]
    """Budgets whose amount was lowered, or that were removed for a time."""

    def submit(self, workload: Workload, *, running: bool = False) -> None:
        number = self.made + workload.pod_sets[0].count
        limit = (None, 60, 3600, 7 * 86400)[number % 4]
        changed = replace(workload, submitter=USERS[number % len(USERS)], max_run_seconds=limit)
        super().submit(changed, running=running)


def change_budget(driver: Driver, dice: Dice) -> None:
    """Set or remove one of two budgets."""
    assert isinstance(driver, DriverWithBudgets)
    name = dice.pick(*NAMES)
    known = driver.policy.budgets.get(name)
    if known is not None and dice.below(4) == 3:
        driver.unset("Budget", name)
        return
    target = dice.pick(
        LimitTarget("ClusterQueue", dice.pick(*sorted(driver.policy.queues))),
        *(LimitTarget("Cohort", one) for one in sorted(driver.policy.cohorts)),
        LimitTarget("LocalQueue", dice.pick(*driver.setup.locals), "ns"),
    )
    subject = dice.pick(LimitSubject(SubjectKind.EACH_USER), LimitSubject(SubjectKind.ALL))
    amount = dice.pick(0, 1, 4, 100, 1000) * HOUR
    periods = PERIODS[NAMES.index(name)] if known is None else known.periods
    mode = dice.pick(BudgetMode.SAFE, BudgetMode.SAFE, BudgetMode.METERED)
    percent = dice.pick(0, 50, 100)
    driver.set(
        Budget(
            name=name,
            target=target,
            subject=subject,
            resource=GPU,
            amount=amount,
            periods=periods,
            mode=mode,
            refund_preempted=percent,
            refund_node_failures=percent,
            on_exhausted=dice.pick(OnExhausted.WAIT, OnExhausted.WAIT, OnExhausted.WAIT, *OnExhausted),
            lower_class=CLASS,
        )
    )


def change_class(driver: Driver, dice: Dice) -> None:
    """Set the class to which Budgets lower, above or below those of workloads, or remove it."""
    if dice.below(4) == 3:
        driver.unset("WorkloadPriorityClass", CLASS)
    else:
        driver.set(WorkloadPriorityClass(CLASS, dice.pick(-10, -10, -20, 50)))


def pass_hours(driver: Driver, dice: Dice) -> None:
    driver.now += timedelta(seconds=dice.pick(1, 59, 1800, 3600, 86400, 9 * 86400))


def with_budgets(data: bytes, *more: Law) -> Driver:
    """Return a driver with a random policy, whose history has users, limits of run time and budgets."""
    dice = Dice(data)
    changes = any_of(*[ON_QUOTA] * 4, change_budget, pass_hours, change_class)
    driver = DriverWithBudgets(random_setup(dice), *LAWS, *more, actions=changes)
    driver.set(WorkloadPriorityClass(CLASS, -10))
    for turn in (data[::-1], data[1::2]):
        change_budget(driver, Dice(turn))
    driver.deliver()
    return driver


# --- slow code


def rows(driver: Driver) -> list[BudgetEntry]:
    return [entry for *_, entry in driver.ledger.store.budget]


def total(driver: Driver, name: str, subject: str, period: Period, now: datetime) -> int:
    """Return what is reserved and used of a period, with what open attempts without an end have used."""
    mine = [one for one in rows(driver) if (one.budget, one.subject, one.period) == (name, subject, period)]
    return sum(one.reserved + one.used for one in mine)


# --- laws


@law(When.COMMIT)
def no_admission_exceeds_a_safe_budget(context: PlanContext) -> None:
    """Above a Safe budget is only what a lowered one, or a start that was not asked for, has left there."""
    driver = context.driver
    if driver.watch:
        return  # the engine has not been told of all policy yet
    for decision in context.plan.decisions:
        if not isinstance(decision, Admit) or decision.attempt.debt:
            continue
        for entry in decision.budget:
            budget = driver.policy.budgets[entry.budget]
            if budget.mode is BudgetMode.SAFE:
                taken = total(driver, entry.budget, entry.subject, entry.period, context.plan.now)
                assert taken <= budget.amount, f"{decision.ref}: {taken} of {budget}"
                assert entry.until is not None


@law(When.COMMIT)
def memory_is_the_sum_of_the_rows(context: PlanContext) -> None:
    driver = context.driver
    snapshot, restored = driver.loaded(), Balances()
    restored.restore(snapshot.budget_sums, snapshot.budget_entries)
    balances = driver.engine.features.budgets.balances
    now = context.plan.now  # of periods that have ended, only what open attempts have reserved is restored
    present = {key: both for key, both in balances.sums().items() if key.period.ends > now}
    assert present == {key: both for key, both in restored.sums().items() if key.period.ends > now}
    assert balances.charges == restored.charges
    sums: Counter[tuple[str, str, Period]] = Counter()
    for one in rows(driver):
        sums[one.budget, one.subject, one.period] += one.reserved + one.used
    found = {
        (key.place.limit, key.place.subject, key.period): sum(both) for key, both in balances.sums().items()
    }
    assert found == {key: amount for key, amount in sums.items() if amount or key in found}
    for budget in driver.policy.budgets.values():
        if (period := budget.periods.at(context.plan.now)) is not None:
            key = SubjectsKey(budget.name, GPU, period)
            # Before anything: what runs has used nothing more than what the rows say.
            total = balances.totals({budget.name: key}, period.begins)[budget.name]
            of_all = (amount for (name, _, of), amount in sums.items() if (name, of) == (budget.name, period))
            assert sum(total) == sum(of_all)


@law(When.COMMIT)
def only_open_attempts_have_reserved(context: PlanContext) -> None:
    driver = context.driver
    held = {(one.id, one.attempt.number) for one in driver.loaded().workloads if one.attempt is not None}
    reserved: Counter[tuple[str, int]] = Counter()
    used: Counter[tuple[str, int]] = Counter()
    for one in rows(driver):
        reserved[one.workload, one.attempt] += one.reserved
        used[one.workload, one.attempt] += one.used
        assert one.kind is not EntryKind.SETTLE or one.until is None or one.used <= -one.reserved
    for attempt, amount in reserved.items():
        assert amount >= 0
        assert amount == 0 or attempt in held, f"{attempt} is over, and has reserved {amount}"
        assert used[attempt] >= 0, f"{attempt}: more is refunded than it has used"


@law(When.REST)
def nothing_waits_for_a_budget_that_has_enough(driver: Driver) -> None:
    entries = engine_state.state(driver.engine).entries
    for row in driver.loaded().workloads:
        reason = entries[row.id].reason  # that of the ledger may have an older time (R2)
        if row.attempt is None and reason is not None and reason.code is Code.BUDGET_EXHAUSTED:
            assert reason.until is None or reason.until > driver.now
            name = (reason.node or "").removeprefix("Budget/")
            assert name in driver.policy.budgets, f"{row.ref} waits for {name}, which is gone"


@law(When.COMMIT)
def what_is_lowered_is_charged_to_no_budget_that_lowers(context: PlanContext) -> None:
    """Nothing else runs uncharged, and its priority is that of no higher class (Y8, O8)."""
    driver = context.driver
    if driver.watch:
        return
    for decision in context.plan.decisions:
        if not isinstance(decision, Admit) or decision.attempt.debt:
            continue
        row = next(one for one in driver.loaded().workloads if one.id == decision.attempt.workload)
        lowered = lowered_by(row.past)
        for entry in decision.budget:
            lowers = driver.policy.budgets[entry.budget].on_exhausted is OnExhausted.LOWER_CLASS
            assert lowered is None or not lowers, f"{decision.ref} is lowered, and charged to {entry.budget}"
        assert lowered is None or row.priority <= lowered.priority


@law(When.REST)
def what_is_lowered_has_a_budget_and_its_priority(driver: Driver) -> None:
    for row in driver.loaded().workloads:
        lowered = lowered_by(row.past)
        if lowered is not None:
            assert lowered.policy.removeprefix("Budget/") in driver.policy.budgets
            assert row.priority <= lowered.priority


LAWS = (
    what_is_lowered_is_charged_to_no_budget_that_lowers,
    what_is_lowered_has_a_budget_and_its_priority,
    no_admission_exceeds_a_safe_budget,
    memory_is_the_sum_of_the_rows,
    only_open_attempts_have_reserved,
    nothing_waits_for_a_budget_that_has_enough,
)


@profiles.sequences(150)
@given(SETUP, JOBS, SCRIPT_ON_NODES)
def test_no_admission_exceeds_a_budget_and_memory_is_the_sum_of_the_rows(
    setup: bytes, jobs: list[bytes], script: list[bytes]
) -> None:
    driver = actions.play(
        with_budgets(setup, laws.no_workload_is_admitted_on_quota_that_is_not_available), jobs, script
    )
    driver.come_to_rest()


@profiles.sequences(100)
@given(SETUP, JOBS, SCRIPT_ON_NODES)
def test_a_new_process_decides_nothing_else_with_budgets(
    setup: bytes, jobs: list[bytes], script: list[bytes]
) -> None:
    driver = actions.play(with_budgets(setup, laws.a_new_process_decides_nothing), jobs, script)
    driver.come_to_rest()
