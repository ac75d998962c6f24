"""Nomination: the flavors that a pending workload would get now, and the victims for that (C2, P1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from queuectl.core.directory import Directory
from queuectl.core.entries import Entry
from queuectl.core.flavors.assignment import (
    NOTHING,
    AssignmentResult,
    FlavorWait,
    Placed,
    assign,
)
from queuectl.core.flavors.fast_path import fitting
from queuectl.core.flavors.pods import with_flavors
from queuectl.core.flavors.queue_flavors import (
    Charge,
    GranularMode,
    LastTriedFlavors,
    Mode,
    PodSetGroup,
    QueueFlavors,
    fewer_pods,
)
from queuectl.core.limits import Hold, Snapshot, held_by
from queuectl.core.model.pods import Pods
from queuectl.core.model.policy import PreemptionPolicy
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.preemption.claims import PreemptionClaims
from queuectl.core.preemption.classical import classical_victims
from queuectl.core.preemption.fair import fair_victims
from queuectl.core.preemption.search import PreemptionSearch, RejectedCandidates, Target
from queuectl.core.queues.pending import waits_since
from queuectl.core.quota.tree import Cells


@dataclass(slots=True)
class Nomination:
    """What a head would get, and the victims that it takes."""

    entry: Entry
    flavors: QueueFlavors
    found: AssignmentResult
    victims: tuple[Target, ...] = ()
    protected: datetime | None = None
    """When it is nominated again in any case: the first protection ends, where nothing but protections is in
    the way, or it may take another flavor (F10)."""
    reserved: bool = False
    """It would fit, but for what is reserved for others."""
    pods: Pods = ()
    """The pods that it would have, where nodes limit anything."""
    lacking: tuple[Pods, ...] = ()
    """Pods that did not fit on nodes, with one of the flavors each (W6)."""
    lacks_room: bool = False
    """When it was processed, nodes alone prevented it."""

    @property
    def hold(self) -> Hold:
        return Hold(self.flavors.node, self.found.cells, self.entry.id, self.pods)

    @property
    def chosen(self) -> dict[PodSetGroup, str]:
        """The flavors that it would get."""
        return {
            (pod_set.name, self.flavors.of_resource[resource]): flavor
            for pod_set in self.found.assignment.pod_sets
            for resource, flavor in pod_set.flavors
        }

    @property
    def promising(self) -> bool:
        return self.found.mode is Mode.FIT or bool(self.victims)


@dataclass(slots=True)
class Nominator:
    """Nominates heads against one snapshot without changing it."""

    _snapshot: Snapshot
    _directory: Directory
    _claims: PreemptionClaims
    work: int = 0
    """Number of nominations and searches."""

    def nominate(
        self,
        entry: Entry,
        last_tried: LastTriedFlavors = NOTHING,
        pinned: Mapping[PodSetGroup, str] = NOTHING,
    ) -> Nomination:
        """Return what `entry` would get: in full, else with as few pods less as needed (F9).

        `last_tried`: where the search of flavors goes on (F8). `pinned`: flavors that must stay as they are.
        """
        assert entry.cluster_queue is not None
        flavors = self._directory.queue_flavors(entry.cluster_queue)
        if self._claims.by_queue and not pinned and (claimed := self.claimed(entry)) is not None:
            return claimed
        whole = self._nominate(entry, flavors, entry.shape, last_tried, pinned)
        if whole.promising or all(charge.pod_set.min_count is None for charge in entry.shape):
            return whole

        def partly(charges: Sequence[Charge]) -> Nomination | None:
            part = self._nominate(entry, flavors, charges, last_tried, pinned)
            if part.promising:
                return part
            whole.lacking += part.lacking  # room for fewer pods helps it, too (W6)
            return None

        return fewer_pods(entry.shape, partly) or whole

    def claimed(self, entry: Entry) -> Nomination | None:
        """Return a nomination for exactly what `entry` preempted for, if that fits now (C7).

        With more, or other flavors, it could be preempted in turn, and its victims would be evicted in vain.
        """
        assert entry.cluster_queue is not None
        claim = self._claims.by_queue.get(entry.cluster_queue)
        if claim is None or claim.owner != entry.id or claim.assignment is None:
            return None
        flavors, assignment = self._directory.queue_flavors(entry.cluster_queue), claim.assignment
        tree, node = flavors.tree, flavors.node
        self.work += 1
        cells = tree.numbered(assignment.usage())
        found = AssignmentResult(assignment, cells, level=tree.level(node, cells))
        limits = self._snapshot.limits
        claimed = Nomination(entry, flavors, found, pods=limits.pods_of(entry.shape, assignment))
        return claimed if limits.fits(claimed.hold) else None

    def _nominate(
        self,
        entry: Entry,
        flavors: QueueFlavors,
        charges: Sequence[Charge],
        last_tried: LastTriedFlavors,
        pinned: Mapping[PodSetGroup, str],
    ) -> Nomination:
        self.work += 1
        limits = self._snapshot.limits
        if not last_tried and not pinned:
            fit = fitting(flavors, charges)
            pods = limits.pods_of(charges, fit.assignment) if fit is not None else ()
            if fit is not None and (not pods or limits.have_room(pods)):
                return Nomination(entry, flavors, fit, pods=pods)
        simulation = PreemptionSimulation(self._snapshot, entry, flavors)
        waiting = self._waiting(entry, charges) if flavors.waits else None
        found = assign(flavors, charges, simulation, last_tried, pinned, waiting)
        if last_tried:  # groups that were tried to the end are not tried anew: the search ends (F8)
            found.tried = {group: last for group, last in found.tried.items() if group in last_tried}
        nomination = Nomination(entry, flavors, found, pods=limits.pods_of(charges, found.assignment))
        nomination.lacking = tuple(simulation.lacking)
        if found.mode.preempts:
            nomination.victims = tuple(simulation.victims(found.cells, found.needed, nomination.pods))
        self.work += simulation.work
        protected, reason = simulation.protected, found.reason
        if protected and reason is not None and found.mode is not Mode.FIT and not nomination.victims:
            nomination.protected = min(protected.values())
            if found.mode.preempts and found.needed <= protected.keys() and simulation.lasting:
                # Candidates would be enough, but for a protection that ends by itself (P10, P11).
                code = Code.MIN_RUN_TIME_PROTECTED
                found.reason = replace(reason, code=code, until=nomination.protected)
        if found.later is not None:
            nomination.protected = min(found.later.at, nomination.protected or found.later.at)
        if found.reason is not None and not nomination.victims:
            found.reason = simulation.rejected.added_to(found.reason)
        return nomination

    def _waiting(self, entry: Entry, charges: Sequence[Charge]) -> FlavorWait:
        partly = any(charge.pod_set.min_count is not None for charge in charges)
        return FlavorWait(waits_since(entry.order), self._snapshot.now, partly)


_Searched = dict[tuple[tuple[tuple[int, int], ...], frozenset[int], Pods], Sequence[Target]]


@dataclass(slots=True)
class PreemptionSimulation:
    """The preemption searches of one nomination: what they would find, without evicting anything."""

    _snapshot: Snapshot
    _entry: Entry
    _flavors: QueueFlavors
    rejected: RejectedCandidates = field(default_factory=RejectedCandidates)
    protected: dict[int, datetime] = field(default_factory=dict)
    """Cells for which nothing but protections is in the way, with the end of the first."""
    lasting: bool = False
    """Whether any of these protections is more than a cooldown."""
    lacking: list[Pods] = field(default_factory=list)
    """Pods that did not fit on nodes, with one of the flavors each."""
    work: int = 0
    _searched: _Searched = field(default_factory=dict)
    """What searches found: a request for one cell is searched for its flavor (F3), then whole (P1)."""

    def lacks_room(self, placed: Placed) -> str | None:
        """Return the resource for which nodes have no room (M1); None: there is room."""
        pods, limits = self._pods(placed), self._snapshot.limits
        return None if not pods or limits.have_room(pods) else limits.why_no_room(pods).resource

    def explain_room(self, placed: Placed) -> Reason | None:
        """Return why nodes have no room for it, and remember it; None: there is room."""
        pods = self._pods(placed)
        if not pods or self._snapshot.limits.have_room(pods):
            return None
        if pods not in self.lacking:
            self.lacking.append(pods)
        return self._snapshot.limits.why_no_room(pods)

    def _pods(self, placed: Placed) -> Pods:
        if not self._snapshot.limits.limit_pods:
            return ()
        return tuple(group for charges, flavors in placed for group in with_flavors(charges, flavors))

    def offer(self, cell: int, amount: int, placed: Placed) -> GranularMode:
        """Return what preemption offers for one cell alone (F3): the mode, and the level afterwards.

        Nodes must have room for `placed`, the podsets so far, once the victims are gone (M8). If they will
        have it without victims, because pods end already, that is waited for (M9).
        """
        pods = self._pods(placed)
        fits_quota = amount <= max(0, self._flavors.tree.available(self._flavors.node, cell))
        if fits_quota and pods and self._snapshot.limits.have_room_soon(pods):
            return GranularMode(Mode.NO_FIT, 0)
        tree, node = self._flavors.tree, self._flavors.node
        rules = self._snapshot.rules(node)
        _, reclaims_above = tree.borrow_level(node, cell, amount)
        borrows = rules.borrow_within_cohort is not None or (
            rules.reclaim_within_cohort is not PreemptionPolicy.NEVER and tree.shares_fairly(node)
        )
        if node.nominal[cell] < amount and not reclaims_above and not borrows:
            return GranularMode(Mode.NO_FIT, 0)
        return self.simulate(cell, amount, pods)

    def simulate(self, cell: int, amount: int, pods: Pods = ()) -> GranularMode:
        """Return the mode and the level with the victims of one cell gone."""
        tree, node = self._flavors.tree, self._flavors.node
        victims = self.victims([(cell, amount)], (cell,), pods) if self._flavors.preempts else ()
        if not victims:
            return GranularMode(Mode.NO_CANDIDATES, tree.borrow_level(node, cell, amount)[0])
        with self._snapshot.limits.trying() as trial:
            for entry, _ in victims:
                trial.remove(held_by(tree, entry))
            level, _ = tree.borrow_level(node, cell, amount)
        attempts = (entry.attempt for entry, _ in victims)
        own = any(attempt and attempt.assignment.cluster_queue == node.name for attempt in attempts)
        return GranularMode(Mode.PREEMPT if own else Mode.RECLAIM, level)

    def victims(
        self, cells: Cells, needed: Sequence[int] | frozenset[int], pods: Pods = ()
    ) -> Sequence[Target]:
        """Return the victims for a request. Notes where only protections are in the way (P10, P11)."""
        key = (tuple(cells), frozenset(needed), pods)
        found = self._searched.get(key)
        if found is None:
            found = self._searched[key] = self._victims(cells, needed, pods)
        return found

    def _victims(self, cells: Cells, needed: Sequence[int] | frozenset[int], pods: Pods) -> Sequence[Target]:
        snapshot, node, entry = self._snapshot, self._flavors.node, self._entry
        search = PreemptionSearch(snapshot, node, entry, cells, needed, self.rejected, pods=pods)
        victims = self._search(search)
        if not victims and search.protected:
            bold = PreemptionSearch(snapshot, node, entry, cells, needed, pods=pods, heeds_protection=False)
            if self._search(bold):
                self.protected |= dict.fromkeys(search.needed, min(search.protected.values()))
                self.lasting |= search.lasting
        if not victims and pods and pods not in self.lacking and not snapshot.limits.have_room(pods):
            by_quota = PreemptionSearch(snapshot, node, entry, cells, needed)
            if self._search(by_quota):
                self.lacking.append(pods)  # with more room, these make room for it (W6)
        return victims

    def _search(self, search: PreemptionSearch) -> Sequence[Target]:
        self.work += 1
        if not search.rules.enabled:
            return ()
        if search.tree.shares_fairly(search.node):
            strategies = search.tree.root(search.node).sharing.strategies
            return fair_victims(search, strategies or search.configuration.strategies)
        return classical_victims(search)
