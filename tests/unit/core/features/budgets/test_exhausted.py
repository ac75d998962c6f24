"""What a Budget does with what it does not cover, beside letting it wait (Y8, Y9, O8)."""

from __future__ import annotations

from typing import Any

from queuectl.core.decisions import Amend, Decision, Enqueue, Evict
from queuectl.core.model.budgets import Budget, OnExhausted
from queuectl.core.model.events import PolicyGone
from queuectl.core.model.policy import (
    Policy,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    WorkloadPriorityClass,
)
from queuectl.core.model.priorities import LoweredPriority
from queuectl.core.model.reasons import Code
from queuectl.core.model.usage_limits import LimitSubject, SubjectKind
from queuectl.core.model.workload import ConfigKey, WorkloadId
from tests.builders import T0, World, admitted, observed, priority, queue
from tests.doubles.engine_state import state
from tests.unit.core.features.budgets.test_budgets import FEBRUARY, LQ, H, budget, end, job, rows

SCAVENGE = WorkloadPriorityClass("scavenge", -10)
NORMAL = WorkloadPriorityClass("normal", 5)
LOWER_PRIORITY = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
LOWERED = LoweredPriority("Budget/x", "scavenge", -10)


def lowering(hours: int, **fields: Any) -> Budget:
    return budget(hours, on_exhausted=OnExhausted.LOWER_CLASS, lower_class="scavenge", **fields)


def world(*policies: Policy, gpus: int = 8) -> World:
    return World(queue("cq", gpus, preemption=LOWER_PRIORITY), LQ, SCAVENGE, NORMAL, *policies)


def queued_at(world: World, name: str) -> list[int]:
    """Return the priorities that the ledger had for a workload, in order."""
    found: list[int] = []
    for one in world.decided:
        changes = (Enqueue, Amend)
        if (
            isinstance(one, changes)
            and (one.workload.ref if isinstance(one, Enqueue) else one.ref).name == name
        ):
            found.append(one.priority)
    return found


def lowered_number(world: World) -> float:
    """Return how many workloads Budget x lowers, as metrics say."""
    (found,) = (one for one in world.engine.numbers() if one.name == "budget_lowered_workloads")
    assert found.labels == (("budget", "x"),)
    return found.value


def evicted(made: list[Decision]) -> list[str]:
    return [one.ref.name for one in made if isinstance(one, Evict)]


def test_what_a_budget_does_not_cover_runs_at_the_lower_priority_and_is_not_charged() -> None:
    lab = world(lowering(10))
    lab.submit(
        job("a", hours=8, priority_class="normal"), job("b", hours=8, created=1, priority_class="normal")
    )
    assert admitted(lab.run()) == ["a", "b"]
    assert rows(lab) == [("Reserve", "uid-a", 8, 0)]
    assert queued_at(lab, "b") == [5, -10]
    reason = lab.reason("b")
    assert reason is not None
    assert reason.message.endswith(
        "at most 10 hours a month; until then it is queued with the priority of "
        "WorkloadPriorityClass/scavenge, and not charged"
    )
    assert state(lab.engine).entries[WorkloadId("uid-b")].past.lowered == (LOWERED,)
    assert lowered_number(lab) == 1
    end(lab, "b")
    assert rows(lab) == [("Reserve", "uid-a", 8, 0)]
    assert lowered_number(lab) == 0


def test_what_is_covered_preempts_it_and_it_stays_lowered() -> None:
    lab = world(lowering(10, subject=LimitSubject(SubjectKind.EACH_USER)), gpus=2)
    lab.submit(job("a", hours=8, submitter="ann"), job("over", hours=8, created=1, submitter="ann"))
    assert admitted(lab.run()) == ["a", "over"]
    lab.settle()
    lab.submit(job("bob", hours=8, created=2, submitter="bob"))
    assert evicted(lab.run()) == ["over"]
    assert queued_at(lab, "over") == [0, -10]


def test_it_has_its_own_priority_again_once_enough_is_left() -> None:
    lab = world(lowering(10), gpus=2)
    lab.submit(job("a", hours=8), job("b", hours=8, created=1))
    assert admitted(lab.run()) == ["a", "b"]
    lab.settle()
    lab.submit(job("c", hours=8, created=2))
    assert lab.run() != []
    assert queued_at(lab, "c") == [0, -10]  # else it would preempt b
    lab.pass_time(H)
    assert end(lab, "a") == ["c"]
    assert queued_at(lab, "c") == [0, -10, 0]
    assert rows(lab)[-1] == ("Reserve", "uid-c", 8, 0)


def test_it_has_its_own_priority_again_with_the_next_period() -> None:
    lab = world(lowering(10), gpus=10)
    lab.submit(job("a", gpus=10, hours=1))
    assert admitted(lab.run()) == ["a"]
    lab.pass_time(H)
    end(lab, "a")
    lab.submit(job("b", gpus=10, hours=8000, created=1))
    assert admitted(lab.run()) == ["b"]
    lab.settle()
    lab.submit(job("c", hours=1, created=2))
    lab.run()
    lab.pass_time((FEBRUARY - T0).total_seconds() - H - 1)
    lab.run()
    assert queued_at(lab, "c") == [0, -10]
    lab.pass_time(1)
    assert evicted(lab.run()) == ["b"]
    assert queued_at(lab, "c") == [0, -10, 0]


def test_without_its_class_it_waits() -> None:
    lab = World(queue("cq", 8), LQ, lowering(10))
    lab.submit(job("a", hours=8), job("b", hours=8, created=1))
    assert admitted(lab.run()) == ["a"]
    reason = lab.reason("b")
    assert reason is not None
    assert reason.message.endswith("WorkloadPriorityClass/scavenge of spec.lowerClass not found")
    lab.tell(priority("scavenge", -10))
    assert admitted(lab.run()) == ["b"]
    assert queued_at(lab, "b") == [0, -10]


def test_a_higher_class_raises_nothing() -> None:
    lab = world(lowering(10), WorkloadPriorityClass("scavenge", 100))
    lab.submit(job("a", hours=8), job("b", hours=8, created=1))
    assert admitted(lab.run()) == ["a", "b"]
    assert set(queued_at(lab, "b")) == {0}
    assert [row[1] for row in rows(lab)] == ["uid-a"]


def test_another_budget_that_waits_still_holds_it_back() -> None:
    waits = budget(12, name="y")
    lab = world(lowering(10), waits)
    lab.submit(job("a", hours=8), job("b", hours=8, created=1))
    assert admitted(lab.run()) == ["a"]
    reason = lab.reason("b")
    assert reason is not None
    assert reason.node == "Budget/y"
    lab.pass_time(4 * H)
    assert end(lab, "a") == ["b"]
    assert rows(lab)[-1] == ("Reserve", "uid-b", 8, 0)


def test_when_its_budget_ends_a_running_workload_has_its_own_priority_again() -> None:
    lab = world(lowering(10))
    lab.submit(job("a", hours=8), job("b", hours=8, created=1))
    lab.run()
    lab.settle()
    lab.tell(observed(job("b", hours=8, created=1), suspended=False))
    lab.tell(priority("scavenge", -20))
    lab.run()
    assert queued_at(lab, "b") == [0, -10, -20]
    lab.tell(PolicyGone(ConfigKey("Budget", "", "x")))
    lab.run()
    assert queued_at(lab, "b") == [0, -10, -20, 0]


# --- Refuse


def refusing(hours: int, **fields: Any) -> Budget:
    return budget(hours, on_exhausted=OnExhausted.REFUSE, **fields)


def test_what_arrives_when_too_little_is_left_is_refused_and_others_go_on() -> None:
    lab = World(queue("cq", 8, strategy=QueueingStrategy.STRICT_FIFO), LQ, refusing(10))
    lab.submit(job("a", hours=8))
    assert admitted(lab.run()) == ["a"]
    lab.submit(job("b", hours=5, created=1), job("c", hours=2, created=2))
    assert admitted(lab.run()) == ["c"]
    reason = lab.reason("b")
    assert reason is not None
    assert (reason.code, reason.node) == (Code.DEACTIVATED, "Budget/x")
    assert (reason.requested, reason.available, reason.short_by) == (5, 2, 3)
    end(lab, "a")
    assert admitted(lab.run()) == []  # it does not wait


def test_what_waits_already_is_not_refused() -> None:
    lab = World(queue("cq", 8), LQ, refusing(10))
    lab.submit(job("a", hours=8), job("b", hours=8, created=1))  # each is covered when it arrives
    assert admitted(lab.run()) == ["a"]
    reason = lab.reason("b")
    assert reason is not None
    assert reason.code is Code.BUDGET_EXHAUSTED
    assert end(lab, "a") == ["b"]


def test_a_refused_workload_is_queued_when_its_user_holds_and_releases_it() -> None:
    lab = World(queue("cq", 8), LQ, refusing(10))
    lab.submit(job("a", hours=8))
    lab.run()
    lab.submit(job("b", hours=8, created=1))
    lab.run()
    lab.tell(observed(job("b", hours=8, created=1, hold=True), generation=2))
    lab.run()
    lab.tell(observed(job("b", hours=8, created=1), generation=3))
    lab.run()
    reason = lab.reason("b")
    assert reason is not None
    assert reason.code is Code.BUDGET_EXHAUSTED
    assert end(lab, "a") == ["b"]
