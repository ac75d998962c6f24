"""Laws that hold for every plan where nodes limit admissions: random nodes, pods and failures (M).

The sequences are those of test_laws.py, on nodes: a scheduler binds pods one by one, pods of others come and
end, nodes are cordoned, come and go.
"""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.decisions import Keep
from queuectl.core.events import Event, TimeCame
from queuectl.core.reasons import Code
from tests.core import profiles, room_laws
from tests.core.running import Law, forked
from tests.core.running_on_nodes import OnNodes
from tests.core.test_laws import CYCLES, JOBS, WORLD, meaning, moves
from tests.core.trees import Dice

profiles.load()

SCRIPT = st.lists(st.binary(min_size=28, max_size=28), max_size=14)


def play(made: bytes, jobs: list[bytes], script: list[bytes], *judges: Law) -> OnNodes:
    """Run a sequence with each plan checked by `judges`, the ledger and the engine, and decided twice."""
    running = OnNodes(Dice(made), *judges)
    for one in jobs:
        running.submit_some(Dice(one))
    running.deliver()
    for happens in script:
        running.act(Dice(happens))
    return running


@profiles.sequences(150)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_all_laws_hold_on_nodes(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    play(made, jobs, script, *room_laws.ALL).come_to_rest(cycles)


@profiles.sequences(100)
@given(WORLD, st.lists(st.binary(min_size=36, max_size=36), min_size=2, max_size=9), CYCLES)
def test_on_nodes_a_preemptor_is_admitted_once_its_victims_are_gone(
    made: bytes, jobs: list[bytes], cycles: int | None
) -> None:
    """C7, M8: no workload is evicted in vain, as long as pods are not bound elsewhere than expected."""
    running = play(made, jobs, [])
    running.come_to_rest(cycles)
    stored = running.ledger.store.workloads
    waiting = [
        one.ref
        for one in stored.values()
        if one.reason and one.reason.code is Code.WAITING_FOR_PREEMPTED_WORKLOADS and one.attempt is None
    ]
    assert not waiting, f"{waiting} preempted, but were not admitted"
    unserved = [
        owner for owner in running.preemptors if owner in stored and owner not in running.admitted_since
    ]
    assert not unserved, f"{unserved} preempted without being admitted"


@profiles.sequences(150)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_on_nodes_a_newly_started_process_decides_nothing_at_rest(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    """W1 to W6: no inadmissible workload would fit or find victims in a full evaluation."""
    running = play(made, jobs, script)
    running.come_to_rest(cycles)
    other = running.fresh()
    for _ in range(running.bound()):
        plan = other.decide(running.now)
        if not plan.decisions and not plan.probes:
            return
        for decision in plan.recorded:
            assert isinstance(decision, Keep), decision
            assert decision.claim is None, decision
        other.commit(plan, 1)
    raise AssertionError("decisions never end")


@profiles.sequences(80)
@given(WORLD, JOBS, SCRIPT, JOBS)
def test_on_nodes_a_newly_started_process_admits_what_the_running_one_admits(
    made: bytes, jobs: list[bytes], script: list[bytes], late: list[bytes]
) -> None:
    running = play(made, jobs, script)
    running.come_to_rest()
    running.now += timedelta(seconds=100)
    running.tell_time()
    running.come_to_rest()
    for one in late:
        running.submit_some(Dice(one))
    running.deliver()
    fresh = running.fresh()
    fresh.handle([TimeCame(running.now)])
    assert moves(fresh.decide(running.now, 10_000)) == moves(running.plan(10_000))


@profiles.sequences(80)
@given(WORLD, JOBS, SCRIPT, st.lists(st.binary(min_size=28, max_size=28), min_size=2, max_size=6), JOBS)
def test_the_order_of_events_of_nodes_and_pods_does_not_matter(
    made: bytes, jobs: list[bytes], script: list[bytes], batch: list[bytes], order: list[bytes]
) -> None:
    running = play(made, jobs, script)
    changed: dict[str, Event] = {}
    for happens in batch:
        event = running.random_event(Dice(happens))
        if event is not None:
            changed[running.subject(event)] = event
    events = list(changed.values())
    shuffled = Dice(order[0]).shuffled(events)
    one, other = (forked(running.engine, found).decide(running.now, 10_000) for found in (events, shuffled))
    assert meaning(one) == meaning(other)
