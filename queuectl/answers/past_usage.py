"""Past usage of members of Cohorts, LocalQueues and users, in the order that it gives (U). Pure.

Depth first, with the smaller usage over weight first at each level, as Slurm's fair tree ranks them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from queuectl.answers.state import CommittedState
from queuectl.core.model.policy import NORMAL_WEIGHT, AdmissionFairSharing, LocalQueue
from queuectl.core.model.resources import CPU
from queuectl.core.model.workload import UsageAccount
from queuectl.core.quota.tree import QuotaNode
from queuectl.ports.reader import UsageSumOf


@dataclass(frozen=True, slots=True)
class PastUsageItem:
    """One member, LocalQueue or user, with its past usage."""

    level: int
    """0: what was asked for; those directly below it have 1."""
    kind: str
    """Cohort, ClusterQueue, LocalQueue or User."""
    namespace: str | None
    """Of a LocalQueue, and of a user in it; else null."""
    name: str
    """Empty for all workloads of a LocalQueue without a known user."""
    weight: int
    """In thousandths."""
    used: float
    """Decayed, in cores, bytes and devices times their resourceWeights (U2)."""
    part: float
    """Of the usage of all beside it, from 0 to 1."""
    order: int | None
    """Its place among those beside it, from 1; null: past usage does not order it."""


class PastUsageTree:
    def __init__(
        self, rows: Iterable[UsageSumOf], sharing: AdmissionFairSharing, state: CommittedState
    ) -> None:
        """`rows`: decayed amounts, in base units times microseconds."""
        self._used: defaultdict[UsageAccount, float] = defaultdict(float)
        self._users: defaultdict[UsageAccount, set[str]] = defaultdict(set)
        self._locals: defaultdict[str, list[LocalQueue]] = defaultdict(list)
        self._queues = state.queues
        weights = dict(sharing.weights)
        for row in rows:
            units = row.amount * math.log(2) / (1_000_000 * sharing.half_life)
            units *= weights.get(row.resource, 1000) / (1_000_000 if row.resource == CPU else 1000)
            self._used[row.cluster_queue,] += units
            if (booked := row.booked) is not None:
                name, user = (booked.namespace, booked.queue), booked.user or ""
                self._used[name] += units
                self._used[*name, user] += units
                self._users[name].add(user)
        for one in state.policies.values():
            if isinstance(one, LocalQueue):
                self._locals[one.cluster_queue].append(one)

    def rows(self, node: QuotaNode, *, by_past_usage: bool) -> Iterator[PastUsageItem]:
        """Yield `node` and all below it. `by_past_usage`: the root of its tree orders members so."""
        used: dict[QuotaNode, float] = {}
        for one in reversed([*node.below()]):
            own = self._used.get((one.name,), 0.0) if one.kind == "ClusterQueue" else 0.0
            used[one] = own + sum(used[member] for member in one.children.values())
        nodes = {(one.kind, one.name): one for one in used}
        (root,) = _siblings(
            [PastUsageItem(0, node.kind, None, node.name, node.weight, used[node], 1.0, None)]
        )
        left, first = [root], 1 if by_past_usage else None
        while left:
            row = left.pop()
            yield row
            level, children = row.level + 1, nodes[row.kind, row.name].children.values()
            if row.kind == "ClusterQueue":
                yield from self._local_queues(row.name, level)
            members = (
                PastUsageItem(level, one.kind, None, one.name, one.weight, used[one], 0.0, first)
                for one in children
            )
            left += reversed(_siblings(members))

    def _local_queues(self, cluster_queue: str, level: int) -> Iterator[PastUsageItem]:
        queue = self._queues[cluster_queue].queue if cluster_queue in self._queues else None
        ordered = queue is not None and queue.usage_based
        first = 1 if ordered else None
        by_user = 1 if ordered and queue is not None and queue.users_by_usage else None
        members = (
            PastUsageItem(
                level, "LocalQueue", *one.name, one.weight, self._used.get(one.name, 0.0), 0.0, first
            )
            for one in self._locals[cluster_queue]
        )
        for one in _siblings(members):
            yield one
            assert one.namespace is not None
            name = (one.namespace, one.name)
            yield from _siblings(
                PastUsageItem(
                    *(level + 1, "User", one.namespace, user, NORMAL_WEIGHT),
                    *(self._used[*name, user], 0.0, by_user),
                )
                for user in self._users.get(name, ())
            )


def _siblings(members: Iterable[PastUsageItem]) -> list[PastUsageItem]:
    """Return members of one parent in their order, each with its part."""
    found = sorted(members, key=_place)
    whole = sum(one.used for one in found) or 1
    return [
        replace(one, part=one.used / whole, order=one.order and place)
        for place, one in enumerate(found, start=1)
    ]


def _place(one: PastUsageItem) -> tuple[bool, float, str, str]:
    if one.order is None:
        return False, 0.0, one.namespace or "", one.name
    return not one.weight, one.used / (one.weight or 1), one.namespace or "", one.name
