"""What a ClusterQueue can have now is exactly what the engine then admits, on random forests."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.model.policy import ClusterQueue, Cohort, FlavorQuotas, ResourceGroup, ResourceQuota
from queuectl.core.model.resources import FlavorResource
from tests.builders import ALL_NAMESPACES, GPU, World, admitted, flavor, local_queue, workload
from tests.doubles import engine_state

CELL = FlavorResource("a", GPU)
AMOUNT = st.integers(0, 9)
LIMIT = st.none() | AMOUNT
QUOTA = st.builds(ResourceQuota, nominal=AMOUNT, borrowing_limit=LIMIT, lending_limit=LIMIT)
COHORTS = [f"c{number}" for number in range(4)]
QUEUES = [f"q{number}" for number in range(4)]
HELD = st.lists(st.tuples(st.sampled_from(QUEUES), st.integers(1, 9)), max_size=8)


def group(quota: ResourceQuota) -> tuple[ResourceGroup, ...]:
    return (ResourceGroup(covered=(GPU,), flavors=(FlavorQuotas(name="a", resources=((GPU, quota),)),)),)


@st.composite
def forests(draw: st.DrawFn) -> list[Any]:
    """Cohorts whose parents precede them, and queues in any of them or in none; no queue preempts."""
    cohorts = [
        Cohort(
            name=name,
            parent=draw(st.sampled_from([None, *COHORTS[:number]])),
            resource_groups=draw(st.builds(group, QUOTA) | st.just(())),
        )
        for number, name in enumerate(COHORTS)
    ]
    queues = [
        ClusterQueue(
            name=name,
            cohort=draw(st.sampled_from([None, *COHORTS])),
            resource_groups=group(draw(QUOTA)),
            namespace_selector=ALL_NAMESPACES,
        )
        for name in QUEUES
    ]
    return [*cohorts, *queues]


def can_have(world: World, queue: str) -> int:
    return engine_state.tree(world.engine).free(queue, [CELL])[CELL]


def admits(world: World, name: str, queue: str, gpus: int) -> bool:
    world.submit(workload(name, queue, gpus))
    return admitted(world.run()) == [name]


@given(forests(), HELD, st.sampled_from(QUEUES))
def test_a_request_of_what_is_free_is_admitted_and_one_more_is_not(
    forest: list[Any], held: list[tuple[str, int]], queue: str
) -> None:
    world = World(flavor("a"), *forest, *(local_queue(name, name) for name in QUEUES))
    for number, (of, gpus) in enumerate(held):
        if most := min(gpus, can_have(world, of)):
            assert admits(world, f"w{number}", of, most)
    amount = can_have(world, queue)
    assert not admits(world, "more", queue, amount + 1)
    assert amount == can_have(world, queue)
    assert not amount or admits(world, "fits", queue, amount)
