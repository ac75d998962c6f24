"""Borrow levels, and which flavor is better because of them (Q9, F1 to F9, O5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from queuectl.core.decisions import Admit, Decision, Evict, Keep
from queuectl.core.model.events import PodsCounted
from queuectl.core.model.policy import (
    FlavorFungibility,
    Preemption,
    PreemptionPolicy,
    ResourceGroup,
    ResourceQuota,
)
from queuectl.core.model.reasons import Code
from tests.builders import (
    GPU,
    World,
    admitted,
    flavor,
    group,
    local_queue,
    observed,
    pod_set,
    priority,
    queue,
    workload,
)
from tests.unit.core.sharing import cells_of, charge, cohort, tree_of
from tests.unit.core.sharing import queue as node

LQ = local_queue("lq", "q")


def given(decisions: list[Decision]) -> list[tuple[str, dict[str, str]]]:
    """Return the admitted workloads with their flavors by resource."""
    return [
        (d.ref.name, dict(p.flavors))
        for d in decisions
        if isinstance(d, Admit)
        for p in d.attempt.assignment.pod_sets
    ]


def flavors(*quotas: tuple[str, Mapping[str, int]]) -> list[ResourceGroup]:
    return [group(dict(quotas))]


# --- Q9


@pytest.mark.parametrize(
    ("amount", "used", "level"), [(2, 0, 0), (3, 0, 1), (4, 0, 1), (5, 0, 2), (6, 0, 3), (1, 2, 1), (1, 4, 2)]
)
def test_the_borrow_level_is_the_first_node_that_covers_the_rest_of_the_request(
    amount: int, used: int, level: int
) -> None:
    """Two GPUs of private quota in the queue and in its cohort, and one in each cohort above."""
    own = {"x/gpu": ResourceQuota(nominal=2, lending_limit=0)}
    tree = tree_of(
        cohort("root", None, {"x/gpu": 1}),
        cohort("middle", "root", {"x/gpu": 1}),
        cohort("near", "middle", own),
        node("q", "near", own),
    )
    charge(tree, "q", {"x/gpu": used})
    ((cell, _),) = cells_of(tree, {"x/gpu": 1})
    assert tree.borrow_level(tree.queue("q"), cell, amount)[0] == level


# --- F


def test_a_flavor_offers_what_its_worst_resource_offers() -> None:
    groups = flavors(("f1", {"cpu": 4, GPU: 1}), ("f2", {"cpu": 2, GPU: 2}))
    world = World(flavor("f1"), flavor("f2"), queue("q", groups=groups), LQ)
    world.submit(workload("a", pods=[pod_set(1, {"cpu": 2, GPU: 2})]))
    assert given(world.run()) == [("a", {"cpu": "f2", GPU: "f2"})]


def test_a_fit_for_one_resource_does_not_hide_that_another_never_fits() -> None:
    world = World(flavor("f1"), queue("q", groups=flavors(("f1", {"cpu": 4, GPU: 1}))), LQ)
    world.submit(workload("a", pods=[pod_set(1, {"cpu": 2, GPU: 2})]))
    (reason,) = (d.reason for d in world.run() if isinstance(d, Keep))
    assert (reason.code, reason.resource) == (Code.EXCEEDS_MAX_QUOTA, GPU)


def test_podsets_of_one_workload_do_not_share_the_same_quota() -> None:
    groups = flavors(("f1", {GPU: 2}), ("f2", {GPU: 2}))
    world = World(flavor("f1"), flavor("f2"), queue("q", groups=groups), LQ)
    world.submit(workload("a", pods=[pod_set(1, {GPU: 2}, "one"), pod_set(2, {GPU: 1}, "two")]))
    assert given(world.run()) == [("a", {GPU: "f1"}), ("a", {GPU: "f2"})]


def test_the_nearest_miss_is_the_reason() -> None:
    groups = flavors(("f1", {GPU: 1}), ("f2", {GPU: 2}))
    world = World(flavor("f1"), flavor("f2"), queue("q", groups=groups), LQ)
    world.submit(workload("there", gpus=2), workload("asks", gpus=2, created=1))
    (reason,) = (d.reason for d in world.run() if isinstance(d, Keep))
    assert (reason.code, reason.flavor) == (Code.WAITING_FOR_QUOTA, "f2")
    assert [(r.code, r.flavor) for r in reason.others] == [(Code.EXCEEDS_MAX_QUOTA, "f1")]


@pytest.mark.parametrize(("next_first", "name"), [(False, "f1"), (True, "f2")])
def test_a_queue_can_require_the_next_flavor_before_borrowing(next_first: bool, name: str) -> None:
    rules = FlavorFungibility(try_next_before_borrowing=next_first)
    world = World(
        flavor("f1"),
        flavor("f2"),
        queue("q", groups=flavors(("f1", {GPU: 0}), ("f2", {GPU: 1})), cohort="all", fungibility=rules),
        queue("other", groups=flavors(("f1", {GPU: 1})), cohort="all"),
        LQ,
    )
    world.submit(workload("a"))
    assert given(world.run()) == [("a", {GPU: name})]


def test_of_two_flavors_that_need_borrowing_the_lower_borrow_level_is_chosen() -> None:
    rules = FlavorFungibility(try_next_before_borrowing=True)
    world = World(
        flavor("far"),
        flavor("near"),
        replace(cohort("all", "root"), resource_groups=tuple(flavors(("near", {GPU: 1})))),
        replace(cohort("root"), resource_groups=tuple(flavors(("far", {GPU: 1})))),
        queue("q", groups=flavors(("far", {GPU: 0}), ("near", {GPU: 0})), cohort="all", fungibility=rules),
        LQ,
    )
    world.submit(workload("a"))
    assert given(world.run()) == [("a", {GPU: "near"})]


def test_reclaiming_from_other_queues_precedes_preemption_in_the_own_queue() -> None:
    rules = Preemption(
        within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY, reclaim_within_cohort=PreemptionPolicy.ANY
    )
    world = World(
        flavor("f1"),
        flavor("f2"),
        queue("q", groups=flavors(("f1", {GPU: 1}), ("f2", {GPU: 1})), cohort="all", preemption=rules),
        queue("other", groups=flavors(("f2", {GPU: 0})), cohort="all"),
        LQ,
        local_queue("lo", "other"),
    )
    world.tell(priority("high", 1))
    world.submit(workload("own"), workload("borrows", "lo"))
    assert sorted(admitted(world.run())) == ["borrows", "own"]
    world.submit(workload("asks", priority_class="high"))
    assert [d.ref.name for d in world.run() if isinstance(d, Evict)] == ["borrows"]


def test_a_workload_without_its_last_tried_flavor_continues_with_the_next() -> None:
    """In f1 there are victims for each resource alone, but none for both: one resource is lent, and the queue
    has no quota left of the other and may not borrow (P4).
    """
    rules = Preemption(
        within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY, reclaim_within_cohort=PreemptionPolicy.ANY
    )
    groups = flavors(("f1", {"cpu": 1, GPU: 2}), ("f2", {"cpu": 1, GPU: 2}))
    world = World(
        flavor("f1"),
        flavor("f2"),
        queue(
            "q",
            groups=groups,
            cohort="all",
            preemption=rules,
            fungibility=FlavorFungibility(try_next_before_preempting=False),
        ),
        queue("other", groups=flavors(("f1", {GPU: 0})), cohort="all"),
        LQ,
        local_queue("lo", "other"),
    )
    world.tell(priority("high", 1))
    world.submit(workload("own", pods=[pod_set(1, {"cpu": 1})]), workload("borrows", "lo", gpus=2))
    assert sorted(admitted(world.run())) == ["borrows", "own"]
    world.submit(workload("asks", pods=[pod_set(1, {"cpu": 1, GPU: 2})], priority_class="high"))
    decisions: list[Decision] = []
    for _ in range(3):
        plan = world.plan()
        world.commit(plan)
        decisions += plan.decisions
    assert given(decisions) == [("asks", {"cpu": "f2", GPU: "f2"})]
    assert not any(isinstance(d, Evict) for d in decisions)


@pytest.mark.parametrize("lacks", ["cpu", GPU])
def test_a_release_requeues_workloads_that_lack_any_of_its_resources(lacks: str) -> None:
    world = World(queue("q", groups=[group({"default": {"cpu": 1, GPU: 1}})]), LQ)
    both = [pod_set(1, {"cpu": 1, GPU: 1})]
    world.submit(workload("held", pods=both), workload("waits", pods=[pod_set(1, {lacks: 1})], created=1))
    assert admitted(world.run()) == ["held"]
    world.settle()
    held = workload("held", pods=both, hold=True)
    world.tell(observed(held, suspended=False, generation=2))
    world.run()
    world.settle(generation=3)
    world.run()
    world.tell(PodsCounted(held.id, 1, alive=False))
    assert admitted(world.run()) == ["waits"]


def test_a_running_workload_that_fits_nowhere_is_charged_to_the_first_matching_flavor() -> None:
    groups = flavors(("f1", {GPU: 1}), ("f2", {GPU: 1}), ("f3", {GPU: 1}))
    labels = {"f1": {"zone": "a"}, "f2": {"zone": "b"}, "f3": {"zone": "b"}}
    world = World(*(flavor(name, one) for name, one in labels.items()), queue("q", groups=groups), LQ)
    pods = [pod_set(1, {GPU: 2}, node_selector=(("zone", "b"),))]
    world.tell(observed(workload("a", pods=pods), suspended=False))
    assert given(world.run()) == [("a", {GPU: "f2"})]


@pytest.mark.parametrize(
    ("free", "counts"), [(10, [4, 6]), (9, [4, 5]), (8, [3, 4]), (7, [3, 4]), (6, [3, 3]), (4, [2, 2])]
)
def test_each_podset_is_reduced_in_proportion_to_its_slack(free: int, counts: list[int]) -> None:
    world = World(queue("q", free), LQ)
    pods = [pod_set(4, {GPU: 1}, "one", min_count=2), pod_set(6, {GPU: 1}, "two", min_count=2)]
    world.submit(workload("a", pods=pods))
    (admit,) = (d for d in world.run() if isinstance(d, Admit))
    assert [p.count for p in admit.attempt.assignment.pod_sets] == counts


# --- O


def test_a_head_that_does_not_borrow_precedes_one_that_does() -> None:
    world = World(
        queue("q", 0, cohort="all"),
        queue("other", 1, cohort="all"),
        LQ,
        local_queue("lo", "other"),
    )
    world.submit(workload("borrows", created=0), workload("own", "lo", created=1))
    assert admitted(world.run()) == ["own"]


def test_the_priority_label_of_a_workload_precedes_the_priority_of_its_pods() -> None:
    world = World(queue("q", 1), LQ)
    world.tell(priority("high", 5))
    pods = [pod_set(1, {GPU: 1}, priority_class="unknown")]
    world.submit(workload("a", pods=pods, priority_class="high"), workload("b", created=-1))
    assert admitted(world.run()) == ["a"]


# --- R3


def reclaiming(own_cpu: int) -> Keep | Evict:
    """`wants` needs the GPUs that its queue has lent, and cpu, of which its queue owns `own_cpu`."""
    rules = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
    quotas = {"owner": {GPU: 4, "cpu": own_cpu}, "guest": {GPU: 0, "cpu": 10_000}}
    world = World(
        *(
            queue(name, groups=[group({"default": each})], cohort="all", preemption=rules)
            for name, each in quotas.items()
        ),
        local_queue("lq", "owner"),
        local_queue("guests", "guest"),
    )
    world.submit(replace(workload("borrower", pods=[pod_set(1, {GPU: 4, "cpu": 1000})]), queue="guests"))
    world.run()
    world.settle()
    world.submit(workload("wants", pods=[pod_set(1, {GPU: 4, "cpu": 3000})], created=1))
    return next(d for d in world.run() if isinstance(d, Keep | Evict))


def test_a_borrow_rule_of_another_resource_that_forbids_a_preemption_is_the_reason() -> None:
    """The queue owns the GPUs that it wants back, but would borrow cpu: without `borrowWithinCohort` it may
    take nothing of others."""
    assert isinstance(reclaiming(own_cpu=3000), Evict), "control: it owns the cpu"
    kept = reclaiming(own_cpu=1000)
    assert isinstance(kept, Keep)
    assert kept.reason.considered == (
        "1 that may be preempted only if the preemptor does not borrow "
        "(spec.preemption.borrowWithinCohort), and it would borrow 2 cpu in flavor default"
    )
