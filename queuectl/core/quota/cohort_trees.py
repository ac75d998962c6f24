"""Which ClusterQueues and Cohorts are in one tree, from policy objects. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from queuectl.core.model.policy import CapacityShortage, ClusterQueue, Cohort, cohorts_above


class CohortTrees:
    """Of one set of policies. A Cohort that is only named has no parent."""

    def __init__(self, policies: Iterable[object]) -> None:
        """Other objects count for nothing. Costs the nodes with the cohorts above them."""
        self._parents: dict[str, str | None] = {}
        self._cohorts: dict[str, str | None] = {}
        """By ClusterQueue."""
        self.pro_rata = False
        """Whether what counts in one tree may depend on what is promised in others (M11)."""
        for one in policies:
            if isinstance(one, Cohort):
                self._parents[one.name] = one.parent
                self.pro_rata |= one.shortage is CapacityShortage.PRO_RATA
            elif isinstance(one, ClusterQueue):
                self._cohorts[one.name] = one.cohort
        named = {*self._parents.values(), *self._cohorts.values()}
        self.cohorts = frozenset((*self._parents, *(name for name in named if name is not None)))
        """Names of all Cohorts, also of those that are only named."""
        self.queues = frozenset(self._cohorts)
        self._above: dict[str, Sequence[str]] = {}
        self._below: defaultdict[str, list[str]] = defaultdict(list)
        for queue in sorted(self._cohorts):
            for cohort in self._cohorts_of(queue):
                self._below[cohort].append(queue)
        self._members: defaultdict[str, list[str]] = defaultdict(list)
        for cohort in sorted(self.cohorts):
            self._members[self.root(cohort)].append(cohort)

    def root(self, cohort: str) -> str:
        """Return the Cohort at the top; of a cycle, which has no top, the first one by name."""
        above = self.above(cohort)
        again = self._parents.get(above[-1])
        return above[-1] if again is None else min(above[above.index(again) :])

    def root_of(self, queue: str) -> str | None:
        """Return the Cohort above all others of a ClusterQueue; None: it is in none. Raises KeyError."""
        cohort = self._cohorts[queue]
        return None if cohort is None else self.root(cohort)

    def cohorts_in(self, root: str) -> Sequence[str]:
        """Return the Cohorts of a tree, by name."""
        return self._members.get(root, ())

    def queues_below(self, cohort: str) -> Sequence[str]:
        """Return the ClusterQueues below a Cohort, by name."""
        return self._below.get(cohort, ())

    def queues_beside(self, queue: str) -> Sequence[str]:
        """Return the ClusterQueues of the tree of `queue`, which is one of them. Raises KeyError."""
        root = self.root_of(queue)
        return (queue,) if root is None else self.queues_below(root)

    def _cohorts_of(self, queue: str) -> Sequence[str]:
        cohort = self._cohorts[queue]
        return () if cohort is None else self.above(cohort)

    def parent(self, cohort: str) -> str | None:
        """Return the Cohort in `spec.parentName` of a Cohort; None: it has none, or is only named."""
        return self._parents.get(cohort)

    def above(self, cohort: str) -> Sequence[str]:
        """Return the names of a Cohort and of those above it, nearest first, in a cycle each once."""
        if cohort not in self._above:
            self._above[cohort] = cohorts_above(cohort, self.parent)
        return self._above[cohort]
