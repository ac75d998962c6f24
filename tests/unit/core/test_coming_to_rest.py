"""Small cases, found by the laws, of endless preemption and of rare errors."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from queuectl.core.decisions import Evict
from queuectl.core.model.policy import (
    AdmissionFairSharing,
    BorrowWithinCohort,
    Cohort,
    FairSharing,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    SchedulingConfiguration,
    WorkloadPriorityClass,
)
from queuectl.core.model.policy import Policy as PolicyObject
from queuectl.core.model.workload import PodSet, WorkloadOutcome
from tests.builders import (
    GPU,
    World,
    admitted,
    flavor,
    group,
    local_queue,
    observed,
    pod_set,
    policy,
    queue,
    workload,
)
from tests.unit.core.driver import Driver
from tests.unit.core.laws import a_new_process_decides_nothing
from tests.unit.core.trees import UNBOUNDED, Setup

LOW_GIVES_WAY = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
HIGH, LOW = WorkloadPriorityClass("high", 1), WorkloadPriorityClass("low", -1)

UNGUARDED = SchedulingConfiguration(cooldown=0, eviction_budget=UNBOUNDED)


def running(*policies: PolicyObject, settings: SchedulingConfiguration = UNGUARDED) -> Driver:
    """Return a cluster, by default without eviction budget and cooldown (P11)."""
    return Driver(Setup(policies, settings))


def at_rest(world: Driver) -> Driver:
    world.deliver()
    world.come_to_rest()
    return world


def names(world: Driver) -> set[str]:
    """Return the names of the running workloads."""
    return {one.ref.name for one in world.ledger.store.workloads.values() if one.attempt is not None}


def two(first: int, second: int) -> list[PodSet]:
    return [pod_set(1, {GPU: first}, name="p0"), pod_set(1, {GPU: second}, name="p1")]


def test_the_evaluation_of_the_flavors_of_two_podsets_ends() -> None:
    """F8: each podset starts again while the other continues."""
    world = World(
        flavor("f1"),
        flavor("f2"),
        queue("cq", groups=[group({"f1": {GPU: 3}, "f2": {GPU: 0}})]),
        local_queue("lq", "cq"),
    )
    world.submit(workload("w", pods=two(2, 3)))
    plan = world.plan(budget=1000)
    assert plan.work < 20
    assert admitted(plan.decisions) == []


def test_a_workload_on_hold_is_not_preempted_by_the_same_plan() -> None:
    world = World(queue("cq", 1, preemption=LOW_GIVES_WAY), local_queue("lq", "cq"))
    world.tell(policy(HIGH), policy(LOW))
    world.submit(low := workload("low", priority_class="low"))
    world.run()
    world.settle()
    world.tell(
        observed(replace(low, hold=True), suspended=False, generation=2),
        observed(workload("high", priority_class="high")),
    )
    assert [d.ref.name for d in world.run() if isinstance(d, Evict)] == ["low"]


def test_a_workload_is_not_preempted_by_the_plan_that_raises_its_priority() -> None:
    world = World(queue("cq", 1, preemption=LOW_GIVES_WAY), local_queue("lq", "cq"))
    world.tell(policy(HIGH), policy(LOW))
    world.submit(low := workload("low", priority_class="low"))
    world.run()
    world.settle()
    world.tell(
        observed(replace(low, priority_class="high"), suspended=False, generation=2),
        observed(workload("other")),
    )
    assert not [d for d in world.run() if isinstance(d, Evict)]


def test_a_workload_within_the_own_quota_of_its_queue_is_no_candidate_for_what_the_queue_borrows() -> None:
    """P2: `owned` uses f2, within the quota of its queue. The queue borrows on f1."""
    take = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY, borrow_within_cohort=BorrowWithinCohort())
    world = running(
        flavor("f1"),
        flavor("f2"),
        HIGH,
        queue("qa", groups=[group({"f1": {GPU: 0}, "f2": {GPU: 2}})], cohort="c", preemption=take),
        queue("qb", groups=[group({"f1": {GPU: 1}, "f2": {GPU: 0}})], cohort="c", preemption=take),
        local_queue("la", "qa"),
        local_queue("lb", "qb"),
    )
    world.submit(workload("spare", "la", 1))
    at_rest(world)
    world.submit(workload("owned", "la", 2))
    at_rest(world)
    assert names(world) == {"spare", "owned"}
    world.submit(workload("both", "lb", pods=two(1, 2), priority_class="high"))
    at_rest(world)
    assert ("uid-owned", "uid-both") not in world.evicted


def test_a_preemptor_uses_no_more_than_it_preempted_for() -> None:
    """C7: one of three pods fits into the own quota. With all three the queue would borrow, and lose them."""
    world = running(
        flavor("default"),
        HIGH,
        queue(
            "qa",
            1,
            cohort="c",
            preemption=Preemption(reclaim_within_cohort=PreemptionPolicy.ANY),
        ),
        queue(
            "qb",
            2,
            cohort="c",
            preemption=Preemption(
                reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY,
                borrow_within_cohort=BorrowWithinCohort(),
            ),
        ),
        local_queue("la", "qa"),
        local_queue("lb", "qb"),
    )
    world.submit(workload("partly", "la", pods=[pod_set(3, {GPU: 1}, min_count=1)]))
    at_rest(world)
    world.submit(workload("high", "lb", 3, priority_class="high"))
    at_rest(world)
    assert world.evicted == [("uid-partly", "uid-high"), ("uid-high", "uid-partly")]
    assert names(world) == {"partly"}


def test_the_eviction_budget_ends_preemption_that_shares_alone_would_repeat_forever() -> None:
    """P11: `all` preempts `big` by its share, and `own` with it. `own` is within nominal quota and reclaims;
    then `big` fits again.
    """
    share = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
    world = running(
        flavor("default"),
        Cohort(name="c", sharing=FairSharing(enabled=True)),
        queue("qa", 4, cohort="c", preemption=share),
        queue("qb", 1, cohort="c", preemption=share),
        local_queue("la", "qa"),
        local_queue("lb", "qb"),
        settings=SchedulingConfiguration(),
    )
    world.submit(workload("own", "lb", 1))
    world.submit(workload("big", "lb", 4, created=1))
    at_rest(world)
    world.submit(workload("all", "la", 5, created=2))
    at_rest(world)
    assert len(world.evicted) == len({victim for victim, _ in world.evicted})


def test_a_workload_with_a_least_count_is_requeued_when_less_than_its_full_request_is_free() -> None:
    """W1, F9: one of two GPUs becomes free. The workload requests three pods and can start with one."""
    world = World(queue("cq", 2), local_queue("lq", "cq"))
    first, second = workload("first"), workload("second")
    world.submit(first, second)
    world.run()
    world.settle()
    world.submit(workload("partly", pods=[pod_set(3, {GPU: 1}, min_count=1)], created=1))
    assert admitted(world.run()) == []
    world.tell(observed(first, suspended=False, generation=2, finished=WorkloadOutcome.SUCCEEDED))
    assert admitted(world.run()) == ["partly"]


def test_heads_of_two_local_queues_of_a_strict_queue_do_not_replace_each_other_forever() -> None:
    """C4, U1: of several groups only the first is nominated. Each would end what the other one reserves."""
    settings = SchedulingConfiguration(usage_sharing=AdmissionFairSharing(half_life=0))
    strict = QueueingStrategy.STRICT_FIFO
    world = running(
        flavor("default"),
        queue("qa", 2, cohort="c", strategy=strict, usage_based=True, preemption=LOW_GIVES_WAY),
        queue("qb", 1, cohort="c"),
        *(local_queue(name, of) for name, of in (("la", "qa"), ("lb", "qa"), ("lc", "qb"))),
        settings=settings,
    )
    for one in (
        workload("runs", "la"),
        ends := workload("ends", "lc"),
        workload("large", "lb", 4, created=2),
    ):
        world.submit(one)
        at_rest(world)
    world.submit(workload("head", "la", 2, created=1))
    at_rest(world)
    world.submit(workload("small", "lc", created=3))
    at_rest(world)
    assert names(world) == {"runs", "ends"}
    world.write(ends.id, spec=False, finished=WorkloadOutcome.SUCCEEDED, quiet=True, pods=False)
    at_rest(world)
    assert names(world) == {"runs", "small"}
    a_new_process_decides_nothing(world)


@pytest.mark.parametrize(
    ("budget", "cooldown", "ran", "protected"),
    [(2, 0, 900, True), (2, 0, 1001, False), (9, 60, 900, True), (9, 60, 1900, True), (9, 60, 2001, False)],
)
def test_a_restart_ends_no_protection_by_past_preemptions(
    budget: int, cooldown: int, ran: int, protected: bool
) -> None:
    """P11, with a window of 1000 seconds. Each preemptor of `often` runs for `ran` seconds."""
    settings = SchedulingConfiguration(eviction_budget=budget, eviction_window=1000, cooldown=cooldown)
    policies = (flavor("default"), HIGH, LOW, queue("q", 1, preemption=LOW_GIVES_WAY), local_queue("lq", "q"))
    world = running(*policies, settings=settings)
    world.submit(workload("often", priority_class="low"))
    at_rest(world)
    for name in ("first", "second"):
        world.now += timedelta(seconds=cooldown)
        world.tell_time()
        world.submit(one := workload(name, priority_class="high"))
        assert names(at_rest(world)) == {name}
        world.now += timedelta(seconds=ran)
        world.write(one.id, spec=False, finished=WorkloadOutcome.SUCCEEDED, quiet=True, pods=False)
        assert names(at_rest(world)) == {"often"}
    world.submit(workload("third", priority_class="high"))
    assert names(at_rest(world)) == ({"often"} if protected else {"third"})
    a_new_process_decides_nothing(world)
