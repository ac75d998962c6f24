"""Reports on queues for status, REST and metrics: immutable values, computed on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from queuectl.core.entries import Entry
from queuectl.core.model.capacity import CapacityWarning, PodDemand
from queuectl.core.model.policy import ClusterQueue, Condition, LocalQueueName
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.values import value
from queuectl.core.model.workload import ObjectRef, WorkloadId
from queuectl.core.queues.demand import PendingRequest, demand
from queuectl.core.queues.line import line
from queuectl.core.quota.shares import dominant_share
from queuectl.core.quota.tree import QuotaNode, QuotaTree
from queuectl.core.state import EngineState


@value(frozen=True, slots=True)
class Waiting:
    """A pending workload."""

    ref: ObjectRef
    position: int
    """Position in the pending queue of its ClusterQueue, from 1; 0: ineligible."""
    reason: Reason


@value(frozen=True, slots=True, kw_only=True)
class LocalQueueReport:
    """Status of a LocalQueue. `pending` and `admitted` are numbers of workloads."""

    name: LocalQueueName
    cluster_queue: str
    condition: Condition
    pending: int
    admitted: int
    first: tuple[Waiting, ...]
    """The first pending workloads in order, at most FIRST."""
    used: tuple[tuple[FlavorResource, int], ...] = ()
    """(cell, amount in base units) pairs, sorted: what its workloads hold of its ClusterQueue's quotas."""


@value(frozen=True, slots=True, kw_only=True)
class ClusterQueueReport:
    """Status of a ClusterQueue. `pending` and `admitted` are numbers of workloads."""

    name: str
    condition: Condition
    pending: int
    admitted: int
    nominal: tuple[tuple[FlavorResource, int], ...]
    """(cell, nominal quota in base units) pairs, sorted."""
    used: tuple[tuple[FlavorResource, int], ...]
    """(cell, usage in base units) pairs. Evicted workloads that still hold quota are included."""
    cohort: str | None = None
    """The cohort that it names, whether there is such an object or not."""
    reduced: tuple[tuple[FlavorResource, int], ...] = ()
    """(cell, amount in base units) pairs: what counts of nominal quotas that count in part only (M11)."""
    warnings: tuple[CapacityWarning, ...] = ()
    """About its flavors and resources (M15)."""
    reasons: tuple[tuple[Code, int], ...] = ()
    """(code, number of its pending workloads with that reason) pairs."""
    share: int | None = None
    """Its dominant share in thousandths, rounded up (S2); BEYOND_ALL_SHARES: it borrows with weight 0. None:
    its tree does not share fairly."""
    demand: tuple[PodDemand, ...] = ()
    line: tuple[WorkloadId, ...] | None = None
    """Its first LINE pending workloads in order, if past usage orders them. None: readers know the order."""

    @property
    def effective(self) -> tuple[tuple[FlavorResource, int], ...]:
        """(cell, amount in base units) pairs, sorted: what counts of its nominal quotas (M11)."""
        return tuple((dict(self.nominal) | dict(self.reduced)).items())


@value(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    """Facts that are not part of the report of a queue."""

    strays: tuple[tuple[Code, int], ...]
    """(code, number of pending workloads without a ClusterQueue) pairs."""
    frozen: int
    """Number of frozen cohort trees: without decisions, because memory and ledger disagree."""
    set_aside: int
    """Number of workloads without decisions, because the ledger fails to store them or none is legal."""
    gate_installed: bool
    """The admission policy that keeps labelled workloads suspended is installed."""
    warnings: tuple[CapacityWarning, ...] = ()
    """All warnings about quota and nodes (M15)."""
    local_queues: Set[LocalQueueName] = frozenset()
    """Those that exist."""


BEYOND_ALL_SHARES = 2**63 - 1
FIRST = 50
"""Number of pending workloads in the status of a LocalQueue."""
LINE = 1000
"""Number of pending workloads of a ClusterQueue with usage-based order that readers learn the order of."""


class ReportBuilder:
    """Builds reports from one state of the queues, which may not change meanwhile. Past usage, if it counts,
    is taken as of now."""

    def __init__(self, state: EngineState) -> None:
        self._directory = state.directory
        self._members, self._holders, self._pending = state.members, state.holders, state.pending
        self._features = state.features
        self._now = state.latest
        self._lines: dict[str, Sequence[Entry]] = {}
        self._firsts: dict[str, dict[LocalQueueName, list[tuple[Entry, int]]]] = {}

    def local_queue(self, name: LocalQueueName) -> LocalQueueReport:
        """Return the report of a LocalQueue, which must exist."""
        queue = self._directory.local_queues[name]
        mine = self._members.get(name, {})
        waiting = [entry for entry in mine.values() if entry.attempt is None]
        ranked = self._first(queue.cluster_queue).get(name, [])
        if len(ranked) < FIRST:
            # Ineligible workloads are not in the pending queue: they come last, by first observation.
            ineligible = sorted((e for e in waiting if e.group is None), key=lambda e: (e.arrival, e.id))
            ranked = [*ranked, *((entry, 0) for entry in ineligible[: FIRST - len(ranked)])]
        return LocalQueueReport(
            name=name,
            cluster_queue=queue.cluster_queue,
            condition=self._directory.local_condition(queue),
            pending=len(waiting),
            admitted=len(mine) - len(waiting),
            first=tuple(Waiting(entry.ref, position, _reason(entry)) for entry, position in ranked),
            used=self._used(queue.cluster_queue, mine.values()),
        )

    def _used(self, cluster_queue: str, entries: Iterable[Entry]) -> tuple[tuple[FlavorResource, int], ...]:
        """Return what those of `entries` hold that are charged to a ClusterQueue."""
        tree = self._directory.tree
        used: Counter[int] = Counter({tree.cell(cell): 0 for cell, _ in self._nominal(cluster_queue)})
        for entry in entries:
            if entry.attempt is not None and entry.attempt.assignment.cluster_queue == cluster_queue:
                used.update(dict(entry.cells))
        return tuple(sorted((tree.names[cell], amount) for cell, amount in used.items()))

    def _nominal(self, cluster_queue: str) -> list[tuple[FlavorResource, int]]:
        """Return the nominal quotas of a ClusterQueue, sorted."""
        queue = self._directory.queues.get(cluster_queue)
        return sorted(
            (FlavorResource(flavor.name, resource), quota.nominal)
            for group in (queue.resource_groups if queue is not None else ())
            for flavor in group.flavors
            for resource, quota in flavor.resources
        )

    def _share(self, node: QuotaNode) -> int | None:
        tree = self._directory.tree
        if not tree.shares_fairly(node):
            return None
        share = dominant_share(tree, node).reported
        return BEYOND_ALL_SHARES if share is None else share

    def _first(self, cluster_queue: str) -> Mapping[LocalQueueName, list[tuple[Entry, int]]]:
        """Return the first pending workloads by LocalQueue, with their positions from 1."""
        found = self._firsts.get(cluster_queue)
        if found is None:
            found = self._firsts[cluster_queue] = {}
            for position, entry in enumerate(self._line(cluster_queue), start=1):
                first = found.setdefault(LocalQueueName(entry.ref.namespace, entry.queue), [])
                if len(first) < FIRST:
                    first.append((entry, position))
        return found

    def _line(self, cluster_queue: str) -> Sequence[Entry]:
        found = self._lines.get(cluster_queue)
        if found is None:
            queue = self._pending.get(cluster_queue)
            found = line(queue, self._directory, self._features.usage, self._now) if queue is not None else ()
            self._lines[cluster_queue] = found
        return found

    def _usage_line(self, queue: ClusterQueue | None) -> tuple[WorkloadId, ...] | None:
        if queue is None or not queue.usage_based or self._features.usage is None:
            return None
        return tuple(entry.id for entry in self._line(queue.name)[:LINE])

    def cluster_queue(self, name: str) -> ClusterQueueReport:
        """Return the report of a ClusterQueue that exists or has an invalid spec."""
        directory = self._directory
        tree = directory.tree
        node = tree.queue(name)
        queue = directory.queues.get(name)
        cells = self._nominal(name)
        reasons = _counted(self._entries(name))
        return ClusterQueueReport(
            name=name,
            condition=directory.condition(name),
            pending=sum(count for _, count in reasons),
            admitted=len(self._holders.get(name, ())),
            nominal=tuple(cells),
            used=tuple((cell, node.usage[tree.cell(cell)]) for cell, _ in cells),
            cohort=queue.cohort if queue is not None else None,
            reduced=_reduced(tree, node),
            warnings=self._features.warnings_of(name),
            reasons=reasons,
            share=self._share(node),
            demand=demand(self._requests(name)),
            line=self._usage_line(queue),
        )

    def strays(self, known: Set[str]) -> tuple[tuple[Code, int], ...]:
        """Return (code, number) pairs of the pending workloads outside the ClusterQueues `known`."""
        queues = self._directory.local_queues
        stray = (
            mine.values()
            for name, mine in self._members.items()
            if name not in queues or queues[name].cluster_queue not in known
        )
        return _counted(entry for entries in stray for entry in entries)

    def _requests(self, name: str) -> Iterator[PendingRequest]:
        for entry in self._entries(name):
            if entry.attempt is None and entry.group is not None:
                yield PendingRequest(entry.shape, entry.reason)

    def _entries(self, name: str) -> Iterable[Entry]:
        for local in self._directory.pointing_to(name):
            yield from self._members.get(local, {}).values()


def _reduced(tree: QuotaTree, node: QuotaNode) -> tuple[tuple[FlavorResource, int], ...]:
    cells = (cell for cell in node.named if node.nominal[cell] < node.promised[cell])
    return tuple(sorted((tree.names[cell], node.nominal[cell]) for cell in cells))


def _counted(entries: Iterable[Entry]) -> tuple[tuple[Code, int], ...]:
    found = Counter(_reason(entry).code for entry in entries if entry.attempt is None)
    return tuple(sorted(found.items()))


def _reason(entry: Entry) -> Reason:
    return entry.ineligible or entry.reason or Reason(code=Code.PENDING_EVALUATION)
