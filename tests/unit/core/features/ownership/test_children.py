"""Only the topmost object queues: children run by what their owner holds, others are stopped (K)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from queuectl.core.decisions import Admit, ChildToCheck, Decision, Enqueue, Evict
from queuectl.core.model.events import (
    ContextObserved,
    Event,
    Listed,
    OwnerRead,
    PodsCounted,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.model.policy import Gate, LocalQueue, WorkloadPriorityClass
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import ObjectRef, Workload, WorkloadId, WorkloadOutcome
from tests.builders import GPU, T0, World, local_queue, observed, pod_set, policy, queue, seen, workload

OWNER = workload("owner", pods=[pod_set(4, {GPU: 1})])


def child(name: str, gpus: int = 4, owner: Workload = OWNER, **fields: object) -> Workload:
    fields = {"created": 10, **fields}
    return workload(name, gpus=gpus, owner=owner.ref, **fields)  # type: ignore[arg-type]


def read(name: str, holder: Workload | None, problem: str | None = None, *, stop: bool = True) -> OwnerRead:
    return OwnerRead(WorkloadId(f"uid-{name}"), holder.id if holder else None, problem, stop=stop)


def runs(one: Workload, **state: object) -> WorkloadObserved:
    return WorkloadObserved(one, seen(suspended=False, **state))  # type: ignore[arg-type]


@pytest.fixture
def world() -> World:
    """The owner is admitted with its 4 GPUs, of 16."""
    world = World(queue("cq", 16), local_queue("lq", "cq"))
    world.tell(ContextObserved(Gate("queuectl-jobs", T0)), observed(OWNER))
    assert [type(one) for one in world.run()] == [Admit]
    world.settle()
    world.tell(runs(OWNER, generation=2))
    return world


def asked(world: World) -> list[str]:
    """The children of which the owners are to be read, since the last call."""
    assert world.run() == []
    found, world.checks = [one.ref.name for one in world.checks], []
    return found


def charged(world: World) -> tuple[Sequence[str], Sequence[str]]:
    """Details of what is charged now as debt, and of what is stopped."""
    made: list[Decision] = world.run()
    details = [one.detail or "" for one in made if isinstance(one, Admit) and one.attempt.debt]
    stopped = [one.reason.detail or "" for one in made if isinstance(one, Evict)]
    assert all(one.reason.code is Code.BYPASS for one in made if isinstance(one, Evict))
    return details, stopped


def test_a_child_of_an_admitted_owner_runs_without_any_record(world: World) -> None:
    before = world.sequence
    world.tell(observed(child("a")), runs(child("a")))
    assert asked(world) == []
    assert world.sequence == before


def test_a_suspended_child_never_queues(world: World) -> None:
    world.tell(observed(child("a", gpus=1)))
    assert asked(world) == []
    assert not any(isinstance(one, Enqueue) and one.workload.id == "uid-a" for one in world.decided)


def test_children_run_as_long_as_their_owner_is_being_stopped(world: World) -> None:
    world.tell(runs(child("a")), runs(replace(OWNER, hold=True), generation=2))
    assert [type(one) for one in world.run()] == [Evict]
    world.settle(generation=3)
    assert asked(world) == []


def test_a_child_that_still_runs_when_its_owner_has_released_its_quota_is_checked(world: World) -> None:
    world.tell(runs(child("a")), runs(OWNER, generation=2, finished=None))
    world.tell(WorkloadGone(OWNER.id), PodsCounted(OWNER.id, 1, alive=False))
    world.run()
    assert [one.ref.name for one in world.checks] == ["a"]


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (read("a", None, "is not there"), "its owner Job forged is not there"),
        (read("a", OWNER), "its owner Job forged was not charged for it"),
        (read("a", workload("finished")), "its owner Job forged holds no quota"),
        (
            read("a", None, "has 10 or more owners above it"),
            "its owner Job forged has 10 or more owners above it",
        ),
    ],
    ids=["owner not there", "owner too small", "owner over", "too many owners"],
)
def test_a_forged_owner_is_charged_as_debt_and_stopped(world: World, answer: OwnerRead, detail: str) -> None:
    forged = workload("forged")
    world.tell(runs(child("a", gpus=8, owner=forged)))
    assert asked(world) == ["a"]
    world.tell(answer)
    assert charged(world) == ([f"was let past the gate: {detail}"], [f"it was let past the gate: {detail}"])


def test_a_child_of_an_owner_that_does_not_queue_is_charged_and_runs_on(world: World) -> None:
    world.tell(runs(child("a", owner=workload("unlabelled"))))
    assert asked(world) == ["a"]
    world.tell(read("a", None, "has no queue label", stop=False))
    assert charged(world) == (["was let past the gate: its owner Job unlabelled has no queue label"], [])


@pytest.mark.parametrize(
    "restricted",
    [
        local_queue("vip", "cq", restricted=True),
        WorkloadPriorityClass("urgent", 9, restricted=True),
    ],
    ids=["queue", "class"],
)
def test_a_child_of_an_owner_that_does_not_queue_takes_no_quota_of_what_is_restricted(
    world: World, restricted: LocalQueue | WorkloadPriorityClass
) -> None:
    """The tenant wrote the names into the templates of the owner, its controller the child."""
    names: dict[str, Any] = (
        {"queue": "vip"} if isinstance(restricted, LocalQueue) else {"priority_class": "urgent"}
    )
    world.tell(policy(restricted))
    world.run()
    world.tell(runs(child("a", owner=workload("unlabelled"), **names)))
    assert asked(world) == ["a"]
    world.tell(read("a", None, "has no queue label", stop=False))
    assert charged(world) == ([], [])
    # What only says that it has such an owner is stopped as before.
    world.tell(runs(child("b", owner=workload("forged"), **names)))
    assert asked(world) == ["b"]
    world.tell(read("b", None, "is not there"))
    details, stopped = charged(world)
    assert len(details) == len(stopped) == 1


def test_an_owner_in_another_namespace_holds_nothing_for_it(world: World) -> None:
    world.tell(runs(child("a", namespace="other")))
    assert asked(world) == ["a"]


def test_the_newest_of_too_many_children_is_charged(world: World) -> None:
    world.tell(runs(child("new", gpus=2, created=20)), runs(child("old", gpus=3, created=10)))
    assert asked(world) == ["new"]
    world.tell(read("new", OWNER))
    details, stopped = charged(world)
    assert len(details) == len(stopped) == 1


@pytest.mark.parametrize(
    "over", [observed(child("old"), finished=WorkloadOutcome.DELETED), WorkloadGone(WorkloadId("uid-old"))]
)
def test_a_child_may_follow_another_that_ended(world: World, over: Event) -> None:
    world.tell(runs(child("old")))
    world.tell(over, runs(child("new", created=20)))
    assert asked(world) == []


def test_a_doubt_that_was_a_late_event_changes_nothing(world: World) -> None:
    world.tell(runs(child("old")), runs(child("new", created=20)))
    assert asked(world) == ["new"]
    world.tell(WorkloadGone(WorkloadId("uid-old")), read("new", OWNER))
    assert charged(world) == ([], [])
    assert asked(world) == []


def test_children_of_children_run_by_what_their_owner_is_charged_for(world: World) -> None:
    middle = child("middle")
    world.tell(runs(middle), runs(child("leaf", gpus=3, owner=middle)))
    assert asked(world) == []
    world.tell(runs(child("more", gpus=2, owner=middle, created=30)))
    assert asked(world) == ["more"]


def test_owners_in_a_circle_hold_nothing(world: World) -> None:
    a = child("a", owner=workload("b"))
    world.tell(runs(a), runs(child("b", owner=a)))
    assert sorted(asked(world)) == ["a", "b"]


def test_an_unlabelled_object_between_owner_and_child_is_skipped(world: World) -> None:
    world.tell(runs(child("a", owner=workload("between"))))
    assert asked(world) == ["a"]
    world.tell(read("a", OWNER))
    assert charged(world) == ([], [])


def test_a_child_that_was_stopped_is_not_queued_and_is_checked_again_if_it_runs(world: World) -> None:
    forged = child("a", owner=workload("forged"))
    world.tell(runs(forged), read("a", None, "is not there"))
    world.run()
    world.settle(generation=3)
    world.tell(observed(forged, generation=3), PodsCounted(forged.id, 1, alive=False))
    world.run()
    world.checks.clear()
    world.tell(runs(forged, generation=4))
    assert asked(world) == ["a"]


def test_a_child_without_an_owner_queues_itself(world: World) -> None:
    world.tell(observed(child("a")), observed(replace(child("a"), owner=None)))
    assert [one.ref.name for one in world.run() if isinstance(one, Admit)] == ["a"]


def test_a_pending_workload_that_gets_an_owner_leaves_its_queue(world: World) -> None:
    waits = workload("a", gpus=16)
    world.tell(observed(waits))
    world.run()
    world.tell(observed(replace(waits, owner=OWNER.ref), generation=2))
    (kept,) = world.run()
    assert kept.reason.code is Code.MISCONFIGURED  # type: ignore[union-attr]
    assert "only the topmost object queues" in kept.reason.message  # type: ignore[union-attr]


def test_nothing_is_doubted_before_all_kinds_were_listed() -> None:
    world = World(queue("cq", 16), local_queue("lq", "cq"))
    fresh = World(queue("cq", 16), local_queue("lq", "cq"))
    fresh.tell(runs(child("a")), observed(OWNER))
    assert [one.ref.name for one in fresh.checks] == []
    assert world.checks == []


@given(
    children=st.lists(st.tuples(st.integers(1, 6), st.booleans(), st.booleans()), max_size=6),
)
def test_children_that_run_unrecorded_never_hold_more_than_their_owner(
    children: list[tuple[int, bool, bool]],
) -> None:
    world = World(queue("cq", 100), local_queue("lq", "cq"))
    world.tell(ContextObserved(Gate("queuectl-jobs", T0)), observed(OWNER))
    world.run()
    world.settle()
    objects = [child(f"c{n}", gpus, created=n) for n, (gpus, _, _) in enumerate(children)]
    events: list[Event] = [
        runs(one) if up else observed(one) for one, (_, up, _) in zip(objects, children, strict=True)
    ]
    events += [WorkloadGone(one.id) for one, (_, _, gone) in zip(objects, children, strict=True) if gone]
    world.tell(runs(OWNER, generation=2), *events)
    while True:
        world.run()
        if not world.checks:
            break
        world.tell(*(OwnerRead(one.workload, OWNER.id) for one in world.checks))
        world.checks.clear()
    stopped = {one.ref.name for one in world.decided if isinstance(one, Evict)}
    left = [
        (one, gpus)
        for one, (gpus, up, gone) in zip(objects, children, strict=True)
        if up and not gone and one.ref.name not in stopped
    ]
    assert sum(gpus for _, gpus in left) <= 4
    fits = 4
    for one, (gpus, up, gone) in zip(objects, children, strict=True):  # the oldest that fit are not touched
        if up and not gone and gpus <= fits:
            fits -= gpus
            assert one.ref.name not in stopped


def test_a_child_lists_its_running_family_to_be_read(world: World) -> None:
    world.tell(runs(child("a")), observed(child("asleep")), runs(child("b", created=20)))
    world.run()
    (check,) = world.checks
    assert isinstance(check, ChildToCheck)
    assert check.family == (
        ObjectRef("ns", "Job", "a", "uid-a"),
        ObjectRef("ns", "Job", "b", "uid-b"),
    )


def test_children_that_a_list_does_not_have_are_gone(world: World) -> None:
    world.tell(runs(child("a")), Listed("Job", frozenset({OWNER.id})), runs(child("b", created=20)))
    assert asked(world) == []


def test_more_pods_than_charged_are_too_much_also_without_requests(world: World) -> None:
    many = replace(child("a"), pod_sets=(pod_set(9, {GPU: 0}),))
    world.tell(runs(many))
    assert asked(world) == ["a"]
