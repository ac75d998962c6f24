"""Whom a workload takes quota from (docs/scheduling.md, P1 to P11)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuectl.core.model import Outcome
from queuectl.core.policy import (
    BorrowWithinCohort,
    Cohort,
    MinRunTime,
    Preemption,
    PreemptionPolicy,
    SchedulingConfiguration,
)
from queuectl.core.reasons import Code, PreemptionCause
from tests.builders import (
    GPU,
    admitted,
    group,
    observed,
    pod_set,
    queue,
    workload,
)
from tests.core.room import OWN, RECLAIMS, Room, causes, evicted, told

# --- whom it may take (P2, P3)


@pytest.mark.parametrize(("created", "victims"), [(4, ["there"]), (5, []), (6, [])])
def test_of_the_same_priority_only_who_is_newer_gives_way(created: int, victims: list[str]) -> None:
    newer = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY)
    room = Room(queue("q", 1, preemption=newer))
    room.hold("there", "q", created=5)
    assert evicted(room.ask("asks", "q", created=created)) == victims


@pytest.mark.parametrize(("bound", "victims"), [(0, ["there"]), (-1, [])])
def test_while_borrowing_a_victim_may_have_the_greatest_priority_allowed_and_no_more(
    bound: int, victims: list[str]
) -> None:
    rules = Preemption(
        reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY,
        borrow_within_cohort=BorrowWithinCohort(most_priority=bound),
    )
    room = Room(queue("q", 1, cohort="all", preemption=rules), queue("other", 1, cohort="all"))
    room.hold("there", "other", 2)
    assert evicted(room.ask("asks", "q", 2, priority_class="high")) == victims


def test_who_would_fill_its_own_quota_exactly_takes_back_what_it_lent() -> None:
    rules = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY, borrow_within_cohort=BorrowWithinCohort())
    room = Room(queue("q", 2, cohort="all", preemption=rules), queue("other", 1, cohort="all"))
    room.hold("there", "other", 3)
    decisions = room.ask("asks", "q", 2, priority_class="high")
    assert causes(decisions) == [PreemptionCause.IN_COHORT_RECLAMATION]


def test_who_may_take_back_in_its_own_cohort_may_also_where_that_cohort_borrows() -> None:
    rules = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY, borrow_within_cohort=BorrowWithinCohort())
    room = Room(
        Cohort(name="mine", parent="root"),
        queue("q", 1, cohort="mine", preemption=rules),
        queue("sibling", 0, cohort="mine"),
        queue("far", 1, cohort="root"),
        queue("free", 1, cohort="root"),
    )
    room.hold("near", "sibling", 1, priority_class="high")
    room.hold("there", "far", 2)
    decisions = room.ask("asks", "q", priority_class="high")
    assert evicted(decisions) == ["there"]
    assert causes(decisions) == [PreemptionCause.IN_COHORT_RECLAMATION]


def test_nothing_is_taken_from_a_cohort_as_soon_as_it_does_not_borrow_any_more() -> None:
    room = Room(
        Cohort(name="near", parent="root"),
        queue("q", 2, cohort="root", preemption=RECLAIMS),
        queue("lends", 2, cohort="near"),
        queue("borrows", 0, cohort="near"),
        queue("third", 0, cohort="root"),
    )
    for name in ("b1", "b2", "b3"):
        room.hold(name, "borrows")
    room.hold("third", "third", priority_class="high")
    assert sorted(evicted(room.ask("asks", "q", 2))) == ["b1", "third"]


def test_who_would_go_beyond_its_nominal_quota_of_one_resource_has_to_be_fair_about_all() -> None:
    """With it `q` would borrow a third of the cores: as much as `other` without one of its own, and more than
    that without two, which it would take (P8, P9)."""
    groups = [group({"default": {GPU: 1, "cpu": 1}})]
    room = Room(
        *(queue(name, groups=groups, cohort="all", preemption=RECLAIMS) for name in ("q", "other", "lends")),
        settings=SchedulingConfiguration(fair_sharing=True, cooldown=0),
    )
    for name in ("o1", "o2", "o3"):
        room.hold(name, "other", pods=[pod_set(1, {GPU: 1, "cpu": 1})])
    assert evicted(room.ask("asks", "q", pods=[pod_set(1, {GPU: 1, "cpu": 2})])) == []
    assert evicted(room.ask("less", "q", pods=[pod_set(1, {GPU: 1, "cpu": 1})])) == ["o1"]


# --- in which order (P5, P6)


def test_who_was_let_go_last_is_taken_first() -> None:
    room = Room(queue("q", 2, preemption=OWN))
    room.hold("first", "q", created=1)
    room.pass_time(10)
    room.hold("second", "q", created=0)
    assert evicted(room.ask("asks", "q", priority_class="high")) == ["second"]


def test_borrowers_go_before_those_of_its_own_queue_and_lower_priority_before_higher() -> None:
    rules = replace(RECLAIMS, within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    room = Room(queue("q", 2, cohort="all", preemption=rules), queue("other", 0, cohort="all"))
    room.hold("own", "q", priority_class="low")
    room.hold("borrower", "other", priority_class="high")
    assert evicted(room.ask("asks", "q")) == ["borrower"]


def test_who_turns_out_not_to_be_needed_is_spared_the_last_to_be_taken_first() -> None:
    room = Room(queue("q", 6, preemption=OWN))
    for name, gpus, seconds in (("large", 4, 10), ("second", 1, 10), ("first", 1, 0)):
        room.hold(name, "q", gpus)
        room.pass_time(seconds)
    assert evicted(room.ask("asks", "q", 5, priority_class="high")) == ["first", "large"]


def test_who_is_leaving_already_counts_first_and_is_not_evicted_again() -> None:
    room = Room(queue("q", 2, preemption=OWN))
    leaves = workload("leaves", "q", hold=True)
    room.hold("leaves", "q", priority_class=None)
    room.pass_time(10)
    room.hold("stays", "q", priority_class="low")
    room.tell(observed(leaves, suspended=False, generation=2))
    assert evicted(room.run()) == ["leaves"]
    decisions = room.ask("asks", "q", priority_class="high")
    assert evicted(decisions) == []
    assert told(decisions) == {"asks": Code.WAITING_FOR_PREEMPTED_WORKLOADS}
    assert admitted(room.over("leaves")) == ["asks"]


def test_who_leaves_its_own_queue_already_counts_before_borrowers_elsewhere() -> None:
    rules = replace(RECLAIMS, within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    room = Room(queue("q", 2, cohort="all", preemption=rules), queue("other", 0, cohort="all"))
    room.hold("leaves", "q")
    room.tell(observed(workload("leaves", "q", hold=True), suspended=False, generation=2))
    assert evicted(room.run()) == ["leaves"]
    room.hold("lent", "other")
    decisions = room.ask("asks", "q", priority_class="high")
    assert (evicted(decisions), told(decisions)) == ([], {"asks": Code.WAITING_FOR_PREEMPTED_WORKLOADS})


# --- who is protected (P10, P11)


@pytest.mark.parametrize(("seconds", "victims"), [(59, []), (60, ["there"])])
def test_a_minimum_run_time_of_the_victims_queue_protects_until_it_is_over(
    seconds: int, victims: list[str]
) -> None:
    guarded = replace(OWN, min_run_time=MinRunTime(in_cohort_reclamation=60))
    room = Room(
        queue("q", 1, cohort="all", preemption=RECLAIMS),
        queue("other", 0, cohort="all", preemption=guarded),
    )
    room.hold("there", "other")
    room.pass_time(seconds)
    assert evicted(room.ask("asks", "q")) == victims


def test_the_minimum_run_time_of_its_own_queue_does_not_protect_others() -> None:
    guarded = replace(RECLAIMS, min_run_time=MinRunTime(in_cohort_reclamation=60))
    room = Room(queue("q", 1, cohort="all", preemption=guarded), queue("other", 0, cohort="all"))
    room.hold("there", "other")
    assert evicted(room.ask("asks", "q")) == ["there"]


def test_who_waits_for_several_protections_to_end_is_looked_at_when_the_first_does() -> None:
    guarded = replace(OWN, min_run_time=MinRunTime(in_cluster_queue=60))
    room = Room(queue("q", 2, preemption=guarded))
    room.hold("first", "q")
    room.pass_time(30)
    room.hold("second", "q")
    assert told(room.ask("asks", "q", priority_class="high")) == {"asks": Code.MIN_RUN_TIME_PROTECTED}
    room.pass_time(30)
    assert evicted(room.run()) == ["first"]


def test_a_protection_is_no_reason_where_more_than_that_stands_in_the_way() -> None:
    guarded = replace(OWN, min_run_time=MinRunTime(in_cluster_queue=60))
    room = Room(queue("q", 3, preemption=guarded))
    room.hold("low", "q", 1, priority_class="low")
    room.hold("high", "q", 2, priority_class="high")
    assert told(room.ask("asks", "q", 2)) == {"asks": Code.WAITING_FOR_QUOTA}


def test_who_was_preempted_as_often_as_its_budget_allows_is_left_alone_for_a_while() -> None:
    room = Room(
        queue("q", 1, preemption=OWN),
        settings=SchedulingConfiguration(eviction_budget=2, eviction_window=1000, cooldown=0),
    )
    room.hold("often", "q", priority_class="low")
    for number, name in enumerate(("first", "second"), start=1):
        assert evicted(room.ask(name, "q")) == ["often"]
        assert admitted(room.over("often", number)) == [name]
        room.settle()
        done = observed(workload(name, "q"), suspended=False, finished=Outcome.SUCCEEDED, generation=2)
        room.tell(done)
        assert admitted(room.run()) == ["often"]
        room.settle(generation=number + 3)
        low = workload("often", "q", priority_class="low")
        room.tell(observed(low, suspended=False, generation=number + 3))
    decisions = room.ask("third", "q")
    assert evicted(decisions) == []
    assert told(decisions) == {"third": Code.MIN_RUN_TIME_PROTECTED}
