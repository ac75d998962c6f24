"""What is promised to who preempts, and kept from others meanwhile (docs/scheduling.md, C3, C6, C7, W3)."""

from __future__ import annotations

from dataclasses import replace

from queuectl.core.policy import (
    BorrowWithinCohort,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceQuota,
)
from queuectl.core.reasons import Code
from tests.builders import (
    GPU,
    admitted,
    group,
    pod_set,
    queue,
    workload,
)
from tests.core.room import OWN, RECLAIMS, Room, evicted, told


def test_nobody_is_let_go_on_quota_that_a_victim_of_the_same_cycle_still_holds() -> None:
    room = Room(
        queue("a", 4, cohort="all", preemption=RECLAIMS),
        queue("b", 2, cohort="all"),
        queue("c", 2, cohort="all"),
        queue("victim", 0, cohort="all"),
    )
    room.hold("there", "victim", 6)
    room.submit(
        workload("preempts", "a", 4, created=1),
        workload("fits", "b", 2, created=2),
        workload("waits", "c", 2, created=3),
    )
    decisions = room.run()
    assert (evicted(decisions), admitted(decisions)) == (["there"], ["fits"])
    assert admitted(room.over("there")) == ["preempts", "waits"]


def test_what_was_promised_in_a_cycle_stays_promised_when_a_later_head_is_let_go() -> None:
    rules = Preemption(
        reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY, borrow_within_cohort=BorrowWithinCohort()
    )
    room = Room(
        queue("a", 5, cohort="all", preemption=rules),
        queue("b", 0, cohort="all"),
        queue("c", 3, cohort="all", preemption=rules),
        queue("lends", 1, cohort="all"),
        queue("victim", 0, cohort="all"),
    )
    room.hold("there", "victim", 8, priority_class="low")
    room.submit(
        workload("preempts", "a", 6, created=1),
        workload("fits", "b", 1, created=2),
        workload("too-late", "c", 4, created=3),
    )
    decisions = room.run()
    assert (evicted(decisions), admitted(decisions)) == (["there"], ["fits"])
    assert told(decisions)["too-late"] is Code.WAITING_FOR_QUOTA


def test_two_that_preempt_at_once_do_not_count_on_the_same_victim() -> None:
    room = Room(
        queue("a", 1, cohort="all", preemption=RECLAIMS),
        queue("b", 1, cohort="all", preemption=RECLAIMS),
        queue("victim", 0, cohort="all"),
    )
    room.hold("v1", "victim")
    room.hold("v2", "victim")
    room.submit(workload("x", "a", created=1), workload("y", "b", created=2))
    decisions = room.run()
    assert sorted(evicted(decisions)) == ["v1", "v2"]
    assert told(decisions) == dict.fromkeys(("x", "y"), Code.WAITING_FOR_PREEMPTED_WORKLOADS)


def test_a_preemptor_waits_until_the_last_of_its_victims_is_gone() -> None:
    room = Room(queue("q", 2, cohort="all", preemption=RECLAIMS), queue("victim", 0, cohort="all"))
    room.hold("v1", "victim")
    room.hold("v2", "victim")
    assert len(evicted(room.ask("asks", "q", 2))) == 2
    first = room.over("v1")
    assert admitted(first) == []
    assert "asks" not in told(first)
    assert admitted(room.over("v2")) == ["asks"]


def test_what_victims_leave_is_kept_for_who_preempted_them_and_nobody_before_it_in_order() -> None:
    room = Room(queue("q", 1, preemption=OWN))
    room.hold("there", "q", priority_class="low")
    assert evicted(room.ask("asks", "q", created=5)) == ["there"]
    assert admitted(room.ask("later", "q", created=0)) == []
    assert admitted(room.over("there")) == ["asks"]


def test_who_preempted_goes_before_an_older_one_of_another_queue_for_what_its_victim_left() -> None:
    room = Room(
        queue("a", 1, cohort="all", preemption=RECLAIMS),
        queue("b", 1, cohort="all"),
        queue("victim", 0, cohort="all"),
    )
    room.hold("v1", "victim")
    room.hold("v2", "victim")
    assert len(evicted(room.ask("preempts", "a", created=5))) == 1
    room.ask("older", "b", created=0)
    assert admitted(room.over("v1")) == ["preempts"]


def test_who_leaves_after_it_preempted_keeps_nobody_from_what_its_victims_left() -> None:
    room = Room(
        queue("q", 1, cohort="all", preemption=RECLAIMS),
        queue("victim", 0, cohort="all"),
        queue("third", 0, cohort="all"),
    )
    room.hold("there", "victim")
    room.ask("asks", "q")
    room.ask("next", "third", created=-1)
    room.submit(workload("asks", "q", hold=True))
    room.run()
    assert admitted(room.over("there")) == ["next"]


def test_what_a_strict_head_keeps_back_is_others_once_it_waits_no_more() -> None:
    room = strict_and_other()
    room.ask("head", "q", 2)
    assert admitted(room.ask("small", "other")) == []
    room.submit(workload("head", "q", 2, hold=True))
    assert admitted(room.run()) == ["small"]


def test_a_new_strict_head_keeps_back_what_it_lacks_itself_and_nothing_that_the_last_one_lacked() -> None:
    room = strict_and_other()
    room.ask("head", "q", 2)
    assert admitted(room.ask("small", "other")) == []
    cores = [pod_set(1, {"cpu": 2})]
    assert admitted(room.ask("ahead", "q", pods=cores, priority_class="high")) == ["small"]


def test_a_strict_head_that_borrows_keeps_back_what_is_left_of_its_own_and_what_it_may_borrow() -> None:
    rules = Preemption(
        reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY, borrow_within_cohort=BorrowWithinCohort()
    )
    strict = QueueingStrategy.STRICT_FIFO
    one = group({"default": {GPU: 2}})
    (quotas,) = one.flavors
    limited = replace(quotas, resources=((GPU, ResourceQuota(nominal=2, borrowing_limit=1)),))
    room = Room(
        queue(
            "q", groups=[replace(one, flavors=(limited,))], cohort="all", strategy=strict, preemption=rules
        ),
        queue("lends", 3, cohort="all"),
        queue("other", 0, cohort="all"),
    )
    room.hold("of-q", "q")
    room.ask("head", "q", 3)
    assert admitted(room.ask("large", "other", 3, created=1)) == []
    assert admitted(room.ask("small", "other", 2, created=1)) == ["small"]


def strict_and_other() -> Room:
    """`q`, strict, with two GPUs and cores, `other` with one; one of each is taken in both."""
    groups = {name: [group({"default": {GPU: size, "cpu": size}})] for name, size in (("q", 2), ("other", 1))}
    room = Room(
        queue("q", groups=groups["q"], cohort="all", strategy=QueueingStrategy.STRICT_FIFO),
        queue("other", groups=groups["other"], cohort="all"),
    )
    for name in groups:
        room.hold(f"of-{name}", name, pods=[pod_set(1, {GPU: 1, "cpu": 1})])
    return room


# --- who is looked at again (W3)


def test_when_a_queue_begins_to_borrow_who_could_take_back_from_it_is_looked_at() -> None:
    rules = Preemption(reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY)
    room = Room(
        queue("q", 2, cohort="all", preemption=rules),
        queue("other", 3, cohort="all"),
        queue("third", 0, cohort="all"),
    )
    room.hold("own", "other", 3, priority_class="low")
    room.hold("borrows", "third", 1, priority_class="high")
    assert told(room.ask("asks", "q", 2)) == {"asks": Code.WAITING_FOR_QUOTA}
    decisions = room.ask("more", "other", 1)
    assert (admitted(decisions), evicted(decisions)) == (["more"], ["own"])
