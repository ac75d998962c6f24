"""Preemptors whose victims are not gone yet: which start all the same, and which wait again (C7, C13)."""

from __future__ import annotations

from queuectl.core.cycle.nomination import Nomination, Nominator
from queuectl.core.cycle.queue_heads import QueueHeads
from queuectl.core.entries import Entry
from queuectl.core.flavors.modes import Mode
from queuectl.core.model.reasons import PreemptionCause, waits_for_victims
from queuectl.core.model.workload import Place
from queuectl.core.preemption.claims import ClaimState, PreemptionClaim
from queuectl.core.preemption.search import Snapshot, Target


def order_of_preemptor(heads: QueueHeads) -> Place:
    assert heads.preemptor is not None
    return heads.preemptor.order


def borrows_for_now(snapshot: Snapshot, nomination: Nomination, claim: PreemptionClaim) -> bool:
    """Return whether it would borrow more beside the victims of its claim than once they are gone."""
    with snapshot.without(_victims(snapshot, claim)):
        level = snapshot.tree.level(nomination.flavors.node, nomination.cells)
    return nomination.found.level > level


def waiting_again(
    snapshot: Snapshot,
    nominator: Nominator,
    now: Nomination,
    claim: PreemptionClaim,
) -> Nomination:
    """Return what a preemptor gets once the victims of `claim` are gone, which it does not reserve any more.

    Return `now`, what it gets now, if it fits now and borrows no more, or if it does not fit then.
    """
    reason, victims = now.entry.reason, _victims(snapshot, claim)
    if claim.state is not ClaimState.FIRST or not waits_for_victims(reason) or not victims:
        return now
    with snapshot.without(victims):
        then = nominator.nominate(now.entry)
    if then.mode is not Mode.FIT or (now.mode is Mode.FIT and now.found.level <= then.found.level):
        return now
    then.found.mode, then.found.reason = Mode.PREEMPT, reason
    # They are evicted already: the cause is not told again.
    then.victims = tuple(Target(one, PreemptionCause.IN_COHORT_RECLAMATION) for one in victims)
    return then


def _victims(snapshot: Snapshot, claim: PreemptionClaim) -> list[Entry]:
    """Return the victims of a claim that still hold quota in this plan."""
    left = (one.workload for one in claim.victims if one.workload not in snapshot.released)
    return [snapshot.entries[one] for one in left]
