"""A preemption search: one preemptor, its candidates, their order and protection (P1 to P6, P10, P11)."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple

from queuectl.core.entries import Entry
from queuectl.core.limits import Hold, Snapshot, held_by
from queuectl.core.model.pods import Pods
from queuectl.core.model.policy import (
    LocalQueueName,
    PreemptionPolicy,
    SchedulingConfiguration,
)
from queuectl.core.model.reasons import PreemptionCause, Reason, RejectedCandidate, utc
from queuectl.core.model.resources import format_amount
from queuectl.core.model.workload import Phase, WorkloadId
from queuectl.core.past_usage import PlannedUsage, turn_of
from queuectl.core.quota.tree import Cells, QuotaNode

_ID: Final = attrgetter("id")
_PRIORITY: Final = attrgetter("priority")
_ADMITTED_AT: Final = attrgetter("attempt.admitted_at")
_USE: Final = attrgetter("past.use")
_CHARGED: Final = attrgetter("attempt.assignment.cluster_queue")


class Target(NamedTuple):
    """A victim, and the rule by which it is preempted."""

    entry: Entry
    cause: PreemptionCause


_MOST_NAMED: Final = 4


class RejectedCandidates:
    """Workloads that were considered as victims in vain (R3)."""

    __slots__ = ("_barred", "_borrowed", "_rejected", "_tried")

    def __init__(self) -> None:
        self._rejected: dict[WorkloadId, tuple[Entry, datetime | None]] = {}
        self._tried = 0
        self._barred = 0
        self._borrowed = ""

    def add(self, entry: Entry, until: datetime | None = None) -> None:
        """`entry` may not be preempted: it is protected `until` then, or (None) its priority is not lower."""
        self._rejected.setdefault(entry.id, (entry, until))

    def tried(self, count: int) -> None:
        """`count` workloads may be preempted, and together free too little."""
        self._tried = max(self._tried, count)

    def barred(self, count: int, borrowed: str) -> None:
        """`count` workloads may be preempted only by one that does not borrow (P3); it would, `borrowed`."""
        if count > self._barred:
            self._barred, self._borrowed = count, borrowed

    def added_to(self, reason: Reason) -> Reason:
        """Return `reason` with the number of rejected candidates, and the first few by name."""
        if not (self._rejected or self._tried or self._barred):
            return reason
        ends = [until for _, until in self._rejected.values() if until is not None]
        counts = [
            (len(self._rejected) - len(ends), "whose priority is not lower"),
            (len(ends), f"protected until {utc(min(ends))} or later" if ends else ""),
            (self._tried, "that together free too little"),
            (
                self._barred,
                "that may be preempted only if the preemptor does not borrow "
                f"(spec.preemption.borrowWithinCohort){self._borrowed}",
            ),
        ]
        victims = tuple(
            RejectedCandidate(
                str(entry.ref), f"protected until {utc(until)}" if until else "its priority is not lower"
            )
            for entry, until in islice(self._rejected.values(), _MOST_NAMED)
        )
        return replace(
            reason,
            considered=", ".join(f"{count} {what}" for count, what in counts if count),
            victims=victims,
        )


class PreemptionSearch:
    """One search for victims: who may be preempted for `entry`, in which order, and whether that is enough.

    `cells`: the whole request; `needed`: those of its cells that do not fit, which need preemption; `pods`:
    those that need room on nodes once the victims are gone (M8).
    """

    def __init__(
        self,
        snapshot: Snapshot,
        node: QuotaNode,
        entry: Entry,
        cells: Cells,
        needed: Collection[int],
        rejected: RejectedCandidates | None = None,
        *,
        pods: Pods = (),
        heeds_protection: bool = True,
    ) -> None:
        self._heeds_protection = heeds_protection
        self.rejected = RejectedCandidates() if rejected is None else rejected
        self.snapshot = snapshot
        self.tree = snapshot.tree
        self.limits = snapshot.limits
        self.pods = pods
        self.node = node
        self.entry = entry
        self.cells = cells
        self.needed = frozenset(needed)
        self.rules = snapshot.rules(node)
        self.any_terminating = False
        """Some of the candidates sorted so far are being evicted, or over."""
        self.protected: dict[WorkloadId, datetime] = {}
        """Workloads that could be preempted but are protected, and until when."""
        self.lasting = False
        """Some of them are protected by more than the cooldown, which lasts for seconds (P11)."""
        asked = dict(cells)
        self.within_nominal = not any(node.borrows(cell, asked.get(cell, 0)) for cell in self.needed)
        """Whether its queue, with the whole request, stays within nominal quota on all needed cells (P9)."""
        self._allowed = {True: self.rules.within_cluster_queue, False: self.rules.reclaim_within_cohort}

    @property
    def configuration(self) -> SchedulingConfiguration:
        return self.snapshot.configuration

    # --- which workloads are candidates

    def eligible(self, node: QuotaNode) -> Iterator[Entry]:
        """Yield the holders in `node`, a ClusterQueue, that policy and priority allow to preempt (P2)."""
        policy = self._allowed[node is self.node]
        if policy is PreemptionPolicy.NEVER:
            return
        priority, created, needed = self.entry.priority, self.entry.order[1], self.needed
        for entry in self.snapshot.holding(node):
            rejected = policy is not PreemptionPolicy.ANY and entry.priority >= priority
            if rejected and policy is PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
                rejected = entry.priority > priority or entry.order[1] <= created
            for cell, _ in entry.cells:
                if cell in needed:
                    if rejected:
                        self.rejected.add(entry)
                    else:
                        yield entry
                    break

    def unprotected(self, node: QuotaNode, cause: PreemptionCause) -> list[Entry]:
        """Return the eligible holders in `node` that are not protected from `cause`."""
        seconds = self.snapshot.rules(node).min_run_time.seconds(cause)
        return [
            entry
            for entry in self.eligible(node)
            if not ((seconds or entry.preempted_at) and self.is_protected(entry, node, cause))
        ]

    def is_protected(self, entry: Entry, node: QuotaNode, cause: PreemptionCause) -> bool:
        """Return whether a minimum run time (P10), or earlier preemptions (P11), protect `entry`."""
        if terminating(entry) or not self._heeds_protection:
            return False
        seconds = self.snapshot.rules(node).min_run_time.seconds(cause)
        until = protected_until(entry, seconds, self.configuration, self.snapshot.now)
        if until is None or until <= self.snapshot.now:
            return False
        self.rejected.add(entry, until)
        known = self.protected.get(entry.id)
        self.protected[entry.id] = until if known is None else min(known, until)
        if not self.lasting:
            now = self.snapshot.now
            lasts = protected_until(entry, seconds, self.configuration, now, cooling=False)
            self.lasting = lasts is not None and lasts > self.snapshot.now
        return True

    def holds_what_is_borrowed(self, entry: Entry, queue: QuotaNode, below: QuotaNode | None) -> bool:
        """Return whether `entry` uses a needed cell that its queue and cohorts up to `below` borrow (P2, P7).

        A workload that uses only its queue's own quota would reclaim it, and the two would evict each other.
        """
        return any(
            cell in self.needed and _all_borrow(queue, below, cell) for cell, amount in entry.cells if amount
        )

    # --- in which order

    def sort(self, entries: list[Entry]) -> list[Entry]:
        """Sort candidates: the first is preempted first (P5)."""
        # Stable passes, the least significant first: one key made in Python takes three times as long, and
        # sorting is most of a search.
        entries.sort(key=_ID)
        entries.sort(key=_ADMITTED_AT, reverse=True)
        entries.sort(key=_PRIORITY)
        name, past = self.node.name, self.snapshot.past_usage
        queues = {_CHARGED(entry) for entry in entries}
        if len(queues) > 1 and (members := self.snapshot.usage_of_members(self.node)) is not None:
            of_path = {queue: members.of_path(self.tree.queue(queue)) for queue in queues}
            entries.sort(key=lambda entry: of_path[_CHARGED(entry)], reverse=True)
        if name in queues and past is not None and (rules := self.snapshot.queues[name]).usage_based:
            own = [entry for entry in entries if _CHARGED(entry) == name]
            own.sort(key=lambda one: past.of_turn(turn_of(one, by_user=False)), reverse=True)
            if rules.users_by_usage:
                own = _with_users_in_order(own, past)
            entries[:] = [*(entry for entry in entries if _CHARGED(entry) != name), *own]
        elif name in queues and len(queues) > 1:
            entries.sort(key=lambda entry: _CHARGED(entry) == name)
        if any(map(_USE, entries)):
            entries.sort(key=told_of_idleness, reverse=True)
        if any(map(terminating, entries)):
            self.any_terminating = True
            entries.sort(key=terminating, reverse=True)
        return entries

    # --- for a search in a tree that shares fairly

    def nodes_with_candidates(self) -> list[QuotaNode]:
        """Return the queues of the tree with candidates; of other queues only those that borrow (P7)."""
        found = [self.node] if any(True for _ in self.eligible(self.node)) else []
        if self._allowed[False] is PreemptionPolicy.NEVER:
            return found
        others = (at for at in self.tree.root(self.node).queues() if at is not self.node)
        return [*found, *(at for at in others if any(map(at.borrows, self.needed)))]

    def candidates(self, node: QuotaNode) -> list[Entry]:
        """Return the unprotected candidates of one of these queues, sorted."""
        if node is self.node:
            cause = PreemptionCause.IN_CLUSTER_QUEUE
        elif self.within_nominal:
            cause = PreemptionCause.IN_COHORT_RECLAMATION
        else:
            cause = PreemptionCause.IN_COHORT_FAIR_SHARING
        return self.sort(self.unprotected(node, cause))

    # --- trying

    def fits(self, allow_borrowing: bool = True) -> bool:
        node = self.node
        if not self.limits.fits(Hold(node, self.cells, self.entry.id, self.pods)):
            return False
        if allow_borrowing or node.parent is None:
            return True
        return not any(node.borrows(cell, amount) for cell, amount in self.cells)

    def borrowed(self) -> str:
        """Return what its queue would borrow with the request, such as `, and it would borrow 6 cpu in flavor
        a100`; empty: nothing."""
        names, node = self.tree.names, self.node
        over = (
            f"{format_amount(names[cell].resource, node.usage[cell] + amount - node.subtree[cell])} "
            f"{names[cell].resource} in flavor {names[cell].flavor}"
            for cell, amount in self.cells
            if node.borrows(cell, amount)
        )
        text = ", ".join(over)
        return f", and it would borrow {text}" if text else ""

    def fill_back(self, targets: list[Target], allow_borrowing: bool) -> list[Target]:
        """Return `targets`, which are enough together, without those that are not needed (P6).

        Call it in the trial that removed them: what is not needed is added again.
        """
        kept = [targets[-1]]
        for target in reversed(targets[:-1]):
            with self.limits.trying() as trial:
                trial.add(held_by(self.tree, target.entry))
                if self.fits(allow_borrowing):
                    trial.keep()
                else:
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


def terminating(entry: Entry) -> bool:
    """Return whether `entry` is being evicted, or is over: its quota is released once its pods are gone."""
    seen = entry.observation
    return entry.phase is Phase.EVICTING or entry.gone or (seen is not None and seen.finished is not None)


def told_of_idleness(entry: Entry) -> bool:
    """Return whether its user was told that its devices are idle, and they still are (I6)."""
    use, attempt = entry.past.use, entry.attempt
    return use is not None and attempt is not None and use.attempt == attempt.number and use.is_told


def protected_until(
    entry: Entry,
    seconds: int,
    configuration: SchedulingConfiguration,
    now: datetime,
    *,
    cooling: bool = True,
) -> datetime | None:
    """Return when the protection of `entry` ends; `seconds` of minimum run time (P10, P11).

    `cooling`: whether the cooldown counts.
    """
    attempt = entry.attempt
    assert attempt is not None
    until = attempt.admitted_at + timedelta(seconds=seconds) if seconds else None
    counts_for = configuration.preemptions_count_for
    past = [at for at in entry.preempted_at if at > now - counts_for]
    if past:
        rested = attempt.admitted_at + timedelta(seconds=configuration.cooldown if cooling else 0)
        rested = min(rested, past[-1] + counts_for)
        if len(past) >= configuration.eviction_budget:
            oldest = past[-configuration.eviction_budget]
            if past[-1] < oldest + timedelta(seconds=configuration.eviction_window):
                rested = max(rested, past[-1] + timedelta(seconds=configuration.eviction_window))
        until = rested if until is None else max(until, rested)
    return until


def _with_users_in_order(entries: list[Entry], past: PlannedUsage) -> list[Entry]:
    """Return `entries` with those of each LocalQueue in each other's places: larger past usage first (U6)."""
    by_queue: defaultdict[LocalQueueName, deque[Entry]] = defaultdict(deque)
    for entry in sorted(entries, key=lambda one: past.of_turn(turn_of(one, by_user=True))[1:], reverse=True):
        by_queue[entry.local_queue].append(entry)
    return [by_queue[entry.local_queue].popleft() for entry in entries]
