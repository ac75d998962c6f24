"""Which ClusterQueues and Cohorts are in one tree, from policy objects. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from queuectl.core.policy import ClusterQueue, Cohort, Policy


class Trees:
    """Cohort trees. A Cohort that is only named has no parent."""

    def __init__(self, policies: Iterable[Policy]) -> None:
        self._parents: dict[str, str | None] = {}
        self._cohorts: dict[str, str | None] = {}
        """By ClusterQueue."""
        for one in policies:
            if isinstance(one, Cohort):
                self._parents[one.name] = one.parent
            elif isinstance(one, ClusterQueue):
                self._cohorts[one.name] = one.cohort

    @property
    def cohorts(self) -> set[str]:
        """Names of all Cohorts, also of those that are only named."""
        named = {*self._parents.values(), *self._cohorts.values()}
        return {*self._parents, *(name for name in named if name is not None)}

    @property
    def queues(self) -> set[str]:
        return set(self._cohorts)

    def root(self, cohort: str) -> str:
        """Return the Cohort at the top."""
        seen = {cohort}
        while (parent := self._parents.get(cohort)) is not None and parent not in seen:
            seen.add(cohort := parent)
        return cohort

    def root_of(self, queue: str) -> str | None:
        """Return the Cohort above all others of a ClusterQueue; None: it is in none. Raises KeyError."""
        cohort = self._cohorts[queue]
        return None if cohort is None else self.root(cohort)

    def queues_below(self, root: str) -> set[str]:
        return {queue for queue in self._cohorts if self.root_of(queue) == root}

    def queues_beside(self, queue: str) -> set[str]:
        """Return the ClusterQueues of the tree of `queue`, which is one of them. Raises KeyError."""
        root = self.root_of(queue)
        return {queue} if root is None else self.queues_below(root)
