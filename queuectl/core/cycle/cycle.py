"""Admission cycles: who goes, who makes room, who stays and why (docs/scheduling.md, C1 to C9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from queuectl.core.cycle.cycle_pass import CyclePass, Nominate, NominatedHead
from queuectl.core.cycle.journal import UsageJournal
from queuectl.core.cycle.nomination import Nomination
from queuectl.core.cycle.queue_heads import QueueHeads
from queuectl.core.decisions import Claim, Evaluation
from queuectl.core.entries import Entry, EquivalenceGroup
from queuectl.core.flavors.assignment import NO_BOUND, AssignmentResult, Mode, kept_for_others
from queuectl.core.policy import PreemptionPolicy
from queuectl.core.preemption.claims import OpenClaim
from queuectl.core.preemption.search import Snapshot, Target
from queuectl.core.queues.pending import PendingQueue
from queuectl.core.quota.shares import tournament
from queuectl.core.quota.tree import QuotaNode
from queuectl.core.reasons import Reason


@dataclass(slots=True)
class CycleOutcome:
    """Outcome of the cycles of one decision."""

    admitted: list[tuple[Entry, AssignmentResult]] = field(default_factory=list)
    preempting: list[tuple[Entry, Reason, Claim, list[Target]]] = field(default_factory=list)
    refused: dict[EquivalenceGroup, tuple[Entry, Reason, Evaluation]] = field(default_factory=dict)
    """Head and finding of each group that was looked at in vain."""
    lingering: list[tuple[Entry, Reason, Evaluation]] = field(default_factory=list)
    """Heads that would have been looked at again in the next cycle, where there was none."""
    work: int = 0
    more: bool = False


class Cycles:
    """Runs cycles until nobody else fits, `budget` heads have been looked at or `limit` cycles are done."""

    def __init__(
        self,
        field: Snapshot,
        trial: UsageJournal,
        nominate: Nominate,
        claims: Iterable[OpenClaim],
        budget: int,
        limit: int | None = None,
    ) -> None:
        self._field = field
        self._trial = trial
        self._tree = trial.tree
        self._nominate = nominate
        self._budget = budget
        self._limit = limit
        self._claims: dict[QuotaNode, list[OpenClaim]] = {}
        for claim in claims:
            self._claims.setdefault(self._tree.root(claim.node), []).append(claim)
        self.outcome = CycleOutcome()

    def run(self, cursors: Iterable[QueueHeads]) -> CycleOutcome:
        roots: dict[QuotaNode, list[QueueHeads]] = {}
        for cursor in cursors:
            roots.setdefault(self._tree.root(self._tree.queue(cursor.line.name)), []).append(cursor)
        all_cursors = [cursor for found in roots.values() for cursor in found]
        done = 0
        last: dict[QuotaNode, list[NominatedHead]] = {}
        while roots and (self._limit is None or done < self._limit):
            done += 1
            for root in list(roots):
                alive = [c for c in roots[root] if c.advance(self._tree) is not None]
                if all(cursor.passive for cursor in alive):
                    del roots[root]
                    last.pop(root, None)
                    continue
                if self.outcome.work >= self._budget:
                    self.outcome.more = True
                    roots.clear()
                    break
                roots[root] = alive
                last[root] = self._cycle(root, alive)
        if last:
            self._linger(head for heads in last.values() for head in heads)
        for cursor in all_cursors:
            cursor.put_back()
        return self.outcome

    def _cycle(self, root: QuotaNode, cursors: Sequence[QueueHeads]) -> list[NominatedHead]:
        """One cycle of one tree: nominate all heads, then go through them in order (C1 to C4).

        Returns those that are to be looked at again.
        """
        again: list[NominatedHead] = []
        skipped: list[NominatedHead] = []
        heads, progress = self._nominations(cursors, again)
        course = CyclePass(self._field, self._trial, self._claims.get(root, []), self._nominate)
        for head in self._in_order(heads):
            match course.process(head):
                case None:
                    skipped.append(head)
                case Mode.NO_CANDIDATES:
                    progress |= self._refuse(head, again)
                case verdict:
                    progress = True
                    head.cursor.take()
                    head.cursor.blocked |= verdict is Mode.PREEMPT
        self._take_over(root, course)
        for head in skipped:
            if progress:
                head.cursor.tried[head.entry.id] = NO_BOUND
                again.append(head)
            else:  # only what is kept for others stands in its way: that changes by an event alone
                self._refuse(head, again, self._kept(head))
        return again

    def _nominations(
        self, cursors: Iterable[QueueHeads], again: list[NominatedHead]
    ) -> tuple[list[NominatedHead], bool]:
        """Heads that have a chance, and whether anything came of those that have none."""
        heads: list[NominatedHead] = []
        progress = False
        for cursor in cursors:
            entry = cursor.peek()
            assert entry is not None
            self.outcome.work += 1
            tried = cursor.tried.get(entry.id, entry.tried)
            nomination = self._nominate(entry, tried, NO_BOUND)
            if tried:  # what was once looked at to its end is not begun again: the search ends (F8)
                left = nomination.found.tried.items()
                nomination.found.tried = {group: last for group, last in left if group in tried}
            over = not nomination.found.tried if tried else cursor.passive
            if over and not _promising(nomination):
                nomination = self._all_together(entry)
            head = NominatedHead(cursor, nomination)
            if nomination.mode is Mode.NO_FIT:
                progress |= self._refuse(head, again)
            else:
                heads.append(head)
        return heads, progress

    def _take_over(self, root: QuotaNode, course: CyclePass) -> None:
        """What came of a cycle."""
        course.end()
        self.outcome.admitted += course.admitted
        self.outcome.preempting += course.preempting
        for entry, found in course.admitted:
            self._field.add(entry, found.assignment)
        if course.claims:
            self._claims.setdefault(root, []).extend(course.claims)

    def _all_together(self, entry: Entry) -> Nomination:
        """All flavors were looked at, each in another cycle: what keeps it out of all of them (F8)?"""
        nomination = self._nominate(entry, NO_BOUND, NO_BOUND)
        found = nomination.found
        if _promising(nomination):  # and yet it did not get it: it is kept for others
            found.reason = kept_for_others(self._tree, nomination.menu.node, found.cells)
            found.mode, nomination.victims, nomination.kept = Mode.NO_FIT, (), True
        found.tried = NO_BOUND
        return nomination

    def _in_order(self, heads: list[NominatedHead]) -> Iterator[NominatedHead]:
        """Of one tree: preemptors first (C7), then as O5 or S4 say."""
        if heads and self._field.fair(heads[0].node):
            first = [head for head in heads if head.sticky]
            others = [head for head in heads if not head.sticky]  # taking one of `first` makes it look so
            yield from first
            yield from tournament(self._tree, others)
        else:
            yield from sorted(
                heads, key=lambda head: (not head.sticky, head.nomination.found.level, *head.order)
            )

    def _refuse(self, head: NominatedHead, again: list[NominatedHead], reason: Reason | None = None) -> bool:
        """Leave it waiting: parked with its group, unless it has flavors left to try (F8)."""
        found = head.nomination.found
        kept = reason is not None or head.nomination.kept
        reason = reason or found.reason
        assert reason is not None
        if found.tried:
            head.cursor.tried[head.entry.id] = found.tried
            again.append(head)
            return True
        rules = self._field.rules(head.node)
        holds_back = (
            head.cursor.line.strict
            and found.mode.preempts
            and rules.reclaim_within_cohort is not PreemptionPolicy.ANY
        )
        look = Evaluation(
            contends=rules.any or kept,
            holds_back=holds_back,
            until=head.nomination.protected,
        )
        group = head.entry.group
        assert group is not None
        self.outcome.refused[group] = (head.entry, reason, look)
        if holds_back:
            known = head.cursor.passive
            head.cursor.passive = True
            return not known
        head.cursor.park()
        return True

    def _kept(self, head: NominatedHead) -> Reason:
        """It would fit, but what is free is kept for those that come before it."""
        return kept_for_others(self._tree, head.node, head.nomination.cells)

    def _linger(self, heads: Iterable[NominatedHead]) -> None:
        for head in heads:
            if head.cursor.peek() is not head.entry:
                continue
            found = head.nomination.found
            reason = found.reason or self._kept(head)
            tried = head.cursor.tried.get(head.entry.id, NO_BOUND)
            look = Evaluation(again=True, tried=tuple(tried.items()))
            self.outcome.lingering.append((head.entry, reason, look))


def _promising(nomination: Nomination) -> bool:
    return nomination.mode is Mode.FIT or bool(nomination.victims)


def tell(
    lines: Iterable[PendingQueue], outcome: CycleOutcome, woken: Mapping[EquivalenceGroup, None]
) -> Iterator[tuple[Entry, Reason]]:
    """Who else than the heads that were refused is to be told why it waits, group by group in order (R2)."""
    leaving_ = {entry.id for entry, _ in outcome.admitted} | {item[0].id for item in outcome.preempting}
    blocked = {item[0].group.line for item in outcome.preempting if item[0].group is not None}
    called = {group.line for group in woken}
    groups = dict.fromkeys(outcome.refused)
    for line in lines:
        groups |= line.untold
    for group in groups:
        line = group.line
        known = None if group in woken or group in line.woken else group.parked
        head, reason, _ = outcome.refused.get(group, (None, known, None))
        halted = line.halted and not line.woken and line not in called  # its head alone is looked at
        if reason is None and (line.blocked or line in blocked or halted):
            for entry in group.fresh.values():
                if entry.id not in leaving_ and entry is not line.preemptor:
                    yield entry, line.behind()
            continue
        if reason is None:
            continue  # it will be looked at
        told = line.behind() if line.strict else reason
        for entry in _untold(group, told):
            if entry is not head and entry.id not in leaving_:
                yield entry, told


def _untold(group: EquivalenceGroup, told: Reason) -> Iterable[Entry]:
    if group.reported == told.key:
        return group.fresh.values()
    return sorted(group.members.values(), key=lambda entry: entry.order)
