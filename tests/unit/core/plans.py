"""A plan and the state before it is applied, as laws read them: by the ledger and the text of the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from queuectl.core.decisions import Admit, Enqueue, Evict, Keep, Plan, Release, Retire
from queuectl.core.model.policy import ClusterQueue, Preemption
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import Attempt, ObjectRef, StoredWorkload, WorkloadId
from queuectl.core.preemption.claims import PreemptionClaim
from tests.builders import T0
from tests.doubles import engine_state
from tests.unit.core.reference import Cell, Named, Policy, Usage

if TYPE_CHECKING:
    from tests.unit.core.driver import Driver


class When(Enum):
    """When the driver checks a law."""

    ACTION = auto()
    """After each random action. The law reads the driver."""
    DECIDE = auto()
    """After each `decide`, also one that decides nothing. The law reads the plan."""
    PLAN = auto()
    """Before a plan that decides something is committed. The law reads the plan."""
    COMMIT = auto()
    """After a plan is committed. The law reads the plan."""
    DECIDED = auto()
    """When nothing is left to decide; writes and pods may be outstanding. The law reads the driver."""
    REST = auto()
    """When nothing is left to decide, to write or to count. The law reads the driver."""


@dataclass(frozen=True)
class Law:
    name: str
    when: When
    check: Callable[[Any], None]
    """Raises AssertionError if the law is broken."""

    def __call__(self, subject: Driver | PlanContext) -> None:
        self.check(subject)


def law(when: When) -> Callable[[Callable[[Any], None]], Law]:
    """Make a law of a function, with the name of the function."""
    return lambda check: Law(check.__name__, when, check)


class QuotaState:
    """Usage of all queues, and the quota that follows from it, recomputed for each query (Q2 to Q5)."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.usage: Usage = {}

    def charge(self, attempt: Attempt, sign: int = 1) -> None:
        for (flavor, resource), amount in attempt.assignment.usage().items():
            self.add(attempt.assignment.cluster_queue, (flavor, resource), sign * amount)

    def add(self, queue: str, cell: Cell, amount: int) -> None:
        key = (queue, *cell)
        self.usage[key] = self.usage.get(key, 0) + amount

    def available(self, queue: str, cell: Cell) -> int:
        return self.policy.available((queue, ClusterQueue), cell, self.usage)

    def numbers(self, node: Named, cell: Cell) -> tuple[int, int, int]:
        """Return subtree quota, private quota and usage (Q2, Q3)."""
        return self.policy._numbers(node, cell, self.usage)

    def borrows(self, node: Named, cell: Cell) -> bool:
        subtree, _, used = self.numbers(node, cell)
        return used > subtree

    def path(self, queue: str) -> list[Named]:
        """Return the queue and its ancestors, nearest first."""
        found: list[Named] = [(queue, ClusterQueue)]
        while (above := self.policy._parent(found[-1])) is not None:
            found.append(above)
        return found

    def root(self, queue: str) -> Named:
        return self.path(queue)[-1]


class WorkloadRef(NamedTuple):
    id: WorkloadId
    ref: ObjectRef
    priority: int
    created_at: datetime


@dataclass
class Preempting:
    """One preemptor of a plan, its request and its victims."""

    owner: WorkloadRef
    queue: str
    cells: dict[Cell, int]
    waits_for: list[WorkloadId]
    """Its victims, including those that were already terminating."""
    evicts: list[Evict] = field(default_factory=list)


class PlanContext:
    """A plan and the state before it is applied."""

    def __init__(self, driver: Driver, plan: Plan, budget: int, cycles: int | None) -> None:
        self.driver = driver
        self.plan = plan
        self.budget = budget
        self.cycles = cycles
        self.stored: dict[WorkloadId, StoredWorkload] = driver.ledger.store.workloads

    @cached_property
    def policy(self) -> Policy:
        """The policy with nominal quotas as they count while nodes have less than that (M11)."""
        return self.driver.nodes.counting()

    @cached_property
    def names(self) -> list[FlavorResource]:
        return engine_state.tree(self.driver.engine).names

    @cached_property
    def attempts(self) -> dict[WorkloadId, Attempt]:
        """The open attempts that the plan does not end."""
        closed = {d.workload for d in self.plan.decisions if isinstance(d, Release | Retire)}
        return {
            uid: one.attempt
            for uid, one in self.stored.items()
            if one.attempt is not None and uid not in closed
        }

    @cached_property
    def preemptions(self) -> list[Preempting]:
        return list(self._preemptions())

    @cached_property
    def claimed(self) -> set[str]:
        """Queues with open claims of earlier plans."""
        return {claim.cluster_queue for claim in engine_state.claims(self.driver.engine)}

    @cached_property
    def admissions(self) -> list[Attempt]:
        """The attempts that the plan opens, without those that run already."""
        opened = (d.attempt for d in self.plan.decisions if isinstance(d, Admit))
        return [attempt for attempt in opened if not attempt.debt]

    @property
    def now(self) -> datetime:
        return self.plan.now

    def quota(self) -> QuotaState:
        """Usage before the admissions of the plan, without the quota that the plan releases."""
        quota = QuotaState(self.policy)
        for attempt in self.attempts.values():
            quota.charge(attempt)
        return quota

    def rules(self, queue: str) -> Preemption:
        return self.policy.queues[queue].preemption

    def fair(self, queue: str) -> bool:
        name, kind = self.quota().root(queue)
        if kind is ClusterQueue:
            return False
        cohort = self.policy.cohorts.get(name)
        enabled = cohort.sharing.enabled if cohort is not None else None
        return self.driver.setup.settings.fair_sharing if enabled is None else enabled

    def cells(self, claim: PreemptionClaim) -> dict[Cell, int]:
        return {tuple(self.names[cell]): amount for cell, amount in claim.cells if amount}  # type: ignore[misc]

    def _preemptions(self) -> Iterator[Preempting]:
        for decision in self.plan.decisions:
            if isinstance(decision, Keep) and (claim := decision.claim) is not None:
                evicts = [victim for victim in self.plan.victims if victim.preemptor == decision.workload]
                waits_for = [victim.workload for victim in claim.victims]
                yield Preempting(
                    self._workload_ref(decision), claim.cluster_queue, self.cells(claim), waits_for, evicts
                )

    def _workload_ref(self, kept: Keep) -> WorkloadRef:
        """Return the workload as recorded in the ledger after the plan."""
        for decision in self.plan.decisions:
            if isinstance(decision, Enqueue) and decision.workload.id == kept.workload:
                return WorkloadRef(kept.workload, kept.ref, decision.priority, decision.workload.created_at)
        stored = self.stored[kept.workload]
        return WorkloadRef(kept.workload, kept.ref, stored.priority, stored.created_at)

    def earlier(self) -> Iterator[Preempting]:
        """Yield the claims of earlier plans, except those of workloads that this plan decides."""
        decided = {d.workload for d in self.plan.decisions if isinstance(d, Keep)}
        decided |= {d.attempt.workload for d in self.plan.decisions if isinstance(d, Admit)}
        for claim in engine_state.claims(self.driver.engine):
            if claim.owner not in decided:
                entry = engine_state.entry(self.driver.engine, claim.owner)
                owner = WorkloadRef(entry.id, entry.ref, entry.priority, T0)
                waits_for = [victim.workload for victim in claim.victims]
                yield Preempting(owner, claim.cluster_queue, self.cells(claim), waits_for)

    def alone(self) -> Iterator[Preempting]:
        """Yield the preemptions whose search saw exactly the state of `quota`.

        These are the first ones of their trees, in plans of one cycle, without open claims.
        """
        if self.cycles != 1:
            return
        seen: set[Named] = set()
        quota = self.quota()
        claims = {quota.root(name) for name in self.claimed}
        for preempting in self.preemptions:
            root = quota.root(preempting.queue)
            if root not in seen and root not in claims:
                seen.add(root)
                yield preempting

    def elsewhere(self, preempting: Preempting) -> list[Evict]:
        return [victim for victim in preempting.evicts if self.queue_of(victim) != preempting.queue]

    def queue_of(self, victim: Evict) -> str:
        return self.attempts[victim.workload].assignment.cluster_queue

    def uses(self, victim: Evict) -> set[Cell]:
        usage = self.attempts[victim.workload].assignment.usage()
        return {(f, r) for (f, r), amount in usage.items() if amount}


def fits(quota: QuotaState, preempting: Preempting, *, allow_borrowing: bool) -> bool:
    for cell, amount in preempting.cells.items():
        if amount > max(0, quota.available(preempting.queue, cell)):
            return False
        subtree, _, used = quota.numbers((preempting.queue, ClusterQueue), cell)
        if not allow_borrowing and len(quota.path(preempting.queue)) > 1 and used + amount > subtree:
            return False
    return True


def within(quota: QuotaState, preempting: Preempting, node: Named) -> bool:
    """Return whether `node` does not borrow with the part of the request that reaches it."""
    for cell, amount in preempting.cells.items():
        rest = amount
        for at in quota.path(preempting.queue):
            subtree, private, used = quota.numbers(at, cell)
            if at == node:
                if used + rest > subtree:
                    return False
                break
            rest = max(0, rest - max(0, private - used))
    return True


def meaning(plan: Plan) -> Counter[str]:
    """Return the decisions as a set, without numbers that depend on their order."""
    decisions: Counter[str] = Counter()
    for decision in plan.decisions:
        if isinstance(decision, Enqueue):
            decisions[f"queue {decision.workload.id} {decision.cluster_queue} {decision.priority}"] += 1
        elif isinstance(decision, Admit):
            decisions[f"admit {decision.attempt.assignment} {decision.attempt.number} {decision.ref}"] += 1
        elif isinstance(decision, Keep):
            decisions[f"keep {decision.ref} {decision.reason.key}"] += 1
        else:
            decisions[repr(decision)] += 1
    return decisions


def moves(plan: Plan) -> list[str]:
    """Return what a plan admits and evicts."""
    admitted = [f"{d.ref.name}: {d.attempt.assignment}" for d in plan.decisions if isinstance(d, Admit)]
    return sorted([*admitted, *(f"{victim.ref.name} for {victim.preemptor}" for victim in plan.victims)])
