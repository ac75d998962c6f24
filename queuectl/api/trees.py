"""The cohort trees of the policies in force: which nodes are in one tree, and which below a cohort. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from queuectl.api.policies import Policies, cohorts_above
from queuectl.core.model import ConfigKey
from queuectl.core.policy import CapacityShortage, ClusterQueue, Cohort


class Trees:
    """Of one set of policies. Nodes are written as `ClusterQueue/NAME` or `Cohort/NAME`."""

    def __init__(self, policies: Policies) -> None:
        """Costs the nodes with the cohorts above them."""
        self.pro_rata = False
        """Whether what counts in one tree may depend on what is promised in others (M11)."""
        self._above: dict[str, Sequence[str]] = {}
        self._policies = policies
        self._below: defaultdict[str, list[str]] = defaultdict(list)
        self._objects: defaultdict[str, dict[ConfigKey, ClusterQueue | Cohort]] = defaultdict(dict)
        for key, policy in sorted(policies.items()):
            if isinstance(policy, ClusterQueue):
                self._objects[self.root(f"{key.kind}/{key.name}")][key] = policy
                for cohort in dict.fromkeys(self._cohorts(policy.cohort)):
                    self._below[cohort].append(policy.name)
            elif isinstance(policy, Cohort):
                self._objects[self.root(f"{key.kind}/{key.name}")][key] = policy
                self.pro_rata |= policy.shortage is CapacityShortage.PRO_RATA

    def root(self, node: str) -> str:
        """The root of its tree; of cohorts in a cycle, which have none, the first by name."""
        kind, _, name = node.partition("/")
        first: str | None = name
        if kind == "ClusterQueue":
            queue = self._policies.get(ConfigKey("ClusterQueue", "", name))
            first = queue.cohort if isinstance(queue, ClusterQueue) else None
        above = self._cohorts(first)
        if not above:
            return node
        return f"Cohort/{min(above[above.index(above[-1]) :])}"

    def objects(self, root: str) -> Mapping[ConfigKey, ClusterQueue | Cohort]:
        """The valid objects of a tree, in the order of kinds and names."""
        return self._objects.get(root, {})

    def queues(self, root: str) -> list[str]:
        """The ClusterQueues of a tree, by name; one without a valid object is a tree of its own."""
        kind, _, name = root.partition("/")
        if kind == "ClusterQueue":
            return [name]
        return [one.name for one in self.objects(root).values() if isinstance(one, ClusterQueue)]

    def below(self, cohort: str) -> Sequence[str]:
        """The ClusterQueues below a cohort, by name."""
        return self._below.get(cohort, ())

    def _cohorts(self, first: str | None) -> Sequence[str]:
        if first is None:
            return ()
        if first not in self._above:
            self._above[first] = cohorts_above(first, self._policies)
        return self._above[first]
