"""What readers see of the engine: immutable, made on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set

from queuectl.core.directory import Directory
from queuectl.core.entries import Entry
from queuectl.core.model import ObjectRef, WorkloadId
from queuectl.core.policy import Condition, LocalQueueName
from queuectl.core.queues.pending import PendingQueue
from queuectl.core.reasons import Code, Reason
from queuectl.core.resources import FlavorResource
from queuectl.core.values import value


@value(frozen=True, slots=True)
class Waiting:
    ref: ObjectRef
    position: int
    """From 1, in its ClusterQueue."""
    reason: Reason


@value(frozen=True, slots=True, kw_only=True)
class LocalQueueReport:
    name: LocalQueueName
    cluster_queue: str
    condition: Condition
    pending: int
    admitted: int
    first: tuple[Waiting, ...]
    """The first that wait, in order."""


@value(frozen=True, slots=True, kw_only=True)
class ClusterQueueReport:
    name: str
    condition: Condition
    pending: int
    admitted: int
    nominal: tuple[tuple[FlavorResource, int], ...]
    used: tuple[tuple[FlavorResource, int], ...]
    """Held by open attempts, those being evicted included."""
    reasons: tuple[tuple[Code, int], ...] = ()
    """How many wait, by the code of why."""


@value(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    """What no queue's report shows."""

    strays: tuple[tuple[Code, int], ...]
    """How many wait without a ClusterQueue, by the code of why."""
    frozen: int
    """Root cohorts about which nothing is decided: memory and ledger disagree about them."""
    gated: bool
    """The policy that keeps labelled work suspended has been seen in the cluster."""


FIRST = 50
"""How many of those that wait a LocalQueue's status names."""


class ReportBuilder:
    """One look at the queues: all entries by LocalQueue, and those charged by ClusterQueue (`holders`)."""

    def __init__(
        self,
        directory: Directory,
        members: Mapping[LocalQueueName, Mapping[WorkloadId, Entry]],
        holders: Mapping[str, Mapping[WorkloadId, Entry]],
        pending: Mapping[str, PendingQueue],
    ) -> None:
        self._directory = directory
        self._members = members
        self._holders = holders
        self._pending = pending
        self._firsts: dict[str, dict[LocalQueueName, list[tuple[Entry, int]]]] = {}

    def local_queue(self, name: LocalQueueName) -> LocalQueueReport:
        """Of a LocalQueue that exists."""
        queue = self._directory.local_queues[name]
        mine = self._members.get(name, {})
        waiting = [entry for entry in mine.values() if entry.attempt is None]
        ranked = self._first(queue.cluster_queue).get(name, [])
        if len(ranked) < FIRST:
            # Those before a gate have no place in line: they come last, by first sight, as position 0.
            gated = sorted((e for e in waiting if e.group is None), key=lambda e: (e.arrival, e.id))
            ranked = [*ranked, *((entry, 0) for entry in gated[: FIRST - len(ranked)])]
        return LocalQueueReport(
            name=name,
            cluster_queue=queue.cluster_queue,
            condition=self._directory.local_condition(queue),
            pending=len(waiting),
            admitted=len(mine) - len(waiting),
            first=tuple(Waiting(entry.ref, position, _reason(entry)) for entry, position in ranked),
        )

    def _first(self, cluster_queue: str) -> Mapping[LocalQueueName, list[tuple[Entry, int]]]:
        """The first who wait of each LocalQueue, with their positions in the line, counted from 1."""
        found = self._firsts.get(cluster_queue)
        if found is None:
            found = self._firsts[cluster_queue] = {}
            queue = self._pending.get(cluster_queue)
            waiting = sorted(queue.entries(), key=lambda entry: entry.order) if queue is not None else ()
            for position, entry in enumerate(waiting, start=1):
                first = found.setdefault(LocalQueueName(entry.ref.namespace, entry.queue), [])
                if len(first) < FIRST:
                    first.append((entry, position))
        return found

    def cluster_queue(self, name: str) -> ClusterQueueReport:
        """Of a ClusterQueue that exists, or whose spec can't be read."""
        directory = self._directory
        tree = directory.tree
        node = tree.queue(name)
        queue = directory.queues.get(name)
        cells: list[tuple[FlavorResource, int]] = sorted(
            (FlavorResource(flavor.name, resource), quota.nominal)
            for group in (queue.resource_groups if queue is not None else ())
            for flavor in group.flavors
            for resource, quota in flavor.resources
        )
        reasons = _counted(self._entries(name))
        return ClusterQueueReport(
            name=name,
            condition=directory.condition(name),
            pending=sum(count for _, count in reasons),
            admitted=len(self._holders.get(name, ())),
            nominal=tuple(cells),
            used=tuple((cell, node.usage[tree.cell(cell)]) for cell, _ in cells),
            reasons=reasons,
        )

    def strays(self, known: Set[str]) -> tuple[tuple[Code, int], ...]:
        """Those that wait and are in no report of the ClusterQueues `known`, by the code of why."""
        queues = self._directory.local_queues
        lost = (
            mine.values()
            for name, mine in self._members.items()
            if name not in queues or queues[name].cluster_queue not in known
        )
        return _counted(entry for entries in lost for entry in entries)

    def _entries(self, name: str) -> Iterable[Entry]:
        for local in self._directory.pointing_to(name):
            yield from self._members.get(local, {}).values()


def _counted(entries: Iterable[Entry]) -> tuple[tuple[Code, int], ...]:
    found = Counter(_reason(entry).code for entry in entries if entry.attempt is None)
    return tuple(sorted(found.items()))


def _reason(entry: Entry) -> Reason:
    return entry.ineligible or entry.reason or Reason(code=Code.PENDING_EVALUATION)
