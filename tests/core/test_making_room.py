"""Whom a workload takes quota from, and what is kept for it (docs/scheduling.md, P1 to P11, C3, C6, C7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from queuectl.core.decisions import Decision, Evict, Keep
from queuectl.core.events import PodsCounted
from queuectl.core.model import ClusterQueue, Cohort, Outcome, QueueingStrategy, ResourceQuota
from queuectl.core.reasons import Code, PreemptionCause
from queuectl.core.rules import Borrowing, MinRunTime, Preemption, Settings, Within
from tests.builders import (
    GPU,
    World,
    admitted,
    group,
    local_queue,
    observed,
    pod_set,
    priority,
    queue,
    workload,
)

RECLAIMS = Preemption(reclaim_within_cohort=Within.ANY)
OWN = Preemption(within_cluster_queue=Within.LOWER_PRIORITY)
PATIENT = Settings(cooldown=0)


class Room(World):
    """Queues with a LocalQueue of the same name each, and priorities `low` and `high`."""

    def __init__(self, *nodes: ClusterQueue | Cohort, settings: Settings = PATIENT) -> None:
        queues = [node for node in nodes if isinstance(node, ClusterQueue)]
        super().__init__(*nodes, *(local_queue(one.name, one.name) for one in queues), settings=settings)
        self.tell(priority("low", -1), priority("high", 1))

    def hold(self, name: str, queue: str, gpus: int = 1, **fields: object) -> None:
        """Let it go, and see it run."""
        one = workload(name, queue, gpus, **fields)  # type: ignore[arg-type]
        self.submit(one)
        assert admitted(self.run()) == [name]
        self.settle()
        self.tell(observed(one, suspended=False, generation=2))

    def ask(self, name: str, queue: str, gpus: int = 1, **fields: object) -> list[Decision]:
        self.submit(workload(name, queue, gpus, **fields))  # type: ignore[arg-type]
        return self.run()

    def over(self, name: str, attempt: int = 1) -> list[Decision]:
        """What was evicted has stopped, and nothing of it is alive."""
        self.settle(generation=attempt + 2)
        self.run()
        one = next(e.workload for e in self.engine._state.entries.values() if e.ref.name == name)
        assert one is not None
        self.tell(PodsCounted(one.id, attempt, alive=False))
        self.tell(observed(one, generation=attempt + 2))
        return self.run()


def evicted(decisions: Iterable[Decision]) -> list[str]:
    return [d.ref.name for d in decisions if isinstance(d, Evict)]


def causes(decisions: Iterable[Decision]) -> list[PreemptionCause | None]:
    return [d.reason.cause for d in decisions if isinstance(d, Evict)]


def told(decisions: Iterable[Decision]) -> dict[str, Code]:
    return {d.ref.name: d.reason.code for d in decisions if isinstance(d, Keep)}


# --- whom it may take (P2, P3)


@pytest.mark.parametrize(("created", "victims"), [(4, ["there"]), (5, []), (6, [])])
def test_of_the_same_priority_only_who_is_newer_gives_way(created: int, victims: list[str]) -> None:
    newer = Preemption(within_cluster_queue=Within.LOWER_OR_NEWER_EQUAL_PRIORITY)
    room = Room(queue("q", 1, preemption=newer))
    room.hold("there", "q", created=5)
    assert evicted(room.ask("asks", "q", created=created)) == victims


@pytest.mark.parametrize(("bound", "victims"), [(0, ["there"]), (-1, [])])
def test_while_borrowing_a_victim_may_have_the_greatest_priority_allowed_and_no_more(
    bound: int, victims: list[str]
) -> None:
    rules = Preemption(
        reclaim_within_cohort=Within.LOWER_PRIORITY, borrow_within_cohort=Borrowing(most_priority=bound)
    )
    room = Room(queue("q", 1, cohort="all", preemption=rules), queue("other", 1, cohort="all"))
    room.hold("there", "other", 2)
    assert evicted(room.ask("asks", "q", 2, priority_class="high")) == victims


def test_who_would_fill_its_own_quota_exactly_takes_back_what_it_lent() -> None:
    rules = Preemption(reclaim_within_cohort=Within.ANY, borrow_within_cohort=Borrowing())
    room = Room(queue("q", 2, cohort="all", preemption=rules), queue("other", 1, cohort="all"))
    room.hold("there", "other", 3)
    decisions = room.ask("asks", "q", 2, priority_class="high")
    assert causes(decisions) == [PreemptionCause.IN_COHORT_RECLAMATION]


def test_who_may_take_back_in_its_own_cohort_may_also_where_that_cohort_borrows() -> None:
    rules = Preemption(reclaim_within_cohort=Within.ANY, borrow_within_cohort=Borrowing())
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
        settings=Settings(fair_sharing=True, cooldown=0),
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
    rules = replace(RECLAIMS, within_cluster_queue=Within.LOWER_PRIORITY)
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
    rules = replace(RECLAIMS, within_cluster_queue=Within.LOWER_PRIORITY)
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
        queue("q", 1, preemption=OWN), settings=Settings(eviction_budget=2, eviction_window=1000, cooldown=0)
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


# --- what others get meanwhile (C3, C6, C7)


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
    rules = Preemption(reclaim_within_cohort=Within.LOWER_PRIORITY, borrow_within_cohort=Borrowing())
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
    rules = Preemption(reclaim_within_cohort=Within.LOWER_PRIORITY, borrow_within_cohort=Borrowing())
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
    rules = Preemption(reclaim_within_cohort=Within.LOWER_PRIORITY)
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
