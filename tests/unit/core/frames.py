"""Random sequences of events, and what is asked at their end, with or without nodes."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TypeVar

from hypothesis import strategies as st

from queuectl.core.decisions import Admit, Enqueue, Evict, Keep, Plan
from queuectl.core.events import Event, TimeCame
from queuectl.core.model import Attempt
from queuectl.core.preemption.claims import PreemptionClaim
from queuectl.core.reasons import Code
from tests.unit.core.machine import wait_for
from tests.unit.core.running import Running, forked
from tests.unit.core.trees import Dice

R = TypeVar("R", bound=Running)

WORLD = st.binary(min_size=420, max_size=420)
JOBS = st.lists(st.binary(min_size=36, max_size=36), min_size=2, max_size=6)
SCRIPT = st.lists(st.binary(min_size=28, max_size=28), max_size=10)
CYCLES = st.sampled_from([None, 1])
"""Cycles per plan until rest; None: unlimited."""


def played(running: R, jobs: list[bytes], script: list[bytes]) -> R:
    """Submit jobs, then perform random actions. Each plan is checked by the laws of `running`."""
    for one in jobs:
        running.submit_some(Dice(one))
    running.deliver()
    for happens in script:
        running.act(Dice(happens))
    return running


def check_that_preemptors_are_admitted(running: Running) -> None:
    """At rest: no workload that preempted still waits for what its victims left (C7)."""
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


def check_that_a_new_process_decides_nothing(running: Running) -> None:
    """At rest: no inadmissible workload would fit or find victims in a full evaluation (W1 to W6)."""
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


def check_that_a_preemptor_that_fits_has_started(running: Running) -> None:
    """Nothing is left to decide, but pods of victims are still ending (C13).

    A new process admits no preemptor with what it claims. It may find another assignment, and does not
    know of victims of others that the preemptor waits for, too (C8).
    """
    for _ in range(running.bound()):
        if not running.decide():
            break
    other = running.fresh()
    for _ in range(running.bound()):
        plan = other.decide(running.now)
        for one in admissions(plan):
            claim = running.engine._state.claims.of(one.assignment.cluster_queue)
            if claim is not None and claim.owner == one.workload and knows_victims(running, claim):
                assert claim.assignment != one.assignment, one
        if not plan.decisions or any(isinstance(one, Admit | Evict) for one in plan.decisions):
            return
        other.commit(plan, 1)
    raise AssertionError("decisions never end")


def knows_victims(running: Running, claim: PreemptionClaim) -> bool:
    """Return whether the ledger has the evictions of all victims of a claim for its owner."""
    stored = {one.id: one.preemptor for one in wait_for(running.ledger.load()).workloads}
    return all(stored[victim.workload] == claim.owner for victim in claim.victims)


def admissions(plan: Plan) -> list[Attempt]:
    return [one.attempt for one in plan.decisions if isinstance(one, Admit)]


def check_that_a_new_process_admits_the_same(running: Running, late: list[bytes]) -> None:
    """A new process admits what the running one does, of requests that come at rest (C12)."""
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


def check_that_order_does_not_matter(running: Running, batch: list[bytes], order: bytes) -> None:
    """The events of some actions are delivered together, in two orders."""
    changed: dict[str, Event] = {}
    for happens in batch:
        event = running.random_event(Dice(happens))
        if event is not None:
            changed[running.subject(event)] = event
    events = list(changed.values())
    shuffled = Dice(order).shuffled(events)
    one, other = (forked(running.engine, found).decide(running.now, 10_000) for found in (events, shuffled))
    assert meaning(one) == meaning(other)


def meaning(plan: Plan) -> Counter[str]:
    """Return the decisions as a set, without numbers that depend on their order."""
    found: Counter[str] = Counter()
    for decision in plan.decisions:
        if isinstance(decision, Enqueue):
            found[f"queue {decision.workload.id} {decision.cluster_queue} {decision.priority}"] += 1
        elif isinstance(decision, Admit):
            found[f"admit {decision.attempt.assignment} {decision.attempt.number} {decision.ref}"] += 1
        elif isinstance(decision, Keep):
            found[f"keep {decision.ref} {decision.reason.key}"] += 1
        else:
            found[repr(decision)] += 1
    return found


def moves(plan: Plan) -> list[str]:
    """Return what a plan admits and evicts."""
    admitted = [f"{d.ref.name}: {d.attempt.assignment}" for d in plan.decisions if isinstance(d, Admit)]
    return sorted([*admitted, *(f"{victim.ref.name} for {victim.preemptor}" for victim in plan.victims)])
