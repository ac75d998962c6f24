"""Room on nodes that claims reserve, while other trees are decided: nodes belong to no tree (M8)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from queuectl.core.entries import Entry
from queuectl.core.limits import Hold, Snapshot, Trial
from queuectl.core.model.values import value
from queuectl.core.model.workload import WorkloadId
from queuectl.core.preemption.claims import PreemptionClaim
from queuectl.core.quota.tree import QuotaNode


@value(frozen=True, slots=True)
class Claimed:
    """What a claim holds once its victims are gone."""

    hold: Hold
    """With the nodes of its pods."""
    victims: Collection[Entry]
    granted: bool = False
    """Its own victims are gone: its owner starts in this plan, if it fits."""


def leaves_claims(snapshot: Snapshot, hold: Hold, own: Sequence[Claimed], others: Sequence[Claimed]) -> bool:
    """Return whether the pods of claims still fit if those of `hold` are bound where these are expected (M8).

    The scheduler of the cluster knows no claims: a pod that starts now may take what is free on a node that a
    claim reserves. Then the claim needed other victims, again and again. `own` is not charged; `others`, the
    claims of other trees, are.
    """
    nodes = {name for one in (*own, *others) for name in one.hold.nodes}
    if not hold.pods or not nodes:
        return True
    for spots in snapshot.limits.ways_on(hold.pods, nodes):
        with snapshot.limits.trying() as trial:
            if not _fit_beside(snapshot, trial, replace(hold, cells=[], spots=spots), own, others):
                return False
    return True


def _fit_beside(
    snapshot: Snapshot, trial: Trial, hold: Hold, own: Iterable[Claimed], others: Iterable[Claimed]
) -> bool:
    """Charge `hold`. Return whether the claims that reserve one of its nodes fit beside it and the others."""
    taken, touched = set(hold.nodes), list[Claimed]()
    for one in own:
        if taken.isdisjoint(one.hold.nodes):
            trial.add(replace(one.hold, cells=[]))
        else:
            touched.append(one)
    for one in others:
        if not taken.isdisjoint(one.hold.nodes):
            trial.remove(one.hold)
            touched.append(one)
    trial.add(hold)
    victims = {victim.id: victim for one in touched for victim in one.victims}
    with snapshot.without(victims.values()), snapshot.limits.trying() as together:
        for claimed in touched:
            owned = replace(claimed.hold, cells=[], spots=None)
            if not snapshot.limits.fits(owned):
                return False
            together.add(owned)
    return True


class ReservedRoom:
    """What claims reserve on nodes, by the root of their tree.

    A tree itself counts its claims, with the quota that they reserve, in each of its cycles (C7).
    """

    def __init__(
        self,
        snapshot: Snapshot,
        trial: Trial,
        claims: Mapping[QuotaNode, Iterable[PreemptionClaim]],
    ) -> None:
        self._snapshot = snapshot
        self._trial = trial
        self._held: dict[QuotaNode, list[Claimed]] = {}
        # A small pod may find room where a large one does not: the large ones reserve first.
        for root in sorted(claims, key=lambda root: self._largest(claims[root]), reverse=True):
            self.reserve(root, claims[root])

    def _largest(self, claims: Iterable[PreemptionClaim]) -> tuple[int, ...]:
        """Return what the pod takes that takes most."""
        return max((self._snapshot.limits.largest(claim.pods) for claim in claims), default=())

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
            gone = tuple(victims.values())
            placed = self._snapshot.placed(hold, without=gone)
            held.append(Claimed(placed, gone, granted=not claim.victims))
            self._trial.add(held[-1].hold)

    def lift(self, root: QuotaNode) -> None:
        """This tree is decided next."""
        for one in self._held.pop(root, ()):
            self._trial.remove(one.hold)

    def __iter__(self) -> Iterator[Claimed]:
        """Yield what is reserved now."""
        return (one for held in self._held.values() for one in held)
