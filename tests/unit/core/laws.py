"""Laws that hold for every plan, judged by the text of the rules and the rows of the ledger alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuectl.core.decisions import Admit, Enqueue, Evict, Keep, Plan, Release, Retire
from queuectl.core.model import Attempt, ObjectRef, WorkloadId
from queuectl.core.policy import ClusterQueue, Preemption, PreemptionPolicy
from queuectl.core.preemption.claims import PreemptionClaim
from queuectl.core.reasons import PreemptionCause, Reason
from queuectl.core.resources import FlavorResource
from tests.builders import T0
from tests.unit.core.reference import Cell, Named, Policy, Usage

if TYPE_CHECKING:
    from tests.unit.core.running import Running


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

    def __init__(self, running: Running, plan: Plan, *, one_cycle: bool) -> None:
        self.running = running
        self.plan = plan
        self.one_cycle = one_cycle
        self.policy = running.counting()
        self.stored = running.ledger.store.workloads
        names = running.engine._state.tree.names
        self.names: list[FlavorResource] = names
        self.attempts = {uid: one.attempt for uid, one in self.stored.items() if one.attempt is not None}
        closed = {d.workload for d in plan.decisions if isinstance(d, Release | Retire)}
        for uid in closed:
            self.attempts.pop(uid, None)
        self.preemptions = list(self._preemptions())
        self.claimed = {claim.cluster_queue for claim in running.engine._state.claims}
        """Queues with open claims of earlier plans."""

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
        return self.running.world.settings.fair_sharing if enabled is None else enabled

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
        for claim in self.running.engine._state.claims:
            if claim.owner not in decided:
                entry = self.running.engine._state.entries[claim.owner]
                owner = WorkloadRef(entry.id, entry.ref, entry.priority, T0)
                waits_for = [victim.workload for victim in claim.victims]
                yield Preempting(owner, claim.cluster_queue, self.cells(claim), waits_for)

    def alone(self) -> Iterator[Preempting]:
        """Yield the preemptions whose search saw exactly the state of `quota`.

        These are the first ones of their trees, in plans of one cycle, without open claims.
        """
        if not self.one_cycle:
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


# --- laws


def no_workload_is_admitted_on_quota_that_is_not_available(context: PlanContext) -> None:
    quota = context.quota()
    for decision in context.plan.decisions:
        if not isinstance(decision, Admit):
            continue
        attempt = decision.attempt
        queue = attempt.assignment.cluster_queue
        for (flavor, resource), amount in attempt.assignment.usage().items():
            free = max(0, quota.available(queue, (flavor, resource)))
            assert amount <= free or attempt.debt, (
                f"{decision.ref} requests {amount} of {flavor}, available: {free}"
            )
        quota.charge(attempt)


def preemptors_of_a_plan_fit_after_their_victims_end(context: PlanContext) -> None:
    """All preemptors of a tree fit together, with the admissions of the plan and with earlier claims."""
    if not context.preemptions:
        return
    quota = context.quota()
    for decision in context.plan.decisions:
        if isinstance(decision, Admit):
            quota.charge(decision.attempt)
    claims = [(a.queue, a.cells, a.waits_for) for a in (*context.preemptions, *context.earlier())]
    for victim in {uid for _, _, victims in claims for uid in victims}:
        if victim in context.attempts:
            quota.charge(context.attempts[victim], -1)
    for queue, cells, _ in claims:
        for cell, amount in cells.items():
            quota.add(queue, cell, amount)
    for preempting in context.preemptions:
        for cell in preempting.cells:
            over = -quota.available(preempting.queue, cell)
            assert over <= 0, f"{preempting.owner.ref} lacks {over} of {cell} without its victims"


def no_victim_is_unnecessary(context: PlanContext) -> None:
    """P6: with any single victim restored, the request does not fit, or only with borrowing."""
    for preempting in context.alone():
        quota = context.quota()
        for uid in preempting.waits_for:
            quota.charge(context.attempts[uid], -1)
        assert fits(quota, preempting, allow_borrowing=True), f"{preempting.owner.ref} does not fit"
        bound = fits(quota, preempting, allow_borrowing=False)
        for victim in preempting.evicts:
            quota.charge(context.attempts[victim.workload])
            spared = fits(quota, preempting, allow_borrowing=True)
            if spared and bound and not context.fair(preempting.queue):
                spared = fits(quota, preempting, allow_borrowing=False)
            assert not spared, f"{victim.ref} is not needed as a victim of {preempting.owner.ref}"
            quota.charge(context.attempts[victim.workload], -1)


def fits(quota: QuotaState, preempting: Preempting, *, allow_borrowing: bool) -> bool:
    for cell, amount in preempting.cells.items():
        if amount > max(0, quota.available(preempting.queue, cell)):
            return False
        subtree, _, used = quota.numbers((preempting.queue, ClusterQueue), cell)
        if not allow_borrowing and len(quota.path(preempting.queue)) > 1 and used + amount > subtree:
            return False
    return True


def priority_is_respected(context: PlanContext) -> None:
    """P2. YuniKorn: only equal or lower priority is preempted. `Any` lifts this for borrowed quota."""
    for preempting in context.preemptions:
        rules, owner = context.rules(preempting.queue), preempting.owner
        for victim in preempting.evicts:
            own = context.queue_of(victim) == preempting.queue
            policy = rules.within_cluster_queue if own else rules.reclaim_within_cohort
            other = context.stored[victim.workload]
            cause = victim.reason.cause
            assert policy is not PreemptionPolicy.NEVER, f"{preempting.queue} may not preempt {victim.ref}"
            assert own is (cause is PreemptionCause.IN_CLUSTER_QUEUE)
            if policy is PreemptionPolicy.LOWER_PRIORITY:
                assert other.priority < owner.priority
            elif policy is PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
                newer = (-other.priority, other.created_at) > (-owner.priority, owner.created_at)
                assert newer, f"{victim.ref} is ahead of {owner.ref}"
            if cause is PreemptionCause.IN_COHORT_RECLAIM_WHILE_BORROWING:
                allowed = rules.borrow_within_cohort
                assert allowed is not None
                assert other.priority < owner.priority
                assert allowed.most_priority is None or other.priority <= allowed.most_priority


def no_protected_workload_is_preempted(context: PlanContext) -> None:
    """P10 and P11. A workload that has ended and only has live pods is not protected."""
    settings = context.running.world.settings
    snapshot = context.running.ledger._preemptions()
    for preempting in context.preemptions:
        for victim in preempting.evicts:
            attempt = context.attempts[victim.workload]
            job = context.running.jobs.get(victim.workload)
            if job is None or job.finished is not None:
                continue
            cause = victim.reason.cause
            assert cause is not None
            ran = (context.now - attempt.admitted_at).total_seconds()
            assert ran >= context.rules(context.queue_of(victim)).min_run_time.seconds(cause)
            counts_for = settings.preemptions_count_for
            past = [t for t in snapshot[victim.workload] if context.now - t < counts_for]
            assert not past or ran >= settings.cooldown, f"{victim.ref} was preempted within the cooldown"
            recent = [t for t in past if (context.now - t).total_seconds() < settings.eviction_window]
            assert len(recent) < settings.eviction_budget, f"{victim.ref} was preempted {len(recent)} times"


def a_victim_holds_what_is_requested(context: PlanContext) -> None:
    for preempting in context.preemptions:
        for victim in preempting.evicts:
            assert context.uses(victim) & preempting.cells.keys(), (
                f"{victim.ref} holds nothing that is requested"
            )


def no_victim_is_in_another_tree(context: PlanContext) -> None:
    """YuniKorn: never outside the fence. The fence here is the root cohort."""
    quota = context.quota()
    for preempting in context.preemptions:
        for victim in preempting.evicts:
            assert quota.root(context.queue_of(victim)) == quota.root(preempting.queue)


def preemptor_and_victim_are_different_workloads(context: PlanContext) -> None:
    """YuniKorn: never within one application. A workload is preempted whole and once, and not admitted."""
    admitted_since = {d.attempt.workload for d in context.plan.decisions if isinstance(d, Admit)}
    asking = {preempting.owner.id for preempting in context.preemptions}
    victims = [victim.workload for victim in context.plan.victims]
    assert len(victims) == len(set(victims)), "a workload is preempted twice"
    assert not set(victims) & (asking | admitted_since)
    assert not asking & admitted_since
    assert {victim.preemptor for victim in context.plan.victims} <= asking


def a_queue_loses_only_what_it_borrows(context: PlanContext) -> None:
    """YuniKorn: the queue of a victim is above its guarantee, and is never pushed below it.

    A workload is preempted whole, so the last victim of a queue may bring it below: without this victim, the
    queue still borrows. If shares decide (P7), borrowing on any cell counts, else on a requested cell.
    """
    for preempting in context.alone():
        quota = context.quota()
        fair = context.fair(preempting.queue)
        by_queue: dict[str, list[Evict]] = {}
        for victim in context.elsewhere(preempting):
            by_queue.setdefault(context.queue_of(victim), []).append(victim)
        for uid in preempting.waits_for:
            quota.charge(context.attempts[uid], -1)
        for queue, victims in by_queue.items():
            known = {
                (f.name, r)
                for g in context.policy.queues[queue].resource_groups
                for f in g.flavors
                for r in g.covered
            }
            cells = {tuple(name) for name in context.names} | known if fair else preempting.cells.keys()
            found = False
            for victim in victims:
                quota.charge(context.attempts[victim.workload])
                found |= any(quota.borrows((queue, ClusterQueue), cell) for cell in cells)  # type: ignore[arg-type]
                quota.charge(context.attempts[victim.workload], -1)
            assert found, f"{queue} is pushed below its own quota by {preempting.owner.ref}"


def the_preemptor_is_below_its_guarantee(context: PlanContext) -> None:
    """YuniKorn: preemption is only for queues below their guarantee.

    Here the request stays within the own quota of the queue, or of a cohort between it and the victim. Else
    priority (P2) or a share (P8) must allow the preemption.
    """
    for preempting in context.alone():
        quota = context.quota()
        mine = quota.path(preempting.queue)
        after = context.quota()
        for uid in preempting.waits_for:
            after.charge(context.attempts[uid], -1)
        for victim in context.elsewhere(preempting):
            if victim.reason.cause is not PreemptionCause.IN_COHORT_RECLAMATION:
                continue
            theirs = quota.path(context.queue_of(victim))
            between = mine[: next(n for n, node in enumerate(mine) if node in theirs)]
            fair = context.fair(preempting.queue)
            entitled = any(within(quota, preempting, node) for node in between) if not fair else False
            if not entitled and fair:
                entitled = any(
                    quota.numbers(mine[0], cell)[2] + amount <= quota.numbers(mine[0], cell)[0]
                    for cell, amount in preempting.cells.items()
                )
            assert entitled or fits(after, preempting, allow_borrowing=False), (
                f"{preempting.owner.ref} borrows and yet takes {victim.ref} back"
            )


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


def share_causes_occur_only_with_fair_sharing(context: PlanContext) -> None:
    """S1: each cause occurs only in trees with, or only in trees without, fair sharing."""
    for preempting in context.preemptions:
        causes = {victim.reason.cause for victim in preempting.evicts}
        if context.fair(preempting.queue):
            assert PreemptionCause.IN_COHORT_RECLAIM_WHILE_BORROWING not in causes
        else:
            assert PreemptionCause.IN_COHORT_FAIR_SHARING not in causes


def a_row_says_more_than_other_numbers(context: PlanContext) -> None:
    """R2: for a workload that waits already, a change of amounts, counts or times alone makes no row."""
    for decision in context.plan.recorded:
        if isinstance(decision, Keep) and (one := context.stored.get(decision.workload)) is not None:
            assert one.reason is None or _without_numbers(one.reason) != _without_numbers(decision.reason), (
                f"{decision.ref} waits with {one.reason}, and is told {decision.reason}"
            )


def _without_numbers(reason: Reason) -> tuple[object, ...]:
    """Return what identifies a reason, its text without digits."""
    text = re.sub(r"\d+", "0", reason.detail or "")
    return (
        *(reason.code, reason.flavor, reason.resource, reason.limit, reason.node),
        *(reason.cause, reason.by, text),
    )


ALL = (
    no_workload_is_admitted_on_quota_that_is_not_available,
    preemptors_of_a_plan_fit_after_their_victims_end,
    no_victim_is_unnecessary,
    priority_is_respected,
    no_protected_workload_is_preempted,
    a_victim_holds_what_is_requested,
    no_victim_is_in_another_tree,
    preemptor_and_victim_are_different_workloads,
    a_queue_loses_only_what_it_borrows,
    the_preemptor_is_below_its_guarantee,
    share_causes_occur_only_with_fair_sharing,
    a_row_says_more_than_other_numbers,
)
