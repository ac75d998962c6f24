"""What reports on queues say of usage and shares."""

from __future__ import annotations

from dataclasses import replace

from queuectl.core.model.policy import Cohort
from queuectl.core.model.resources import FlavorResource
from queuectl.core.reports import BEYOND_ALL_SHARES
from tests.builders import GPU, SETTINGS, World, local_queue, policy, queue, workload

CELL = FlavorResource("default", GPU)
FAIR = replace(SETTINGS, fair_sharing=True)


def fair_world(lent: int, weight: int = 1000) -> World:
    """Queue `a` has 2 GPUs and `b` has `lent`; a workload in `a` uses 4."""
    world = World(
        queue("a", 2, cohort="all", weight=weight),
        queue("b", lent, cohort="all"),
        local_queue("lq", "a"),
        settings=FAIR,
    )
    world.submit(workload("w", gpus=4))
    world.run()
    return world


def shares(world: World) -> dict[str, int | None]:
    _, queues, _ = world.engine.take_reports()
    return {one.name: one.share for one in queues}


def test_local_queues_report_what_their_workloads_hold_and_their_sum_is_that_of_the_cluster_queue() -> None:
    world = World(queue("cq", 8), local_queue("one", "cq"), local_queue("two", "cq"))
    world.submit(workload("a", "one", 3), workload("b", "two", 2))
    world.submit(workload("c", "two", 4))
    world.run()
    local_queues, queues, _ = world.engine.take_reports()
    assert {one.name.name: one.used for one in local_queues} == {"one": ((CELL, 3),), "two": ((CELL, 2),)}
    assert queues[0].used == ((CELL, 5),)


def test_a_queue_that_borrows_reports_its_dominant_share_in_thousandths() -> None:
    assert shares(fair_world(lent=6)) == {"a": 250, "b": 0}  # 2 of the 8 that the cohort lends


def test_without_fair_sharing_no_share_is_reported() -> None:
    world = World(queue("a", 2, cohort="all"), local_queue("lq", "a"))
    assert shares(world) == {"a": None}


def test_a_queue_of_weight_0_that_borrows_reports_more_than_any_share() -> None:
    assert shares(fair_world(lent=6, weight=0))["a"] == BEYOND_ALL_SHARES


def test_a_share_is_reported_again_when_its_cohort_lends_more() -> None:
    world = fair_world(lent=6)
    shares(world)
    world.tell(policy(queue("b", 14, cohort="all")))
    assert shares(world)["a"] == 125
    world.tell(policy(Cohort(name="all", resource_groups=queue("x", 16).resource_groups)))
    assert shares(world)["a"] == 63


def test_the_cohort_of_a_queue_is_reported_again_when_the_queue_moves() -> None:
    world = World(queue("a", 2, cohort="all"), queue("b", 2), local_queue("lq", "a"))
    assert cohorts(world) == {"a": "all", "b": None}
    world.tell(policy(queue("a", 2, cohort="few")))
    assert cohorts(world)["a"] == "few"


def cohorts(world: World) -> dict[str, str | None]:
    _, queues, _ = world.engine.take_reports()
    return {one.name: one.cohort for one in queues}
