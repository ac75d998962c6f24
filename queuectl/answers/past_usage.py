"""Past usage of members of Cohorts, LocalQueues and users, in the order that it gives (U). Pure.

Depth first, with the smaller usage over weight first at each level, as Slurm's fair tree ranks them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from queuectl.answers.state import CommittedState
from queuectl.core.model.policy import NORMAL_WEIGHT, AdmissionFairSharing, LocalQueue
from queuectl.core.model.resources import CPU
from queuectl.core.model.workload import UsageAccount
from queuectl.core.quota.tree import QuotaNode
from queuectl.ports.reader import UsageSumOf


class MemberUsage(NamedTuple):
    """One row."""

    level: int
    """0: what was asked for; its members have 1."""
    kind: str
    """Cohort, ClusterQueue, LocalQueue or User."""
    namespace: str | None
    """Of a LocalQueue, and of a user in it."""
    name: str
    """Of a user: empty for all that are unknown."""
    weight: int
    """In thousandths."""
    used: float
    """Decayed, in cores, bytes and devices by their weights (U2)."""
    ordered: bool
    """Whether past usage orders it among those beside it."""


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

    def rows(self, node: QuotaNode, *, by_past_usage: bool) -> Iterator[MemberUsage]:
        """Yield `node` and all below it. `by_past_usage`: the root of its tree orders members so."""
        used: dict[QuotaNode, float] = {}
        for one in reversed([*node.below()]):
            own = self._used.get((one.name,), 0.0) if one.kind == "ClusterQueue" else 0.0
            used[one] = own + sum(used[member] for member in one.children.values())
        left = [(MemberUsage(0, node.kind, None, node.name, node.weight, used[node], False), node)]
        while left:
            row, node = left.pop()
            yield row
            level = row.level + 1
            if node.kind == "ClusterQueue":
                yield from self._local_queues(node.name, level)
            members = [
                (MemberUsage(level, one.kind, None, one.name, one.weight, used[one], by_past_usage), one)
                for one in node.children.values()
            ]
            left += sorted(members, key=lambda member: _place(member[0]), reverse=True)

    def _local_queues(self, cluster_queue: str, level: int) -> Iterator[MemberUsage]:
        queue = self._queues[cluster_queue].queue if cluster_queue in self._queues else None
        ordered = queue is not None and queue.usage_based
        members = [
            MemberUsage(level, "LocalQueue", *one.name, one.weight, self._used.get(one.name, 0.0), ordered)
            for one in self._locals[cluster_queue]
        ]
        for one in sorted(members, key=_place):
            yield one
            assert one.namespace is not None
            name = (one.namespace, one.name)
            by_user = ordered and queue is not None and queue.users_by_usage
            users = [
                MemberUsage(level + 1, "User", *user, NORMAL_WEIGHT, self._used[*name, user[1]], by_user)
                for user in ((one.namespace, user) for user in self._users.get(name, ()))
            ]
            yield from sorted(users, key=_place)


def _place(one: MemberUsage) -> tuple[bool, float, str, str]:
    if not one.ordered:
        return False, 0.0, one.namespace or "", one.name
    return not one.weight, one.used / (one.weight or 1), one.namespace or "", one.name


def parts_of_siblings(members: Iterable[MemberUsage]) -> Mapping[int, float]:
    """Return by place among `members` which part of the usage of those beside it each has, from 0 to 1."""
    rows = list(members)
    above: list[int] = []
    parents: dict[int, int] = {}
    sums: defaultdict[int, float] = defaultdict(float)
    for place, one in enumerate(rows):
        del above[one.level :]
        parents[place] = above[-1] if above else -1
        sums[parents[place]] += one.used
        above.append(place)
    return {place: one.used / (sums[parents[place]] or 1) for place, one in enumerate(rows)}
