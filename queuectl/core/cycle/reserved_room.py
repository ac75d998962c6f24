"""Room on nodes that claims reserve, while other trees are decided: nodes belong to no tree (M8)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from queuectl.core.entries import Entry
from queuectl.core.limits import Hold, LimitsJournal
from queuectl.core.model import WorkloadId
from queuectl.core.preemption.claims import PreemptionClaim
from queuectl.core.preemption.search import Snapshot, held_by
from queuectl.core.quota.tree import QuotaNode


@contextmanager
def without(snapshot: Snapshot, journal: LimitsJournal, victims: Iterable[Entry]) -> Iterator[None]:
    """Try without `victims` for a while."""
    mark = journal.mark()
    for victim in victims:
        journal.remove(held_by(snapshot.tree, victim))
    yield
    journal.undo(mark)


def placed_without(
    snapshot: Snapshot, journal: LimitsJournal, victims: Collection[Entry], hold: Hold
) -> Hold:
    """Return `hold` with the nodes that its pods get once `victims` are gone."""
    if not hold.pods:
        return hold
    with without(snapshot, journal, victims):
        return journal.placed(hold)


class ReservedRoom:
    """What claims reserve on nodes, by the root of their tree.

    A tree itself counts its claims, with the quota that they reserve, in each of its cycles (C7).
    """

    def __init__(
        self,
        snapshot: Snapshot,
        journal: LimitsJournal,
        claims: Mapping[QuotaNode, Iterable[PreemptionClaim]],
    ) -> None:
        self._snapshot = snapshot
        self._journal = journal
        self._held: dict[QuotaNode, list[Hold]] = {}
        for root, found in claims.items():
            self.reserve(root, found)

    def reserve(self, root: QuotaNode, claims: Iterable[PreemptionClaim]) -> None:
        """Other trees are decided next: reserve what `claims`, those of this tree, will have."""
        victims: dict[WorkloadId, Entry] = {}
        held = self._held.setdefault(root, [])
        for claim in claims:
            if not claim.pods:
                continue
            victims |= {victim.workload: self._snapshot.entries[victim.workload] for victim in claim.victims}
            node = self._snapshot.tree.queue(claim.cluster_queue)
            hold = Hold(node, [], claim.owner, claim.pods)
            held.append(placed_without(self._snapshot, self._journal, victims.values(), hold))
            self._journal.add(held[-1])

    def lift(self, root: QuotaNode) -> None:
        """This tree is decided next."""
        for hold in self._held.pop(root, ()):
            self._journal.remove(hold)
