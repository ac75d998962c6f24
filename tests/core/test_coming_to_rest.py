"""What once went on for ever, or went wrong once in a thousand lives; the laws found it, here it is small."""

from __future__ import annotations

from dataclasses import replace

from queuectl.core.decisions import Evict
from queuectl.core.model import Outcome, PodSet
from queuectl.core.policy import (
    BorrowWithinCohort,
    Cohort,
    FairSharing,
    Preemption,
    PreemptionPolicy,
    SchedulingConfiguration,
    WorkloadPriorityClass,
)
from queuectl.core.policy import Policy as PolicyObject
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
from tests.core.running import Running
from tests.core.trees import UNBOUNDED
from tests.core.trees import World as Made

LOW_GIVES_WAY = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
HIGH, LOW = WorkloadPriorityClass("high", 1), WorkloadPriorityClass("low", -1)

UNGUARDED = SchedulingConfiguration(cooldown=0, eviction_budget=UNBOUNDED)


def running(*policies: PolicyObject, settings: SchedulingConfiguration = UNGUARDED) -> Running:
    """Without the guards of P11, if nothing else is said."""
    return Running(Made(policies, settings, (), 0, 0))


def at_rest(world: Running) -> Running:
    world.deliver()
    world.come_to_rest()
    return world


def names(world: Running) -> set[str]:
    """Who runs."""
    return {one.ref.name for one in world.ledger.store.workloads.values() if one.attempt is not None}


def two(first: int, second: int) -> list[PodSet]:
    return [pod_set(1, {GPU: first}, name="p0"), pod_set(1, {GPU: second}, name="p1")]


def test_a_search_through_the_flavors_of_two_podsets_ends() -> None:
    """F8: each of the two starts anew while the other goes on."""
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


def test_who_is_held_by_its_user_is_not_preempted_by_the_same_plan() -> None:
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


def test_who_has_risen_is_not_preempted_by_the_plan_that_says_so() -> None:
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


def test_who_holds_nothing_but_its_queues_own_is_not_taken_for_what_its_queue_borrows() -> None:
    """P2: `owned` holds f2, of which its queue has enough; what its queue borrows is f1."""
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


def test_a_preemptor_takes_no_more_than_it_preempted_for() -> None:
    """C7: of three pods one is its queue's own. With all three it would borrow, and be preempted for that."""
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


def test_what_shares_alone_would_repeat_for_ever_the_guards_end() -> None:
    """P11: `all` takes from `big` by its share, and `own` with it; `own` is within nominal and takes it back;
    then there is room for `big` again."""
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


def test_who_would_do_with_fewer_pods_is_looked_at_when_less_than_all_come_free() -> None:
    """W1, F9: of two GPUs one comes free; three pods were asked for, one would do."""
    world = World(queue("cq", 2), local_queue("lq", "cq"))
    first, second = workload("first"), workload("second")
    world.submit(first, second)
    world.run()
    world.settle()
    world.submit(workload("partly", pods=[pod_set(3, {GPU: 1}, min_count=1)], created=1))
    assert admitted(world.run()) == []
    world.tell(observed(first, suspended=False, generation=2, finished=Outcome.SUCCEEDED))
    assert admitted(world.run()) == ["partly"]
