"""Past usage while a plan is made: it orders LocalQueues, users, and members of Cohorts (U1, U6, U7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple, Protocol

from queuectl.core.entries import Entry
from queuectl.core.model.policy import NORMAL_WEIGHT, LocalQueue, LocalQueueName
from queuectl.core.model.workload import UsageAccount
from queuectl.core.quota.tree import QuotaNode

UsageValue = int | float
"""Usage over weight: the smaller comes first; `math.inf` for weight 0."""


class UsageOrder(Protocol):
    """Past usage, by which ClusterQueues and Cohorts may order what they admit (U1, U6, U7)."""

    def growing(
        self, accounts: Iterable[UsageAccount], weight: int, now: datetime
    ) -> Callable[[Mapping[str, int]], UsageValue]:
        """Return the usage of `accounts` together over `weight` (thousandths) at `now`, as a function of what
        else is admitted."""


class Turn(NamedTuple):
    """Whose past usage orders a workload in its ClusterQueue: that of a LocalQueue, or of a user in it."""

    local_queue: LocalQueueName
    user: str | None = None
    """Empty: all that are unknown; None: the users of a LocalQueue are not ordered."""


def turn_of(entry: Entry, *, by_user: bool) -> Turn:
    """Return the turn in which a workload is admitted. `by_user`: users of a LocalQueue are ordered (U6)."""
    if not by_user:
        return Turn(entry.local_queue)
    return Turn(entry.local_queue, (entry.workload is not None and entry.workload.submitter) or "")


class PlannedUsage:
    """Past usage, with what a plan admits (U4)."""

    def __init__(
        self, order: UsageOrder, local_queues: Mapping[LocalQueueName, LocalQueue], now: datetime
    ) -> None:
        self._order = order
        self._local_queues = local_queues
        self._now = now
        self._functions: dict[UsageAccount | QuotaNode, Callable[[Mapping[str, int]], UsageValue]] = {}
        """Usage as a function of what the plan admits."""
        self._admitted: defaultdict[UsageAccount | QuotaNode, dict[str, int]] = defaultdict(dict)
        self._values: dict[UsageAccount | QuotaNode, UsageValue] = {}
        """Until the plan admits more of it."""

    def admit(self, turn: Turn, amounts: Mapping[str, int], nodes: Iterable[QuotaNode] = ()) -> None:
        """The plan admits `amounts` by resource, in base units, of which the quota of `nodes` is charged."""
        user = () if turn.user is None else ((*turn.local_queue, turn.user),)
        for one in (turn.local_queue, *user, *nodes):
            self._values.pop(one, None)
            admitted = self._admitted[one]
            for resource, amount in amounts.items():
                admitted[resource] = admitted.get(resource, 0) + amount

    def of_turn(self, turn: Turn) -> tuple[UsageValue, ...]:
        """Return the usage of a LocalQueue, and that of the user in it if its users are ordered."""
        name, user = turn
        local = self._local_queues.get(name)
        usage = self._of(name, local.weight if local is not None else NORMAL_WEIGHT, lambda: (name,))
        if user is None:
            return (usage,)
        account = (*name, user)
        return usage, self._of(account, NORMAL_WEIGHT, lambda: (account,))

    def of_node(self, node: QuotaNode) -> UsageValue:
        """Return the usage of all ClusterQueues at or below `node`."""
        return self._of(node, node.weight, lambda: ((queue.name,) for queue in node.queues()))

    def of_path(self, node: QuotaNode) -> tuple[UsageValue, ...]:
        """Return the usage of `node` and of the Cohorts above it, without the root, the highest first."""
        return tuple(reversed([self.of_node(one) for one in node.path() if one.parent is not None]))

    def _of(
        self, key: UsageAccount | QuotaNode, weight: int, accounts: Callable[[], Iterable[UsageAccount]]
    ) -> UsageValue:
        value = self._values.get(key)
        if value is None:
            function = self._functions.get(key)
            if function is None:
                function = self._functions[key] = self._order.growing(accounts(), weight, self._now)
            value = self._values[key] = function(self._admitted[key])
        return value
