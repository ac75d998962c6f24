"""What must hold of every plan: judged by the rules' own words, from the ledger's rows alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuectl.core.decisions import Admit, Enqueue, Evict, Keep, Plan, Release, Retire
from queuectl.core.model import Attempt, ObjectRef, WorkloadId
from queuectl.core.policy import ClusterQueue, Preemption, PreemptionPolicy
from queuectl.core.preemption.claims import PreemptionClaim
from queuectl.core.reasons import PreemptionCause
from queuectl.core.resources import FlavorResource
from tests.builders import T0
from tests.core.reference import Cell, Named, Policy, Usage

if TYPE_CHECKING:
    from tests.core.running import Running


class Books:
    """Who holds what, and what that leaves, computed anew at every question (Q2 to Q5)."""

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
        """subtree, private, usage."""
        return self.policy._numbers(node, cell, self.usage)

    def borrows(self, node: Named, cell: Cell) -> bool:
        subtree, _, used = self.numbers(node, cell)
        return used > subtree

    def path(self, queue: str) -> list[Named]:
        """The queue and its ancestors, nearest first."""
        found: list[Named] = [(queue, ClusterQueue)]
        while (above := self.policy._parent(found[-1])) is not None:
            found.append(above)
        return found

    def root(self, queue: str) -> Named:
        return self.path(queue)[-1]


class Who(NamedTuple):
    id: WorkloadId
    ref: ObjectRef
    priority: int
    created_at: datetime


@dataclass
class Asked:
    """One preemption: who, for what, and whom it costs."""

    owner: Who
    queue: str
    cells: dict[Cell, int]
    waits_for: list[WorkloadId]
    """All whose end it waits for, those that were leaving already too."""
    evicts: list[Evict] = field(default_factory=list)


class Scene:
    """A plan, and what holds before it is carried out."""

    def __init__(self, running: Running, plan: Plan, *, one_cycle: bool) -> None:
        self.running = running
        self.plan = plan
        self.one_cycle = one_cycle
        self.policy = running.policy
        self.stored = running.ledger.store.workloads
        names = running.engine._state.tree.names
        self.names: list[FlavorResource] = names
        self.attempts = {uid: one.attempt for uid, one in self.stored.items() if one.attempt is not None}
        closed = {d.workload for d in plan.decisions if isinstance(d, Release | Retire)}
        for uid in closed:
            self.attempts.pop(uid, None)
        self.preemptions = list(self._preemptions())
        self.claimed = {claim.cluster_queue for claim in running.engine._state.claims}
        """Queues for which claims of earlier plans are open."""

    @property
    def now(self) -> datetime:
        return self.plan.now

    def books(self) -> Books:
        """Before anybody is let go, with what the plan gives back given back."""
        books = Books(self.policy)
        for attempt in self.attempts.values():
            books.charge(attempt)
        return books

    def rules(self, queue: str) -> Preemption:
        return self.policy.queues[queue].preemption

    def fair(self, queue: str) -> bool:
        name, kind = self.books().root(queue)
        if kind is ClusterQueue:
            return False
        cohort = self.policy.cohorts.get(name)
        enabled = cohort.sharing.enabled if cohort is not None else None
        return self.running.world.settings.fair_sharing if enabled is None else enabled

    def cells(self, claim: PreemptionClaim) -> dict[Cell, int]:
        return {tuple(self.names[cell]): amount for cell, amount in claim.cells if amount}  # type: ignore[misc]

    def _preemptions(self) -> Iterator[Asked]:
        for decision in self.plan.decisions:
            if isinstance(decision, Keep) and (claim := decision.claim) is not None:
                evicts = [victim for victim in self.plan.victims if victim.preemptor == decision.workload]
                waits_for = [victim.workload for victim in claim.victims]
                yield Asked(self._who(decision), claim.cluster_queue, self.cells(claim), waits_for, evicts)

    def _who(self, told: Keep) -> Who:
        """As the ledger knows it, once it has the plan."""
        for decision in self.plan.decisions:
            if isinstance(decision, Enqueue) and decision.workload.id == told.workload:
                return Who(told.workload, told.ref, decision.priority, decision.workload.created_at)
        stored = self.stored[told.workload]
        return Who(told.workload, told.ref, stored.priority, stored.created_at)

    def earlier(self) -> Iterator[Asked]:
        """Claims of plans before this one, but for those whose owners this one decides on."""
        told = {d.workload for d in self.plan.decisions if isinstance(d, Keep)}
        told |= {d.attempt.workload for d in self.plan.decisions if isinstance(d, Admit)}
        for claim in self.running.engine._state.claims:
            if claim.owner not in told:
                owner = self.running.engine._state.entries[claim.owner]
                who = Who(owner.id, owner.ref, owner.priority, T0)
                waits_for = [victim.workload for victim in claim.victims]
                yield Asked(who, claim.cluster_queue, self.cells(claim), waits_for)

    def alone(self) -> Iterator[Asked]:
        """Preemptions whose victims were looked for in the very state that `books` shows: the first of their
        trees, in plans of one cycle, where no claim is open."""
        if not self.one_cycle:
            return
        seen: set[Named] = set()
        books = self.books()
        claims = {books.root(name) for name in self.claimed}
        for asked in self.preemptions:
            root = books.root(asked.queue)
            if root not in seen and root not in claims:
                seen.add(root)
                yield asked

    def elsewhere(self, asked: Asked) -> list[Evict]:
        return [victim for victim in asked.evicts if self.queue_of(victim) != asked.queue]

    def queue_of(self, victim: Evict) -> str:
        return self.attempts[victim.workload].assignment.cluster_queue

    def uses(self, victim: Evict) -> set[Cell]:
        usage = self.attempts[victim.workload].assignment.usage()
        return {(f, r) for (f, r), amount in usage.items() if amount}


# --- the laws


def nobody_is_let_go_on_quota_that_is_not_there(scene: Scene) -> None:
    books = scene.books()
    for decision in scene.plan.decisions:
        if not isinstance(decision, Admit):
            continue
        attempt = decision.attempt
        queue = attempt.assignment.cluster_queue
        for (flavor, resource), amount in attempt.assignment.usage().items():
            free = max(0, books.available(queue, (flavor, resource)))
            assert amount <= free or attempt.debt, f"{decision.ref} asks {amount} of {flavor}, {free} is free"
        books.charge(attempt)


def a_plan_makes_room_for_its_preemptors(scene: Scene) -> None:
    """All of a tree together, with who is let go meanwhile and with earlier claims."""
    if not scene.preemptions:
        return
    books = scene.books()
    for decision in scene.plan.decisions:
        if isinstance(decision, Admit):
            books.charge(decision.attempt)
    claims = [(a.queue, a.cells, a.waits_for) for a in (*scene.preemptions, *scene.earlier())]
    for victim in {uid for _, _, victims in claims for uid in victims}:
        if victim in scene.attempts:
            books.charge(scene.attempts[victim], -1)
    for queue, cells, _ in claims:
        for cell, amount in cells.items():
            books.add(queue, cell, amount)
    for asked in scene.preemptions:
        for cell in asked.cells:
            over = -books.available(asked.queue, cell)
            assert over <= 0, f"{asked.owner.ref} will lack {over} of {cell} when its victims are gone"


def no_victim_can_be_spared(scene: Scene) -> None:
    """P6: put any single one back, and it does not fit; or it does, but only by borrowing."""
    for asked in scene.alone():
        books = scene.books()
        for uid in asked.waits_for:
            books.charge(scene.attempts[uid], -1)
        assert fits(books, asked, allow_borrowing=True), f"{asked.owner.ref} does not fit"
        bound = fits(books, asked, allow_borrowing=False)
        for victim in asked.evicts:
            books.charge(scene.attempts[victim.workload])
            spared = fits(books, asked, allow_borrowing=True)
            if spared and bound and not scene.fair(asked.queue):
                spared = fits(books, asked, allow_borrowing=False)
            assert not spared, f"{victim.ref} need not give way to {asked.owner.ref}"
            books.charge(scene.attempts[victim.workload], -1)


def fits(books: Books, asked: Asked, *, allow_borrowing: bool) -> bool:
    for cell, amount in asked.cells.items():
        if amount > max(0, books.available(asked.queue, cell)):
            return False
        subtree, _, used = books.numbers((asked.queue, ClusterQueue), cell)
        if not allow_borrowing and len(books.path(asked.queue)) > 1 and used + amount > subtree:
            return False
    return True


def priority_is_respected(scene: Scene) -> None:
    """P2; YuniKorn: only equal or lower priority gives way. An admin may say `Any` for what is borrowed."""
    for asked in scene.preemptions:
        rules, owner = scene.rules(asked.queue), asked.owner
        for victim in asked.evicts:
            own = scene.queue_of(victim) == asked.queue
            policy = rules.within_cluster_queue if own else rules.reclaim_within_cohort
            other = scene.stored[victim.workload]
            cause = victim.reason.cause
            assert policy is not PreemptionPolicy.NEVER, f"{asked.queue} never takes from {victim.ref}"
            assert own is (cause is PreemptionCause.IN_CLUSTER_QUEUE)
            if policy is PreemptionPolicy.LOWER_PRIORITY:
                assert other.priority < owner.priority
            elif policy is PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
                newer = (-other.priority, other.created_at) > (-owner.priority, owner.created_at)
                assert newer, f"{victim.ref} comes before {owner.ref}"
            if cause is PreemptionCause.IN_COHORT_RECLAIM_WHILE_BORROWING:
                allowed = rules.borrow_within_cohort
                assert allowed is not None
                assert other.priority < owner.priority
                assert allowed.most_priority is None or other.priority <= allowed.most_priority


def nobody_protected_gives_way(scene: Scene) -> None:
    """P10 and P11. Who is over already and only has pods alive is not protected."""
    settings = scene.running.world.settings
    snapshot = scene.running.ledger._preemptions()
    for asked in scene.preemptions:
        for victim in asked.evicts:
            attempt = scene.attempts[victim.workload]
            job = scene.running.jobs.get(victim.workload)
            if job is None or job.finished is not None:
                continue
            cause = victim.reason.cause
            assert cause is not None
            ran = (scene.now - attempt.admitted_at).total_seconds()
            assert ran >= scene.rules(scene.queue_of(victim)).min_run_time.seconds(cause)
            past = snapshot[victim.workload]
            assert not past or ran >= settings.cooldown, f"{victim.ref} was preempted just now"
            recent = [t for t in past if (scene.now - t).total_seconds() < settings.eviction_window]
            assert len(recent) < settings.eviction_budget, f"{victim.ref} was preempted {len(recent)} times"


def a_victim_holds_what_is_asked_for(scene: Scene) -> None:
    for asked in scene.preemptions:
        for victim in asked.evicts:
            assert scene.uses(victim) & asked.cells.keys(), f"{victim.ref} holds nothing of use"


def nobody_gives_way_beyond_its_tree(scene: Scene) -> None:
    """YuniKorn: never outside the fence. Here a root cohort is one."""
    books = scene.books()
    for asked in scene.preemptions:
        for victim in asked.evicts:
            assert books.root(scene.queue_of(victim)) == books.root(asked.queue)


def who_asks_and_who_gives_are_two(scene: Scene) -> None:
    """YuniKorn: never within one application. And a workload gives way whole, once, and is not let go too."""
    let_go = {d.attempt.workload for d in scene.plan.decisions if isinstance(d, Admit)}
    asking = {asked.owner.id for asked in scene.preemptions}
    victims = [victim.workload for victim in scene.plan.victims]
    assert len(victims) == len(set(victims)), "somebody gives way twice"
    assert not set(victims) & (asking | let_go)
    assert not asking & let_go
    assert {victim.preemptor for victim in scene.plan.victims} <= asking


def a_queue_gives_only_what_it_borrows(scene: Scene) -> None:
    """YuniKorn: the victim's queue is above its guarantee, and is never pushed below it.

    Here a workload gives way whole, so the last of a queue's victims may bring it below: without it, its
    queue borrows still. Where shares decide (P7), borrowing of anything counts, else of what is asked for.
    """
    for asked in scene.alone():
        books = scene.books()
        fair = scene.fair(asked.queue)
        by_queue: dict[str, list[Evict]] = {}
        for victim in scene.elsewhere(asked):
            by_queue.setdefault(scene.queue_of(victim), []).append(victim)
        for uid in asked.waits_for:
            books.charge(scene.attempts[uid], -1)
        for queue, victims in by_queue.items():
            known = {
                (f.name, r)
                for g in scene.policy.queues[queue].resource_groups
                for f in g.flavors
                for r in g.covered
            }
            cells = {tuple(name) for name in scene.names} | known if fair else asked.cells.keys()
            found = False
            for victim in victims:
                books.charge(scene.attempts[victim.workload])
                found |= any(books.borrows((queue, ClusterQueue), cell) for cell in cells)  # type: ignore[arg-type]
                books.charge(scene.attempts[victim.workload], -1)
            assert found, f"{queue} is pushed below what is its own by {asked.owner.ref}"


def who_asks_is_below_its_guarantee(scene: Scene) -> None:
    """YuniKorn: only then others give way. Here: it stays within its own quota or that of a cohort between it
    and the victim; where it does not, priority (P2) or a share (P8) must speak for it."""
    for asked in scene.alone():
        books = scene.books()
        mine = books.path(asked.queue)
        after = scene.books()
        for uid in asked.waits_for:
            after.charge(scene.attempts[uid], -1)
        for victim in scene.elsewhere(asked):
            if victim.reason.cause is not PreemptionCause.IN_COHORT_RECLAMATION:
                continue
            theirs = books.path(scene.queue_of(victim))
            between = mine[: next(n for n, node in enumerate(mine) if node in theirs)]
            fair = scene.fair(asked.queue)
            entitled = any(within(books, asked, node) for node in between) if not fair else False
            if not entitled and fair:
                entitled = any(
                    books.numbers(mine[0], cell)[2] + amount <= books.numbers(mine[0], cell)[0]
                    for cell, amount in asked.cells.items()
                )
            assert entitled or fits(after, asked, allow_borrowing=False), (
                f"{asked.owner.ref} borrows and yet takes {victim.ref} back"
            )


def within(books: Books, asked: Asked, node: Named) -> bool:
    """With what reaches it of the request, `node` uses no more than the quota of its subtree."""
    for cell, amount in asked.cells.items():
        rest = amount
        for at in books.path(asked.queue):
            subtree, private, used = books.numbers(at, cell)
            if at == node:
                if used + rest > subtree:
                    return False
                break
            rest = max(0, rest - max(0, private - used))
    return True


def shares_speak_only_where_they_are_shared(scene: Scene) -> None:
    """S1: causes belong to the way in which a tree decides."""
    for asked in scene.preemptions:
        causes = {victim.reason.cause for victim in asked.evicts}
        if scene.fair(asked.queue):
            assert PreemptionCause.IN_COHORT_RECLAIM_WHILE_BORROWING not in causes
        else:
            assert PreemptionCause.IN_COHORT_FAIR_SHARING not in causes


ALL = (
    nobody_is_let_go_on_quota_that_is_not_there,
    a_plan_makes_room_for_its_preemptors,
    no_victim_can_be_spared,
    priority_is_respected,
    nobody_protected_gives_way,
    a_victim_holds_what_is_asked_for,
    nobody_gives_way_beyond_its_tree,
    who_asks_and_who_gives_are_two,
    a_queue_gives_only_what_it_borrows,
    who_asks_is_below_its_guarantee,
    shares_speak_only_where_they_are_shared,
)
