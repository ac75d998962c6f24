"""Usage-based order of the LocalQueues of one ClusterQueue (docs/scheduling.md, U1 to U5, P5)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from queuectl.core.decisions import Admit, Evict
from queuectl.core.model.policy import (
    NO_PREEMPTION,
    AdmissionFairSharing,
    Preemption,
    PreemptionPolicy,
    SchedulingConfiguration,
)
from queuectl.core.model.workload import WorkloadOutcome
from tests.builders import (
    GPU,
    World,
    admitted,
    local_queue,
    observed,
    pod_set,
    policy,
    priority,
    queue,
    workload,
)
from tests.doubles.engine_state import past_usage

SETTINGS = SchedulingConfiguration(usage_sharing=AdmissionFairSharing(half_life=3600, sampling_interval=300))


def world(gpus: int, weight: int = 1000, preemption: Preemption = NO_PREEMPTION) -> World:
    """Return LocalQueues `idle`, with that weight, and `busy` of one ClusterQueue with usage-based order."""
    shared = queue("cq", gpus, usage_based=True, preemption=preemption)
    idle = replace(local_queue("idle", "cq"), weight=weight)
    found = World(shared, idle, local_queue("busy", "cq"), settings=SETTINGS)
    found.tell(priority("low", -1), priority("high", 1))
    return found


def run_for_an_hour(world: World, name: str, queue: str) -> None:
    one = workload(name, queue)
    world.submit(one)
    assert admitted(world.run()) == [name]
    world.settle()
    world.pass_time(3600)
    world.tell(observed(one, suspended=False, finished=WorkloadOutcome.SUCCEEDED, generation=2))
    world.run()


def test_the_smaller_past_usage_is_first_regardless_of_age_and_priority() -> None:
    w = world(1)
    run_for_an_hour(w, "before", "busy")
    w.submit(workload("old", "busy", created=0, priority_class="high"), workload("new", "idle", created=9))
    assert admitted(w.run()) == ["new"]


def test_within_one_local_queue_priority_and_age_decide() -> None:
    w = world(1)
    w.submit(workload("old", "idle", created=0), workload("urgent", "idle", created=9, priority_class="high"))
    assert admitted(w.run()) == ["urgent"]


def test_an_admission_counts_at_once_so_the_next_one_is_of_another_local_queue() -> None:
    w = world(2)
    w.submit(
        *(workload(f"busy{n}", "busy", created=n) for n in range(2)), workload("idle", "idle", created=9)
    )
    assert admitted(w.run()) == ["busy0", "idle"]


def test_after_a_shrink_the_rest_counts_from_the_admission_on() -> None:
    """It does not count as a new admission for another sampling interval (U4)."""
    w = world(5)
    pods = [pod_set(2, {GPU: 1})]
    shrinks = workload("shrinks", "idle", pods=pods)
    w.submit(shrinks, workload("same", "busy", pods=pods))
    w.run()
    w.settle()
    w.pass_time(280)
    w.tell(observed(shrinks, suspended=False, ready=True, reclaimable=(("main", 1),), generation=2))
    w.run()
    w.pass_time(30)
    w.submit(workload("b", "busy", pods=pods, created=0), workload("i", "idle", pods=pods, created=9))
    assert admitted(w.run()) == ["i"]


def test_past_usage_counts_less_with_a_larger_weight() -> None:
    w = world(1, weight=3000)
    run_for_an_hour(w, "first", "idle")
    run_for_an_hour(w, "second", "busy")
    w.submit(workload("b", "busy", created=0), workload("i", "idle", created=9))
    assert admitted(w.run()) == ["i"]


def test_a_local_queue_with_weight_zero_is_last_even_without_usage() -> None:
    w = world(1, weight=0)
    run_for_an_hour(w, "before", "busy")
    w.submit(workload("i", "idle", created=0), workload("b", "busy", created=9))
    assert admitted(w.run()) == ["b"]


def test_the_larger_past_usage_is_preempted_before_the_lower_priority() -> None:
    w = world(2, preemption=Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY))
    run_for_an_hour(w, "before", "busy")
    w.submit(workload("b", "busy"), workload("i", "idle", priority_class="low"))
    assert len(admitted(w.run())) == 2
    w.tell(policy(local_queue("third", "cq")))
    w.submit(workload("asks", "third", priority_class="high"))
    assert [d.ref.name for d in w.run() if isinstance(d, Evict)] == ["b"]


def test_usage_ends_with_its_decision_where_the_clock_was_set_back_since_a_plan_without_rows() -> None:
    """The ledger has the time of the decision, and a restart counts up to it."""
    used = []
    for ahead in (0, 60):
        w = world(1)
        one = workload("one", "busy")
        w.submit(one)
        w.run()
        w.settle()
        w.pass_time(600)
        w.engine.commit(w.engine.decide(w.now + timedelta(seconds=ahead)), 0)
        w.tell(observed(one, suspended=False, finished=WorkloadOutcome.SUCCEEDED, generation=2))
        w.run()
        w.pass_time(600)
        used.append(past_usage(w.engine, w.now))
    assert used[0] == used[1] != {}


def test_what_is_found_running_counts_from_then_on_whenever_it_was_admitted() -> None:
    """The ledger has its hold from then on, and a restart counts that. Clocks may be set back."""
    used = []
    for before in (0, 3600, -3600):
        one, w = workload("one", "busy"), world(1)
        w.submit(one)
        (attempt,) = (d.attempt for d in w.run() if isinstance(d, Admit))
        attempt = replace(attempt, admitted_at=w.now - timedelta(seconds=before))
        w = world(1)  # whose ledger has lost the decision
        w.tell(observed(one, suspended=False, generation=2, admission=attempt))
        assert admitted(w.run()) == ["one"]
        w.pass_time(600)
        used.append(past_usage(w.engine, w.now))
        w.tell(observed(one, suspended=False, finished=WorkloadOutcome.SUCCEEDED, generation=2))
        w.run()
        used.append(past_usage(w.engine, w.now))
    assert used == [used[0]] * 6
    assert used[0] != {}
