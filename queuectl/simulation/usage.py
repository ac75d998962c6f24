"""Usage of queues over time: within nominal quota, borrowed, and lost. Times in milliseconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from queuectl.core.model.policy import ClusterQueue, Cohort, ResourceGroup
from queuectl.core.model.resources import FlavorResource, Usage, by_resource
from queuectl.core.quota.cohort_trees import CohortTrees
from queuectl.simulation.history import Run

Totals = dict[str, int]
"""By resource: base units, or base units times milliseconds."""


class QuotaTable:
    """Quota of each queue and of its cohort tree."""

    def __init__(self, policies: Iterable[object]) -> None:
        """Other objects than ClusterQueues and Cohorts count for nothing."""
        policies = list(policies)
        trees = CohortTrees(policies)
        self.nominal: dict[str, Usage] = {}
        self._roots: dict[str, str] = {}
        self._trees: dict[str, Totals] = defaultdict(lambda: defaultdict(int))
        for one in policies:
            if isinstance(one, ClusterQueue):
                root = trees.root_of(one.name)
                tree = f"ClusterQueue/{one.name}" if root is None else f"Cohort/{root}"
                self.nominal[one.name], self._roots[one.name] = _nominal(one.resource_groups), tree
                self._count(tree, self.nominal[one.name])
            elif isinstance(one, Cohort):
                self._count(f"Cohort/{trees.root(one.name)}", _nominal(one.resource_groups))

    def _count(self, root: str, nominal: Usage) -> None:
        for (_, resource), amount in nominal.items():
            self._trees[root][resource] += amount

    @property
    def queues(self) -> Sequence[str]:
        return sorted(self.nominal)

    def tree(self, queue: str) -> Mapping[str, int]:
        """Quota of its whole tree, by resource."""
        return self._trees[self._roots[queue]]

    def total(self) -> Totals:
        """Total quota, by resource."""
        return by_resource(
            (cell, amount)
            for tree in self._trees.values()
            for cell, amount in ((FlavorResource("", name), amount) for name, amount in tree.items())
        )


def _nominal(groups: Iterable[ResourceGroup]) -> Usage:
    return {
        FlavorResource(flavor.name, resource): quota.nominal
        for group in groups
        for flavor in group.flavors
        for resource, quota in flavor.resources
    }


@dataclass(slots=True)
class Bins:
    """A value over time, as its mean in each of several parts of equal length."""

    width: int
    sums: list[int]

    @staticmethod
    def of(end: int, parts: int) -> Bins:
        width = max(1, -(-end // parts))
        return Bins(width, [0] * max(1, -(-end // width)))

    def add(self, since: int, to: int, level: int) -> None:
        while level and since < to:
            at = since // self.width
            upto = min(to, (at + 1) * self.width)
            self.sums[at] += level * (upto - since)
            since = upto

    def means(self, end: int) -> list[float]:
        """The last part may be shorter."""
        widths = (max(1, min(self.width, end - at * self.width)) for at in range(len(self.sums)))
        return [total / width for total, width in zip(self.sums, widths, strict=True)]


PER_MILLION = 1_000_000
"""Shares are counted in millionths, as integers."""


@dataclass(slots=True)
class QueueUsage:
    """Usage of one queue from the start to the end."""

    used: Totals = field(default_factory=lambda: defaultdict(int))
    borrowed: Totals = field(default_factory=lambda: defaultdict(int))
    """The part beyond its nominal quota."""
    lost: Totals = field(default_factory=lambda: defaultdict(int))
    """The part in runs that were stopped."""
    levels: dict[str, Bins] = field(default_factory=dict)
    beyond: dict[str, Bins] = field(default_factory=dict)
    """Usage and borrowed usage over time."""
    share: int = 0
    """Share of the tree's quota, in millionths times milliseconds."""
    greatest: int = 0
    """Largest share, in millionths."""
    shares: Bins = field(default_factory=lambda: Bins(1, []))


def held(site: QuotaTable, queue: str, runs: Sequence[Run], end: int, parts: int) -> QueueUsage:
    """From the runs that are charged to `queue`; over time in `parts` parts."""
    nominal, tree = site.nominal.get(queue, {}), site.tree(queue)
    found = QueueUsage(shares=Bins.of(end, parts))
    for resource in sorted({cell.resource for cell in nominal}):
        found.levels[resource], found.beyond[resource] = Bins.of(end, parts), Bins.of(end, parts)
    for since, to, usage in _pieces(runs, end):
        totals = by_resource(usage.items())
        borrowed = by_resource((cell, max(0, n - nominal.get(cell, 0))) for cell, n in usage.items())
        for amounts, sums, bins in (
            (totals, found.used, found.levels),
            (borrowed, found.borrowed, found.beyond),
        ):
            for resource, amount in amounts.items():
                sums[resource] += amount * (to - since)
                bins.setdefault(resource, Bins.of(end, parts)).add(since, to, amount)
        share = max((n * PER_MILLION // tree[r] for r, n in totals.items() if tree.get(r)), default=0)
        found.share += share * (to - since)
        found.greatest = max(found.greatest, share)
        found.shares.add(since, to, share)
    for run in runs:
        if run.stopped is not None and not run.finished:
            for cell, amount in run.usage.items():
                found.lost[cell.resource] += amount * (_until(run, end) - run.admitted)
    return found


def _until(run: Run, end: int) -> int:
    return end if run.released is None else run.released


def _pieces(runs: Iterable[Run], end: int) -> Iterator[tuple[int, int, Usage]]:
    """Intervals in which the usage of a queue does not change."""
    changes: list[tuple[int, int, Usage]] = []
    for run in runs:
        changes += [(run.admitted, 1, run.usage), (_until(run, end), -1, run.usage)]
    changes.sort(key=lambda change: change[:2])
    usage: Usage = {}
    since = 0
    for at, sign, amounts in changes:
        if at > since:
            yield since, at, usage
        since = at
        for cell, amount in amounts.items():
            usage[cell] = usage.get(cell, 0) + sign * amount
