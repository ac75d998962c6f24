"""Each cohort tree by itself has the amounts that it has beside all others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queuectl.answers.queue_states import Policies, nominal_quota, quota_tree
from queuectl.core.model import policy
from queuectl.core.model.policy import ClusterQueue, Cohort, FlavorQuotas, ResourceGroup, ResourceQuota
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import ConfigKey
from queuectl.core.quota.cohort_trees import CohortTrees
from queuectl.core.quota.tree import QuotaTree

GPU = FlavorResource("a100", "nvidia.com/gpu")
COHORTS = ("a", "b", "c", "d")
LIMITS = st.none() | st.integers(0, 4)


@st.composite
def groups(draw: st.DrawFn) -> tuple[ResourceGroup, ...]:
    quota = ResourceQuota(
        nominal=draw(st.integers(0, 8)), borrowing_limit=draw(LIMITS), lending_limit=draw(LIMITS)
    )
    flavor = FlavorQuotas(name=GPU.flavor, resources=((GPU.resource, quota),))
    return (ResourceGroup(covered=(GPU.resource,), flavors=(flavor,)),)


@st.composite
def policies(draw: st.DrawFn) -> Policies:
    """With cycles, cohorts that are only named, and specs that are invalid."""
    parents = st.none() | st.sampled_from(COHORTS)
    found: dict[ConfigKey, policy.Policy | str] = {}
    for name in draw(st.permutations(COHORTS))[: draw(st.integers(0, 4))]:
        found[ConfigKey("Cohort", "", name)] = Cohort(
            name=name, parent=draw(parents), resource_groups=draw(groups())
        )
    for number in range(draw(st.integers(1, 6))):
        queue = ClusterQueue(name=f"q{number}", cohort=draw(parents), resource_groups=draw(groups()))
        valid = draw(st.integers(0, 9)) > 0
        found[ConfigKey("ClusterQueue", "", queue.name)] = queue if valid else "it is invalid"
    return found


@given(policies(), st.lists(st.integers(0, 6), min_size=6, max_size=6))
def test_a_tree_by_itself_has_the_amounts_that_it_has_beside_others(found: Policies, used: list[int]) -> None:
    trees = CohortTrees(found.values())
    usage = {key.name: {GPU: used[int(key.name[1:])]} for key in found if key.kind == "ClusterQueue"}
    whole = quota_tree(found, usage)
    for name in usage:
        beside = trees.queues_beside(name) if name in trees.queues else (name,)
        root = trees.root_of(name) if name in trees.queues else None
        members = {("ClusterQueue", one) for one in beside}
        members |= {("Cohort", one) for one in trees.cohorts_in(root or "")}
        objects = {key: one for key, one in found.items() if (key.kind, key.name) in members}
        part = quota_tree(objects, {one: usage[one] for one in beside})
        assert name in beside
        cells = nominal_quota(found[ConfigKey("ClusterQueue", "", name)])
        assert part.free(name, cells) == whole.free(name, cells)
        assert _above(part, name) == _above(whole, name)


@given(policies())
def test_the_queues_below_a_cohort_are_those_that_have_it_above_them(found: Policies) -> None:
    trees = CohortTrees(found.values())
    for cohort in COHORTS:
        expected = {
            one.name
            for one in found.values()
            if isinstance(one, ClusterQueue) and cohort in _cohorts_above(found, one.cohort)
        }
        assert list(trees.queues_below(cohort)) == sorted(expected)


def _above(tree: QuotaTree, name: str) -> list[str]:
    node, names = tree.queue(name), []
    while node.parent is not None:
        node = node.parent
        names.append(str(node))
    return names


def _cohorts_above(found: Policies, first: str | None) -> set[str]:
    names: set[str] = set()
    while first is not None and first not in names:
        names.add(first)
        above = found.get(ConfigKey("Cohort", "", first))
        first = above.parent if isinstance(above, Cohort) else None
    return names
