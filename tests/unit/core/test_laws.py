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

from collections import Counter
from collections.abc import Container
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.engine import Engine
from queuectl.core.model import WorkloadId
from queuectl.core.policy import MinRunTime, Preemption, PreemptionPolicy, WorkloadPriorityClass
from queuectl.core.queues.line import line
from tests.builders import SETTINGS, flavor, local_queue, queue, workload
from tests.doubles.invariants import violations
from tests.unit.core import laws, profiles
from tests.unit.core.frames import (
    CYCLES,
    JOBS,
    SCRIPT,
    WORLD,
    check_that_a_new_process_admits_the_same,
    check_that_a_new_process_decides_nothing,
    check_that_a_preemptor_that_fits_has_started,
    check_that_order_does_not_matter,
    check_that_preemptors_are_admitted,
    played,
)
from tests.unit.core.running import Law, Running
from tests.unit.core.trees import Dice, world
from tests.unit.core.trees import World as WorldOf

profiles.load()


def play(made: bytes, jobs: list[bytes], script: list[bytes], *judges: Law, guarded: bool = True) -> Running:
    """Run a sequence with each plan checked by `judges`, the ledger and the engine, and decided twice."""
    return played(Running(world(Dice(made), guarded=guarded), *judges), jobs, script)


# --- laws of each plan


@profiles.sequences(200)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_no_workload_is_admitted_on_quota_that_is_not_available(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    play(made, jobs, script, laws.no_workload_is_admitted_on_quota_that_is_not_available).come_to_rest(cycles)


@profiles.sequences(150)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_all_preemptors_of_a_plan_fit_after_their_victims_end(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    play(made, jobs, script, laws.preemptors_of_a_plan_fit_after_their_victims_end).come_to_rest(cycles)


@profiles.sequences(150)
@given(WORLD, JOBS, SCRIPT)
def test_no_victim_is_unnecessary(made: bytes, jobs: list[bytes], script: list[bytes]) -> None:
    play(made, jobs, script, laws.no_victim_is_unnecessary).come_to_rest(1)


@profiles.sequences(150)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_every_victim_is_allowed_by_policy_and_priority(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    judges = (laws.priority_is_respected, laws.share_causes_occur_only_with_fair_sharing)
    play(made, jobs, script, *judges).come_to_rest(cycles)


@profiles.sequences(100)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_a_change_of_numbers_or_times_alone_makes_no_row(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    play(made, jobs, script, laws.a_row_says_more_than_other_numbers).come_to_rest(cycles)


def preempts(protected: MinRunTime) -> Preemption:
    return Preemption(
        within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY,
        reclaim_within_cohort=PreemptionPolicy.ANY,
        min_run_time=protected,
    )


def busy(*, cohort: bool) -> WorldOf:
    """One queue, or a lender and a borrower; a running workload is protected for a minute."""
    guarded = preempts(MinRunTime(in_cluster_queue=60, in_cohort_reclamation=60))
    queues = [queue("q", 3, cohort="all" if cohort else None, preemption=guarded)]
    queues += [queue("borrows", 0, cohort="all", preemption=guarded)] if cohort else []
    classes = (WorkloadPriorityClass("low", -1), WorkloadPriorityClass("high", 1))
    locals_ = [local_queue(one.name, one.name) for one in queues]
    return WorldOf((flavor("default"), *classes, *queues, *locals_), SETTINGS, (), 0, 0)


@profiles.sequences(200)
@given(st.booleans(), st.lists(st.integers(0, 9), min_size=8, max_size=30))
def test_behind_protections_that_move_a_waiting_workload_gets_no_row(cohort: bool, script: list[int]) -> None:
    """R2, P10, P11. Work comes and ends all the time; equal workloads of high priority wait behind it."""
    running = Running(busy(cohort=cohort), laws.a_row_says_more_than_other_numbers)
    for number, action in enumerate(script):
        match action:
            case 0 | 1 | 2:
                where = "borrows" if cohort else "q"
                running.submit(workload(f"w{number}", where, priority_class="low"))
            case 3 | 4:
                for copy in "ab":
                    running.submit(workload(f"w{number}{copy}", "q", 2 + action % 2, priority_class="high"))
            case 5 | 6:
                running.finish(Dice(bytes([number])))
            case 7:
                running.end_pods()
            case _:
                running.now += timedelta(seconds=7 if action == 8 else 31)
        running.deliver()
        running.tell_time()
        while running.decide():
            pass


@profiles.sequences(120)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_no_victim_is_protected(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    play(made, jobs, script, laws.no_protected_workload_is_preempted).come_to_rest(cycles)


@profiles.sequences(80)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_a_victim_is_in_the_same_tree_and_holds_what_is_requested(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    judges = (laws.no_victim_is_in_another_tree, laws.a_victim_holds_what_is_requested)
    play(made, jobs, script, *judges).come_to_rest(cycles)


@profiles.sequences(80)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_preemptor_and_victim_are_different_workloads(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    play(made, jobs, script, laws.preemptor_and_victim_are_different_workloads).come_to_rest(cycles)


@profiles.sequences(120)
@given(WORLD, JOBS, SCRIPT)
def test_a_queue_loses_only_what_it_borrows(made: bytes, jobs: list[bytes], script: list[bytes]) -> None:
    play(made, jobs, script, laws.a_queue_loses_only_what_it_borrows).come_to_rest(1)


@profiles.sequences(120)
@given(WORLD, JOBS, SCRIPT)
def test_a_reclaiming_preemptor_is_below_its_guarantee(
    made: bytes, jobs: list[bytes], script: list[bytes]
) -> None:
    play(made, jobs, script, laws.the_preemptor_is_below_its_guarantee).come_to_rest(1)


# --- laws of sequences


@profiles.sequences(200)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_without_fair_sharing_no_two_workloads_preempt_each_other_repeatedly(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    """P12, with the rules alone, without P11. The cluster is at rest within `Running.bound` plans. A
    preemptor of the same victim twice was preempted by a third workload between.
    """
    running = play(made, jobs, script, guarded=False)
    if running.shares:
        return
    running.evicted.clear()
    running.come_to_rest(cycles)
    last: dict[tuple[str, str], int] = {}
    for number, (victim, preemptor) in enumerate(running.evicted):
        meanwhile = running.evicted[last.get((victim, preemptor), number) : number]
        thirds = [by for gone, by in meanwhile if gone == preemptor and by != victim]
        assert thirds or not meanwhile, running.evicted
        last[victim, preemptor] = number


@profiles.sequences(150)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_no_workload_is_preempted_twice_at_the_same_moment(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    """P11, P12. Budget and cooldown apply in addition to the rules, also with fair sharing."""
    running = play(made, jobs, script)
    running.evicted.clear()
    before = {uid for uid, one in running.ledger._preemptions().items() if one}
    running.come_to_rest(cycles)
    counted = Counter(victim for victim, _ in running.evicted)
    assert all(times == 1 for victim, times in counted.items() if victim not in before), running.evicted
    assert max(counted.values(), default=0) <= 2, running.evicted


@profiles.sequences(180)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_a_preemptor_is_admitted_once_its_victims_are_gone(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    """C7. No other workload uses the quota: the first plan that decides its tree afterwards admits it."""
    running = play(made, jobs, script)
    running.come_to_rest(cycles)
    check_that_preemptors_are_admitted(running)


@profiles.sequences(180)
@given(WORLD, JOBS, SCRIPT, CYCLES)
def test_at_rest_a_newly_started_process_decides_nothing(
    made: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    """W1 to W4: no inadmissible workload would fit or find victims in a full evaluation."""
    running = play(made, jobs, script)
    running.come_to_rest(cycles)
    check_that_a_new_process_decides_nothing(running)


@profiles.sequences(180)
@given(WORLD, JOBS, SCRIPT, JOBS)
def test_a_preemptor_that_fits_before_its_victims_are_gone_has_started(
    made: bytes, jobs: list[bytes], script: list[bytes], more: list[bytes]
) -> None:
    """C13: what a newly started process would admit. Forecasts are from engines that start like one (A12)."""
    running = play(made, jobs, script)
    for one in more:
        running.submit_some(Dice(one))
        running.deliver()
        check_that_a_preemptor_that_fits_has_started(running)
        running.finish(Dice(one))
        running.deliver()
        check_that_a_preemptor_that_fits_has_started(running)


@profiles.sequences(120)
@given(WORLD, JOBS, SCRIPT, st.lists(st.binary(min_size=28, max_size=28), min_size=2, max_size=4), JOBS)
def test_the_order_of_events_of_one_batch_does_not_matter(
    made: bytes, jobs: list[bytes], script: list[bytes], batch: list[bytes], order: list[bytes]
) -> None:
    check_that_order_does_not_matter(play(made, jobs, script), batch, order[0])


@profiles.sequences(80)
@given(WORLD, JOBS, SCRIPT)
def test_nothing_is_left_of_deleted_queues_and_workloads(
    made: bytes, jobs: list[bytes], script: list[bytes]
) -> None:
    running = play(made, jobs, script)
    running.remove_everything()
    running.come_to_rest()
    state = running.engine._state
    assert violations(running.engine) == []
    left = (state.entries, state.members, state.holders, state.pending, state.due_queues, state.tree.cells)
    assert not any(left), left
    assert list(state.tree.nodes()) == []
    assert list(state.claims) == []


@profiles.sequences(180)
@given(WORLD, JOBS, SCRIPT)
def test_a_newly_started_process_knows_what_the_running_one_knows(
    made: bytes, jobs: list[bytes], script: list[bytes]
) -> None:
    """U5, O2, O7: usage, past usage and order, also in the middle of evictions and shrunk holds."""
    running = play(made, jobs, script)
    for _ in range(3):
        live, fresh = running.engine, running.fresh()
        stored = running.ledger.store.workloads
        apart = claimed(fresh) - claimed(live)  # C7: a change of policy ends claims, the ledger has evictions
        assert known(fresh, running.now, stored, apart) == known(live, running.now, stored, apart)
        running.end_some_pods(Dice(jobs[0]))
        running.deliver()
        running.come_to_rest()
        running.now += timedelta(seconds=100)


@profiles.sequences(300)
@given(WORLD, JOBS, SCRIPT, JOBS)
def test_a_newly_started_process_admits_what_the_running_one_admits(
    made: bytes, jobs: list[bytes], script: list[bytes], late: list[bytes]
) -> None:
    """C12: of requests that come at rest. A cycle takes one head of each queue, and what an earlier process
    refused takes the turn of no other."""
    check_that_a_new_process_admits_the_same(play(made, jobs, script), late)


def claimed(engine: Engine) -> set[str]:
    """The pending queues of which one workload comes first because it has preempted."""
    return {name for name, queue in engine._state.pending.items() if queue.claim is not None}


def known(
    engine: Engine, now: datetime, stored: Container[WorkloadId], apart: Container[str]
) -> dict[str, object]:
    """Return what decisions depend on, by name; of the pending workloads those that the ledger has.

    `apart`: queues whose order is left out.
    """
    state = engine._state
    tree, past = state.tree, state.usage_history
    usage = {
        (str(node), name): node.usage[cell]
        for node in tree.nodes()
        for name, cell in tree.cells.items()
        if node.usage[cell]
    }
    usages = {name: past.usage(name, 1000, now) for name in state.directory.local_queues} if past else {}
    lines = {
        name: [one.id for one in line(queue, state.directory, past, now) if one.id in stored]
        for name, queue in state.pending.items()
    }
    lines = {name: found for name, found in lines.items() if found and name not in apart}
    return {"usage": usage, "past usage": usages, "lines": lines}
