"""The admission cycles of one plan: which heads are admitted, preempt, or stay pending and why (C1 to C9)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from queuectl.core.cycle.cycle_pass import (
    CyclePass,
    NominatedHead,
    Preempting,
    borrows_for_now,
    order_of_preemptor,
    waiting_again,
)
from queuectl.core.cycle.nomination import Nomination, Nominator
from queuectl.core.cycle.queue_heads import QueueHeads
from queuectl.core.cycle.reserved_room import ReservedRoom
from queuectl.core.decisions import Evaluation
from queuectl.core.entries import Entry, EquivalenceGroup
from queuectl.core.feature import StartCheck, lacking
from queuectl.core.flavors.assignment import NOTHING, AssignmentResult
from queuectl.core.flavors.findings import reserved_for_others
from queuectl.core.flavors.queue_flavors import LastTriedFlavors, Mode
from queuectl.core.limits import Trial
from queuectl.core.model.policy import PreemptionPolicy
from queuectl.core.model.reasons import Reason
from queuectl.core.preemption.claims import PreemptionClaim
from queuectl.core.preemption.search import Snapshot
from queuectl.core.quota.shares import tournament
from queuectl.core.quota.tree import QuotaNode


@dataclass(slots=True)
class CycleOutcome:
    """What the cycles of one plan came to."""

    admitted: list[tuple[Entry, AssignmentResult]] = field(default_factory=list)
    preempting: list[Preempting] = field(default_factory=list)
    refused: dict[EquivalenceGroup, tuple[Entry, Reason, Evaluation]] = field(default_factory=dict)
    """Head and finding of each group that becomes inadmissible."""
    waiting: list[tuple[Entry, Reason, PreemptionClaim]] = field(default_factory=list)
    """Preemptors that do not fit before their victims are gone, with what they claim (C13)."""
    must_wait: list[tuple[Entry, Reason]] = field(default_factory=list)
    """Heads that would be admitted or preempt, but for a start check (N6)."""
    unfinished: list[tuple[Entry, Reason, Evaluation]] = field(default_factory=list)
    """Heads that the next cycle would have nominated again, had there been one."""
    work: int = 0
    searched: int = 0
    """Nominations and searches, in addition to `work`."""
    left: list[str] = field(default_factory=list)
    """Roots of trees with heads that the budget did not reach, those first that got no cycle."""


class Cycles:
    """Runs cycles until no head moves, `budget` heads were nominated, or `limit` cycles are done (C1)."""

    def __init__(
        self,
        snapshot: Snapshot,
        trial: Trial,
        nominator: Nominator,
        claims: Iterable[PreemptionClaim],
        checks: Sequence[StartCheck],
        budget: int,
        limit: int | None = None,
        first: Sequence[str] = (),
        granted: Iterable[PreemptionClaim] = (),
        helped: Container[str] = (),
    ) -> None:
        """`first`: roots of trees that come before all others, in this order. `granted`: claims whose
        victims are gone, unlike those of `claims`. `helped`: ClusterQueues of which the preemptor may fit
        before its victims are gone (C13).
        """
        self._snapshot = snapshot
        self._tree = snapshot.tree
        self._nominator = nominator
        self._checks = checks
        self._budget = budget
        self._limit = limit
        self._helped = helped
        self._first = {root: place for place, root in enumerate(first)}
        self._claims = self._by_root(claims)
        self._granted = self._by_root(granted)
        roots = dict.fromkeys((*self._claims, *self._granted))
        reserved = {root: [*self._claims.get(root, ()), *self._granted.get(root, ())] for root in roots}
        room = ReservedRoom(snapshot, trial, reserved) if snapshot.limits.others else None
        self._reserved_room = room
        """None: quota alone is limited."""
        self._judged_again = 0
        """Groups judged before the cycles (C12), which have a budget of their own: each plan gets on."""
        self.outcome = CycleOutcome()

    def _by_root(self, claims: Iterable[PreemptionClaim]) -> dict[QuotaNode, list[PreemptionClaim]]:
        found: dict[QuotaNode, list[PreemptionClaim]] = {}
        for claim in claims:
            found.setdefault(self._root(claim.cluster_queue), []).append(claim)
        return found

    def _root(self, cluster_queue: str) -> QuotaNode:
        return self._tree.root(self._tree.queue(cluster_queue))

    def run(self, queues: Iterable[QueueHeads]) -> CycleOutcome:
        roots: dict[QuotaNode, list[QueueHeads]] = {}
        for heads in queues:
            roots.setdefault(self._root(heads.queue.name), []).append(heads)
        all_heads = [heads for found in roots.values() for heads in found]
        if self._first:
            last_place = len(self._first)
            roots = dict(sorted(roots.items(), key=lambda item: self._first.get(str(item[0]), last_place)))
        done = 0
        last: dict[QuotaNode, list[NominatedHead]] = {}
        while roots and (self._limit is None or done < self._limit):
            done += 1
            order = list(roots)
            for place, root in enumerate(order):
                self._lift(root)
                if done == 1:
                    self._admit_early(root, roots[root])
                    self._refuse_again(roots[root])
                left = [heads for heads in roots[root] if heads.advance() is not None]
                if all(heads.reserving_only for heads in left):
                    del roots[root]
                    last.pop(root, None)
                    self._reserve(root)
                    continue
                if self.outcome.work >= self._budget:
                    self.outcome.left = [str(root) for root in (*order[place:], *order[:place])]
                    roots.clear()
                    break
                roots[root] = left
                last[root] = self._cycle(root, left)
                self._reserve(root)
        if last:
            self._leave_unfinished(head for heads in last.values() for head in heads)
        for heads in all_heads:
            heads.put_back()
        self.outcome.searched = self._nominator.work
        return self.outcome

    def _lift(self, root: QuotaNode) -> None:
        """This tree is decided next."""
        if self._reserved_room is not None:
            self._reserved_room.lift(root)

    def _reserve(self, root: QuotaNode) -> None:
        """Other trees are decided next: reserve the room that claims of this one have."""
        if self._reserved_room is not None:
            self._reserved_room.reserve(root, self._claims.get(root, ()))

    def _admit_early(self, root: QuotaNode, queues: Iterable[QueueHeads]) -> None:
        """Admit preemptors that fit before their victims are gone, in the order of O1 (C13)."""
        helped = [one for one in queues if one.queue.blocked and one.queue.name in self._helped]
        claims = {one.cluster_queue: one for one in self._claims.get(root, ())}
        for heads in sorted(helped, key=order_of_preemptor):
            entry, claim = heads.preemptor, claims.get(heads.queue.name)
            if entry is None or claim is None:
                continue  # its victims go in this plan
            self.outcome.work += 1
            nomination = self._nominator.claimed(entry)
            if nomination is None or not self._admit_beside(root, NominatedHead(heads, nomination), claim):
                assert entry.reason is not None
                self.outcome.waiting.append((entry, entry.reason, claim))
                continue
            self._claims[root].remove(claim)
            heads.blocked = heads.beside = False
            heads.admit()
            self._snapshot.admit(entry, nomination.found.assignment)

    def _admit_beside(self, root: QuotaNode, head: NominatedHead, claim: PreemptionClaim) -> bool:
        """Admit it, if it fits beside its victims, and borrows no more than when they are gone.

        Return whether it does.
        """
        if borrows_for_now(self._snapshot, head.nomination, claim):
            return False
        assignment = head.nomination.found.assignment
        if self._checks and lacking(self._checks, head.entry, assignment, (), observed=True) is not None:
            return False
        others = [one for one in (*self._granted.get(root, ()), *self._claims[root]) if one is not claim]
        with self._snapshot.limits.trying() as trial:
            cycle_pass = CyclePass(self._snapshot, trial, self._nominator, others, self._reserved_room or ())
            fits = cycle_pass.process(head) is Mode.FIT
            if fits:
                self._note_admission(cycle_pass)
            self._take_over(root, cycle_pass)
        return fits

    def _refuse_again(self, queues: Iterable[QueueHeads]) -> None:
        """Nominate what an earlier process refused: what has no chance now takes no turn in a cycle (C12)."""
        for heads in queues:
            if heads.refused and not heads.blocked and heads.preemptor is None:
                heads.drop({group for group in heads.refused if self._is_refused_again(heads, group)})

    def _is_refused_again(self, heads: QueueHeads, group: EquivalenceGroup) -> bool:
        entry = group.head()
        if entry is None or self._judged_again >= self._budget:
            return False
        self._judged_again += 1
        head = self._nominated(heads, entry, NOTHING)
        while head.nomination.found.tried and not head.nomination.promising:
            head = self._nominated(heads, entry, head.nomination.found.tried)
        reason = head.nomination.found.reason
        if head.nomination.promising or reason is None:
            return False
        if head.nomination.mode.preempts and not entry.refused:
            return False  # it came first in its group meanwhile: other workloads are newer than it (P2)
        reserves = self._note_refusal(head, reason, reserved=False)
        heads.reserving_only |= reserves
        heads.blocked |= heads.queue.strict and not reserves
        return not reserves

    def _cycle(self, root: QuotaNode, queues: list[QueueHeads]) -> list[NominatedHead]:
        """One cycle of one tree: nominate all heads, then process them in order (C1 to C4).

        Returns the heads that are to be nominated again.
        """
        again: list[NominatedHead] = []
        skipped: list[NominatedHead] = []
        nominated, progress = self._nominate_all(queues, again)
        claims = self._claims.get(root, [])
        with self._snapshot.limits.trying() as trial:
            cycle_pass = CyclePass(self._snapshot, trial, self._nominator, claims, self._reserved_room or ())
            for head in self._in_order(nominated):
                must_wait = bool(self._checks) and self._must_wait(head)
                match Mode.FIT if must_wait else cycle_pass.process(head):
                    case None:
                        skipped.append(head)
                    case Mode.NO_CANDIDATES:
                        progress |= self._refuse(head, again)
                    case verdict:
                        progress = True
                        (head.heads.preempt if verdict is Mode.PREEMPT else head.heads.admit)()
                        if verdict is Mode.FIT and not must_wait:
                            self._snapshot.admit(head.entry, head.nomination.found.assignment)
                        if self._checks and not must_wait:
                            self._note_start(cycle_pass, head, verdict)
            self._take_over(root, cycle_pass)
        for head in skipped:
            if progress:
                head.heads.last_tried[head.entry.id] = NOTHING
                again.append(head)
            else:  # only what is reserved for others is in its way, which changes by an event alone
                self._refuse(head, again, self._reserved(head))
        return again

    def _must_wait(self, head: NominatedHead) -> bool:
        """Note a head that a start check does not admit; its next one takes its place (N6).

        The victims of a preemptor are gone: what the cluster says is used may be older than that.
        """
        if not head.nomination.promising:
            return False
        gone = (target.entry.id for target in head.nomination.victims)
        assignment = head.nomination.found.assignment
        reason = lacking(self._checks, head.entry, assignment, gone, observed=not head.preempted)
        if reason is not None:
            self.outcome.must_wait.append((head.entry, reason))
        return reason is not None

    def _note_start(self, cycle_pass: CyclePass, head: NominatedHead, verdict: Mode) -> None:
        """The cycle has admitted a head, or evicts its victims."""
        if verdict is Mode.FIT:
            self._note_admission(cycle_pass)
            return
        for check in self._checks:
            check.preempt(head.entry, head.nomination.found.assignment)

    def _note_admission(self, cycle_pass: CyclePass) -> None:
        """The cycle has admitted a head."""
        last = cycle_pass.admitted[-1]
        for check in self._checks:
            check.admit(last.entry, last.found.assignment)

    def _nominate_all(
        self, queues: Iterable[QueueHeads], again: list[NominatedHead]
    ) -> tuple[list[NominatedHead], bool]:
        """Return the heads with a chance, and whether one without a chance was refused."""
        nominated: list[NominatedHead] = []
        progress = False
        for heads in queues:
            head = self._nominate(heads)
            if head.nomination.mode is Mode.NO_FIT:
                progress |= self._refuse(head, again)
            elif heads.beside and head.nomination.victims:
                lacking = head.nomination.found.reason or heads.queue.waiting_for_head()
                progress |= self._refuse(head, again, lacking)
            else:
                nominated.append(head)
        return nominated, progress

    def _nominate(self, heads: QueueHeads) -> NominatedHead:
        entry = heads.head()
        assert entry is not None
        self.outcome.work += 1
        tried = heads.last_tried.get(entry.id, entry.last_tried)
        earlier = bool(entry.last_tried) and not heads.reserving_only
        head = self._nominated(heads, entry, tried, earlier=earlier)
        if head.preempted and heads.queue.claim is not None:
            head.nomination = waiting_again(
                self._snapshot, self._nominator, head.nomination, heads.queue.claim, tried
            )
        return head

    def _nominated(
        self, heads: QueueHeads, entry: Entry, last_tried: LastTriedFlavors, *, earlier: bool = False
    ) -> NominatedHead:
        """`earlier`: an earlier plan tried some of these flavors, and quota or room may have come since."""
        nomination = self._nominator.nominate(entry, last_tried)
        over = not nomination.found.tried if last_tried else heads.reserving_only
        if over and not nomination.promising:
            nomination = self._from_all_flavors(entry, tried_now=not earlier)
        return NominatedHead(heads, nomination)

    def _take_over(self, root: QuotaNode, cycle_pass: CyclePass) -> None:
        """Add what came of a cycle to the outcome."""
        cycle_pass.end()
        self.outcome.admitted += [(one.entry, one.found) for one in cycle_pass.admitted]
        self.outcome.preempting += cycle_pass.preempting
        if cycle_pass.preempting:
            self._claims.setdefault(root, []).extend(one.claim for one in cycle_pass.preempting)

    def _from_all_flavors(self, entry: Entry, *, tried_now: bool) -> Nomination:
        """All flavors were tried, in several cycles: judge them together for the reason (F8)."""
        nomination = self._nominator.nominate(entry)
        found = nomination.found
        if nomination.promising and tried_now:  # and yet not admitted: the quota is reserved for others
            found.reason = reserved_for_others(self._tree, nomination.flavors.node, found.cells)
            found.mode, nomination.victims, nomination.reserved = Mode.NO_FIT, (), True
        found.tried = NOTHING
        return nomination

    def _in_order(self, nominated: list[NominatedHead]) -> Iterator[NominatedHead]:
        """Yield the heads of one tree: preemptors first (C7), then in the order of O5, or of S4 and U7."""
        node = nominated[0].node if nominated else None
        usage = self._snapshot.usage_of_members(node) if node is not None else None
        if node is not None and (usage is not None or self._snapshot.fair(node)):
            first = [head for head in nominated if head.preempted]
            others = [head for head in nominated if not head.preempted]  # asked before any of `first` moves
            yield from first
            yield from tournament(self._tree, others, usage.of_node if usage is not None else None)
        else:
            yield from sorted(nominated, key=_place)

    def _refuse(self, head: NominatedHead, again: list[NominatedHead], reason: Reason | None = None) -> bool:
        """The head stays pending: inadmissible with its group, unless it has flavors left to try (F8)."""
        found = head.nomination.found
        reserved = reason is not None or head.nomination.reserved
        reason = reason or found.reason
        assert reason is not None
        if found.tried:
            head.heads.last_tried[head.entry.id] = found.tried
            again.append(head)
            return True
        if self._note_refusal(head, reason, reserved=reserved):
            known = head.heads.reserving_only
            head.heads.reserving_only = True
            return not known
        head.heads.mark_inadmissible()
        return True

    def _note_refusal(self, head: NominatedHead, reason: Reason, *, reserved: bool) -> bool:
        """Its group becomes inadmissible. Return whether the head reserves quota all the same (C6)."""
        rules = self._snapshot.rules(head.node)
        reserves = (
            head.heads.queue.strict
            and head.nomination.mode.preempts
            and rules.reclaim_within_cohort is not PreemptionPolicy.ANY
        )
        evaluation = Evaluation(
            may_preempt=rules.enabled or reserved,
            reserves=reserves,
            until=head.nomination.protected,
            lacking=head.nomination.lacking or ((head.nomination.pods,) if reserved else ()),
        )
        group = head.entry.group
        assert group is not None
        self.outcome.refused[group] = (head.entry, reason, evaluation)
        return reserves

    def _reserved(self, head: NominatedHead) -> Reason:
        """It would fit, but what is available is reserved for workloads that come first."""
        if head.lacks_room:
            return self._snapshot.limits.why_reserved(head.nomination.pods)
        return reserved_for_others(self._tree, head.node, head.cells)

    def _leave_unfinished(self, nominated: Iterable[NominatedHead]) -> None:
        for head in nominated:
            if head.heads.head() is not head.entry:
                continue
            reason = head.nomination.found.reason or self._reserved(head)
            last_tried = head.heads.last_tried.get(head.entry.id, NOTHING)
            evaluation = Evaluation(again=True, last_tried=tuple(last_tried.items()))
            self.outcome.unfinished.append((head.entry, reason, evaluation))


def _place(head: NominatedHead) -> tuple[object, ...]:
    """Return the place of a head in O5; no two have the same."""
    return (not head.preempted, head.nomination.found.level, *head.order)
