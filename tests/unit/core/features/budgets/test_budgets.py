"""Budgets: what an admission reserves, what its end settles, who waits and until when (Y1 to Y7)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queuectl.core.decisions import Admit, Amend, Evict, Keep
from queuectl.core.engine import Engine
from queuectl.core.features.budgets import Budgets
from queuectl.core.model.budgets import (
    HOUR,
    Budget,
    BudgetGrant,
    BudgetMode,
    BudgetPeriods,
    Period,
    PeriodKind,
)
from queuectl.core.model.events import (
    ContextObserved,
    Listed,
    PodsCounted,
    PolicyGone,
    TimeCame,
    WorkloadGone,
)
from queuectl.core.model.policy import (
    MaxExecutionTime,
    Namespace,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
)
from queuectl.core.model.reasons import Code
from queuectl.core.model.usage_limits import LimitSubject, LimitTarget, SubjectKind
from queuectl.core.model.workload import (
    ConfigKey,
    LedgerSnapshot,
    Phase,
    StoredWorkload,
    Workload,
    WorkloadId,
)
from tests.builders import (
    GPU,
    SOURCES,
    T0,
    World,
    admitted,
    flavor,
    local_queue,
    observed,
    pod_set,
    policy,
    priority,
    queue,
    workload,
)

LQ = local_queue("lq", "cq")
CQ = LimitTarget("ClusterQueue", "cq")
EACH_USER = LimitSubject(SubjectKind.EACH_USER)
ALL = LimitSubject(SubjectKind.ALL)
MONTH = BudgetPeriods(PeriodKind.MONTH)
FEBRUARY = datetime(2030, 2, 1, tzinfo=UTC)
H = 3600


def budget(hours: int, subject: LimitSubject = ALL, name: str = "x", **fields: Any) -> Budget:
    given: dict[str, Any] = {"periods": MONTH, "mode": BudgetMode.SAFE, "target": CQ} | fields
    given.setdefault("resource", GPU)
    return Budget(name=name, subject=subject, amount=hours * HOUR, **given)


def job(name: str, gpus: int = 1, hours: float | None = 1, created: float = 0, **fields: Any) -> Workload:
    limit = None if hours is None else int(hours * H)
    return workload(name, gpus=gpus, created=created, max_run_seconds=limit, **fields)


def rows(world: World) -> list[tuple[str, str, float, float]]:
    """Return the rows of all decisions: kind, workload, and changes in hours."""
    found = [one for decision in world.decided for one in getattr(decision, "budget", ())]
    return [(one.kind.value, one.workload, one.reserved / HOUR, one.used / HOUR) for one in found]


def end(world: World, *names: str) -> list[str]:
    """End workloads. Return who is admitted then."""
    world.settle()
    world.tell(*(WorkloadGone(WorkloadId(f"uid-{name}")) for name in names))
    made = world.run()
    for probe in world.probes:
        world.tell(PodsCounted(probe.workload, probe.attempt, alive=False))
    world.probes.clear()
    return admitted([*made, *world.run()])


def test_an_admission_reserves_its_run_time_limit_and_its_end_settles_what_it_has_used() -> None:
    world = World(queue("cq", 8), LQ, budget(100))
    world.submit(job("a", gpus=2, hours=10))
    assert admitted(world.run()) == ["a"]
    assert rows(world) == [("Reserve", "uid-a", 20, 0)]
    world.pass_time(3 * H)
    end(world, "a")
    assert rows(world)[1:] == [("Settle", "uid-a", -20, 6)]


def test_what_does_not_fit_waits_until_enough_is_settled_and_the_next_head_goes_before() -> None:
    world = World(queue("cq", 8, strategy=QueueingStrategy.STRICT_FIFO), LQ, budget(10))
    world.submit(job("a", hours=8), job("b", hours=5, created=1), job("c", hours=2, created=2))
    assert admitted(world.run()) == ["a", "c"]
    reason = world.reason("b")
    assert reason is not None
    assert reason.code is Code.BUDGET_EXHAUSTED
    assert (reason.requested, reason.available, reason.short_by) == (5, 2, 3)
    world.pass_time(H)
    assert end(world, "a") == ["b"]  # 10 - 1 - 2 are left


def test_the_reason_names_the_budget_its_subject_and_the_earliest_start() -> None:
    world = World(queue("cq", 8), LQ, budget(5, EACH_USER))
    world.submit(job("a", gpus=1, hours=10, submitter="ann"))
    world.run()
    reason = world.reason("a")
    assert reason is not None
    assert reason.until == FEBRUARY - timedelta(hours=5)  # half of it is of the next month
    assert reason.message == (
        "BudgetExhausted: requests 10 nvidia.com/gpu hours, 5 available, short by 5 (bound by spec.hours of "
        "Budget/x), until 2030-01-31T19:00:00Z: user ann at ClusterQueue/cq, at most 5 hours a month"
    )
    world.pass_time((reason.until - T0).total_seconds() - 1)
    assert admitted(world.run()) == []
    world.pass_time(1)
    assert admitted(world.run()) == ["a"]
    assert rows(world) == [("Reserve", "uid-a", 5, 0), ("Reserve", "uid-a", 5, 0)]


def test_each_user_has_an_own_budget() -> None:
    world = World(queue("cq", 8), LQ, budget(10, EACH_USER))
    world.submit(*(job(f"{who}{n}", hours=8, submitter=who) for who in ("ann", "bob") for n in (1, 2)))
    assert sorted(admitted(world.run())) == ["ann1", "bob1"]


def test_a_workload_without_a_limit_is_not_admitted_on_a_safe_budget() -> None:
    world = World(queue("cq", 8), LQ, budget(10))
    world.submit(job("a", hours=None))
    assert admitted(world.run()) == []
    reason = world.reason("a")
    assert reason is not None
    assert (reason.code, reason.node) == (Code.BUDGET_NEEDS_LIMIT, "Budget/x")
    world.tell(policy(queue("cq", 8, max_execution_time=MaxExecutionTime(default=H))))
    assert admitted(world.run()) == ["a"]


def test_what_uses_nothing_of_the_resource_needs_no_budget() -> None:
    world = World(queue("cq", 8), LQ, budget(0))
    world.submit(workload("a", gpus=0))
    assert admitted(world.run()) == ["a"]
    assert rows(world) == []


def test_a_budget_that_is_raised_or_removed_lets_those_that_wait_start() -> None:
    world = World(queue("cq", 8), LQ, budget(1))
    world.submit(job("a", hours=3), job("b", hours=3, created=1))
    assert admitted(world.run()) == []
    world.tell(policy(budget(4)))
    assert admitted(world.run()) == ["a"]
    world.tell(PolicyGone(ConfigKey("Budget", "", "x")))
    assert admitted(world.run()) == ["b"]
    end(world, "a", "b")
    assert rows(world) == [("Reserve", "uid-a", 3, 0), ("Settle", "uid-a", -3, 0)]


def test_no_budget_preempts_and_victims_are_not_evicted_for_what_no_budget_allows() -> None:
    rules = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    high = LimitTarget("WorkloadPriorityClass", "high")
    world = World(queue("cq", 1, preemption=rules), LQ, budget(1, target=high))
    world.tell(priority("high", 10))
    world.submit(job("low", hours=5))
    world.run()
    world.submit(job("high", hours=5, created=1, priority_class="high"))
    assert [one for one in world.run() if isinstance(one, Evict)] == []
    reason = world.reason("high")
    assert reason is not None
    assert reason.code is Code.BUDGET_EXHAUSTED


def test_a_run_that_crosses_the_border_is_settled_in_both_periods() -> None:
    world = World(queue("cq", 8), LQ, budget(10))
    world.pass_time((FEBRUARY - T0).total_seconds() - 2 * H)
    world.submit(job("a", hours=8))
    assert admitted(world.run()) == ["a"]
    world.pass_time(5 * H)
    end(world, "a")
    assert rows(world) == [
        *(("Reserve", "uid-a", 2, 0), ("Reserve", "uid-a", 6, 0)),
        *(("Settle", "uid-a", -2, 2), ("Settle", "uid-a", -6, 3)),
    ]


def test_a_limit_that_is_raised_while_it_runs_does_not_pass_the_reservation() -> None:
    world = World(queue("cq", 8), LQ, budget(10))
    world.submit(job("a", hours=1))
    world.run()
    world.settle()
    world.submit(job("a", hours=100))
    world.run()
    world.pass_time(H)
    evicted = [one for one in world.run() if isinstance(one, Evict)]
    assert [one.reason.code for one in evicted] == [Code.BUDGET_TIME_EXCEEDED]
    world.pass_time(H)  # its pods take their time: they are not charged
    end(world, "a")
    assert rows(world)[-1] == ("Settle", "uid-a", -1, 1)


def test_a_budget_that_is_gone_stops_nothing() -> None:
    world = World(queue("cq", 8), LQ, budget(10))
    world.submit(job("a", hours=1))
    world.run()
    world.settle()
    world.submit(job("a", hours=100))
    world.tell(PolicyGone(ConfigKey("Budget", "", "x")))
    world.run()
    world.pass_time(5 * H)
    assert world.run() == []
    world.tell(policy(budget(10)))
    world.pass_time(0)
    assert [type(one) for one in world.run()] == [Evict]


def test_a_period_of_dates_allows_nothing_before_and_after() -> None:
    dates = Period(T0 + timedelta(hours=5), T0 + timedelta(hours=10))
    world = World(queue("cq", 8), LQ, budget(100, periods=BudgetPeriods(PeriodKind.DATES, dates=dates)))
    world.submit(job("a", hours=4), job("long", hours=6, created=1))
    assert admitted(world.run()) == []
    found = [world.reason(name) for name in ("a", "long")]
    assert [one.until if one else None for one in found] == [dates.begins, None]
    world.pass_time(5 * H)
    assert admitted(world.run()) == ["a"]


def test_a_metered_budget_needs_one_hour_in_advance_and_no_limit() -> None:
    world = World(queue("cq", 8), LQ, budget(4, mode=BudgetMode.METERED))
    world.submit(job("a", gpus=2, hours=None), job("b", gpus=2, hours=None, created=1))
    assert admitted(world.run()) == ["a", "b"]
    world.submit(job("c", hours=None, created=2))
    assert admitted(world.run()) == []
    reason = world.reason("c")
    assert reason is not None
    assert (reason.requested, reason.available, reason.until) == (1, 0, FEBRUARY)
    world.pass_time(10 * H)  # what runs goes on
    assert [type(one) for one in world.run()] == [Amend, Amend]  # 100 %
    end(world, "a", "b")
    assert settles(world) == [("Settle", 0, 20)] * 2 + [("Settle", 0, 0)] * 2
    world.pass_time((FEBRUARY - world.now).total_seconds())
    assert admitted(world.run()) == ["c"]


def test_a_metered_run_over_borders_is_settled_in_each_period() -> None:
    week = BudgetPeriods(PeriodKind.WEEK)  # T0 is a Tuesday
    world = World(queue("cq", 8), LQ, budget(1000, mode=BudgetMode.METERED, periods=week))
    world.submit(job("a", hours=None))
    world.run()
    world.pass_time(14 * 24 * H)
    end(world, "a")
    assert [row[3] for row in rows(world)] == [0, 6 * 24, 7 * 24, 24]


def test_part_of_what_a_preempted_attempt_has_used_is_refunded_once() -> None:
    rules = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = World(queue("cq", 1, preemption=rules), LQ, budget(10, refund_preempted=30))
    world.tell(priority("high", 10))
    world.submit(job("low", hours=5))
    world.run()
    world.pass_time(2 * H)
    world.submit(job("high", hours=1, created=1, priority_class="high"))
    world.run()
    world.settle()
    world.submit(job("low", hours=5))  # it is suspended, and its pods are gone
    made = world.run()
    for probe in world.probes:
        world.tell(PodsCounted(probe.workload, probe.attempt, alive=False))
    assert admitted([*made, *world.run()]) == ["high"]
    assert rows(world) == [
        ("Reserve", "uid-low", 5, 0),
        ("Settle", "uid-low", -5, 2),
        ("Refund", "uid-low", 0, -0.6),
        ("Reserve", "uid-high", 1, 0),
    ]


@pytest.mark.parametrize("mode", BudgetMode)
def test_a_workload_that_may_start_with_fewer_pods_waits_for_what_all_would_use(mode: BudgetMode) -> None:
    world = World(queue("cq", 8), LQ, budget(4, mode=mode))
    world.submit(job("b"))
    world.run()
    world.submit(workload("a", pods=[pod_set(8, {GPU: 1}, min_count=2)], max_run_seconds=H, created=1))
    world.run()
    assert end(world, "b") == []  # nothing more is decided: 4 hours are left, and 8 would be taken
    world.tell(policy(queue("cq", 3)))
    assert world.run() == []  # also where quota is for so few pods that the hours would be enough
    world.tell(policy(budget(8, mode=mode)))
    assert admitted(world.run()) == ["a"]
    assert rows(world)[-1][2] == (3 if mode is BudgetMode.SAFE else 0)


def test_an_end_that_frees_a_later_period_lets_those_that_wait_start_earlier() -> None:
    world = World(queue("cq", 8), LQ, budget(10, periods=BudgetPeriods(PeriodKind.WEEK)))
    border = datetime(2030, 1, 7, tzinfo=UTC)
    world.pass_time((border - T0).total_seconds() - 5 * H)
    world.submit(job("long", hours=15), job("short", hours=5, created=1))
    world.submit(job("a", gpus=4, hours=2, created=2))
    assert admitted(world.run()) == ["long", "short"]
    reason = world.reason("a")
    assert reason is not None
    assert reason.until == border + timedelta(days=7)  # both weeks are full
    world.pass_time(4.9 * H)
    assert end(world, "long") == []
    world.pass_time(0.1 * H)
    assert admitted(world.run()) == ["a"]


def test_a_clock_that_is_set_back_over_a_border_does_not_end_in_refusals_without_end() -> None:
    world = World(queue("cq", 8), LQ, budget(1, mode=BudgetMode.METERED))
    world.submit(job("b", hours=None))
    world.run()
    world.pass_time(2 * H)
    end(world, "b")
    world.submit(job("a", hours=None, created=1))
    assert admitted(world.run()) == []
    world.pass_time((FEBRUARY - world.now).total_seconds())
    world.now -= timedelta(seconds=5)
    assert admitted(world.run()) == ["a"]


@pytest.mark.parametrize("mode", BudgetMode)
def test_an_end_costs_no_more_the_more_wait_alike(mode: BudgetMode, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[str] = Counter()
    left = Budgets.left

    def counted(*given: Any) -> int:
        asked["left"] += 1
        return left(*given)

    monkeypatch.setattr(Budgets, "left", counted)
    world = World(queue("cq", 8), LQ, budget(8, mode=mode))
    world.submit(*(job(f"a{number}", created=number) for number in range(60)))
    world.run()
    asked.clear()
    end(world, "a0")
    assert asked.total() < 10


def test_what_a_preemptor_needs_is_kept_while_its_victims_end() -> None:
    rules = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = World(queue("cq", 2, preemption=rules), queue("other", 2), LQ, local_queue("lo", "other"))
    both = LimitTarget("WorkloadPriorityClass", "high")
    world.tell(priority("high", 10), policy(budget(3, target=both)))
    world.submit(job("low", gpus=2, hours=5))
    world.run()
    world.submit(job("high", hours=2, created=1, priority_class="high"))
    world.run()
    world.submit(job("rival", hours=2, created=2, priority_class="high", queue="lo"))
    assert admitted(world.run()) == []
    reason = world.reason("rival")
    assert reason is not None
    assert (reason.code, reason.available) == (Code.BUDGET_EXHAUSTED, 1)


def test_what_a_preemptor_needs_is_kept_of_a_budget_that_is_made_while_it_waits() -> None:
    rules = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = World(queue("cq", 2, preemption=rules), queue("other", 2), LQ, local_queue("lo", "other"))
    world.tell(priority("high", 10))
    world.submit(job("low", gpus=2, hours=5))
    world.run()
    world.submit(job("high", hours=2, created=1, priority_class="high"))
    world.run()
    world.tell(policy(budget(3, target=LimitTarget("WorkloadPriorityClass", "high"))))
    world.run()
    world.submit(job("rival", hours=2, created=2, priority_class="high", queue="lo"))
    assert admitted(world.run()) == []


def test_a_budget_that_is_made_again_knows_nothing_of_those_that_waited() -> None:
    world = World(queue("cq", 2), queue("other", 2), LQ, local_queue("lo", "other"), budget(1))
    world.submit(job("a", hours=2), job("b", hours=2, created=1))
    assert admitted(world.run()) == []
    world.tell(policy(budget(2)))  # a is queued again, and not nominated yet
    world.tell(WorkloadGone(WorkloadId("uid-a")), PolicyGone(ConfigKey("Budget", "", "x")))
    world.tell(policy(budget(2)))
    assert admitted(world.run()) == ["b"]


def test_an_attempt_that_holds_less_is_settled_and_reserves_less() -> None:
    world = World(queue("cq", 8), LQ, budget(100))
    pods = [pod_set(4, {GPU: 1})]
    world.submit(workload("a", pods=pods, max_run_seconds=10 * H))
    world.run()
    world.settle()
    world.pass_time(2 * H)
    one = workload("a", pods=pods, max_run_seconds=10 * H)
    world.tell(observed(one, suspended=False, ready=True, generation=2, reclaimable=(("main", 3),)))
    world.run()
    for probe in world.probes:
        world.tell(PodsCounted(probe.workload, probe.attempt, alive=False, at_most=probe.at_most))
    world.probes.clear()
    world.run()
    assert rows(world)[1:] == [("Settle", "uid-a", -40, 8), ("Reserve", "uid-a", 8, 0)]


def test_a_new_process_has_the_balance_of_the_rows() -> None:
    world = World(queue("cq", 8), LQ, budget(10))
    world.submit(job("a", hours=4))
    (made,) = [one for one in world.run() if isinstance(one, Admit)]
    (reserve,) = made.budget
    features = world.engine.features
    before = features.budgets.balances.sums()
    other = Budgets(features.budgets._kernel)
    other.balances.restore((), [reserve])
    assert other.balances.sums() == before
    assert other.balances.charges == features.budgets.balances.charges


@pytest.mark.parametrize(
    ("zone", "when", "begins", "hours"),
    [
        ("Europe/Berlin", "2026-03-29T12:00:00Z", "2026-02-28T23:00:00Z", 31 * 24 - 1),
        ("Europe/Berlin", "2026-10-25T12:00:00Z", "2026-09-30T22:00:00Z", 31 * 24 + 1),
        ("Asia/Kathmandu", "2026-01-31T18:15:00Z", "2026-01-31T18:15:00Z", 28 * 24),
        ("UTC", "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", 31 * 24),
    ],
)
def test_months_begin_in_the_time_zone(zone: str, when: str, begins: str, hours: int) -> None:
    period = BudgetPeriods(PeriodKind.MONTH, zone).at(datetime.fromisoformat(when))
    assert period is not None
    assert period.begins == datetime.fromisoformat(begins)
    assert period.ends - period.begins == timedelta(hours=hours)


def test_weeks_begin_on_monday() -> None:
    period = BudgetPeriods(PeriodKind.WEEK, "Europe/Berlin").at(datetime(2026, 3, 29, 12, tzinfo=UTC))
    assert period == Period(datetime(2026, 3, 22, 23, tzinfo=UTC), datetime(2026, 3, 29, 22, tzinfo=UTC))


def test_the_numbers_are_the_amount_and_the_sums_over_subjects() -> None:
    everyone = budget(100, name="all", mode=BudgetMode.METERED, subject=ALL)
    elsewhere = budget(7, name="cpu", resource="cpu", target=LimitTarget("ClusterQueue", "other"))
    world = World(queue("cq", 8), LQ, budget(50, EACH_USER), everyone, elsewhere)
    world.submit(job("a", gpus=2, hours=10, submitter="ann"), job("b", hours=5, submitter="bob", created=1))
    world.run()
    world.pass_time(3 * H)
    end(world, "a")
    found = {
        (one.name, dict(one.labels)["budget"]): one.value / H for one in world.engine.numbers() if one.labels
    }
    assert found == {
        ("budget_reserved_seconds", "x"): 5,
        ("budget_used_seconds", "x"): 6,
        ("budget_seconds", "all"): 100,
        ("budget_reserved_seconds", "all"): 0,
        ("budget_used_seconds", "all"): 9,
        ("budget_seconds", "cpu"): 0.007,  # of milli-cpu
        ("budget_reserved_seconds", "cpu"): 0,
        ("budget_used_seconds", "cpu"): 0,
    }


def metered(hours: int, **fields: Any) -> Budget:
    return budget(hours, EACH_USER, mode=BudgetMode.METERED, **fields)


def settles(world: World) -> list[tuple[str, float, float]]:
    """Return the rows without those of admissions: kind, and changes in hours."""
    return [(kind, reserved, used) for kind, _, reserved, used in rows(world) if kind != "Reserve"]


def test_what_runs_on_a_metered_budget_is_recorded_once_at_each_level() -> None:
    world = World(queue("cq", 8), LQ, metered(100))
    world.submit(job("a", gpus=3, hours=None, submitter="ann"), job("b", hours=None, submitter="ann"))
    assert sorted(admitted(world.run())) == ["a", "b"]
    world.settle()
    for passed, levels in ((12, []), (0.5, [37.5, 12.5]), (7, []), (0.5, [22.5, 7.5])):
        world.pass_time(passed * H)
        made = world.run()
        assert [type(one) for one in made] == [Amend] * len(levels)
        assert world.run() == []
        assert [used for _, _, used in settles(world)[-len(levels) :] if levels] == levels
    assert end(world, "a") == []
    assert settles(world)[4:] == [("Settle", 0, 0)]
    world.pass_time(15 * H)
    assert [type(one) for one in world.run()] == [Amend]
    assert settles(world)[5:] == [("Settle", 0, 15)]  # 95 %
    world.pass_time(5 * H)
    world.run()
    assert settles(world)[6:] == [("Settle", 0, 5)]
    world.pass_time(300 * H)
    assert world.run() == []  # nothing above 100 %
    assert end(world, "b") == []
    assert settles(world)[7:] == [("Settle", 0, 300)]


def restarted(world: World, limit: Budget, *jobs: Workload) -> World:
    """Return the world of a new leader, which has what the ledger has of jobs that run."""
    starts = {one.ref.name: one.attempt for one in world.decided if isinstance(one, Admit)}
    stored = tuple(
        StoredWorkload(
            id=one.id,
            ref=one.ref,
            queue="lq",
            cluster_queue="cq",
            priority=0,
            created_at=one.created_at,
            arrival=number,
            phase=Phase.ADMITTED,
            attempts=1,
            attempt=starts[one.ref.name],
            reason=None,
            submitter=one.submitter,
        )
        for number, one in enumerate(jobs)
    )
    entries = tuple(one for made in world.decided for one in getattr(made, "budget", ()))
    following = World()
    following.engine = Engine(SOURCES)
    following.now, following.decided = world.now, world.decided
    following.engine.restore(
        LedgerSnapshot(sequence=9, now=world.now, workloads=stored, budget_entries=entries)
    )
    following.tell(ContextObserved(Namespace("ns")), policy(flavor("default")), policy(queue("cq", 8)))
    following.tell(policy(LQ), policy(limit), Listed("policies"))
    following.tell(*(observed(one, suspended=False, generation=2) for one in jobs))
    following.tell(Listed("Job", frozenset(one.id for one in jobs)), TimeCame(world.now))
    return following


def test_levels_that_were_passed_while_no_controller_led_are_recorded_after_the_restart() -> None:
    limit, a = metered(100), job("a", gpus=4, hours=None, submitter="ann")
    world = World(queue("cq", 8), LQ, limit)
    world.submit(a)
    world.run()
    world.settle()
    world.pass_time(13 * H)
    assert [type(one) for one in world.run()] == [Amend]
    world.now += timedelta(hours=8)
    world = restarted(world, limit, a)
    assert [type(one) for one in world.run()] == [Amend]
    assert settles(world) == [("Settle", 0, 52), ("Settle", 0, 32)]
    world = restarted(world, limit, a)
    assert world.run() == []


def test_a_level_of_the_next_month_is_recorded_too() -> None:
    world = World(queue("cq", 8), LQ, metered(1000))
    world.submit(job("a", gpus=1, hours=None, submitter="ann"))
    world.run()
    world.settle()
    while world.now < FEBRUARY + timedelta(days=25):
        due = world.engine.due_at
        assert due is not None
        world.pass_time((due - world.now).total_seconds())
        world.run()
    january = (FEBRUARY - T0) / timedelta(hours=1)
    recorded = [used for _, _, used in settles(world)]
    assert recorded == ([500, january - 500, 500] if january > 500 else [january, 500])
    assert world.now == datetime(2030, 3, 1, tzinfo=UTC)  # 80 % is not reached in February


def test_a_refund_is_of_all_that_the_attempt_has_used_also_before_a_level() -> None:
    rules = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = World(
        queue("cq", 4, preemption=rules), LQ, budget(100, mode=BudgetMode.METERED, refund_preempted=50)
    )
    world.tell(priority("high", 10))
    low = job("low", gpus=4, hours=None)
    world.submit(low)
    world.run()
    world.settle()
    world.pass_time(15 * H)
    assert [type(one) for one in world.run()] == [Amend]
    world.pass_time(H)
    world.submit(job("high", gpus=4, hours=None, priority_class="high", created=1))
    world.run()
    world.settle()
    world.submit(low)
    made = world.run()
    for probe in world.probes:
        world.tell(PodsCounted(probe.workload, probe.attempt, alive=False))
    assert admitted([*made, *world.run()]) == ["high"]
    assert settles(world) == [("Settle", 0, 60), ("Settle", 0, 4), ("Refund", 0, -32)]


def given(hours: int, at: datetime, subject: str | None = None) -> BudgetGrant:
    return BudgetGrant(amount=hours * HOUR, at=at, subject=subject, workload=None, reason="a deadline")


def test_what_is_granted_counts_at_once_for_its_subject_in_its_period_until_it_is_taken_back() -> None:
    limit = budget(10, EACH_USER)
    world = World(queue("cq", 100), LQ, limit)
    world.submit(*(job(who, gpus=12, hours=1, submitter=who) for who in ("ann", "bob")))
    assert admitted(world.run()) == []
    for grants in ((given(1, T0),), (given(5, FEBRUARY),), (given(9, T0, "eve"),)):
        world.tell(policy(replace(limit, grants=grants)))
        assert admitted(world.run()) == []
    world.tell(policy(replace(limit, grants=(given(1, T0), given(1, T0, "ann")))))
    assert admitted(world.run()) == ["ann"]
    reason = world.reason("bob")
    assert reason is not None
    assert (reason.short_by, "at most 11 hours" in reason.message) == (1, True)
    (seconds,) = (one.value for one in world.engine.numbers() if one.name == "budget_reserved_seconds")
    assert seconds == 12 * H
    world.tell(policy(limit))
    assert [type(one) for one in world.run()] == [Keep]  # of bob; what runs goes on
    end(world, "ann")
    world.submit(job("ann2", gpus=12, hours=1, submitter="ann", created=1))
    assert admitted(world.run()) == []


def test_a_level_is_of_the_hours_with_what_is_granted() -> None:
    world = World(queue("cq", 8), LQ, replace(metered(100), grants=(given(100, T0, "ann"),)))
    world.submit(*(job(who, hours=None, submitter=who) for who in ("ann", "bob")))
    world.run()
    world.settle()
    world.pass_time(50 * H)
    assert [one.workload for one in world.run() if isinstance(one, Amend)] == ["uid-bob"]
    world.pass_time(50 * H)
    assert [one.workload for one in world.run() if isinstance(one, Amend)] == ["uid-ann", "uid-bob"]
