"""Laws that hold for every plan where nodes limit admissions: random nodes, pods and failures (M).

The sequences are those of test_laws.py, on nodes: a scheduler binds pods one by one, to any node where they
fit, pods of others come and end, nodes are cordoned, come and go.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core import profiles, room_laws
from tests.unit.core.frames import (
    CYCLES,
    JOBS,
    WORLD,
    check_that_a_new_process_admits_the_same,
    check_that_a_new_process_decides_nothing,
    check_that_order_does_not_matter,
    check_that_preemptors_are_admitted,
    played,
)
from tests.unit.core.running import Law
from tests.unit.core.running_on_nodes import OnNodes
from tests.unit.core.trees import Dice

profiles.load()

SCRIPT = st.lists(st.binary(min_size=28, max_size=28), max_size=14)
PRESS = st.lists(st.binary(min_size=36, max_size=36), min_size=8, max_size=30)


def play(made: bytes, jobs: list[bytes], script: list[bytes], *judges: Law) -> OnNodes:
    """Run a sequence with each plan checked by `judges`, the ledger and the engine, and decided twice."""
    return played(OnNodes(Dice(made), *judges), jobs, script)


@profiles.sequences(150)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_all_laws_hold_on_nodes(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    play(made, jobs, script, *room_laws.ALL).come_to_rest(cycles)


@profiles.sequences(150)
@given(WORLD, JOBS, PRESS, CYCLES)
def test_on_nodes_no_workload_is_evicted_in_vain(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    """C7, M8: what queuectl decides leaves each preemptor its room, wherever pods that start then are bound.

    Not in vain by these rules are evictions for a preemptor that fitted until a node was lost, a pod of
    others came, or a pod of a workload that was admitted before it was bound elsewhere than expected.
    """
    running = play(made, jobs, [], *room_laws.ALL)
    for happens in script:
        running.press(Dice(happens))
    served = room_laws.claims_fit(running)
    running.come_to_rest(cycles)
    if served:
        check_that_preemptors_are_admitted(running)


@profiles.sequences(100)
@given(WORLD, st.lists(st.binary(min_size=36, max_size=36), min_size=2, max_size=9), CYCLES)
def test_on_nodes_a_preemptor_is_admitted_once_its_victims_are_gone(
    made: bytes, jobs: list[bytes], cycles: int | None
) -> None:
    """C7, M8: as long as pods are not bound elsewhere than expected."""
    running = play(made, jobs, [])
    running.come_to_rest(cycles)
    check_that_preemptors_are_admitted(running)


@profiles.sequences(150)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_on_nodes_a_newly_started_process_decides_nothing_at_rest(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    running = play(made, jobs, script)
    running.come_to_rest(cycles)
    check_that_a_new_process_decides_nothing(running)


@profiles.sequences(80)
@given(WORLD, JOBS, SCRIPT, JOBS)
def test_on_nodes_a_newly_started_process_admits_what_the_running_one_admits(
    made: bytes, jobs: list[bytes], script: list[bytes], late: list[bytes]
) -> None:
    check_that_a_new_process_admits_the_same(play(made, jobs, script), late)


@profiles.sequences(80)
@given(WORLD, JOBS, SCRIPT, st.lists(st.binary(min_size=28, max_size=28), min_size=2, max_size=6), JOBS)
def test_the_order_of_events_of_nodes_and_pods_does_not_matter(
    made: bytes, jobs: list[bytes], script: list[bytes], batch: list[bytes], order: list[bytes]
) -> None:
    check_that_order_does_not_matter(play(made, jobs, script), batch, order[0])
