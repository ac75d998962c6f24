"""Workloads that wait for a flavor before they may take the next one (F10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import example, given

from queuectl.core.decisions import Admit, Decision
from queuectl.core.model.policy import ClusterQueue, ResourceGroup
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import Workload, WorkloadOutcome
from tests.builders import GPU, T0, World, flavor, group, local_queue, observed, pod_set, queue, workload
from tests.unit.core import laws, profiles
from tests.unit.core.actions import CYCLES, JOBS, ON_QUOTA, SCRIPT, SETUP, play
from tests.unit.core.driver import Driver
from tests.unit.core.trees import Dice, Setup, random_setup

MIXED = tuple(
    bytes.fromhex(f"{choices:0<72}")
    for choices in (
        *("", "", "", "020000010001000000000000000008", "20030000003f000000000014"),
        "6e030000000d01003201004400e9000000000000000001000100920000",
    )
)
"""Workloads of which one comes to hold the free flavor that a podset of another was to take (W3)."""

IN_B = (("zone", "b"),)


def waiting(one: ResourceGroup, *seconds: int) -> ResourceGroup:
    """The same group, with the wait of each flavor but the last."""
    waits = (*seconds, *[0] * len(one.flavors))
    flavors = tuple(replace(f, wait=wait) for f, wait in zip(one.flavors, waits, strict=False))
    return replace(one, flavors=flavors)


def pools(quotas: Mapping[str, int], *seconds: int, **labels: str) -> World:
    """A ClusterQueue with these flavors in order: the GPUs and the wait of each. `labels`: their zones."""
    flavors = [flavor(name, {"zone": labels[name]} if name in labels else None) for name in quotas]
    groups = [waiting(group({name: {GPU: gpus} for name, gpus in quotas.items()}), *seconds)]
    return World(*flavors, queue("cq", groups=groups), local_queue("lq", "cq"))


def taken(decisions: list[Decision]) -> dict[str, str]:
    """The flavor of each admission."""
    return {
        d.ref.name: d.attempt.assignment.pod_sets[0].flavors[0][1] for d in decisions if isinstance(d, Admit)
    }


def asks(world: World, *workloads: Workload) -> list[Decision]:
    world.submit(*workloads)
    return world.run()


def test_what_does_not_fit_waits_for_the_first_flavor_and_takes_the_next_one_exactly_then() -> None:
    world = pools({"spot": 1, "dear": 4}, 600)
    assert taken(asks(world, workload("first"), workload("second", created=1))) == {"first": "spot"}
    reason = world.reason("second")
    assert reason is not None
    assert (reason.code, reason.flavor, reason.until) == (
        Code.WAITING_FOR_QUOTA,
        "spot",
        T0 + timedelta(seconds=601),
    )
    assert reason.detail == "flavor dear may be taken then"
    world.pass_time(600)
    assert taken(world.run()) == {}
    assert world.engine.due_at == T0 + timedelta(seconds=601)
    world.pass_time(1)
    assert taken(world.run()) == {"second": "dear"}
    assert world.engine.due_at is None


def test_the_first_flavor_is_taken_when_it_becomes_available_meanwhile() -> None:
    world = pools({"spot": 1, "dear": 4}, 600)
    asks(world, workload("first"), workload("second", created=1))
    world.settle()
    over = {"suspended": False, "finished": WorkloadOutcome.SUCCEEDED, "generation": 2}
    world.tell(observed(workload("first"), **over))
    assert taken(world.run()) == {"second": "spot"}


@pytest.mark.parametrize(
    ("age", "found"),
    [(0, {}), (59, {}), (60, {"w": "b"}), (89, {"w": "b"}), (90, {"w": "b"})],
)
def test_waits_add_up(age: int, found: dict[str, str]) -> None:
    world = pools({"a": 2, "b": 1, "c": 2}, 60, 30)
    asks(world, workload("holder", gpus=2))
    world.now += timedelta(seconds=100)
    world.pass_time(0)
    assert taken(asks(world, workload("w", created=100 - age))) == found


def test_waits_of_several_flavors_are_counted_one_after_another() -> None:
    world = pools({"a": 1, "b": 1, "c": 1}, 60, 30)
    asks(world, workload("one"), workload("two"), workload("three"))
    world.pass_time(60)
    assert list(taken(world.run()).values()) == ["b"]
    world.pass_time(29)
    assert taken(world.run()) == {}
    world.pass_time(1)
    assert list(taken(world.run()).values()) == ["c"]


@pytest.mark.parametrize(
    ("quotas", "zones", "pods"),
    [
        (
            {"spot": 4, "dear": 4},
            {"spot": "a", "dear": "b"},
            pod_set(1, {GPU: 1}, node_selector=IN_B),
        ),
        ({"spot": 1, "dear": 4}, {}, pod_set(1, {GPU: 2})),
    ],
    ids=["it does not match", "it can never have enough"],
)
def test_a_flavor_that_it_can_never_get_is_not_waited_for(
    quotas: dict[str, int], zones: dict[str, str], pods: object
) -> None:
    world = pools(quotas, 600, **zones)
    assert taken(asks(world, workload("w", pods=[pods]))) == {"w": "dear"}  # type: ignore[list-item]


def test_a_creation_time_ahead_of_the_clock_keeps_it_from_no_flavor() -> None:
    world = pools({"spot": 1, "dear": 4}, 600)
    assert taken(asks(world, workload("w", created=3600))) == {"w": "spot"}


def test_of_equal_workloads_each_waits_from_its_own_creation_on() -> None:
    world = pools({"spot": 1, "dear": 4}, 60)
    asks(world, workload("holder"), workload("old", created=1), workload("new", created=20))
    world.pass_time(61)
    assert taken(world.run()) == {"old": "dear"}
    world.pass_time(19)
    assert taken(world.run()) == {"new": "dear"}


def test_a_workload_that_joins_equal_ones_and_is_older_does_not_wait_as_long_as_they() -> None:
    world = pools({"spot": 1, "dear": 4}, 60)
    asks(world, workload("holder"), workload("new", created=50))
    world.now += timedelta(seconds=65)
    world.pass_time(0)
    assert taken(asks(world, workload("old", created=2))) == {"old": "dear"}


def test_a_change_of_the_wait_counts_at_once() -> None:
    world = pools({"spot": 1, "dear": 4}, 600)
    asks(world, workload("first"), workload("second", created=1))
    one = group({"spot": {GPU: 1}, "dear": {GPU: 4}})
    from tests.builders import policy

    world.tell(policy(queue("cq", groups=[waiting(one, 0)])))
    assert taken(world.run()) == {"second": "dear"}


def test_what_can_never_fit_names_no_time() -> None:
    world = pools({"spot": 1, "dear": 4}, 600)
    one = pod_set(1, {GPU: 1, "disk": 1})
    asks(world, workload("holder"), workload("odd", pods=[one]))
    reason = world.reason("odd")
    assert reason is not None
    assert (reason.code, reason.until) == (Code.RESOURCE_NOT_COVERED, None)


def test_what_fits_a_later_flavor_partly_waits_too() -> None:
    world = pools({"spot": 4, "dear": 2}, 60)
    asks(world, workload("holder", gpus=4))
    part = workload("part", pods=[pod_set(4, {GPU: 1}, min_count=1)])
    assert taken(asks(world, part)) == {}
    world.pass_time(60)
    (admit,) = (d for d in world.run() if isinstance(d, Admit))
    assert (admit.attempt.assignment.pods, taken([admit])) == (2, {"part": "dear"})


def test_what_may_start_with_fewer_pods_waits_for_a_flavor_that_never_has_enough_for_all() -> None:
    world = pools({"spot": 2, "dear": 2}, 60)
    asks(world, workload("holder", gpus=2))
    part = workload("part", pods=[pod_set(4, {GPU: 1}, min_count=1)])
    assert taken(asks(world, part)) == {}
    world.pass_time(60)
    assert taken(world.run()) == {"part": "dear"}


def test_an_edit_of_what_it_requests_does_not_start_the_wait_again() -> None:
    world = pools({"spot": 1, "dear": 4}, 60)
    asks(world, workload("holder"), workload("w", created=1))
    world.pass_time(30)
    world.tell(observed(workload("w", created=1, pods=[pod_set(1, {GPU: 1}, node_selector=IN_B)])))
    world.run()
    world.pass_time(31)
    assert taken(world.run()) == {"w": "dear"}


# --- laws, on random trees


def waiting_setup(dice: Dice) -> Setup:
    found = random_setup(dice)
    return replace(
        found,
        policies=tuple(
            replace(
                one,
                resource_groups=tuple(waiting(g, dice.pick(5, 20, 0, 3000)) for g in one.resource_groups),
            )
            if isinstance(one, ClusterQueue)
            else one
            for one in found.policies
        ),
    )


@profiles.sequences(150)
@given(SETUP, JOBS, SCRIPT, CYCLES)
@example(bytes(420), list(MIXED), [], 1)
def test_with_waits_a_newly_started_process_decides_nothing_at_rest(
    setup: bytes, jobs: list[bytes], script: list[bytes], cycles: int | None
) -> None:
    """W1 to W4: each workload is nominated when it may take another flavor, also while time passes."""
    driver = Driver(
        waiting_setup(Dice(setup)),
        laws.no_workload_is_admitted_on_quota_that_is_not_available,
        laws.preemptors_of_a_plan_fit_after_their_victims_end,
        laws.a_row_says_more_than_other_numbers,
        laws.a_new_process_decides_nothing,
        actions=ON_QUOTA,
    )
    play(driver, jobs, script)
    for seconds in (0, 6, 30, 4000):
        driver.now += timedelta(seconds=seconds)
        driver.come_to_rest(cycles)
