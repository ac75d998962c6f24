"""A waiting workload gets another size: it keeps its place, and its reason is about that size (L29)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.decisions import Enqueue, Keep
from queuectl.core.model.events import PodsCounted, WorkloadGone
from queuectl.core.model.policy import QueueingStrategy
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import WorkloadId
from tests.builders import GPU, World, admitted, local_queue, observed, pod_set, queue, workload

HOLDER = WorkloadId("uid-holder")
FIFOS = [QueueingStrategy.BEST_EFFORT_FIFO, QueueingStrategy.STRICT_FIFO]


def full(*sizes: int, strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO) -> World:
    """Eight GPUs, all in use, and waiting workloads w0, w1, ... of these sizes."""
    found = World(queue("cq", 8, strategy=strategy), local_queue("lq", "cq"))
    found.submit(workload("holder", gpus=8, created=-1))
    found.submit(*(workload(f"w{n}", gpus=size, created=n) for n, size in enumerate(sizes)))
    found.run()
    return found


def reshape(world: World, number: int, gpus: int, generation: int = 2) -> None:
    world.tell(observed(workload(f"w{number}", gpus=gpus, created=number), generation=generation))


def free(world: World) -> list[str]:
    world.tell(WorkloadGone(HOLDER))
    world.run()
    world.tell(PodsCounted(HOLDER, 1, alive=False))
    return admitted(world.run())


@pytest.mark.parametrize("strategy", FIFOS)
def test_it_starts_before_those_that_came_after_it(strategy: QueueingStrategy) -> None:
    world = full(8, 4, 4, strategy=strategy)
    reshape(world, 0, 4)
    world.run()
    assert free(world) == ["w0", "w1"]


def test_it_starts_at_once_where_its_new_size_fits() -> None:
    world = World(queue("cq", 8), local_queue("lq", "cq"))
    world.submit(workload("holder", gpus=6, created=-1), workload("w0", gpus=4, created=0))
    assert admitted(world.run()) == ["holder"]
    reshape(world, 0, 2)
    assert admitted(world.run()) == ["w0"]


def test_the_ledger_gets_what_it_requests_now_with_its_former_place() -> None:
    world = full(8, 4)
    reshape(world, 0, 6)
    world.run()
    first, second = (d for d in world.decided if isinstance(d, Enqueue) and d.workload.ref.name == "w0")
    assert [one.workload.pod_sets[0].requests for one in (first, second)] == [
        workload("w0", gpus=gpus).pod_sets[0].requests for gpus in (8, 6)
    ]
    assert (first.arrival, first.priority) == (second.arrival, second.priority)


@pytest.mark.parametrize("others", [(), (3,), (3, 3)], ids=["alone", "beside an equal one", "beside two"])
def test_a_reason_with_the_same_limit_is_recorded_anew_with_what_it_requests_now(
    others: tuple[int, ...],
) -> None:
    world = full(5, *others)
    reshape(world, 0, 3)
    (kept,) = (d for d in world.run() if isinstance(d, Keep))
    assert (kept.ref.name, kept.recorded, kept.reason.code) == ("w0", True, Code.WAITING_FOR_QUOTA)
    assert (kept.reason.requested, kept.reason.short_by) == (3, 3)
    assert world.run() == []


def test_a_status_that_says_again_how_many_pods_have_ended_is_no_change() -> None:
    world = full(2, 2)
    half = workload("half", pods=[pod_set(4, {GPU: 1})], created=9)
    seen = observed(half, reclaimable=(("main", 2),))
    world.tell(seen)
    world.run()
    decided = len(world.decided)
    world.tell(seen)
    assert (world.run(), len(world.decided)) == ([], decided)


@given(
    st.lists(st.integers(1, 12), min_size=2, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 12)), max_size=8),
)
def test_however_sizes_change_those_that_fit_start_in_the_order_of_their_creation(
    sizes: list[int], changes: list[tuple[int, int]]
) -> None:
    world, sizes = full(*sizes), list(sizes)
    for generation, (place, gpus) in enumerate(changes, start=2):
        reshape(world, place % len(sizes), gpus, generation)
        sizes[place % len(sizes)] = gpus
        world.run()
    left, expected = 8, []
    for number, size in enumerate(sizes):
        if size <= left:
            expected.append(f"w{number}")
            left -= size
    assert free(world) == expected
