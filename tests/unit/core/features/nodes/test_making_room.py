"""Candidates, their order and protection in preemption (docs/scheduling.md, P1 to P11)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuectl.core.decisions import Keep
from queuectl.core.model.policy import (
    BorrowWithinCohort,
    Cohort,
    MinRunTime,
    Preemption,
    PreemptionPolicy,
    SchedulingConfiguration,
)
from queuectl.core.model.reasons import Code, PreemptionCause
from queuectl.core.model.workload import WorkloadOutcome
from tests.builders import (
    GPU,
    admitted,
    group,
    observed,
    pod_set,
    queue,
    workload,
)
from tests.unit.core.room import OWN, RECLAIMS, PreemptionWorld, causes, evicted, pending_reasons

# --- candidates (P2, P3)


@pytest.mark.parametrize(("created", "victims"), [(4, ["there"]), (5, []), (6, [])])
def test_of_equal_priority_only_a_newer_workload_is_a_candidate(created: int, victims: list[str]) -> None:
    newer = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY)
    world = PreemptionWorld(queue("q", 1, preemption=newer))
    world.hold("there", "q", created=5)
    assert evicted(world.request("asks", "q", created=created)) == victims


@pytest.mark.parametrize(("bound", "victims"), [(0, ["there"]), (-1, [])])
def test_while_borrowing_a_victim_has_at_most_the_priority_threshold(bound: int, victims: list[str]) -> None:
    rules = Preemption(
        reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY,
        borrow_within_cohort=BorrowWithinCohort(most_priority=bound),
    )
    world = PreemptionWorld(queue("q", 1, cohort="all", preemption=rules), queue("other", 1, cohort="all"))
    world.hold("there", "other", 2)
    assert evicted(world.request("asks", "q", 2, priority_class="high")) == victims


def test_a_request_that_fills_the_own_quota_exactly_reclaims_lent_quota() -> None:
    rules = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY, borrow_within_cohort=BorrowWithinCohort())
    world = PreemptionWorld(queue("q", 2, cohort="all", preemption=rules), queue("other", 1, cohort="all"))
    world.hold("there", "other", 3)
    decisions = world.request("asks", "q", 2, priority_class="high")
    assert causes(decisions) == [PreemptionCause.IN_COHORT_RECLAMATION]


def test_hierarchical_advantage_in_a_cohort_persists_if_that_cohort_borrows() -> None:
    rules = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY, borrow_within_cohort=BorrowWithinCohort())
    world = PreemptionWorld(
        Cohort(name="mine", parent="root"),
        queue("q", 1, cohort="mine", preemption=rules),
        queue("sibling", 0, cohort="mine"),
        queue("far", 1, cohort="root"),
        queue("free", 1, cohort="root"),
    )
    world.hold("near", "sibling", 1, priority_class="high")
    world.hold("there", "far", 2)
    decisions = world.request("asks", "q", priority_class="high")
    assert evicted(decisions) == ["there"]
    assert causes(decisions) == [PreemptionCause.IN_COHORT_RECLAMATION]


def test_a_cohort_that_does_not_borrow_any_more_has_no_candidates() -> None:
    world = PreemptionWorld(
        Cohort(name="near", parent="root"),
        queue("q", 2, cohort="root", preemption=RECLAIMS),
        queue("lends", 2, cohort="near"),
        queue("borrows", 0, cohort="near"),
        queue("third", 0, cohort="root"),
    )
    for name in ("b1", "b2", "b3"):
        world.hold(name, "borrows")
    world.hold("third", "third", priority_class="high")
    assert sorted(evicted(world.request("asks", "q", 2))) == ["b1", "third"]


def test_beyond_nominal_quota_on_one_resource_the_share_rules_apply_to_all() -> None:
    """With the request, `q` would borrow a third of the cores. This is as much as `other` borrows without one
    of its workloads, and more than without two, the number that is needed (P8, P9).
    """
    groups = [group({"default": {GPU: 1, "cpu": 1}})]
    world = PreemptionWorld(
        *(queue(name, groups=groups, cohort="all", preemption=RECLAIMS) for name in ("q", "other", "lends")),
        settings=SchedulingConfiguration(fair_sharing=True, cooldown=0),
    )
    for name in ("o1", "o2", "o3"):
        world.hold(name, "other", pods=[pod_set(1, {GPU: 1, "cpu": 1})])
    assert evicted(world.request("asks", "q", pods=[pod_set(1, {GPU: 1, "cpu": 2})])) == []
    assert evicted(world.request("less", "q", pods=[pod_set(1, {GPU: 1, "cpu": 1})])) == ["o1"]


# --- order (P5, P6)


def test_the_latest_admission_is_preempted_first() -> None:
    world = PreemptionWorld(queue("q", 2, preemption=OWN))
    world.hold("first", "q", created=1)
    world.pass_time(10)
    world.hold("second", "q", created=0)
    assert evicted(world.request("asks", "q", priority_class="high")) == ["second"]


def test_borrowers_are_preempted_before_the_own_queue_and_lower_priority_before_higher() -> None:
    rules = replace(RECLAIMS, within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = PreemptionWorld(queue("q", 2, cohort="all", preemption=rules), queue("other", 0, cohort="all"))
    world.hold("own", "q", priority_class="low")
    world.hold("borrower", "other", priority_class="high")
    assert evicted(world.request("asks", "q")) == ["borrower"]


def test_unnecessary_victims_are_kept_in_reverse_order_of_preemption() -> None:
    world = PreemptionWorld(queue("q", 6, preemption=OWN))
    for name, gpus, seconds in (("large", 4, 10), ("second", 1, 10), ("first", 1, 0)):
        world.hold(name, "q", gpus)
        world.pass_time(seconds)
    assert evicted(world.request("asks", "q", 5, priority_class="high")) == ["first", "large"]


def test_terminating_workloads_are_ranked_first_and_not_evicted_again() -> None:
    world = PreemptionWorld(queue("q", 2, preemption=OWN))
    leaves = workload("leaves", "q", hold=True)
    world.hold("leaves", "q", priority_class=None)
    world.pass_time(10)
    world.hold("stays", "q", priority_class="low")
    world.tell(observed(leaves, suspended=False, generation=2))
    assert evicted(world.run()) == ["leaves"]
    decisions = world.request("asks", "q", priority_class="high")
    assert evicted(decisions) == []
    assert pending_reasons(decisions) == {"asks": Code.WAITING_FOR_PREEMPTED_WORKLOADS}
    assert admitted(world.end_eviction("leaves")) == ["asks"]


def test_terminating_workloads_of_the_own_queue_precede_borrowers_elsewhere() -> None:
    rules = replace(RECLAIMS, within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = PreemptionWorld(queue("q", 2, cohort="all", preemption=rules), queue("other", 0, cohort="all"))
    world.hold("leaves", "q")
    world.tell(observed(workload("leaves", "q", hold=True), suspended=False, generation=2))
    assert evicted(world.run()) == ["leaves"]
    world.hold("lent", "other")
    decisions = world.request("asks", "q", priority_class="high")
    assert (evicted(decisions), pending_reasons(decisions)) == (
        [],
        {"asks": Code.WAITING_FOR_PREEMPTED_WORKLOADS},
    )


# --- protection (P10, P11)


@pytest.mark.parametrize(("seconds", "victims"), [(59, []), (60, ["there"])])
def test_the_minimum_run_time_of_the_queue_of_a_candidate_protects_until_it_ends(
    seconds: int, victims: list[str]
) -> None:
    guarded = replace(OWN, min_run_time=MinRunTime(in_cohort_reclamation=60))
    world = PreemptionWorld(
        queue("q", 1, cohort="all", preemption=RECLAIMS),
        queue("other", 0, cohort="all", preemption=guarded),
    )
    world.hold("there", "other")
    world.pass_time(seconds)
    assert evicted(world.request("asks", "q")) == victims


def test_the_minimum_run_time_of_the_preemptors_queue_does_not_protect_others() -> None:
    guarded = replace(RECLAIMS, min_run_time=MinRunTime(in_cohort_reclamation=60))
    world = PreemptionWorld(queue("q", 1, cohort="all", preemption=guarded), queue("other", 0, cohort="all"))
    world.hold("there", "other")
    assert evicted(world.request("asks", "q")) == ["there"]


def test_a_preemptor_is_requeued_when_the_first_of_several_protections_ends() -> None:
    guarded = replace(OWN, min_run_time=MinRunTime(in_cluster_queue=60))
    world = PreemptionWorld(queue("q", 2, preemption=guarded))
    world.hold("first", "q")
    world.pass_time(30)
    world.hold("second", "q")
    assert pending_reasons(world.request("asks", "q", priority_class="high")) == {
        "asks": Code.MIN_RUN_TIME_PROTECTED
    }
    world.pass_time(30)
    assert evicted(world.run()) == ["first"]


def test_a_protection_is_not_the_reason_if_there_are_no_victims_without_it() -> None:
    guarded = replace(OWN, min_run_time=MinRunTime(in_cluster_queue=60))
    world = PreemptionWorld(queue("q", 3, preemption=guarded))
    world.hold("low", "q", 1, priority_class="low")
    world.hold("high", "q", 2, priority_class="high")
    assert pending_reasons(world.request("asks", "q", 2)) == {"asks": Code.WAITING_FOR_QUOTA}


def test_a_workload_preempted_up_to_its_budget_is_protected_for_the_window() -> None:
    world = PreemptionWorld(
        queue("q", 1, preemption=OWN),
        settings=SchedulingConfiguration(eviction_budget=2, eviction_window=1000, cooldown=0),
    )
    world.hold("often", "q", priority_class="low")
    for number, name in enumerate(("first", "second"), start=1):
        assert evicted(world.request(name, "q")) == ["often"]
        assert admitted(world.end_eviction("often", number)) == [name]
        world.settle()
        done = observed(
            workload(name, "q"), suspended=False, finished=WorkloadOutcome.SUCCEEDED, generation=2
        )
        world.tell(done)
        assert admitted(world.run()) == ["often"]
        world.settle(generation=number + 3)
        low = workload("often", "q", priority_class="low")
        world.tell(observed(low, suspended=False, generation=number + 3))
    decisions = world.request("third", "q")
    assert evicted(decisions) == []
    assert pending_reasons(decisions) == {"third": Code.MIN_RUN_TIME_PROTECTED}


def test_a_cooldown_protects_and_is_listed_beside_the_reason() -> None:
    """It lasts for seconds: as a reason of its own it would come and go with whatever runs."""
    world = PreemptionWorld(queue("q", 1, preemption=OWN), settings=SchedulingConfiguration(cooldown=60))
    world.hold("there", "q", priority_class="low")
    assert evicted(world.request("first", "q")) == ["there"]
    assert admitted(world.end_eviction("there")) == ["first"]
    world.settle()
    world.tell(
        observed(workload("first", "q"), suspended=False, finished=WorkloadOutcome.SUCCEEDED, generation=2)
    )
    assert admitted(world.run()) == ["there"]
    world.settle(generation=4)
    world.tell(observed(workload("there", "q", priority_class="low"), suspended=False, generation=4))
    (keep,) = (d for d in world.request("second", "q") if isinstance(d, Keep))
    assert keep.reason.code is Code.WAITING_FOR_QUOTA
    assert str(keep.reason.considered).startswith("1 protected until 2030-01-01T00:01:00Z")
    world.pass_time(60)
    assert evicted(world.run()) == ["there"]


# --- what is reserved


def test_quota_that_ends_up_reserved_for_others_is_waited_for_as_before() -> None:
    """C7, R2: to those behind a preemptor the same limit binds before and after its victim ends."""
    world = PreemptionWorld(
        queue("q", 2, cohort="all", preemption=RECLAIMS), queue("other", 0, cohort="all", preemption=OWN)
    )
    world.hold("a", "other")
    world.hold("b", "other")
    (told,) = (d for d in world.request("late", "other") if isinstance(d, Keep))
    assert (told.reason.code, told.reason.node) == (Code.WAITING_FOR_QUOTA, "Cohort/all")
    assert sorted(evicted(world.request("owner", "q", 2))) == ["a", "b"]
    decisions = world.end_eviction("a")
    (again,) = (d for d in decisions if isinstance(d, Keep))
    assert again.ref.name == "a", "of the equivalent workloads only the one that was evicted gets a row"
    assert again.reason.key == told.reason.key
    assert (again.reason.available, again.reason.reserved) == (1, True)
    assert "1 available, which is reserved for workloads ahead of it" in again.reason.message
