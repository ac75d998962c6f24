"""Requeued groups that could not have enough by any preemption: they are not nominated (W7)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.decisions import Keep
from queuectl.core.model.policy import (
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    FairSharing,
    MinRunTime,
    Preemption,
    PreemptionPolicy,
)
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import Workload, WorkloadOutcome
from tests.builders import GPU, group, observed, pod_set, queue, workload
from tests.unit.core import profiles
from tests.unit.core.actions import ON_QUOTA, SETUP, submit_some
from tests.unit.core.driver import Driver
from tests.unit.core.laws import what_could_not_have_enough_is_refused
from tests.unit.core.room import PATIENT, RECLAIMS, PreemptionWorld, evicted
from tests.unit.core.trees import Dice, Setup, random_setup


def contended_setup(dice: Dice) -> Setup:
    """Queues that all preempt, in trees without fair sharing."""
    base = random_setup(dice, guarded=False)
    policies = [
        replace(one, sharing=FairSharing(enabled=False)) if isinstance(one, Cohort) else one
        for one in base.policies
    ]
    return replace(base, policies=tuple(policies), settings=replace(base.settings, fair_sharing=False))


@profiles.sequences(300)
@given(
    SETUP,
    st.lists(st.binary(min_size=36, max_size=36), min_size=6, max_size=12),
    st.lists(st.binary(min_size=28, max_size=28), min_size=5, max_size=15),
)
def test_what_could_not_have_enough_would_be_refused(
    made: bytes, jobs: list[bytes], script: list[bytes]
) -> None:
    """W7. In every state, no head that is passed over would be admitted, or find victims."""
    running = Driver(contended_setup(Dice(made)), what_could_not_have_enough_is_refused, actions=ON_QUOTA)
    for one in jobs:
        submit_some(running, Dice(one))
        running.deliver()
        running.decide()
    for happens in script:
        running.act(Dice(happens))
        running.decide()
    running.come_to_rest()


LOWER, ANY = PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY


def contended(rules: Preemption, *, fair: bool = False) -> PreemptionWorld:
    """Queues `q`, which has lower workloads that run, and `other`, with 4 GPUs each, all in use."""
    world = PreemptionWorld(
        queue("q", 4, cohort="all", preemption=rules),
        queue("other", 4, cohort="all"),
        settings=replace(PATIENT, fair_sharing=fair),
    )
    world.hold("lower", "q", 1, priority_class="low")
    world.hold("equal", "q", 3, priority_class="high")
    for number in range(4):
        world.hold(f"other-{number}", "other")
    return world


def nominated_after(world: PreemptionWorld, ended: str) -> tuple[list[str], list[str]]:
    """Return the pending workloads that are nominated when one ends, and the victims."""
    one = workload(ended, "other")
    world.tell(observed(one, suspended=False, generation=3, finished=WorkloadOutcome.SUCCEEDED, quiet=True))
    decisions = world.plan().decisions
    world.run()
    nominated = [d.ref.name for d in decisions if isinstance(d, Keep) and (d.evaluation or d.claim)]
    return nominated, evicted(decisions)


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(Preemption(within_cluster_queue=LOWER), id="its queue has too little that is lower"),
        pytest.param(
            Preemption(within_cluster_queue=LOWER, reclaim_within_cohort=ANY),
            id="it would borrow, so that it may not reclaim",
        ),
        pytest.param(
            Preemption(
                within_cluster_queue=LOWER,
                reclaim_within_cohort=LOWER,
                borrow_within_cohort=BorrowWithinCohort(),
            ),
            id="no other queue borrows",
        ),
    ],
)
def test_a_head_is_passed_over_until_it_could_have_enough(rules: Preemption) -> None:
    world = contended(rules)
    world.request("asks", "q", 4, priority_class="high")
    assert nominated_after(world, "other-0") == ([], [])
    assert nominated_after(world, "other-1") == ([], [])
    assert nominated_after(world, "other-2") == (["asks"], ["lower"])


def test_a_head_whose_cohort_comes_to_be_within_its_quota_is_nominated() -> None:
    """P3: what that cohort lends may be reclaimed for a queue of it, also where the queue itself borrows."""
    world = PreemptionWorld(
        Cohort(name="left", parent="root"),
        Cohort(name="right", parent="root"),
        queue("lends", 4, cohort="left"),
        queue("q", 0, cohort="left", preemption=RECLAIMS),
        queue("other", 0, cohort="left"),
        queue("borrows", 0, cohort="right"),
    )
    world.hold("beside", "other", 1)
    world.hold("far", "borrows", 3)
    world.request("asks", "q", 4)
    assert nominated_after(world, "beside") == (["asks"], ["far"])


def test_what_it_may_preempt_in_its_own_queue_counts_for_staying_within_its_quota() -> None:
    """P4: without the lower workloads of its queue it does not borrow, so that it may also reclaim."""
    rules = Preemption(within_cluster_queue=LOWER, reclaim_within_cohort=LOWER)
    world = PreemptionWorld(
        queue("q", 4, cohort="all", preemption=rules),
        queue("borrows", 4, cohort="all"),
        queue("other", 0, cohort="all"),
    )
    world.hold("lower", "q", 1, priority_class="low")
    world.hold("equal", "q", 1, priority_class="high")
    for number in range(5):
        world.hold(f"far-{number}", "borrows")
    world.hold("ends", "other", 1, priority_class="high")
    world.request("asks", "q", 3, priority_class="high")
    nominated, victims = nominated_after(world, "ends")
    assert nominated == ["asks"]
    assert sorted(victims) == ["far-0", "lower"]


def test_a_queue_that_borrows_any_cell_of_the_request_counts() -> None:
    """P2: a workload that holds a borrowed CPU releases its GPU as well, although that is not borrowed."""

    def both(name: str, gpus: int, cpus: int, rules: Preemption | None = None) -> ClusterQueue:
        groups = [group({"default": {GPU: gpus, "cpu": cpus}})]
        return queue(name, groups=groups, cohort="all", preemption=rules or Preemption())

    def asking(name: str, queue: str, requests: dict[str, int], priority: str) -> Workload:
        return workload(name, queue, pods=[pod_set(1, requests)], priority_class=priority)

    world = PreemptionWorld(
        both("q", 1, 1, Preemption(reclaim_within_cohort=LOWER)),
        both("near", 1, 1),
        both("far", 0, 0),
    )
    world.hold("both", "near", pods=[pod_set(1, {GPU: 1, "cpu": 1})], priority_class="low")
    world.hold("gpu", "far", pods=[pod_set(1, {GPU: 1})], priority_class="high")
    world.hold("ends", "far", pods=[pod_set(1, {"cpu": 1})], priority_class="high")
    world.submit(asking("asks", "q", {GPU: 1, "cpu": 1}, "high"))
    world.submit(asking("borrows", "near", {"cpu": 1}, "high"))
    world.run()
    assert nominated_after(world, "ends")[1] == []
    assert evicted(world.decided) == ["both"]


def test_in_a_tree_with_fair_sharing_each_head_is_nominated() -> None:
    """Shares decide there, and any end may change one (W3)."""
    world = contended(Preemption(within_cluster_queue=LOWER, reclaim_within_cohort=ANY), fair=True)
    world.request("asks", "q", 4, priority_class="high")
    assert nominated_after(world, "other-0") == (["asks"], [])


def test_a_head_that_only_a_protection_keeps_waiting_is_nominated() -> None:
    """P10: its reason names the protection, as long as that is what it waits for."""
    world = contended(Preemption(within_cluster_queue=LOWER, min_run_time=MinRunTime(in_cluster_queue=1000)))
    world.request("asks", "q", 3, priority_class="high")
    assert nominated_after(world, "other-0") == ([], [])
    assert nominated_after(world, "other-1") == (["asks"], [])
    reason = world.reason("asks")
    assert reason is not None
    assert reason.code is Code.MIN_RUN_TIME_PROTECTED
