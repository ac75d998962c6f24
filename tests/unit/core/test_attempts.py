"""Events about one attempt do not affect another; the order of first observation persists (L4 to L12, O2)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from queuectl.core.decisions import Admit, Enqueue, Evict, Release
from queuectl.core.engine import Engine
from queuectl.core.model.events import ContextObserved, EffectSettled, Listed, PodsCounted, Result
from queuectl.core.model.policy import Gate, Namespace
from queuectl.core.model.workload import EffectKey, LedgerSnapshot, Verb, WorkloadId
from queuectl.core.queues.line import line_place
from tests.builders import (
    GPU,
    SOURCES,
    T0,
    World,
    admitted,
    flavor,
    local_queue,
    observed,
    pending_row,
    pod_set,
    policy,
    queue,
    workload,
)

LQ = local_queue("lq", "cq")
UID = WorkloadId("uid-a")


def in_its_second_attempt() -> World:
    """`a` was edited before its start, so it was released and admitted again. It starts now."""
    world = World(queue("cq", 4), LQ)
    world.submit(workload("a", gpus=1))
    world.run()
    (effect,) = world.engine.take_effects()
    world.tell(observed(workload("a", gpus=2), generation=2))
    world.tell(EffectSettled(effect.key, Result.REFUSED))
    assert [type(d) for d in world.run()] == [Release, Admit]
    return world


@pytest.mark.parametrize("result", [Result.DENIED, Result.DONE, Result.REFUSED])
def test_the_result_of_a_start_of_an_earlier_attempt_is_ignored(result: Result) -> None:
    world = in_its_second_attempt()
    world.tell(EffectSettled(EffectKey(UID, 1, Verb.START), result, 2, "no"))
    assert world.run() == []
    (effect,) = world.engine.take_effects()
    assert effect.key == EffectKey(UID, 2, Verb.START)


def test_a_start_is_not_sent_again_for_more_pods_than_charged() -> None:
    world = World(queue("cq", 4), LQ)
    world.submit(workload("a", pods=[pod_set(1, {GPU: 1})]))
    world.run()
    (effect,) = world.engine.take_effects()
    world.tell(observed(workload("a", pods=[pod_set(3, {GPU: 1})]), generation=2))
    world.tell(EffectSettled(effect.key, Result.REFUSED))
    released, again = world.run()
    assert isinstance(released, Release)
    assert isinstance(again, Admit)
    assert [p.count for p in again.attempt.assignment.pod_sets] == [3]


@pytest.mark.parametrize(
    ("asked", "least", "sent"), [(5, 1, True), (5, 2, True), (2, 1, True), (5, 3, False), (1, None, False)]
)
def test_a_start_of_fewer_pods_than_asked_is_sent_again_if_that_many_are_enough(
    asked: int, least: int | None, sent: bool
) -> None:
    """F9, L7: it holds two of the five pods that it asked for."""
    world = World(queue("cq", 2), LQ)
    world.submit(workload("a", pods=[pod_set(5, {GPU: 1}, min_count=1)]))
    (attempt,) = (d.attempt for d in world.run() if isinstance(d, Admit))
    assert attempt.assignment.pods == 2
    (effect,) = world.engine.take_effects()
    changed = workload("a", pods=[pod_set(asked, {GPU: 1}, min_count=least)])
    world.tell(observed(changed, generation=2), EffectSettled(effect.key, Result.REFUSED))
    decided = world.run()
    assert (decided == []) is sent
    if sent:
        (again,) = world.engine.take_effects()
        assert (again.key, again.attempt) == (effect.key, effect.attempt)


def test_a_pod_count_of_an_earlier_attempt_releases_no_quota() -> None:
    world = in_its_second_attempt()
    world.settle(generation=3)
    world.tell(observed(workload("a", gpus=2, hold=True), suspended=False, generation=3))
    assert [type(d) for d in world.run()] == [Evict]
    world.settle(generation=4)
    world.run()
    world.tell(PodsCounted(UID, 1, alive=False))
    assert world.run() == []
    world.tell(PodsCounted(UID, 2, alive=False))
    assert Release in [type(d) for d in world.run()]


def test_an_acknowledged_stop_releases_no_quota_while_pods_are_alive() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.tell(observed(workload("a", hold=True), suspended=False, generation=2))
    assert [type(d) for d in world.run()] == [Evict]
    world.settle(generation=3)
    world.tell(observed(workload("a", hold=True), generation=3))
    assert world.run() == []
    world.tell(PodsCounted(UID, 1, alive=True))
    assert world.run() == []


def test_a_kind_that_is_not_installed_does_not_end_its_workloads() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.tell(Listed("Job", None))
    assert world.plan().probes == ()
    assert world.run() == []


@pytest.mark.parametrize(("second", "debt"), [(-1, True), (0, False), (1, False)])
def test_a_workload_created_with_the_admission_policy_is_not_older_than_the_policy(
    second: int, debt: bool
) -> None:
    world = World(queue("cq", 4), LQ)
    world.tell(ContextObserved(Gate("queuectl-jobs", T0)))
    world.tell(observed(workload("a", created=second), suspended=False))
    (detail,) = (d.detail for d in world.run() if isinstance(d, Admit))
    assert (detail == "ran before the gate was installed") is debt


def test_a_requeued_workload_precedes_later_arrivals_of_the_same_second() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.submit(workload("later"))
    world.run()
    world.tell(observed(workload("a", hold=True), suspended=False, generation=2))
    world.run()
    world.tell(observed(workload("a"), suspended=False, generation=2))
    world.settle(generation=3)
    world.run()
    world.tell(observed(workload("a"), generation=3), PodsCounted(UID, 1, alive=False))
    assert admitted(world.run()) == ["a"]


def test_the_order_of_events_does_not_order_workloads_first_observed_together() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("b"), workload("a"), workload("c", created=-1))
    assert admitted(world.run()) == ["c"]
    world.tell(policy(queue("cq", 2)))
    assert admitted(world.run()) == ["a"]


def test_after_a_restart_new_workloads_of_the_same_second_follow_pending_ones() -> None:
    one = workload("waits")
    stored = pending_row(one, arrival=7, attempts=0)
    world = World(queue("cq", 1), LQ)
    world.engine = Engine(SOURCES)
    world.engine.restore(LedgerSnapshot(sequence=1, now=T0, workloads=(stored,)))
    world.tell(
        ContextObserved(Namespace("ns")), policy(flavor("default")), policy(queue("cq", 1)), policy(LQ)
    )
    new = workload("new")
    world.tell(Listed("policies"), observed(new), observed(one), Listed("Job", frozenset({one.id, new.id})))
    assert admitted(world.run()) == ["waits"]


def test_what_takes_the_place_of_another_is_ordered_from_its_creation_also_after_a_restart() -> None:
    """O9: the ledger has the place, and no later event changes it."""
    world = World(queue("cq", 0), LQ)
    world.submit(workload("waits", created=5))
    world.run()
    replaced = workload("replaced", created=9)
    world.tell(replace(observed(replaced), ordered_from=T0 + timedelta(seconds=1)))
    world.run()
    (queued,) = (one for one in world.decided if isinstance(one, Enqueue) and one.workload.id == replaced.id)
    assert queued.past.ordered_from == T0 + timedelta(seconds=1)
    assert queued.workload.created_at == replaced.created_at
    world.tell(observed(replaced), policy(queue("cq", 1)))
    assert admitted(world.run()) == ["replaced"]

    stored = [
        pending_row(workload("waits", created=5), arrival=1, attempts=0),
        replace(pending_row(replaced, arrival=2, attempts=0), past=queued.past),
    ]
    waits, before = (line_place(one, loses_place=True) for one in stored)
    assert waits is not None
    assert before is not None
    assert before < waits
    after = World(queue("cq", 1), LQ)
    after.engine = Engine(SOURCES)
    after.engine.restore(LedgerSnapshot(sequence=1, now=T0, workloads=tuple(stored)))
    after.tell(
        ContextObserved(Namespace("ns")), policy(flavor("default")), policy(queue("cq", 1)), policy(LQ)
    )
    events = [observed(workload("waits", created=5)), observed(replaced)]
    after.tell(Listed("policies"), *events, Listed("Job", frozenset(one.id for one in stored)))
    assert admitted(after.run()) == ["replaced"]
