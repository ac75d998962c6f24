"""The admission cycles of one plan: which heads are admitted, preempt, or stay pending and why (C1 to C9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from queuectl.core.cycle.cycle_pass import CyclePass, NominatedHead, Preempting
from queuectl.core.cycle.nomination import Nomination, Nominator
from queuectl.core.cycle.queue_heads import QueueHeads
from queuectl.core.decisions import Evaluation
from queuectl.core.entries import Entry, EquivalenceGroup
from queuectl.core.flavors.assignment import NOTHING, AssignmentResult, Mode, reserved_for_others
from queuectl.core.policy import PreemptionPolicy
from queuectl.core.preemption.claims import PreemptionClaim
from queuectl.core.preemption.search import Snapshot
from queuectl.core.queues.inadmissible import Groups
from queuectl.core.queues.pending import PendingQueue
from queuectl.core.quota.limits import UsageJournal
from queuectl.core.quota.shares import tournament
from queuectl.core.quota.tree import QuotaNode
from queuectl.core.reasons import Reason


@dataclass(slots=True)
class CycleOutcome:
    """What the cycles of one plan came to."""

    admitted: list[tuple[Entry, AssignmentResult]] = field(default_factory=list)
    preempting: list[Preempting] = field(default_factory=list)
    refused: dict[EquivalenceGroup, tuple[Entry, Reason, Evaluation]] = field(default_factory=dict)
    """Head and finding of each group that becomes inadmissible."""
    unfinished: list[tuple[Entry, Reason, Evaluation]] = field(default_factory=list)
    """Heads that the next cycle would have nominated again, had there been one."""
    work: int = 0
    more: bool = False


class Cycles:
    """Runs cycles until no head moves, `budget` heads were nominated, or `limit` cycles are done (C1)."""

    def __init__(
        self,
        snapshot: Snapshot,
        journal: UsageJournal,
        nominator: Nominator,
        claims: Iterable[PreemptionClaim],
        budget: int,
        limit: int | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._journal = journal
        self._tree = snapshot.tree
        self._nominator = nominator
        self._budget = budget
        self._limit = limit
        self._claims: dict[QuotaNode, list[PreemptionClaim]] = {}
        for claim in claims:
            self._claims.setdefault(self._root(claim.cluster_queue), []).append(claim)
        self.outcome = CycleOutcome()

    def _root(self, cluster_queue: str) -> QuotaNode:
        return self._tree.root(self._tree.queue(cluster_queue))

    def run(self, queues: Iterable[QueueHeads]) -> CycleOutcome:
        roots: dict[QuotaNode, list[QueueHeads]] = {}
        for heads in queues:
            roots.setdefault(self._root(heads.queue.name), []).append(heads)
        all_heads = [heads for found in roots.values() for heads in found]
        done = 0
        last: dict[QuotaNode, list[NominatedHead]] = {}
        while roots and (self._limit is None or done < self._limit):
            done += 1
            for root in list(roots):
                left = [heads for heads in roots[root] if heads.advance(self._tree) is not None]
                if all(heads.reserving_only for heads in left):
                    del roots[root]
                    last.pop(root, None)
                    continue
                if self.outcome.work >= self._budget:
                    self.outcome.more = True
                    roots.clear()
                    break
                roots[root] = left
                last[root] = self._cycle(root, left)
        if last:
            self._leave_unfinished(head for heads in last.values() for head in heads)
        for heads in all_heads:
            heads.put_back()
        return self.outcome

    def _cycle(self, root: QuotaNode, queues: Sequence[QueueHeads]) -> list[NominatedHead]:
        """One cycle of one tree: nominate all heads, then process them in order (C1 to C4).

        Returns the heads that are to be nominated again.
        """
        again: list[NominatedHead] = []
        skipped: list[NominatedHead] = []
        nominated, progress = self._nominate_all(queues, again)
        cycle_pass = CyclePass(self._snapshot, self._journal, self._nominator, self._claims.get(root, []))
        for head in self._in_order(nominated):
            match cycle_pass.process(head):
                case None:
                    skipped.append(head)
                case Mode.NO_CANDIDATES:
                    progress |= self._refuse(head, again)
                case verdict:
                    progress = True
                    head.heads.admit()
                    head.heads.blocked |= verdict is Mode.PREEMPT
        self._take_over(root, cycle_pass)
        for head in skipped:
            if progress:
                head.heads.last_tried[head.entry.id] = NOTHING
                again.append(head)
            else:  # only what is reserved for others is in its way, which changes by an event alone
                self._refuse(head, again, self._reserved(head))
        return again

    def _nominate_all(
        self, queues: Iterable[QueueHeads], again: list[NominatedHead]
    ) -> tuple[list[NominatedHead], bool]:
        """Return the heads with a chance, and whether one without a chance was refused."""
        nominated: list[NominatedHead] = []
        progress = False
        for heads in queues:
            entry = heads.head()
            assert entry is not None
            self.outcome.work += 1
            last_tried = heads.last_tried.get(entry.id, entry.last_tried)
            nomination = self._nominator.nominate(entry, last_tried)
            if last_tried:  # groups that were tried to the end are not tried anew: the search ends (F8)
                left = nomination.found.tried.items()
                nomination.found.tried = {group: last for group, last in left if group in last_tried}
            over = not nomination.found.tried if last_tried else heads.reserving_only
            if over and not nomination.promising:
                nomination = self._from_all_flavors(entry)
            head = NominatedHead(heads, nomination)
            if nomination.mode is Mode.NO_FIT:
                progress |= self._refuse(head, again)
            else:
                nominated.append(head)
        return nominated, progress

    def _take_over(self, root: QuotaNode, cycle_pass: CyclePass) -> None:
        """Add what came of a cycle to the outcome."""
        cycle_pass.end()
        self.outcome.admitted += cycle_pass.admitted
        self.outcome.preempting += cycle_pass.preempting
        for entry, found in cycle_pass.admitted:
            self._snapshot.admit(entry, found.assignment)
        if cycle_pass.preempting:
            self._claims.setdefault(root, []).extend(one.claim for one in cycle_pass.preempting)

    def _from_all_flavors(self, entry: Entry) -> Nomination:
        """All flavors were tried, in several cycles: judge them together for the reason (F8)."""
        nomination = self._nominator.nominate(entry)
        found = nomination.found
        if nomination.promising:  # and yet it was not admitted: the quota is reserved for others
            found.reason = reserved_for_others(self._tree, nomination.flavors.node, found.cells)
            found.mode, nomination.victims, nomination.reserved = Mode.NO_FIT, (), True
        found.tried = NOTHING
        return nomination

    def _in_order(self, nominated: list[NominatedHead]) -> Iterator[NominatedHead]:
        """Yield the heads of one tree: preemptors first (C7), then in the order of O5 or S4."""
        if nominated and self._snapshot.fair(nominated[0].node):
            first = [head for head in nominated if head.preempted]
            others = [head for head in nominated if not head.preempted]  # asked before any of `first` moves
            yield from first
            yield from tournament(self._tree, others)
        else:
            yield from sorted(
                nominated, key=lambda head: (not head.preempted, head.nomination.found.level, *head.order)
            )

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
        rules = self._snapshot.rules(head.node)
        reserves = (
            head.heads.queue.strict
            and found.mode.preempts
            and rules.reclaim_within_cohort is not PreemptionPolicy.ANY
        )
        evaluation = Evaluation(
            may_preempt=rules.enabled or reserved,
            reserves=reserves,
            until=head.nomination.protected,
        )
        group = head.entry.group
        assert group is not None
        self.outcome.refused[group] = (head.entry, reason, evaluation)
        if reserves:
            known = head.heads.reserving_only
            head.heads.reserving_only = True
            return not known
        head.heads.mark_inadmissible()
        return True

    def _reserved(self, head: NominatedHead) -> Reason:
        """It would fit, but what is available is reserved for workloads that come first."""
        return reserved_for_others(self._tree, head.node, head.nomination.cells)

    def _leave_unfinished(self, nominated: Iterable[NominatedHead]) -> None:
        for head in nominated:
            if head.heads.head() is not head.entry:
                continue
            reason = head.nomination.found.reason or self._reserved(head)
            last_tried = head.heads.last_tried.get(head.entry.id, NOTHING)
            evaluation = Evaluation(again=True, last_tried=tuple(last_tried.items()))
            self.outcome.unfinished.append((head.entry, reason, evaluation))


def unreported(
    queues: Iterable[PendingQueue],
    pending: Mapping[str, PendingQueue],
    outcome: CycleOutcome,
    requeued: Groups,
) -> Iterator[tuple[Entry, Reason]]:
    """Yield the workloads, other than refused heads, whose reason is to be reported, group by group (R2)."""
    moved = {entry.id for entry, _ in outcome.admitted} | {one.entry.id for one in outcome.preempting}
    preempting = {one.claim.cluster_queue for one in outcome.preempting}
    with_requeued = {group.cluster_queue for group in requeued}
    groups = dict.fromkeys(outcome.refused)
    for queue in queues:
        groups |= queue.unreported
    for group in groups:
        queue = pending[group.cluster_queue]
        known = None if group in requeued or group in queue.requeued else group.inadmissible
        head, reason, _ = outcome.refused.get(group, (None, known, None))
        at_head = queue.stopped_at_head and not queue.requeued and queue.name not in with_requeued
        if reason is None and (queue.blocked or queue.name in preempting or at_head):
            for entry in group.unreported.values():
                if entry.id not in moved and not queue.preempted(entry):
                    yield entry, queue.waiting_for_head()
            continue
        if reason is None:
            continue  # it will be nominated
        shown = queue.waiting_for_head() if queue.strict else reason
        for entry in _unreported(group, shown):
            if entry is not head and entry.id not in moved:
                yield entry, shown


def _unreported(group: EquivalenceGroup, reason: Reason) -> Iterable[Entry]:
    if group.reported == reason.key:
        return group.unreported.values()
    return sorted(group.members.values(), key=lambda entry: entry.order)
