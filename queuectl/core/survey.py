"""Makes the reports that readers see. Costs what the queue asked about has waiting, no more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from queuectl.core.directory import Directory
from queuectl.core.model import LocalQueueName, WorkloadId
from queuectl.core.pending import Entry, Line
from queuectl.core.reasons import Code, Reason
from queuectl.core.report import ClusterQueueReport, LocalQueueReport, Waiting
from queuectl.core.resources import FlavorResource

FIRST = 50
"""How many of those that wait a LocalQueue's status names."""

Members = Mapping[LocalQueueName, Mapping[WorkloadId, Entry]]


def local_queue_report(
    directory: Directory, members: Members, lines: Mapping[str, Line], name: LocalQueueName
) -> LocalQueueReport:
    queue = directory.local_queues[name]
    mine = members.get(name, {})
    waiting = [entry for entry in mine.values() if entry.attempt is None]
    line = lines.get(queue.cluster_queue)
    ranks = _ranks(line, {entry.id for entry in waiting}) if line is not None else []
    # Those before a gate have no place in line: they come last, in order of first sight, as position 0.
    standing = {entry.id for entry, _ in ranks}
    gated = sorted((e for e in waiting if e.id not in standing), key=lambda e: (e.arrival, e.id))
    ranked = [*ranks[:FIRST], *((entry, 0) for entry in gated[: max(0, FIRST - len(ranks))])]
    return LocalQueueReport(
        name=name,
        cluster_queue=queue.cluster_queue,
        condition=directory.local_condition(queue),
        pending=len(waiting),
        admitted=len(mine) - len(waiting),
        first=tuple(Waiting(entry.ref, position, _reason(entry)) for entry, position in ranked),
    )


def _ranks(line: Line, mine: set[WorkloadId]) -> list[tuple[Entry, int]]:
    """The first of `mine` in this line, with their positions in it, counted from 1."""
    found: list[tuple[Entry, int]] = []
    if not mine:
        return found
    for position, entry in enumerate(sorted(line.waiting(), key=lambda entry: entry.order), start=1):
        if entry.id in mine:
            found.append((entry, position))
            if len(found) == FIRST:
                break
    return found


def _reason(entry: Entry) -> Reason:
    return entry.gate or entry.reason or Reason(code=Code.PENDING_EVALUATION)


def cluster_queue_report(
    directory: Directory, members: Members, lines: Mapping[str, Line], name: str
) -> ClusterQueueReport:
    tree = directory.tree
    node = tree.queue(name)
    cells: list[tuple[FlavorResource, int]] = sorted(
        (FlavorResource(flavor.name, resource), quota.nominal)
        for group in directory.queues[name].resource_groups
        for flavor in group.flavors
        for resource, quota in flavor.resources
    )
    pending = admitted = 0
    for entry in _entries(directory, members, name):
        if entry.attempt is None:
            pending += 1
        else:
            admitted += 1
    return ClusterQueueReport(
        name=name,
        condition=directory.condition(name),
        pending=pending,
        admitted=admitted,
        nominal=tuple(cells),
        used=tuple((cell, node.usage[tree.cell(cell)]) for cell, _ in cells),
    )


def _entries(directory: Directory, members: Members, name: str) -> Iterable[Entry]:
    for local, entries in members.items():
        queue = directory.local_queues.get(local)
        if queue is not None and queue.cluster_queue == name:
            yield from entries.values()
