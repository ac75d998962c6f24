"""Filters of lists of workloads, and how many workloads each value of a filter would leave. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from queuectl.core.model.workload import StoredWorkload

_VALUES: Final[Mapping[str, Callable[[StoredWorkload], str | None]]] = {
    "phase": lambda one: one.phase,
    "namespace": lambda one: one.ref.namespace,
    "clusterqueue": lambda one: one.cluster_queue,
    "queue": lambda one: one.queue,
    "kind": lambda one: one.ref.kind,
    "submitter": lambda one: one.submitter,
    "reason": lambda one: one.reason.code if one.reason else None,
}
"""By filter: what has to be equal to its value."""


def passes(values: Mapping[str, Any], workload: StoredWorkload, since: datetime | None = None) -> bool:
    """Return whether a workload passes all filters. `since`: created from then on only."""
    return next(_failed(values, workload, since), None) is None


def _failed(values: Mapping[str, Any], workload: StoredWorkload, since: datetime | None) -> Iterator[str]:
    if since is not None and workload.created_at < since:
        yield "sinceSeconds"
    for name, value in values.items():
        if (of := _VALUES.get(name)) is not None and of(workload) != value:
            yield name
    if "name" in values and values["name"].lower() not in workload.ref.name.lower():
        yield "name"
    if "labelSelector" in values and not values["labelSelector"](dict(workload.labels)):
        yield "labelSelector"


class FilterCounts(NamedTuple):
    passing: int
    """Workloads that pass all filters."""
    values: Mapping[str, Counter[str]]
    """By filter and value: workloads that pass all other filters."""


def counts(values: Mapping[str, Any], workloads: Iterable[StoredWorkload]) -> FilterCounts:
    """Return how many workloads each value of each filter would leave, beside the other filters."""
    found: dict[str, Counter[str]] = {name: Counter() for name in _VALUES}
    passing = 0
    for one in workloads:
        failed = [*_failed(values, one, None)]
        passing += not failed
        for name in found if not failed else failed if len(failed) == 1 else ():
            if name in found and (value := _VALUES[name](one)) is not None:
                found[name][value] += 1
    return FilterCounts(passing, found)
