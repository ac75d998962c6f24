"""One admission cycle of one tree: its nominated heads are processed in order (C3, C6 to C8)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from queuectl.core.cycle.nomination import Nomination, Nominator
from queuectl.core.cycle.queue_heads import QueueHeads
from queuectl.core.cycle.reserved_room import Claimed, leaves_claims
from queuectl.core.entries import Entry
from queuectl.core.flavors.assignment import NOTHING
from queuectl.core.flavors.queue_flavors import LastTriedFlavors, Mode
from queuectl.core.limits import Hold, Snapshot, Trial
from queuectl.core.model.policy import PreemptionPolicy
from queuectl.core.model.reasons import Code, PreemptionCause, Reason, waits_for_victims
from queuectl.core.model.workload import Place, WorkloadId
from queuectl.core.preemption.claims import ClaimState, PreemptionClaim, Victim
from queuectl.core.preemption.fair import EvictionShares, ShareChange, sides
from queuectl.core.preemption.search import Target, terminating
from queuectl.core.quota.shares import dominant_share
from queuectl.core.quota.tree import Cells, QuotaNode


@dataclass(slots=True)
class Preempting:
    """A head that preempts: it stays pending, claims what its victims leave, and evicts."""

    entry: Entry
    reason: Reason
    claim: PreemptionClaim
    evicted: list[Target]
    shares: dict[WorkloadId, EvictionShares]
    """By victim; none where the tree does not share fairly, or both are in one queue."""


class CyclePass:
    """Processes heads as if earlier heads and claims had what they need, and their victims were gone (C3)."""

    def __init__(
        self,
        snapshot: Snapshot,
        trial: Trial,
        nominator: Nominator,
        claims: Iterable[PreemptionClaim],
        others: Iterable[Claimed] = (),
    ) -> None:
        """`trial`: the cycle charges in it. `claims`: those of the tree. `others`: what claims of other trees
        hold on nodes.
        """
        self._others = tuple(others)
        self._snapshot = snapshot
        self._limits = snapshot.limits
        self._trial = trial
        self._nominator = nominator
        self._charged: list[Hold] = []
        """What the cycle has charged so far, in order."""
        self._terminating: dict[WorkloadId, Entry] = {}
        """Victims of this cycle and of open claims."""
        self._claimed: list[Claimed] = []
        """What claims of this cycle and open claims hold once their victims are gone."""
        self.admitted: list[Nomination] = []
        self.preempting: list[Preempting] = []
        for claim in claims:
            self._terminating |= {v.workload: snapshot.entries[v.workload] for v in claim.victims}
            node = snapshot.tree.queue(claim.cluster_queue)
            hold = Hold(node, list(claim.cells), claim.owner, claim.pods)
            self._claim(hold, self._terminating.values())
        self._ahead = bool(self._claimed)
        """Whether more is charged than is in use now."""

    def process(self, heads: QueueHeads) -> Mode | None:
        """Return FIT: admitted; PREEMPT: its victims are chosen; NO_CANDIDATES: refused; None: skipped."""
        nomination = whole = heads.nomination
        if nomination.found.mode.preempts and not nomination.victims:
            self._reserve(nomination)
            return Mode.NO_CANDIDATES
        if nomination.found.mode is Mode.FIT and not self._ahead and not self._others:
            return self._admit(nomination)
        awaited = [t.entry for t in nomination.victims if t.entry.id in self._terminating]
        if awaited:
            again = self._renominate(nomination)
            if again is None:
                return None
            nomination = again
        own = {target.entry.id: target.entry for target in nomination.victims}
        fits_now = nomination.found.mode is Mode.FIT and not awaited
        gone = (self._terminating | own).values()
        with self._snapshot.without(gone):
            fits = self._limits.fits(nomination.hold)
            whole.lacks_room = not fits and self._limits.lack_room(nomination.hold)
        if not fits or (fits_now and not self._fits_now(nomination.hold)):
            return None
        if fits_now and not self._leaves_claims(nomination.hold, granted=not heads.preempted):
            whole.lacks_room = True
            return None
        if fits_now:
            self._charge(nomination.hold)
            self.admitted.append(nomination)
            return Mode.FIT
        before = self._shares(nomination.flavors.node, own.values(), gone=self._terminating.values())
        self._claim(nomination.hold, gone)
        after = self._shares(nomination.flavors.node, own.values(), gone=gone)
        self._ahead = True
        self._terminating |= own
        self._preempt(nomination, awaited, _moves(before, after))
        return Mode.PREEMPT

    def _admit(self, nomination: Nomination) -> Mode | None:
        """Nothing but admissions has been charged since it was nominated as a fit."""
        if not self._limits.fits(nomination.hold):
            nomination.lacks_room = self._limits.lack_room(nomination.hold)
            return None
        self._charge(nomination.hold)
        self.admitted.append(nomination)
        return Mode.FIT

    def _renominate(self, nomination: Nomination) -> Nomination | None:
        """Return what it would get without victims that terminate already, from the same flavors (C8)."""
        with self._snapshot.without(self._terminating.values()):
            again = self._nominator.nominate(nomination.entry, NOTHING, nomination.chosen)
        return again if again.promising else None

    def _shares(
        self, preemptor: QuotaNode, victims: Iterable[Entry], *, gone: Collection[Entry]
    ) -> _SharesOf:
        """Return the nodes that a strategy compares for each victim, with their shares; none in a queue."""
        tree, found = self._snapshot.tree, {}
        if not tree.shares_fairly(preemptor):
            return {}
        with self._snapshot.without(gone):
            for victim in victims:
                assert victim.attempt is not None
                two = sides(preemptor, tree.queue(victim.attempt.assignment.cluster_queue))
                if two is not None:
                    found[victim.id] = tuple((str(node), dominant_share(tree, node).reported) for node in two)
        return found

    def _preempt(
        self,
        nomination: Nomination,
        awaited: list[Entry],
        shares: dict[WorkloadId, EvictionShares],
    ) -> None:
        victims = {v.id: v for v in (*awaited, *(target.entry for target in nomination.victims))}
        claim = PreemptionClaim(
            owner=nomination.entry.id,
            cluster_queue=nomination.flavors.name,
            cells=tuple(nomination.found.cells),
            pods=nomination.hold.pods,
            victims=tuple(Victim(v.id, v.attempt.number) for v in victims.values() if v.attempt is not None),
            assignment=nomination.found.assignment,
        )
        evicted = [target for target in nomination.victims if not terminating(target.entry)]
        reason = _waits_for(nomination, len(victims))
        self.preempting.append(Preempting(nomination.entry, reason, claim, evicted, shares))

    def _reserve(self, nomination: Nomination) -> None:
        """Reserve what it could use from the heads after it in this cycle (C6)."""
        node = nomination.flavors.node
        if self._snapshot.rules(node).reclaim_within_cohort is PreemptionPolicy.ANY:
            return
        reserved: Cells = []
        for cell, amount in nomination.found.cells:
            own = node.nominal[cell] - node.usage[cell]
            limit = node.borrowing[cell]
            if nomination.found.level > 0:
                amount = amount if limit is None else min(amount, own + limit)
            else:
                amount = min(amount, own)
            reserved.append((cell, max(0, amount)))
        self._charge(Hold(node, reserved))
        self._ahead = True

    def _fits_now(self, hold: Hold) -> bool:
        """Return whether it fits beside the victims, too: nothing starts on quota that is still in use."""
        if not self._ahead:
            return True
        with self._in_use():
            return self._limits.fits(hold)

    def _claim(self, hold: Hold, victims: Iterable[Entry]) -> None:
        """Charge what a claim holds once `victims` are gone."""
        gone = tuple(victims)
        placed = self._snapshot.placed(hold, without=gone)
        self._claimed.append(Claimed(placed, gone))
        self._charge(placed)

    def _charge(self, hold: Hold) -> None:
        self._trial.add(hold)
        self._charged.append(hold)

    def _leaves_claims(self, hold: Hold, *, granted: bool) -> bool:
        """Return whether a start now leaves the claims of this and other trees their room (M8).

        `granted`: also those of which the victims are gone.
        """
        others = [one for one in self._others if granted or not one.granted]
        if not (self._claimed or others):
            return True
        with self._in_use():
            return leaves_claims(self._snapshot, hold, self._claimed, others)

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Try with what is in use now, and the admitted: without what the cycle charges ahead."""
        with self._limits.trying() as trial:
            for hold in reversed(self._charged):
                trial.remove(hold)
            for nomination in self.admitted:
                trial.add(nomination.hold)
            yield

    def end(self) -> None:
        """Keep the charges of the admitted, for the cycles that follow; roll back all others."""
        if self._ahead:
            self._trial.roll_back()
            for nomination in self.admitted:
                self._trial.add(nomination.hold)
        self._trial.keep()


_SharesOf = dict[WorkloadId, tuple[tuple[str, int | None], ...]]


def _moves(before: _SharesOf, after: _SharesOf) -> dict[WorkloadId, EvictionShares]:
    return {
        victim: EvictionShares(*(ShareChange(*two, after[victim][n][1]) for n, two in enumerate(both)))
        for victim, both in before.items()
    }


def _waits_for(nomination: Nomination, victims: int) -> Reason:
    found = nomination.found.reason
    if found is None:  # all victims terminate already
        found = Reason(code=Code.WAITING_FOR_QUOTA, node=str(nomination.flavors.node))
    code = Code.WAITING_FOR_PREEMPTED_WORKLOADS
    return replace(found, code=code, awaited=victims, considered=None, victims=(), others=())


def order_of_preemptor(heads: QueueHeads) -> Place:
    assert heads.preemptor is not None
    return heads.preemptor.order


def borrows_for_now(snapshot: Snapshot, nomination: Nomination, claim: PreemptionClaim) -> bool:
    """Return whether it would borrow more beside the victims of its claim than once they are gone."""
    with snapshot.without(_victims(snapshot, claim)):
        level = snapshot.tree.level(nomination.flavors.node, nomination.found.cells)
    return nomination.found.level > level


def waiting_again(
    snapshot: Snapshot,
    nominator: Nominator,
    now: Nomination,
    claim: PreemptionClaim,
    last_tried: LastTriedFlavors,
) -> Nomination:
    """Return what a preemptor gets once the victims of `claim` are gone, which it does not reserve any more.

    Return `now`, what it gets now, if it fits now and borrows no more, or if it does not fit then.
    `last_tried`: where the search of flavors goes on, for `now` too (F8).
    """
    reason, victims = now.entry.reason, _victims(snapshot, claim)
    if claim.state is not ClaimState.FIRST or not waits_for_victims(reason) or not victims:
        return now
    with snapshot.without(victims):
        then = nominator.nominate(now.entry, last_tried)
    fits = now.found.mode is Mode.FIT
    if then.found.mode is not Mode.FIT or (fits and now.found.level <= then.found.level):
        return now
    then.found.mode, then.found.reason = Mode.PREEMPT, reason
    # They are evicted already: the cause is not told again.
    then.victims = tuple(Target(one, PreemptionCause.IN_COHORT_RECLAMATION) for one in victims)
    return then


def _victims(snapshot: Snapshot, claim: PreemptionClaim) -> list[Entry]:
    """Return the victims of a claim that still hold quota in this plan."""
    left = (one.workload for one in claim.victims if one.workload not in snapshot.released)
    return [snapshot.entries[one] for one in left]
