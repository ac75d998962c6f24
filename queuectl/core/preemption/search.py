"""One workload that asks for room, and who could make it (docs/scheduling.md, P1 to P6, P10, P11)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple

from queuectl.core.entries import Entry
from queuectl.core.model import Assignment, Phase, WorkloadId
from queuectl.core.policy import (
    ClusterQueue,
    LocalQueueName,
    Preemption,
    PreemptionPolicy,
    SchedulingConfiguration,
)
from queuectl.core.quota.shares import shares_fairly
from queuectl.core.quota.tree import Cells, QuotaNode, QuotaTree
from queuectl.core.reasons import PreemptionCause, Reason, Spared

_ID: Final = attrgetter("id")
_PRIORITY: Final = attrgetter("priority")
_ADMITTED_AT: Final = attrgetter("attempt.admitted_at")
_CHARGED: Final = attrgetter("attempt.assignment.cluster_queue")


class Target(NamedTuple):
    """A victim, and by which rule."""

    entry: Entry
    cause: PreemptionCause


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """All who hold quota, as seen at one moment."""

    tree: QuotaTree
    queues: dict[str, ClusterQueue]
    holders: dict[str, dict[WorkloadId, Entry]]
    """Those with an open attempt, by the ClusterQueue that is charged."""
    settings: SchedulingConfiguration
    now: datetime
    past_usage: Callable[[LocalQueueName], object] | None = None
    """Of a LocalQueue, comparable, with what was `added`; None: no queue counts it."""
    added: dict[LocalQueueName, dict[str, int]] = field(default_factory=dict)
    """What the plan under way lets LocalQueues have, by resource."""
    away: set[WorkloadId] = field(default_factory=set)
    """Holders whose charge is given back by the plan under way."""

    def fair(self, node: QuotaNode) -> bool:
        """Does the tree of `node` share fairly (S1)?"""
        return shares_fairly(self.tree, node, self.settings)

    def rules(self, node: QuotaNode) -> Preemption:
        queue = self.queues.get(node.name)
        return queue.preemption if queue is not None else Preemption()

    def add(self, entry: Entry, assignment: Assignment) -> None:
        """The plan under way lets it go."""
        if self.past_usage is not None:
            added = self.added.setdefault(entry.local_queue, {})
            for resource, amount in assignment.resources().items():
                added[resource] = added.get(resource, 0) + amount

    def holding(self, node: QuotaNode) -> Iterable[Entry]:
        found = self.holders.get(node.name)
        if not found:
            return ()
        if not self.away:
            return found.values()
        return [entry for entry in found.values() if entry.id not in self.away]


_MOST_NAMED: Final = 4


class RejectedCandidates:
    """Who was considered as a victim in vain (R3)."""

    __slots__ = ("_spared", "_tried")

    def __init__(self) -> None:
        self._spared: dict[WorkloadId, tuple[Entry, datetime | None]] = {}
        self._tried = 0

    def add(self, entry: Entry, until: datetime | None = None) -> None:
        """It may not be taken: it is protected `until` then, or (None) its priority is not lower."""
        self._spared.setdefault(entry.id, (entry, until))

    def tried(self, count: int) -> None:
        """So many would do, and are not enough together."""
        self._tried = max(self._tried, count)

    def told(self, reason: Reason) -> Reason:
        """`reason` with how many were considered, and the first few by name."""
        if not self._spared and not self._tried:
            return reason
        ends = [until for _, until in self._spared.values() if until is not None]
        counts = [
            (len(self._spared) - len(ends), "whose priority is not lower"),
            (len(ends), f"protected until {_told(min(ends))} or later" if ends else ""),
            (self._tried, "who may be preempted and are not enough together"),
        ]
        victims = tuple(
            Spared(
                str(entry.ref), f"protected until {_told(until)}" if until else "its priority is not lower"
            )
            for entry, until in islice(self._spared.values(), _MOST_NAMED)
        )
        return replace(
            reason,
            considered=", ".join(f"{count} {what}" for count, what in counts if count),
            victims=victims,
        )


def _told(when: datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%SZ}"


class PreemptionSearch:
    """`cells`: the whole request; `contested`: those of its cells that do not fit."""

    __slots__ = (
        "_allowed",
        "_heeds_protection",
        "cells",
        "contested",
        "entry",
        "field",
        "node",
        "protected",
        "refusals",
        "rules",
        "some_leave",
        "tree",
        "within_nominal",
    )

    def __init__(
        self,
        field: Snapshot,
        node: QuotaNode,
        entry: Entry,
        cells: Cells,
        contested: Collection[int],
        refusals: RejectedCandidates | None = None,
        *,
        heeds_protection: bool = True,
    ) -> None:
        self._heeds_protection = heeds_protection
        self.refusals = RejectedCandidates() if refusals is None else refusals
        self.field = field
        self.tree = field.tree
        self.node = node
        self.entry = entry
        self.cells = cells
        self.contested = frozenset(contested)
        self.rules = field.rules(node)
        self.some_leave = False
        """Of those sorted some are being evicted, or over."""
        self.protected: dict[WorkloadId, datetime] = {}
        """Who would do but is protected still, and until when."""
        asked = dict(cells)
        self.within_nominal = not any(node.borrows(cell, asked.get(cell, 0)) for cell in self.contested)
        """Does its queue, with the whole request, stay within nominal quota on all that is contested (P9)?"""
        self._allowed = {True: self.rules.within_cluster_queue, False: self.rules.reclaim_within_cohort}

    @property
    def settings(self) -> SchedulingConfiguration:
        return self.field.settings

    # --- who is eligible

    def eligible(self, node: QuotaNode) -> Iterator[Entry]:
        """Holders in `node`, a ClusterQueue, that policy and priority let it take quota from (P2)."""
        policy = self._allowed[node is self.node]
        if policy is PreemptionPolicy.NEVER:
            return
        priority, created, contested = self.entry.priority, self.entry.order[1], self.contested
        for entry in self.field.holding(node):
            spared = policy is not PreemptionPolicy.ANY and entry.priority >= priority
            if spared and policy is PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
                spared = entry.priority > priority or entry.order[1] <= created
            for cell, _ in entry.cells:
                if cell in contested:
                    if spared:
                        self.refusals.add(entry)
                    else:
                        yield entry
                    break

    def vulnerable(self, node: QuotaNode, cause: PreemptionCause) -> list[Entry]:
        """Those eligible in `node` that are not protected from `cause`."""
        seconds = self.field.rules(node).min_run_time.seconds(cause)
        return [
            entry
            for entry in self.eligible(node)
            if not ((seconds or entry.preempted_at) and self.is_protected(entry, node, cause))
        ]

    def is_protected(self, entry: Entry, node: QuotaNode, cause: PreemptionCause) -> bool:
        """By a minimum run time (P10), or since it was preempted often or just now (P11)."""
        if leaving(entry) or not self._heeds_protection:
            return False
        until = protected_until(entry, self.field.rules(node).min_run_time.seconds(cause), self.settings)
        if until is None or until <= self.field.now:
            return False
        self.refusals.add(entry, until)
        known = self.protected.get(entry.id)
        self.protected[entry.id] = until if known is None else min(known, until)
        return True

    def holds_what_is_borrowed(self, entry: Entry, queue: QuotaNode, below: QuotaNode | None) -> bool:
        """Of one thing that is contested, and that its queue and all cohorts up to `below` borrow (P2, P7).

        Who holds only what is its queue's own would be given it back, and take it back, for ever.
        """
        return any(
            cell in self.contested and _all_borrow(queue, below, cell)
            for cell, amount in entry.cells
            if amount
        )

    # --- in which order

    def sort(self, entries: list[Entry]) -> list[Entry]:
        """First who is taken first (P5)."""
        # Stable passes, the least that counts first: one key made in Python takes three times as long, and
        # sorting is most of a search.
        entries.sort(key=_ID)
        entries.sort(key=_ADMITTED_AT, reverse=True)
        entries.sort(key=_PRIORITY)
        name, past = self.node.name, self.field.past_usage
        queues = {_CHARGED(entry) for entry in entries}
        if name in queues and past is not None and self.field.queues[name].usage_based:
            own = [entry for entry in entries if _CHARGED(entry) == name]
            own.sort(key=lambda entry: _Descending(past(entry.local_queue)))
            entries[:] = [*(entry for entry in entries if _CHARGED(entry) != name), *own]
        elif name in queues and len(queues) > 1:
            entries.sort(key=lambda entry: _CHARGED(entry) == name)
        if any(map(leaving, entries)):
            self.some_leave = True
            entries.sort(key=leaving, reverse=True)
        return entries

    # --- for a search that shares fairly

    def nodes_with_candidates(self) -> list[QuotaNode]:
        """Queues of the same tree in which somebody is eligible; of others only those that borrow (P7)."""
        found = [self.node] if any(True for _ in self.eligible(self.node)) else []
        if self._allowed[False] is PreemptionPolicy.NEVER:
            return found
        todo = [self.tree.root(self.node)]
        while todo:
            at = todo.pop()
            if at.kind == "Cohort":
                todo.extend(at.children.values())
            elif at is not self.node and any(at.borrows(cell) for cell in self.contested):
                found.append(at)
        return found

    def candidates(self, node: QuotaNode) -> list[Entry]:
        """Of one of these queues, sorted; those protected from the cause it would be are left out."""
        if node is self.node:
            cause = PreemptionCause.IN_CLUSTER_QUEUE
        elif self.within_nominal:
            cause = PreemptionCause.IN_COHORT_RECLAMATION
        else:
            cause = PreemptionCause.IN_COHORT_FAIR_SHARING
        return self.sort(self.vulnerable(node, cause))

    # --- trying

    def take(self, entry: Entry) -> None:
        self.tree.remove(_charged(self.tree, entry), entry.cells)

    def give_back(self, entry: Entry) -> None:
        self.tree.add(_charged(self.tree, entry), entry.cells)

    def fits(self, allow_borrowing: bool = True) -> bool:
        node = self.node
        if not self.tree.fits(node, self.cells):
            return False
        if allow_borrowing or node.parent is None:
            return True
        return not any(node.borrows(cell, amount) for cell, amount in self.cells)

    def fill_back(self, targets: list[Target], allow_borrowing: bool) -> list[Target]:
        """Of victims that make room together, leave out who is not needed: last but one to first (P6)."""
        kept = [targets[-1]]
        for target in reversed(targets[:-1]):
            self.give_back(target.entry)
            if not self.fits(allow_borrowing):
                self.take(target.entry)
                kept.append(target)
        kept.reverse()
        return kept


def _all_borrow(queue: QuotaNode, below: QuotaNode | None, cell: int) -> bool:
    at: QuotaNode | None = queue
    while at is not None and at is not below:
        if not at.borrows(cell):
            return False
        at = at.parent
    return True


def leaving(entry: Entry) -> bool:
    """It is being evicted, or over already: only its pods still hold the quota."""
    seen = entry.observation
    return entry.phase is Phase.EVICTING or entry.gone or (seen is not None and seen.finished is not None)


def protected_until(entry: Entry, seconds: int, settings: SchedulingConfiguration) -> datetime | None:
    attempt = entry.attempt
    assert attempt is not None
    until = attempt.admitted_at + timedelta(seconds=seconds) if seconds else None
    past = entry.preempted_at
    if past:
        rested = attempt.admitted_at + timedelta(seconds=settings.cooldown)
        if len(past) >= settings.eviction_budget:
            oldest = past[-settings.eviction_budget]
            if past[-1] < oldest + timedelta(seconds=settings.eviction_window):
                rested = max(rested, past[-1] + timedelta(seconds=settings.eviction_window))
        until = rested if until is None else max(until, rested)
    return until


def _charged(tree: QuotaTree, entry: Entry) -> QuotaNode:
    assert entry.attempt is not None
    return tree.queue(entry.attempt.assignment.cluster_queue)


class _Descending:
    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __lt__(self, other: _Descending) -> bool:
        return other.value < self.value  # type: ignore[operator, no-any-return]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]
