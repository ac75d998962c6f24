"""One cycle's way through the heads of a tree: who is let go, who preempts, what is kept (C3, C6, C7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from queuectl.core.cycle.journal import UsageJournal
from queuectl.core.cycle.nomination import Nomination
from queuectl.core.cycle.queue_heads import QueueHeads
from queuectl.core.decisions import Claim, Victim
from queuectl.core.entries import Entry, Place
from queuectl.core.flavors.assignment import NO_BOUND, AssignmentResult, Mode
from queuectl.core.flavors.queue_flavors import LastTriedFlavors, PodSetGroup
from queuectl.core.model import WorkloadId
from queuectl.core.policy import PreemptionPolicy
from queuectl.core.preemption.claims import OpenClaim
from queuectl.core.preemption.search import Snapshot, Target, leaving
from queuectl.core.quota.tree import Cells, QuotaNode
from queuectl.core.reasons import Code, Reason

Nominate = Callable[[Entry, LastTriedFlavors, Mapping[PodSetGroup, str]], Nomination]


@dataclass(slots=True)
class NominatedHead:
    cursor: QueueHeads
    nomination: Nomination

    @property
    def entry(self) -> Entry:
        return self.nomination.entry

    @property
    def node(self) -> QuotaNode:
        return self.nomination.menu.node

    @property
    def cells(self) -> Cells:
        return self.nomination.cells

    @property
    def order(self) -> Place:
        return self.entry.order

    @property
    def sticky(self) -> bool:
        """It has preempted before."""
        return self.cursor.first is self.entry


class CyclePass:
    """One cycle's way through its heads, as if everybody chosen to go were gone already (C3).

    Claims of earlier cycles count as processed first.
    """

    def __init__(
        self, field: Snapshot, trial: UsageJournal, claims: Iterable[OpenClaim], nominate: Nominate
    ) -> None:
        self._field = field
        self._trial = trial
        self._nominate = nominate
        self._mark = trial.mark()
        self._chosen: dict[WorkloadId, Entry] = {}
        self.admitted: list[tuple[Entry, AssignmentResult]] = []
        self.preempting: list[tuple[Entry, Reason, Claim, list[Target]]] = []
        self.claims: list[OpenClaim] = []
        for claim in claims:
            self._chosen |= claim.victims
            trial.add(claim.node, claim.cells)
        self._ahead = trial.mark() > self._mark
        """Is more charged than is true now?"""

    def process(self, head: NominatedHead) -> Mode | None:
        """FIT: admitted. PREEMPT: its victims are chosen. NO_CANDIDATES: refused. None: skipped."""
        nomination = head.nomination
        if nomination.mode.preempts and not nomination.victims:
            self._hold_back(head)
            return Mode.NO_CANDIDATES
        if nomination.mode is Mode.FIT and not self._ahead:
            return self._let_go(head)
        awaited = [t.entry for t in nomination.victims if t.entry.id in self._chosen]
        if awaited:
            again = self._again(nomination)
            if again is None:
                return None
            nomination = again
        own = {target.entry.id: target.entry for target in nomination.victims}
        fits_now = nomination.mode is Mode.FIT and not awaited
        with self._without((self._chosen | own).values()):
            fits = self._trial.tree.fits(head.node, nomination.cells)
        if not fits or (fits_now and self._ahead and not self._fits_now(head.node, nomination.cells)):
            return None
        self._trial.add(head.node, nomination.cells)
        if fits_now:
            self.admitted.append((head.entry, nomination.found))
            return Mode.FIT
        self._ahead = True
        self._chosen |= own
        self._claim(head, nomination, awaited)
        return Mode.PREEMPT

    def _let_go(self, head: NominatedHead) -> Mode | None:
        """It fitted when it was nominated, and nobody but those let go since stands in its way."""
        if not self._trial.tree.fits(head.node, head.cells):
            return None
        self._trial.add(head.node, head.cells)
        self.admitted.append((head.entry, head.nomination.found))
        return Mode.FIT

    @contextmanager
    def _without(self, victims: Collection[Entry]) -> Iterator[None]:
        mark = self._trial.mark()
        for victim in victims:
            assert victim.attempt is not None
            node = self._trial.tree.queue(victim.attempt.assignment.cluster_queue)
            self._trial.remove(node, victim.cells)
        yield
        self._trial.undo(mark)

    def _again(self, nomination: Nomination) -> Nomination | None:
        """Its victims are others' already: what would it get without those, from the same flavors (C8)?"""
        chosen = self._chosen.keys() - self._field.away
        self._field.away |= chosen
        with self._without(self._chosen.values()):
            again = self._nominate(nomination.entry, NO_BOUND, nomination.flavors)
        self._field.away -= chosen
        return again if again.mode is Mode.FIT or again.victims else None

    def _claim(self, head: NominatedHead, nomination: Nomination, awaited: list[Entry]) -> None:
        victims = {v.id: v for v in (*awaited, *(target.entry for target in nomination.victims))}
        claim = Claim(
            head.node.name,
            tuple(nomination.cells),
            tuple(Victim(v.id, v.attempt.number) for v in victims.values() if v.attempt is not None),
            nomination.found.assignment,
        )
        evicted = [target for target in nomination.victims if not leaving(target.entry)]
        self.preempting.append((head.entry, _waits_for(nomination, len(victims)), claim, evicted))
        self.claims.append(OpenClaim(head.entry, head.node, nomination.cells, victims))

    def _hold_back(self, head: NominatedHead) -> None:
        """Keep what it could use from those that come after it in this cycle (C6)."""
        node = head.node
        if self._field.rules(node).reclaim_within_cohort is PreemptionPolicy.ANY:
            return
        kept: Cells = []
        for cell, amount in head.nomination.cells:
            own = node.nominal[cell] - node.usage[cell]
            limit = node.borrowing[cell]
            if head.nomination.found.level > 0:
                amount = amount if limit is None else min(amount, own + limit)
            else:
                amount = min(amount, own)
            kept.append((cell, max(0, amount)))
        self._trial.add(node, kept)
        self._ahead = True

    def _fits_now(self, node: QuotaNode, cells: Cells) -> bool:
        """While the victims are still there, too: nobody is let go on quota that is not free yet."""
        ahead = self._trial.undo(self._mark)
        mark = self._trial.mark()
        for entry, found in self.admitted:
            self._trial.add(self._node_of(entry, found), found.cells)
        fits = self._trial.tree.fits(node, cells)
        self._trial.undo(mark)
        self._trial.redo(ahead)
        return fits

    def _node_of(self, entry: Entry, found: AssignmentResult) -> QuotaNode:
        return self._trial.tree.queue(found.assignment.cluster_queue)

    def end(self) -> None:
        """Back to what is true now, with those admitted charged."""
        if not self._ahead:
            return  # nothing else was charged
        self._trial.undo(self._mark)
        for entry, found in self.admitted:
            self._trial.add(self._node_of(entry, found), found.cells)


def _waits_for(nomination: Nomination, victims: int) -> Reason:
    detail = f"{victims} {'workload has' if victims == 1 else 'workloads have'} to end first"
    found = nomination.found.reason
    if found is None:  # its victims are gone already, as far as this cycle is concerned
        found = Reason(code=Code.WAITING_FOR_QUOTA, node=str(nomination.menu.node))
    code = Code.WAITING_FOR_PREEMPTED_WORKLOADS
    return replace(found, code=code, detail=detail, considered=None, victims=(), others=())
