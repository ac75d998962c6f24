"""Claims of preemptors and reservations of heads (docs/scheduling.md, C3, C6, C7, W3)."""

from __future__ import annotations

from dataclasses import replace

from queuectl.core.model.policy import (
    BorrowWithinCohort,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceQuota,
)
from queuectl.core.model.reasons import Code
from tests.builders import (
    GPU,
    admitted,
    group,
    pod_set,
    queue,
    workload,
)
from tests.unit.core.room import OWN, RECLAIMS, PreemptionWorld, evicted, pending_reasons


def test_no_workload_is_admitted_on_quota_that_a_victim_of_the_same_cycle_still_holds() -> None:
    world = PreemptionWorld(
        queue("a", 4, cohort="all", preemption=RECLAIMS),
        queue("b", 2, cohort="all"),
        queue("c", 2, cohort="all"),
        queue("victim", 0, cohort="all"),
    )
    world.hold("there", "victim", 6)
    world.submit(
        workload("preempts", "a", 4, created=1),
        workload("fits", "b", 2, created=2),
        workload("waits", "c", 2, created=3),
    )
    decisions = world.run()
    assert (evicted(decisions), admitted(decisions)) == (["there"], ["fits"])
    assert admitted(world.end_eviction("there")) == ["preempts", "waits"]


def test_a_claim_of_a_cycle_persists_when_a_later_head_is_admitted() -> None:
    rules = Preemption(
        reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY, borrow_within_cohort=BorrowWithinCohort()
    )
    world = PreemptionWorld(
        queue("a", 5, cohort="all", preemption=rules),
        queue("b", 0, cohort="all"),
        queue("c", 3, cohort="all", preemption=rules),
        queue("lends", 1, cohort="all"),
        queue("victim", 0, cohort="all"),
    )
    world.hold("there", "victim", 8, priority_class="low")
    world.submit(
        workload("preempts", "a", 6, created=1),
        workload("fits", "b", 1, created=2),
        workload("too-late", "c", 4, created=3),
    )
    decisions = world.run()
    assert (evicted(decisions), admitted(decisions)) == (["there"], ["fits"])
    assert pending_reasons(decisions)["too-late"] is Code.WAITING_FOR_QUOTA


def test_two_preemptors_of_one_cycle_do_not_count_on_the_same_victim() -> None:
    world = PreemptionWorld(
        queue("a", 1, cohort="all", preemption=RECLAIMS),
        queue("b", 1, cohort="all", preemption=RECLAIMS),
        queue("victim", 0, cohort="all"),
    )
    world.hold("v1", "victim")
    world.hold("v2", "victim")
    world.submit(workload("x", "a", created=1), workload("y", "b", created=2))
    decisions = world.run()
    assert sorted(evicted(decisions)) == ["v1", "v2"]
    assert pending_reasons(decisions) == dict.fromkeys(("x", "y"), Code.WAITING_FOR_PREEMPTED_WORKLOADS)


def test_a_preemptor_starts_on_quota_that_another_workload_leaves_before_its_victims_are_gone() -> None:
    """C13: and no workload that was queued before it takes that quota."""
    world = PreemptionWorld(
        queue("q", 1, cohort="all", preemption=RECLAIMS),
        queue("other", 1, cohort="all"),
        queue("victim", 0, cohort="all"),
    )
    world.hold("there", "victim")
    world.hold("runs", "other")
    world.request("borrows", "victim")
    assert evicted(world.request("asks", "q", created=1)) == ["there"]
    assert admitted(world.finish("runs", "other")) == ["asks"]
    assert admitted(world.end_eviction("there")) == ["there"]


def test_a_preemptor_that_starts_early_lets_the_next_of_its_queue_be_evaluated() -> None:
    world = PreemptionWorld(
        queue("q", 2, cohort="all", preemption=RECLAIMS),
        queue("other", 2, cohort="all"),
        queue("victim", 0, cohort="all"),
    )
    world.hold("there", "victim")
    world.hold("small", "q")
    world.hold("runs", "other", 2)
    assert evicted(world.request("asks", "q")) == ["there"]
    assert pending_reasons(world.request("next", "q", created=1)) == {"next": Code.WAITING_FOR_HEAD}
    assert admitted(world.finish("runs", "other", 2)) == ["asks", "next"]


def test_a_preemptor_does_not_start_early_if_it_would_borrow_until_its_victims_are_gone() -> None:
    """C13: it would be reclaimed from, although its victims make room within its own quota."""
    world = PreemptionWorld(queue("q", 1, cohort="all", preemption=OWN), queue("other", 1, cohort="all"))
    world.hold("there", "q", priority_class="low")
    world.hold("runs", "other")
    assert evicted(world.request("asks", "q", priority_class="high")) == ["there"]
    assert admitted(world.finish("runs", "other")) == []
    assert admitted(world.end_eviction("there")) == ["asks", "there"]


def test_a_preemptor_does_not_start_early_on_quota_that_another_one_waits_for() -> None:
    world = PreemptionWorld(
        queue("a", 2, cohort="all", preemption=RECLAIMS),
        queue("b", 1, cohort="all", preemption=RECLAIMS),
        queue("victim", 0, cohort="all"),
    )
    for name in ("v1", "v2", "v3"):
        world.hold(name, "victim")
    first = evicted(world.request("large", "a", 2))
    (last,) = evicted(world.request("small", "b"))
    assert sorted([*first, last]) == ["v1", "v2", "v3"]
    assert admitted(world.end_eviction(first[0])) == []
    assert admitted(world.end_eviction(last)) == ["small"]
    assert admitted(world.end_eviction(first[1])) == ["large"]


def test_a_preemptor_is_pending_until_the_last_of_its_victims_is_gone() -> None:
    world = PreemptionWorld(
        queue("q", 2, cohort="all", preemption=RECLAIMS), queue("victim", 0, cohort="all")
    )
    world.hold("v1", "victim")
    world.hold("v2", "victim")
    assert len(evicted(world.request("asks", "q", 2))) == 2
    first = world.end_eviction("v1")
    assert admitted(first) == []
    assert "asks" not in pending_reasons(first)
    assert admitted(world.end_eviction("v2")) == ["asks"]


def test_quota_of_victims_is_reserved_for_their_preemptor() -> None:
    world = PreemptionWorld(queue("q", 1, preemption=OWN))
    world.hold("there", "q", priority_class="low")
    assert evicted(world.request("asks", "q", created=5)) == ["there"]
    assert admitted(world.request("later", "q", created=0)) == []
    assert admitted(world.end_eviction("there")) == ["asks"]


def test_a_preemptor_precedes_an_older_head_of_another_queue() -> None:
    world = PreemptionWorld(
        queue("a", 1, cohort="all", preemption=RECLAIMS),
        queue("b", 1, cohort="all"),
        queue("victim", 0, cohort="all"),
    )
    world.hold("v1", "victim")
    world.hold("v2", "victim")
    assert len(evicted(world.request("preempts", "a", created=5))) == 1
    world.request("older", "b", created=0)
    assert admitted(world.end_eviction("v1")) == ["preempts"]


def test_a_preemptor_that_leaves_its_queue_loses_its_claim() -> None:
    world = PreemptionWorld(
        queue("q", 1, cohort="all", preemption=RECLAIMS),
        queue("victim", 0, cohort="all"),
        queue("third", 0, cohort="all"),
    )
    world.hold("there", "victim")
    world.request("asks", "q")
    world.request("next", "third", created=-1)
    world.submit(workload("asks", "q", hold=True))
    world.run()
    assert admitted(world.end_eviction("there")) == ["next"]


def test_the_reservation_of_a_strict_head_ends_when_it_leaves_its_queue() -> None:
    world = strict_and_other()
    world.request("head", "q", 2)
    assert admitted(world.request("small", "other")) == []
    world.submit(workload("head", "q", 2, hold=True))
    assert admitted(world.run()) == ["small"]


def test_a_new_strict_head_reserves_only_what_it_lacks_itself() -> None:
    world = strict_and_other()
    world.request("head", "q", 2)
    assert admitted(world.request("small", "other")) == []
    cores = [pod_set(1, {"cpu": 2})]
    assert admitted(world.request("ahead", "q", pods=cores, priority_class="high")) == ["small"]


def test_a_strict_head_reserves_also_in_the_plan_that_reports_a_workload_behind_it() -> None:
    world = strict_and_other()
    world.request("head", "q", 2)
    world.submit(workload("behind", "q", created=1), workload("small", "other", created=1))
    decisions = world.run()
    assert admitted(decisions) == []
    assert pending_reasons(decisions)["behind"] is Code.WAITING_FOR_HEAD


def test_a_strict_head_that_borrows_reserves_its_free_quota_and_its_borrowing_limit() -> None:
    rules = Preemption(
        reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY, borrow_within_cohort=BorrowWithinCohort()
    )
    strict = QueueingStrategy.STRICT_FIFO
    one = group({"default": {GPU: 2}})
    (quotas,) = one.flavors
    limited = replace(quotas, resources=((GPU, ResourceQuota(nominal=2, borrowing_limit=1)),))
    world = PreemptionWorld(
        queue(
            "q", groups=[replace(one, flavors=(limited,))], cohort="all", strategy=strict, preemption=rules
        ),
        queue("lends", 3, cohort="all"),
        queue("other", 0, cohort="all"),
    )
    world.hold("of-q", "q")
    world.request("head", "q", 3)
    assert admitted(world.request("large", "other", 3, created=1)) == []
    assert admitted(world.request("small", "other", 2, created=1)) == ["small"]


def strict_and_other() -> PreemptionWorld:
    """Return `q`, StrictFIFO with two GPUs and cores, and `other` with one; one of each is used in both."""
    groups = {name: [group({"default": {GPU: size, "cpu": size}})] for name, size in (("q", 2), ("other", 1))}
    world = PreemptionWorld(
        queue("q", groups=groups["q"], cohort="all", strategy=QueueingStrategy.STRICT_FIFO),
        queue("other", groups=groups["other"], cohort="all"),
    )
    for name in groups:
        world.hold(f"of-{name}", name, pods=[pod_set(1, {GPU: 1, "cpu": 1})])
    return world


# --- requeueing (W3)


def test_when_a_queue_starts_to_borrow_workloads_that_could_reclaim_are_requeued() -> None:
    rules = Preemption(reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY)
    world = PreemptionWorld(
        queue("q", 2, cohort="all", preemption=rules),
        queue("other", 3, cohort="all"),
        queue("third", 0, cohort="all"),
    )
    world.hold("own", "other", 3, priority_class="low")
    world.hold("borrows", "third", 1, priority_class="high")
    assert pending_reasons(world.request("asks", "q", 2)) == {"asks": Code.WAITING_FOR_QUOTA}
    decisions = world.request("more", "other", 1)
    assert (admitted(decisions), evicted(decisions)) == (["more"], ["own"])
