"""Metric families that are made at each scrape from the current state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from queuectl.answers.free import free_on_nodes
from queuectl.core.feature import Number
from queuectl.core.features.nodes.inventory import NodeState
from queuectl.core.model.capacity import FlavorCapacity, FlavorResourceCapacity
from queuectl.core.model.policy import LocalQueueName
from queuectl.core.model.resources import CPU, FlavorResource
from queuectl.core.reports import BEYOND_ALL_SHARES, ClusterQueueReport, ClusterReport, LocalQueueReport
from queuectl.ports.cluster import KindState

_QUEUE: Final = ("cluster_queue",)
_LOCAL_QUEUE: Final = ("namespace", "local_queue")
_CELL: Final = ("flavor", "resource")


def _family(name: str, text: str, labels: Iterable[str] = (), rows: Iterable[Row] = ()) -> Metric:
    names = tuple(labels)
    family = GaugeMetricFamily(f"queuectl_{name}", text, labels=names)
    for values, value in summed(rows):
        family.add_metric(values, value)
    return family


def _amount(cell: FlavorResource, amount: int) -> float:
    """In Prometheus' base units: cores, bytes, devices."""
    return amount / 1000 if cell.resource == CPU else float(amount)


class CapacityCollector(Collector):
    """Figures of the nodes of each flavor; the flavor of nodes without one is empty."""

    def __init__(self) -> None:
        self.flavors: Sequence[FlavorCapacity] = ()

    def collect(self) -> Iterator[Metric]:
        yield _family(
            "flavor_nodes",
            "Nodes that match a flavor, by state.",
            ("flavor", "state"),
            (((one.flavor, state), count) for one in self.flavors for state, count in one.nodes),
        )
        allocatable = [
            ((*cell, state), _amount(cell, amount))
            for cell, one in self._cells()
            for state, amount in one.allocatable
        ]
        usable = ((labels[:2], amount) for labels, amount in allocatable if labels[2] == NodeState.READY)
        yield _family("flavor_capacity", "Allocatable on usable nodes that match a flavor.", _CELL, usable)
        yield _family(
            "flavor_capacity_unusable",
            "Allocatable on nodes that match a flavor and do not count, by their state.",
            (*_CELL, "state"),
            (row for row in allocatable if row[0][2] != NodeState.READY),
        )
        for name, text, of in _AMOUNTS:
            rows = ((tuple(cell), _amount(cell, of(one))) for cell, one in self._cells())
            yield _family(name, text, _CELL, rows)
        free = (
            (flavor, one, FlavorResource(flavor.flavor, one.resource))
            for flavor in self.flavors
            for one in flavor.resources
        )
        yield _family(
            "flavor_free",
            "What new pods can have now: free on usable nodes, less the headroom.",
            _CELL,
            ((tuple(cell), _amount(cell, free_on_nodes(flavor, one))) for flavor, one, cell in free),
        )

    def _cells(self) -> Iterator[tuple[FlavorResource, FlavorResourceCapacity]]:
        for flavor in self.flavors:
            for one in flavor.resources:
                yield FlavorResource(flavor.flavor, one.resource), one


_AMOUNTS: Final[tuple[tuple[str, str, Callable[[FlavorResourceCapacity], int]], ...]] = (
    ("flavor_used", "Requested by bound pods of workloads.", lambda one: one.used),
    (
        "flavor_unmanaged",
        "Requested by bound pods that belong to no workload.",
        lambda one: sum(amount for _, amount in one.unmanaged),
    ),
    (
        "flavor_expected",
        "Requested by pods of admitted workloads that are not bound yet, where nodes limit admissions.",
        lambda one: one.expected,
    ),
)


class ReportCollector(Collector):
    """Figures of the ClusterQueues, and pending workloads without a ClusterQueue."""

    def __init__(self, names: BoundedNames) -> None:
        self._names = names
        self.reports: dict[str, ClusterQueueReport] = {}
        """By ClusterQueue."""
        self.of_local_queues: LocalQueueCollector | None = None
        """None: LocalQueues have no figures."""
        self.sampled: Sampled | None = None

    def label(self, cluster_queue: str) -> str:
        """The name, or `other`."""
        return self._names.label(cluster_queue)

    def collect(self) -> Iterator[Metric]:
        queues = [(self.label(report.name), report) for report in self.reports.values()]
        named = [(label, report) for label, report in queues if label != OTHER]
        strays = self.sampled.cluster_report().strays if self.sampled else ()
        waiting = [((label, code.value), n) for label, report in queues for code, n in report.reasons]
        waiting += [(("", code.value), n) for code, n in strays]
        yield _family(
            "pending_workloads",
            "Pending workloads by reason; those without a ClusterQueue have an empty name.",
            (*_QUEUE, "reason"),
            waiting,
        )
        yield _family(
            "active_workloads",
            "Workloads that hold quota, terminating ones included.",
            _QUEUE,
            (((label,), report.admitted) for label, report in queues),
        )
        yield from _each(named)
        nominal = (row for label, report in queues for row in _cells(label, report.nominal))
        effective = (row for label, report in queues for row in _cells(label, report.effective))
        used = (row for label, report in queues for row in _cells(label, report.used))
        yield _family("quota_nominal", "Its own quota.", (*_QUEUE, *_CELL), nominal)
        yield _family("quota_effective", "What counts of its own quota.", (*_QUEUE, *_CELL), effective)
        yield _family("quota_used", "Quota held by open attempts.", (*_QUEUE, *_CELL), used)
        waits = [
            ((label, one.flavor, one.awaits.value), one) for label, report in queues for one in report.demand
        ]
        yield _family(
            "demand_pods",
            "Pods of pending workloads, by the flavor that comes closest and the limit that they wait for.",
            (*_QUEUE, "flavor", "awaits"),
            ((labels, one.pods) for labels, one in waits),
        )
        yield _family(
            "demand",
            "What these pods request.",
            (*_QUEUE, "flavor", "awaits", "resource"),
            (
                ((*labels, resource), _amount(FlavorResource(one.flavor, resource), amount * one.pods))
                for labels, one in waits
                for resource, amount in one.requests
            ),
        )


class LocalQueueCollector(Collector):
    """Figures of the LocalQueues. The first MOST_QUEUES have series of their own, others one together."""

    def __init__(self, queues: ReportCollector) -> None:
        """`queues`: knows where to ask which LocalQueues exist."""
        self._queues = queues
        self.reports: dict[LocalQueueName, LocalQueueReport] = {}

    def collect(self) -> Iterator[Metric]:
        # No report says that a LocalQueue is gone.
        sampled = self._queues.sampled
        exist = sampled.cluster_report().local_queues if sampled else frozenset()
        self.reports = {name: report for name, report in self.reports.items() if name in exist}
        queues = [
            (tuple(name) if place < MOST_QUEUES else (OTHER, OTHER), report)
            for place, (name, report) in enumerate(self.reports.items())
        ]
        pending = ((labels, float(report.pending)) for labels, report in queues)
        active = ((labels, float(report.admitted)) for labels, report in queues)
        used = (
            ((*labels, *cell), _amount(cell, amount))
            for labels, report in queues
            for cell, amount in report.used
        )
        of = (
            ((*labels, self._queues.label(report.cluster_queue)), 1.0)
            for labels, report in queues
            if labels != (OTHER, OTHER)
        )
        yield _family(
            "local_queue_info",
            "1; to join figures of its pods, by their label, with the ClusterQueue.",
            (*_LOCAL_QUEUE, "cluster_queue"),
            of,
        )
        yield _family("local_queue_pending_workloads", "Pending workloads.", _LOCAL_QUEUE, pending)
        yield _family("local_queue_active_workloads", "Workloads that hold quota.", _LOCAL_QUEUE, active)
        yield _family(
            "local_queue_quota_used",
            "What its workloads hold of the quotas of its ClusterQueue.",
            (*_LOCAL_QUEUE, *_CELL),
            used,
        )


def _each(queues: Sequence[tuple[str, ClusterQueueReport]]) -> Iterator[Metric]:
    """Figures that have no sum over queues."""
    yield _family(
        "cluster_queue_active",
        "1 if the queue can admit; otherwise the label says why it cannot.",
        (*_QUEUE, "reason"),
        (((label, report.condition.reason), float(report.condition.active)) for label, report in queues),
    )
    yield _family(
        "cluster_queue_info",
        "1; to join other metrics with the cohort of the queue, which is empty if it has none.",
        (*_QUEUE, "cohort"),
        (((label, report.cohort or ""), 1.0) for label, report in queues),
    )
    yield _family(
        "cluster_queue_weighted_share",
        "Dominant share in thousandths, where queues share fairly; +Inf: it borrows with weight 0.",
        _QUEUE,
        (((label,), _share(report.share)) for label, report in queues if report.share is not None),
    )


def _share(thousandths: int) -> float:
    return math.inf if thousandths == BEYOND_ALL_SHARES else float(thousandths)


def _cells(queue: str, amounts: Iterable[tuple[FlavorResource, int]]) -> Iterator[Row]:
    for cell, amount in amounts:
        yield (queue, *cell), _amount(cell, amount)


class HealthCollector(Collector):
    """The health of this controller: leadership, delays, frozen cohort trees."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._committed_at = self._verified_at = -math.inf
        self.sampled: Sampled | None = None

    def mark_commit(self) -> None:
        self._committed_at = self._clock()

    def mark_verification(self) -> None:
        self._verified_at = self._clock()

    def collect(self) -> Iterator[Metric]:
        now = self._clock()
        yield _one(
            "ledger_commit_age_seconds",
            "Since the ledger last confirmed a commit; +Inf: never.",
            now - self._committed_at,
        )
        yield _one(
            "ledger_verification_age_seconds",
            "Since the ledger was last compared with its history; +Inf: never.",
            now - self._verified_at,
        )
        if self.sampled is not None:
            yield from self._asked(self.sampled)

    def _asked(self, sampled: Sampled) -> Iterator[Metric]:
        yield _one("leading", "1 while this process leads.", float(sampled.leads()))
        if sampled.lease_age is not None:
            age = sampled.lease_age()
            yield _one("lease_held", "1 while this process holds the lease.", float(age is not None))
            yield _one(
                "lease_renewal_age_seconds",
                "Since this process last wrote its lease; +Inf: it does not hold the lease.",
                _or_never(age),
            )
        report = sampled.cluster_report()
        yield _one(
            "frozen_roots",
            "Root cohorts whose admission is frozen: memory and ledger disagree.",
            report.frozen,
        )
        yield _one(
            "set_aside_workloads",
            "Workloads that nothing is decided about: the ledger fails to store it, or no decision is legal.",
            report.set_aside,
        )
        yield from _numbers(sampled.numbers())
        yield _one(
            "gate_installed",
            "1 if each policy of the gate and its binding is as this version makes it.",
            float(report.gate_installed),
        )
        count, oldest = sampled.unsettled()
        yield _one("effects_unsettled", "Committed Kubernetes writes that are not finished.", count)
        yield _one("effect_oldest_age_seconds", "Age of the oldest unfinished write; 0: none.", oldest)
        yield _family(
            "reflector_silence_seconds",
            "Since the last message of the API server on a kind's watch; +Inf: never.",
            ("kind",),
            (((kind,), _or_never(age)) for kind, age in sampled.silence().items()),
        )
        yield _family(
            "kind_problem",
            "1 if the objects of a kind of jobs can't be read; it does not queue meanwhile.",
            ("kind",),
            (((kind,), float(state.problem is not None)) for kind, state in sampled.kinds().items()),
        )


def _numbers(numbers: Iterable[Number]) -> Iterator[Metric]:
    of_names: dict[str, list[Number]] = {}
    for number in numbers:
        of_names.setdefault(number.name, []).append(number)
    for name, found in of_names.items():
        labels = [label for label, _ in found[0].labels]
        rows = ((tuple(value for _, value in one.labels), one.value) for one in found)
        yield _family(name, found[0].help, labels, rows)


def _one(name: str, text: str, value: float) -> Metric:
    return _family(name, text, rows=[((), value)])


def _or_never(age: float | None) -> float:
    return math.inf if age is None else age


OTHER: Final = "other"
MOST_QUEUES: Final = 1_000
"""ClusterQueues, and LocalQueues, with series of their own."""
MOST_ROWS: Final = 10_000
"""Series of one family."""

Row = tuple[tuple[str, ...], float]
"""Label values and the value of the series."""


class BoundedNames:
    """The names that have series of their own: the first ones seen, as long as they exist."""

    def __init__(self, most: int = MOST_QUEUES) -> None:
        self._most = most
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        if name in self._known or len(self._known) < self._most:
            self._known.add(name)
            return name
        return OTHER

    def forget(self, name: str) -> bool:
        """It was deleted: another name may take its place. Returns whether it had series of its own."""
        if name not in self._known:
            return False
        self._known.discard(name)
        return True


def summed(rows: Iterable[Row], most: int = MOST_ROWS) -> list[Row]:
    """Sums rows with equal labels; from `most` rows on, the rest is one row with every label `other`."""
    found: dict[tuple[str, ...], float] = {}
    for labels, value in rows:
        found[labels] = found.get(labels, 0.0) + value
    ordered = sorted(found.items())
    kept, rest = ordered[:most], list(islice(ordered, most, None))
    if rest:
        kept.append(((OTHER,) * len(rest[0][0]), sum(value for _, value in rest)))
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Each is called on the controller's event loop and must not block."""

    leads: Callable[[], bool]
    lease_age: Callable[[], float | None] | None
    """Seconds since this process last wrote the lease, None if another holds it; None itself: no lease."""
    silence: Callable[[], Mapping[str, float | None]]
    """Seconds since the last message of the API server, by kind; None: never."""
    kinds: Callable[[], Mapping[str, KindState]]
    """Kinds of jobs, by name."""
    cluster_report: Callable[[], ClusterReport]
    numbers: Callable[[], Iterable[Number]]
    """Of features of the engine."""
    unsettled: Callable[[], tuple[int, float]]
    """How many committed Kubernetes writes are not finished, and the age of the oldest in seconds."""
