"""Whether a requeued group has a chance, by what is available now and what it may preempt (W1, W7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from queuectl.core.directory import Directory
from queuectl.core.entries import Entry, EquivalenceGroup
from queuectl.core.flavors.fast_path import FastPath, fast_path
from queuectl.core.model.policy import Preemption, PreemptionPolicy
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.queues.pending import PendingQueue
from queuectl.core.quota.tree import QuotaNode, QuotaTree

Holding = Callable[[QuotaNode], Iterable[Entry]]
"""The workloads that hold quota of a ClusterQueue."""

_SHORT: Final = frozenset({Code.WAITING_FOR_QUOTA, Code.EXCEEDS_MAX_QUOTA, Code.NO_MATCHING_FLAVOR})


@dataclass(slots=True)
class Chances:
    """Tells which requeued groups need no nomination, because they would be refused again."""

    _directory: Directory
    _holding: Holding

    def has(self, queue: PendingQueue, group: EquivalenceGroup) -> bool:
        """Return whether a group is to be nominated. Always where its head reserves quota, or lacks room."""
        if queue.strict or group in queue.lacking or group.inadmissible is None:
            return True
        if group in queue.may_preempt:
            return not _lacks_quota(group.inadmissible) or self.could_have_enough(queue, group)
        tree = self._directory.tree
        node = tree.queue(queue.name)
        for name, amount in group.missing:  # noqa: SIM110 (asked of each requeued group at each release)
            if amount <= tree.available(node, tree.cells[name]):
                return True
        return False

    def could_have_enough(self, queue: PendingQueue, group: EquivalenceGroup) -> bool:
        """Return whether a group could have enough quota, were all gone that it may preempt (W7)."""
        tree, head, policy = self._directory.tree, group.head(), self._directory.queues.get(queue.name)
        node = tree.queue(queue.name)
        if head is None or policy is None or tree.shares_fairly(node):
            return True
        flavors = self._directory.queue_flavors(queue.name)
        paths: list[FastPath] = []
        for charge in head.shape:
            path = fast_path(flavors, (charge,))
            if path is None or charge.pod_set.min_count is not None:
                return True
            paths.append(path)
        reach = _Reach(tree, node, head, policy.preemption, self._holding, paths)
        groups = (choices for path in paths for choices in path.groups.values())
        return all(any(reach.covers(choice.cells) for choice in choices) for choices in groups)


def _lacks_quota(reason: Reason) -> bool:
    """Return whether quota was missing at the last nomination.

    What lacked anything else is nominated in any case: its reason may be another one now.
    """
    return reason.code in _SHORT and not reason.reserved


@dataclass(slots=True)
class _Reach:
    """What one head could have at most of a cell: more than a search finds, and found without one.

    Taken to be gone are all holders that policy and priority allow to preempt (P2), protected or not; of
    other queues those that borrow on any cell of the request.
    """

    _tree: QuotaTree
    _node: QuotaNode
    _head: Entry
    _rules: Preemption
    _holding: Holding
    _paths: Iterable[FastPath]
    _own: dict[int, int] = field(default_factory=dict)

    def covers(self, cells: Sequence[tuple[int, int]]) -> bool:
        """Return whether one flavor could have enough of all its cells."""
        return all(amount <= 0 or self._reaches(cell, amount) for cell, amount in cells)

    def _reaches(self, cell: int, amount: int) -> bool:
        tree, node = self._tree, self._node
        if amount > tree.potential(node, cell):
            return False
        missing = amount - tree.available(node, cell)
        if missing > 0:
            missing -= self._of_own_queue(cell)
        if missing <= 0:
            return True
        if self._rules.reclaim_within_cohort is PreemptionPolicy.NEVER or node.parent is None:
            return False
        if self._rules.borrow_within_cohort is None and not self._stays_within(cell, amount):
            return False  # only a head that does not borrow afterwards may reclaim (P3, P4)
        return self._others_have(cell, missing)

    def _of_own_queue(self, cell: int) -> int:
        """Return what holders in its own ClusterQueue have of a cell that it may preempt."""
        if (known := self._own.get(cell)) is None:
            policy, holders = self._rules.within_cluster_queue, self._holding(self._node)
            known = self._own[cell] = sum(self._preemptible(policy, holders, cell))
        return known

    def _preemptible(self, policy: PreemptionPolicy, holders: Iterable[Entry], cell: int) -> Iterable[int]:
        """Yield what each of `holders` has of a cell that `policy` lets it preempt."""
        most = policy.highest(self._head.priority)
        for entry in holders:
            if entry.priority <= most:
                for held, amount in entry.cells:
                    if held == cell:
                        yield amount

    def _stays_within(self, cell: int, amount: int) -> bool:
        """Return whether its queue, or a cohort above it, could be within its quota afterwards (P3)."""
        node = self._node
        if node.usage[cell] - self._of_own_queue(cell) + amount <= node.subtree[cell]:
            return True
        rest, at = max(0, amount - node.private_free(cell)), node.parent
        while at is not None and at.parent is not None:
            if at.usage[cell] + rest <= at.subtree[cell]:
                return True
            rest, at = max(0, rest - at.private_free(cell)), at.parent
        return False

    def _others_have(self, cell: int, missing: int) -> bool:
        """Return whether other queues that borrow have so much of a cell that it may preempt."""
        policy = self._rules.reclaim_within_cohort
        wanted = self._wanted()
        for at in self._tree.root(self._node).queues():
            if at is not self._node and any(map(at.borrows, wanted)):
                missing -= sum(self._preemptible(policy, self._holding(at), cell))
                if missing <= 0:
                    return True
        return False

    def _wanted(self) -> Set[int]:
        """Return all cells that it may be charged to."""
        choices = chain.from_iterable(group for path in self._paths for group in path.groups.values())
        return {cell for choice in choices for cell, _ in choice.cells}
