"""What one workload could be given now: flavors, and whom that would cost (docs/scheduling.md, C2, P1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from queuectl.core.entries import Entry
from queuectl.core.flavors.assignment import NO_BOUND, AssignmentResult, GranularMode, Mode, assign
from queuectl.core.flavors.fast_path import fitting
from queuectl.core.flavors.queue_flavors import (
    Charge,
    LastTriedFlavors,
    PodSetGroup,
    QueueFlavors,
    fewer_pods,
)
from queuectl.core.model import Assignment
from queuectl.core.policy import PreemptionPolicy
from queuectl.core.preemption.classical import classical_victims
from queuectl.core.preemption.fair import fair_victims
from queuectl.core.preemption.search import PreemptionSearch, RejectedCandidates, Snapshot, Target
from queuectl.core.quota.tree import Cells
from queuectl.core.reasons import Code, Reason


@dataclass(slots=True)
class Nomination:
    """A head, what it would be given, and whom it would take that from."""

    entry: Entry
    menu: QueueFlavors
    found: AssignmentResult
    victims: tuple[Target, ...] = ()
    protected: datetime | None = None
    """Until then somebody who would do may not be taken."""
    kept: bool = False
    """It would fit, but for what is kept for others."""

    @property
    def cells(self) -> Cells:
        return self.found.cells

    @property
    def flavors(self) -> dict[PodSetGroup, str]:
        return {
            (pod_set.name, self.menu.of_resource[resource]): flavor
            for pod_set in self.found.assignment.pod_sets
            for resource, flavor in pod_set.flavors
        }

    @property
    def mode(self) -> Mode:
        return self.found.mode


class Nominator:
    """Searches from one `field`. Everything is left as it was. `work` counts what it cost."""

    def __init__(self, field: Snapshot) -> None:
        self._field = field
        self.work = 0

    def nominate(
        self,
        entry: Entry,
        menu: QueueFlavors,
        charges: Sequence[Charge],
        tried: LastTriedFlavors = NO_BOUND,
        pinned: Mapping[PodSetGroup, str] = NO_BOUND,
    ) -> Nomination:
        """In full, else with as few pods less as will do (F9)."""
        whole = self._look(entry, menu, charges, tried, pinned)
        if whole.mode is Mode.FIT or whole.victims:
            return whole

        def look(fewer: Sequence[Charge]) -> Nomination | None:
            part = self._look(entry, menu, fewer, tried, pinned)
            return part if part.mode is Mode.FIT or part.victims else None

        if any(charge.pod_set.min_count is not None for charge in charges):
            return fewer_pods(charges, look) or whole
        return whole

    def promised(self, entry: Entry, menu: QueueFlavors, assignment: Assignment) -> Nomination | None:
        """What it preempted for, if that is free now: no more than that and nothing else, or others would
        come to preempt it in their turn, and its victims would have gone for nothing (C7)."""
        tree, node = menu.tree, menu.node
        self.work += 1
        cells = tree.numbered(assignment.usage())
        if not tree.fits(node, cells):
            return None
        return Nomination(entry, menu, AssignmentResult(assignment, cells, level=tree.level(node, cells)))

    def _look(
        self,
        entry: Entry,
        menu: QueueFlavors,
        charges: Sequence[Charge],
        tried: LastTriedFlavors,
        pinned: Mapping[PodSetGroup, str],
    ) -> Nomination:
        self.work += 1
        protected: dict[int, datetime] = {}
        refusals = RejectedCandidates()

        def search(cell: int, amount: int) -> GranularMode:
            return self.offer(entry, menu, cell, amount, protected, refusals)

        if not tried and not pinned:
            fit = fitting(menu, charges, self._field.rules(menu.node).any)
            if fit is not None:
                return Nomination(entry, menu, fit)
        found = assign(menu, charges, search, tried, pinned)
        nomination = Nomination(entry, menu, found)
        if found.mode.preempts:
            contest = PreemptionSearch(self._field, menu.node, entry, found.cells, found.contested, refusals)
            nomination.victims = tuple(self._victims(contest))
            if (until := self._protected_until(contest, nomination.victims)) is not None:
                protected |= dict.fromkeys(found.contested, until)
        reason = found.reason
        if protected and reason is not None and found.mode is not Mode.FIT and not nomination.victims:
            nomination.protected = min(protected.values())
            if found.mode.preempts and found.contested <= protected.keys():
                found.reason = _protected(reason, nomination.protected)
        if found.reason is not None and not nomination.victims:
            found.reason = refusals.told(found.reason)
        return nomination

    def offer(
        self,
        entry: Entry,
        menu: QueueFlavors,
        cell: int,
        amount: int,
        protected: dict[int, datetime],
        refusals: RejectedCandidates,
    ) -> GranularMode:
        """What preemption offers for one cell alone (F3): by whom it would be given, and the level after."""
        tree, node = menu.tree, menu.node
        rules = self._field.rules(node)
        _, reclaims_above = tree.borrow_level(node, cell, amount)
        fair = self._field.fair(node)
        borrows = rules.borrow_within_cohort is not None or (
            fair and rules.reclaim_within_cohort is not PreemptionPolicy.NEVER
        )
        if node.nominal[cell] < amount and not reclaims_above and not borrows:
            return GranularMode(Mode.NO_FIT, 0)
        return self.taking(entry, menu, cell, amount, protected, refusals)

    def taking(
        self,
        entry: Entry,
        menu: QueueFlavors,
        cell: int,
        amount: int,
        protected: dict[int, datetime],
        refusals: RejectedCandidates,
    ) -> GranularMode:
        """What its victims would be for one cell alone, and the level once they are gone."""
        tree, node = menu.tree, menu.node
        level, _ = tree.borrow_level(node, cell, amount)
        if not self._field.rules(node).any:
            return GranularMode(Mode.NO_CANDIDATES, level)
        contest = PreemptionSearch(self._field, node, entry, [(cell, amount)], (cell,), refusals)
        victims = self._victims(contest)
        if (until := self._protected_until(contest, victims)) is not None:
            protected[cell] = until
        if not victims:
            return GranularMode(Mode.NO_CANDIDATES, level)
        own = False
        for entry_, _ in victims:
            contest.take(entry_)
            assert entry_.attempt is not None
            own |= entry_.attempt.assignment.cluster_queue == node.name
        level = tree.borrow_level(node, cell, amount)[0]
        for entry_, _ in victims:
            contest.give_back(entry_)
        return GranularMode(Mode.PREEMPT if own else Mode.RECLAIM, level)

    def _victims(self, contest: PreemptionSearch) -> Sequence[Target]:
        self.work += 1
        if not contest.rules.any:
            return ()
        if self._field.fair(contest.node):
            strategies = contest.tree.root(contest.node).sharing.strategies
            return fair_victims(contest, strategies or contest.settings.strategies)
        return classical_victims(contest)

    def _protected_until(self, contest: PreemptionSearch, victims: Sequence[Target]) -> datetime | None:
        """Where nothing but a protection stands in its way: when the first of them ends (P10, P11)."""
        if victims or not contest.protected:
            return None
        field, node, entry = self._field, contest.node, contest.entry
        bold = PreemptionSearch(field, node, entry, contest.cells, contest.contested, heeds_protection=False)
        return min(contest.protected.values()) if self._victims(bold) else None


def _protected(reason: Reason, until: datetime) -> Reason:
    """Somebody would do but for a protection that ends by itself (P10, P11)."""
    detail = f"who could make room is protected until {until.isoformat(timespec='seconds')}"
    return replace(reason, code=Code.MIN_RUN_TIME_PROTECTED, detail=detail)
