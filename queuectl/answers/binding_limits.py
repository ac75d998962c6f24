"""Every limit of quota that binds for a pending workload, and what is ahead of it (docs/answers.md, A18)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from queuectl.answers.state import State
from queuectl.core.model import Phase, StoredWorkload
from queuectl.core.quota.tree import limits
from queuectl.core.reasons import Code, Limit
from queuectl.core.resources import FlavorResource

_QUOTA: Final = frozenset({Code.WAITING_FOR_QUOTA, Code.EXCEEDS_MAX_QUOTA, Code.MIN_RUN_TIME_PROTECTED})
MOST_AHEAD: Final = 1_000
"""Workloads ahead that are added up."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A limit that leaves less of a cell than the workload requests. Amounts are in base units."""

    cell: FlavorResource
    limit: Limit
    node: str
    requested: int
    available: int
    """Negative where more is used than the limit allows."""
    ever: bool
    """Whether it would leave enough if nothing were used."""


def binding(workload: StoredWorkload, state: State) -> Iterator[Binding]:
    """Yield the limits for each flavor that its reason names, the nearest node first."""
    reason, name = workload.reason, workload.cluster_queue
    if workload.phase is not Phase.PENDING or reason is None or name is None or name not in state.queues:
        return
    known: set[tuple[FlavorResource, int]] = set()
    for finding in (reason, *reason.others):
        asked = finding.requested
        if finding.code not in _QUOTA or not finding.flavor or not finding.resource or asked is None:
            continue
        cell = FlavorResource(finding.flavor, finding.resource)
        if (cell, asked) not in known:
            known.add((cell, asked))
            yield from _of_cell(cell, asked, name, state)


def _of_cell(cell: FlavorResource, requested: int, name: str, state: State) -> Iterator[Binding]:
    tree = state.tree_of(name)
    node, number = tree.queue(name), tree.cell(cell)
    whole = {(left.limit, left.at): left.available for left in limits(node, number, empty=True)}
    for available, limit, at in limits(node, number):
        if available < requested:
            ever = requested <= whole[limit, at]
            reduced = limit is Limit.NOMINAL_QUOTA and number in tree.reduced.get(at, ())
            shown = Limit.CAPACITY_SHORTAGE if reduced else limit
            yield Binding(cell, shown, str(at), requested, available, ever)


def ahead_of(workload: StoredWorkload, state: State) -> tuple[int, dict[str, int]]:
    """How many workloads come before it in its pending queue, and what the nearest ones of them request.

    In base units by resource, of the nearest MOST_AHEAD.
    """
    position = state.position(workload)
    if position is None:
        return 0, {}
    first = max(0, position - 1 - MOST_AHEAD)
    total: dict[str, int] = {}
    for _, one in islice(state.line(workload.cluster_queue or "", first), position - 1 - first):
        for pods in one.pod_sets:
            for resource, amount in pods.requests:
                total[resource] = total.get(resource, 0) + amount * pods.count
    return position - 1, total
