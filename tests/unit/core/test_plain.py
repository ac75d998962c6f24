"""The fast path has the result of the full flavor assignment (F1 to F9)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import event, given
from hypothesis import strategies as st

from queuectl.core.flavors.assignment import Placed, assign
from queuectl.core.flavors.fast_path import fitting
from queuectl.core.flavors.queue_flavors import Charge, GranularMode, Mode, QueueFlavors
from queuectl.core.model.policy import (
    ClusterQueue,
    Cohort,
    FlavorFungibility,
    FlavorQuotas,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Taint,
)
from queuectl.core.model.workload import PodSet
from queuectl.core.quota.tree import QuotaTree

few = st.integers(0, 4)
limit = st.none() | few


@st.composite
def groups(draw: st.DrawFn) -> tuple[ResourceGroup, ...]:
    def quotas(flavor: str, *resources: str) -> FlavorQuotas:
        drawn = tuple((r, ResourceQuota(nominal=draw(few), borrowing_limit=draw(limit))) for r in resources)
        return FlavorQuotas(name=flavor, resources=drawn)

    first = tuple(quotas(flavor, "cpu", "gpu") for flavor in ("a", "b", "tainted"))
    second = ResourceGroup(covered=("memory",), flavors=(quotas("c", "memory"), quotas("d", "memory")))
    return ResourceGroup(covered=("cpu", "gpu"), flavors=first), second


FLAVORS = {name: ResourceFlavor(name=name) for name in "abcd"} | {
    "tainted": ResourceFlavor(name="tainted", node_taints=(Taint("spot", "", "NoSchedule"),))
}


class NoCandidates:
    """A search that finds no victims, with room on all nodes."""

    def offer(self, cell: int, amount: int, placed: Placed) -> GranularMode:
        return GranularMode(Mode.NO_CANDIDATES, 0)

    def lacks_room(self, placed: Placed) -> None:
        return None

    def explain_room(self, placed: Placed) -> None:
        return None


@given(
    groups(),
    groups(),
    st.builds(
        FlavorFungibility, try_next_before_borrowing=st.booleans(), preemption_over_borrowing=st.booleans()
    ),
    st.lists(st.tuples(st.integers(0, 7), st.integers(1, 3)), max_size=4),
    st.dictionaries(st.sampled_from(["cpu", "gpu", "memory", "disk"]), st.integers(1, 3), min_size=1),
    st.integers(1, 2),
)
def test_the_fast_path_finds_the_result_of_the_full_assignment(
    own: tuple[ResourceGroup, ...],
    shared: tuple[ResourceGroup, ...],
    rules: FlavorFungibility,
    used: list[tuple[int, int]],
    requests: dict[str, int],
    count: int,
) -> None:
    tree = QuotaTree()
    tree.set_cohort(Cohort(name="root", resource_groups=shared))
    queue = ClusterQueue(name="q", cohort="root", resource_groups=own, fungibility=rules)
    tree.set_queue(queue)
    tree.add(tree.queue("q"), used)
    asked = tuple(sorted(requests.items()))
    charge = Charge(PodSet(name="main", count=count, requests=asked), asked)
    menu = QueueFlavors(queue, tree, FLAVORS)
    full = replace(assign(menu, [charge], NoCandidates()), chances={})
    for _ in range(2):  # computed, then cached
        found = fitting(menu, [charge])
        event("found" if found is not None else "left to a full look")
        assert found is None or found == full
        if full.mode is Mode.FIT and not rules.try_next_before_borrowing:
            assert found is not None
