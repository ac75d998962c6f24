"""Laws that hold for every plan: random trees and random event sequences, judged by separate slow code.

A sequence is a policy (cohort trees of depth up to five, up to eight queues), workloads, and up to ten
actions. Then all actions stop until the cluster is at rest. Each test runs its own sequences. The preemption
laws of YuniKorn hold here as follows:

- never outside the fence: holds, the fence is the root cohort;
- only if the requesting queue is below its guarantee, and the queue of the victim is above it and never
  pushed below it: holds for reclaimed quota, with the guarantee of a cohort for that of its queues, and
  except for the last victim of a queue, which is preempted whole; admins lift it by priority (P2) or shares
  (P8);
- only equal or lower priority: holds unless the policy is `Any`;
- never within one application: an application is one workload, which is preempted whole, never by itself;
- policies are strong suggestions: does not hold, here they are rules.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queuectl.core.engine import Engine
from queuectl.core.model.policy import Gate, MinRunTime, Preemption, PreemptionPolicy, WorkloadPriorityClass
from queuectl.core.model.workload import WorkloadId
from queuectl.core.queues.line import line
from tests.builders import GPU, SETTINGS, T0, flavor, group, local_queue, queue, workload
from tests.doubles import engine_state
from tests.unit.core import actions, late_channels, laws, profiles, room_laws
from tests.unit.core.actions import (
    CYCLES,
    JOBS,
    SCRIPT,
    SCRIPT_ON_NODES,
    SETUP,
    UNDER_PRESSURE,
    on_nodes,
    on_quota,
    play,
)
from tests.unit.core.driver import Driver
from tests.unit.core.plans import Law, meaning, moves
from tests.unit.core.trees import Dice, Setup, setup_on_nodes


def unguarded(data: bytes, *laws: Law) -> Driver:
    """Return a driver with the rules of preemption alone, without P11."""
    return on_quota(data, *laws, guarded=False)


class Case(NamedTuple):
    """Laws that random sequences keep, and the number of sequences."""

    sequences: int
    laws: Sequence[Law]
    driver: Callable[..., Driver] = on_quota
    cycles: st.SearchStrategy[int | None] = CYCLES
    jobs: st.SearchStrategy[list[bytes]] = JOBS
    script: st.SearchStrategy[list[bytes]] = SCRIPT


ONE = st.just(1)
NO_SCRIPT: st.SearchStrategy[list[bytes]] = st.just([])
MANY_JOBS = st.lists(st.binary(min_size=36, max_size=36), min_size=2, max_size=9)
PROTECTS = (laws.priority_is_respected, laws.share_causes_occur_only_with_fair_sharing)
PRESSURE = st.lists(st.binary(min_size=36, max_size=36), min_size=8, max_size=30)
CASES = {
    "available_quota": Case(200, [laws.no_workload_is_admitted_on_quota_that_is_not_available]),
    "preemptors_fit": Case(150, [laws.preemptors_of_a_plan_fit_after_their_victims_end]),
    "needed_victims": Case(150, [laws.no_victim_is_unnecessary], cycles=ONE),
    "policy_and_priority": Case(150, PROTECTS),
    "rows_of_numbers": Case(100, [laws.a_row_says_more_than_other_numbers]),
    "protected_victims": Case(120, [laws.no_protected_workload_is_preempted]),
    "same_tree": Case(80, [laws.no_victim_is_in_another_tree, laws.a_victim_holds_what_is_requested]),
    "different_workloads": Case(80, [laws.preemptor_and_victim_are_different_workloads]),
    "borrowed_quota": Case(120, [laws.a_queue_loses_only_what_it_borrows], cycles=ONE),
    "guarantee": Case(120, [laws.the_preemptor_is_below_its_guarantee], cycles=ONE),
    "mutual_preemption": Case(200, [laws.no_two_preempt_each_other_repeatedly], unguarded),
    "preempted_twice": Case(150, [laws.no_workload_is_preempted_twice_at_the_same_moment]),
    "preemptors_admitted": Case(180, [laws.preemptors_are_admitted]),
    "new_process": Case(180, [laws.a_new_process_decides_nothing]),
    "all_on_nodes": Case(150, room_laws.ALL, on_nodes, script=SCRIPT_ON_NODES),
    "new_process_on_nodes": Case(150, [laws.a_new_process_decides_nothing], on_nodes, script=SCRIPT_ON_NODES),
    # As long as pods are not bound elsewhere than expected (C7, M8).
    "preemptors_admitted_on_nodes": Case(
        100, [laws.preemptors_are_admitted], on_nodes, jobs=MANY_JOBS, script=NO_SCRIPT
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_random_sequences_keep_their_laws(name: str) -> None:
    case = CASES[name]

    def sequence(setup: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None) -> None:
        play(case.driver(setup, *case.laws), jobs, script).come_to_rest(cycles)

    sequence.__name__ = name  # each case has sequences of its own
    tried = given(SETUP, case.jobs, case.script, case.cycles)(sequence)
    profiles.sequences(case.sequences)(tried)()


@profiles.sequences(150)
@given(SETUP, JOBS, PRESSURE, CYCLES)
def test_on_nodes_no_workload_is_evicted_in_vain(
    setup: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    """C7, M8: what queuectl decides leaves each preemptor its room, wherever pods that start then are bound.

    Not in vain by these rules are evictions for a preemptor that fitted until a node was lost, a pod of
    others came, or a pod of a workload that was admitted before it was bound elsewhere than expected.
    """
    driver = Driver(setup_on_nodes(Dice(setup)), *room_laws.ALL, actions=UNDER_PRESSURE)
    play(driver, jobs, script)
    served = room_laws.claims_fit(driver)
    driver.come_to_rest(cycles)
    if served:
        laws.preemptors_are_admitted(driver)


@profiles.sequences(180)
@given(SETUP, JOBS, SCRIPT, JOBS)
def test_a_preemptor_that_fits_before_its_victims_are_gone_has_started(
    setup: bytes, jobs: list[bytes], script: list[bytes], more: list[bytes]
) -> None:
    driver = play(on_quota(setup, laws.a_preemptor_that_fits_has_started), jobs, script)
    for data in more:
        for action in (actions.submit_some, actions.finish):
            action(driver, Dice(data))
            driver.deliver()
            driver.decide_all()


def preempts(protected: MinRunTime) -> Preemption:
    return Preemption(
        within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY,
        reclaim_within_cohort=PreemptionPolicy.ANY,
        min_run_time=protected,
    )


def busy(*, cohort: bool) -> Setup:
    """One queue, or a lender and a borrower; a running workload is protected for a minute."""
    guarded = preempts(MinRunTime(in_cluster_queue=60, in_cohort_reclamation=60))
    queues = [queue("q", 3, cohort="all" if cohort else None, preemption=guarded)]
    queues += [queue("borrows", 0, cohort="all", preemption=guarded)] if cohort else []
    classes = (WorkloadPriorityClass("low", -1), WorkloadPriorityClass("high", 1))
    locals_ = [local_queue(one.name, one.name) for one in queues]
    return Setup((flavor("default"), *classes, *queues, *locals_), SETTINGS)


@profiles.sequences(200)
@given(st.booleans(), st.lists(st.integers(0, 9), min_size=8, max_size=30))
def test_behind_protections_that_move_a_waiting_workload_gets_no_row(cohort: bool, script: list[int]) -> None:
    """R2, P10, P11. Work comes and ends all the time; equal workloads of high priority wait behind it."""
    driver = Driver(busy(cohort=cohort), laws.a_row_says_more_than_other_numbers)
    for number, action in enumerate(script):
        match action:
            case 0 | 1 | 2:
                where = "borrows" if cohort else "q"
                driver.submit(workload(f"w{number}", where, priority_class="low"))
            case 3 | 4:
                for copy in "ab":
                    driver.submit(workload(f"w{number}{copy}", "q", 2 + action % 2, priority_class="high"))
            case 5 | 6:
                actions.finish(driver, Dice(bytes([number])))
            case 7:
                driver.end_pods()
            case _:
                driver.now += timedelta(seconds=7 if action == 8 else 31)
        driver.deliver()
        driver.decide_all()


QUOTA = {"a100": {GPU: 4}, "spot": {GPU: 4}}
LOWER = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
SHARED = Setup(
    (
        WorkloadPriorityClass("high", 10),
        *map(flavor, QUOTA),
        queue("cq", groups=[group(QUOTA)], preemption=LOWER),
        local_queue("lq", "cq"),
    ),
    late_channels.SETTINGS,
    gates=(Gate("queuectl-jobs", T0),),
)


@profiles.sequences(1000)
@given(st.integers(0, 2**32), st.integers(1, 40))
@example(176750, 16)
@example(1148648427, 38)
@example(2469898338, 27)
@example(902130819, 40)
def test_whatever_other_clients_do_the_ledger_says_what_runs_within_a_bound(seed: int, number: int) -> None:
    """L30, L31: they suspend and start objects, edit annotations, and restore the ledger from a dump."""
    checked = (laws.live_pods_are_charged, laws.the_ledger_says_what_runs)
    dice = Dice(Random(seed).randbytes(8 * number))
    driver = Driver(SHARED, *checked, actions=actions.other_clients(), prompt=False)
    for _ in range(number):
        driver.act(dice)
    driver.come_to_rest()


# --- what a new process, another order of events, and a deletion of everything come to


@pytest.mark.parametrize(("begin", "number"), [(on_quota, 120), (on_nodes, 80)])
def test_the_order_of_events_of_one_batch_does_not_matter(begin: Callable[..., Driver], number: int) -> None:
    def sequence(
        setup: bytes, jobs: list[bytes], script: list[bytes], batch: list[bytes], order: bytes
    ) -> None:
        driver = play(begin(setup), jobs, script)
        changed = {}
        for data in batch:
            if (event := actions.random_event(driver, Dice(data))) is not None:
                changed[actions.subject_of(event)] = event
        events = list(changed.values())
        first, second = (driver.forked(each) for each in (events, Dice(order).shuffled(events)))
        assert meaning(first.decide(driver.now, 10_000)) == meaning(second.decide(driver.now, 10_000))

    batch = st.lists(st.binary(min_size=28, max_size=28), min_size=2, max_size=6)
    order = st.binary(min_size=36, max_size=36)
    profiles.sequences(number)(given(SETUP, JOBS, SCRIPT_ON_NODES, batch, order)(sequence))()


@profiles.sequences(80)
@given(SETUP, JOBS, SCRIPT)
def test_nothing_is_left_of_deleted_queues_and_workloads(
    setup: bytes, jobs: list[bytes], script: list[bytes]
) -> None:
    driver = play(on_quota(setup), jobs, script)
    actions.remove_everything(driver)
    driver.come_to_rest()
    state = engine_state.state(driver.engine)
    driver.check()
    left = (state.entries, state.members, state.holders, state.pending, state.due_queues, state.tree.cells)
    assert not any(left), left
    assert list(state.tree.nodes()) == []
    assert not state.claims.by_queue


@profiles.sequences(180)
@given(SETUP, JOBS, SCRIPT)
def test_a_newly_started_process_knows_what_the_running_one_knows(
    setup: bytes, jobs: list[bytes], script: list[bytes]
) -> None:
    """U5, O2, O7: usage, past usage and order, also in the middle of evictions and shrunk holds."""
    driver = play(on_quota(setup), jobs, script)
    for _ in range(3):
        live, fresh = driver.engine, driver.fresh()
        stored = driver.ledger.store.workloads
        apart = claimed(fresh) - claimed(live)  # C7: a change of policy ends claims, the ledger has evictions
        assert known(fresh, driver.now, stored, apart) == known(live, driver.now, stored, apart)
        actions.end_some_pods(driver, Dice(jobs[0]))
        driver.deliver()
        driver.come_to_rest()
        driver.now += timedelta(seconds=100)


@pytest.mark.parametrize(("begin", "number"), [(on_quota, 300), (on_nodes, 80)])
def test_a_newly_started_process_admits_what_the_running_one_admits(
    begin: Callable[..., Driver], number: int
) -> None:
    """C12: of requests that come at rest. A cycle takes one head of each queue, and what an earlier process
    refused takes the turn of no other."""

    def sequence(setup: bytes, jobs: list[bytes], script: list[bytes], late: list[bytes]) -> None:
        driver = play(begin(setup), jobs, script)
        driver.come_to_rest()
        driver.now += timedelta(seconds=100)
        driver.come_to_rest()
        play(driver, late, [])
        assert moves(driver.fresh().decide(driver.now, 10_000)) == moves(driver.plan(10_000))

    profiles.sequences(number)(given(SETUP, JOBS, SCRIPT_ON_NODES, JOBS)(sequence))()


def claimed(engine: Engine) -> set[str]:
    """The pending queues of which one workload comes first because it has preempted."""
    return {name for name, queue in engine_state.state(engine).pending.items() if queue.claim is not None}


def known(
    engine: Engine, now: datetime, stored: Container[WorkloadId], apart: Container[str]
) -> dict[str, object]:
    """Return what decisions depend on, by name; of the pending workloads those that the ledger has.

    `apart`: queues whose order is left out.
    """
    state = engine_state.state(engine)
    tree, past = state.tree, state.features.usage
    usage = {
        (str(node), name): node.usage[cell]
        for node in tree.nodes()
        for name, cell in tree.cells.items()
        if node.usage[cell]
    }
    usages = (
        {name: past.growing((name,), 1000, now)({}) for name in state.directory.local_queues} if past else {}
    )
    lines = {
        name: [one.id for one in line(queue, state.directory, past, now) if one.id in stored]
        for name, queue in state.pending.items()
    }
    lines = {name: found for name, found in lines.items() if found and name not in apart}
    return {"usage": usage, "past usage": usages, "lines": lines}
