"""The lifecycle of one workload with concurrent, late and repeated events, and around a crash."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuectl.core.decisions import Admit, Evict, Keep, Release, Retire
from queuectl.core.engine import Engine
from queuectl.core.model.events import (
    ContextGone,
    ContextObserved,
    EffectSettled,
    Listed,
    PodsCounted,
    PolicyGone,
    Result,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.model.policy import Gate, Namespace, QueueingStrategy, ResourceFlavor
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import (
    ConfigKey,
    EffectKey,
    LedgerSnapshot,
    Phase,
    StoredWorkload,
    Verb,
    WorkloadId,
    WorkloadOutcome,
)
from tests.builders import (
    GPU,
    SOURCES,
    T0,
    World,
    admitted,
    flavor,
    group,
    local_queue,
    observed,
    policy,
    queue,
    workload,
)
from tests.doubles import engine_state

LQ = local_queue("lq", "cq")
STRICT = QueueingStrategy.STRICT_FIFO


def codes(world: World) -> dict[str, Code]:
    return {d.ref.name: d.reason.code for d in world.run() if isinstance(d, Keep)}


def test_a_workload_started_past_the_admission_policy_runs_on_after_the_policy_is_removed() -> None:
    world = World(queue("cq", 1), LQ)
    world.tell(ContextObserved(Gate("queuectl-jobs", T0)))
    one = workload("a", created=5)
    world.submit(one)
    world.run()
    world.engine.take_effects()
    passed = workload("passed", created=6)
    world.tell(observed(passed, suspended=False, bypassed_by="admin"))
    assert admitted(world.run()) == ["passed"]
    world.tell(ContextGone(Gate, "queuectl-jobs"))
    world.tell(observed(passed, suspended=False, bypassed_by="admin", generation=2))
    assert world.run() == []


def test_a_workload_that_starts_without_an_admission_policy_is_charged_and_stopped_at_once() -> None:
    world = World(queue("cq", 1), LQ)
    world.tell(ContextObserved(Gate("queuectl-jobs", T0)), ContextGone(Gate, "queuectl-jobs"))
    world.tell(observed(workload("slipped", created=5), suspended=False))
    made = world.run()
    assert [type(d) for d in made] == [Admit, Evict]
    assert [d.reason.code for d in made if isinstance(d, Evict)] == [Code.BYPASS]
    assert [effect.key.verb for effect in world.engine.take_effects()] == [Verb.STOP]
    world.tell(ContextObserved(Gate("queuectl-jobs", T0)))
    assert world.run() == []


def restarted(world: World, unsent: Verb, *jobs: WorkloadObserved) -> World:
    """Return a cluster after a crash: one admission is in the ledger, its start is not acknowledged."""
    (effect,) = world.engine.take_effects()
    one = effect.workload
    stored = StoredWorkload(
        id=one.id,
        ref=one.ref,
        queue="lq",
        cluster_queue="cq",
        priority=0,
        created_at=one.created_at,
        arrival=1,
        phase=Phase.ADMITTED,
        attempts=1,
        attempt=effect.attempt,
        reason=None,
    )
    world.engine = Engine(SOURCES)
    key = EffectKey(one.id, 1, unsent)
    world.engine.restore(LedgerSnapshot(sequence=3, now=T0, workloads=(stored,), effects=(key,)))
    world.tell(ContextObserved(Namespace("ns")), policy(flavor("default")), policy(queue("cq", 4)))
    world.tell(policy(LQ), Listed("policies"), *jobs)
    world.tell(Listed("Job", frozenset(job.workload.id for job in jobs)))
    return world


def test_a_workload_edited_between_a_crash_and_its_start_is_not_started_on_the_old_charge() -> None:
    world = World(queue("cq", 4), LQ)
    world.submit(workload("a", gpus=1))
    world.run()
    world = restarted(world, Verb.START, observed(workload("a", gpus=3), generation=2))
    assert world.engine.take_effects() == []
    assert [type(d) for d in world.run()] == [Release, Admit]


def test_a_workload_edited_before_its_start_is_sent_is_not_started_on_the_old_charge() -> None:
    world = World(queue("cq", 4), LQ)
    world.submit(workload("a", gpus=1))
    world.run()
    world.submit(workload("a", gpus=1))
    world.tell(observed(workload("a", gpus=3), generation=2))
    assert world.engine.take_effects() == []
    assert [type(d) for d in world.run()] == [Release, Admit]


def test_a_workload_started_before_a_crash_runs_on_although_its_queue_changed() -> None:
    world = World(queue("cq", 4), LQ)
    world.submit(workload("a", gpus=1))
    world.run()
    (admit,) = (e.attempt for e in engine_state.entries(world.engine).values())
    runs = observed(workload("a", "elsewhere"), suspended=False, generation=2, admission=admit)
    world = restarted(world, Verb.START, runs)
    assert world.run() == []
    assert [effect.key.verb for effect in world.engine.take_effects()] == [Verb.START]


def test_what_ends_while_its_start_is_on_its_way_holds_its_quota_until_the_start_is_settled() -> None:
    """A pod of a group that the start reaches late would run without quota."""
    world = World(queue("cq", 4), LQ)
    world.submit(workload("a"))
    world.run()
    (start,) = world.engine.take_effects()
    ended = observed(
        workload("a"), suspended=False, generation=2, finished=WorkloadOutcome.SUCCEEDED, quiet=True
    )
    world.tell(ended)
    assert world.run() == []
    world.tell(EffectSettled(start.key, Result.DONE, 2))
    assert [type(d) for d in world.run()] == [Retire]


def test_what_ends_while_it_is_evicted_holds_its_quota_until_its_stop_is_settled() -> None:
    """The stop follows a start that is on its way: a pod of a group that the start reaches runs."""
    world = World(queue("cq", 4), LQ)
    world.submit(workload("a"))
    world.run()
    world.engine.take_effects()
    world.tell(observed(workload("a", hold=True), suspended=False, generation=2))
    assert [type(d) for d in world.run()] == [Evict]
    ended = observed(
        workload("a", hold=True),
        suspended=False,
        generation=2,
        finished=WorkloadOutcome.SUCCEEDED,
        quiet=True,
    )
    world.tell(ended)
    assert world.run() == []
    world.settle()
    assert [type(d) for d in world.run()] == [Retire]


@pytest.mark.parametrize("evicted", [False, True])
def test_what_is_deleted_while_a_write_is_on_its_way_holds_its_quota_until_that_is_settled(
    evicted: bool,
) -> None:
    """A group is gone with the only pod of it that ran, and its start may reach another."""
    world = World(queue("cq", 4), LQ)
    world.submit(workload("a"))
    world.run()
    (write,) = world.engine.take_effects()
    if evicted:
        world.tell(observed(workload("a", hold=True), suspended=False, generation=2))
        world.run()
        (write,) = world.engine.take_effects()
    world.tell(WorkloadGone(WorkloadId("uid-a")))
    world.run()
    counted = PodsCounted(WorkloadId("uid-a"), 1, alive=False)
    world.tell(counted)
    assert world.run() == []
    world.tell(EffectSettled(write.key, Result.GONE))
    made = world.run()
    world.tell(counted)  # after a stop they are counted again
    assert [type(d) for d in (*made, *world.run())] == [Retire]


def test_after_a_crash_the_start_of_what_has_ended_is_settled_before_its_quota_returns() -> None:
    world = World(queue("cq", 4), LQ)
    world.submit(workload("a"))
    world.run()
    (admit,) = (e.attempt for e in engine_state.entries(world.engine).values())
    outcome = WorkloadOutcome.SUCCEEDED
    ended = observed(
        workload("a"), suspended=False, generation=2, admission=admit, finished=outcome, quiet=True
    )
    world = restarted(world, Verb.START, ended)
    assert world.run() == []
    (start,) = world.engine.take_effects()
    world.tell(EffectSettled(start.key, Result.REFUSED), ended)
    assert [type(d) for d in world.run()] == [Retire]


def test_a_read_from_before_a_deletion_does_not_restore_the_workload() -> None:
    world = World(queue("cq", 0), LQ)
    world.submit(workload("a"))
    world.run()
    stale = observed(workload("a"), generation=2)
    stale = replace(stale, observation=replace(stale.observation, resource_version="5"))
    world.tell(WorkloadGone(WorkloadId("uid-a"), "7"), stale)
    assert [type(d) for d in world.run()] == [Retire]


def test_a_watch_event_from_before_a_deletion_is_no_suspension_by_another_client() -> None:
    world = World(queue("cq", 8), LQ)
    world.submit(workload("a"))
    world.run()
    # Deleted before its start was sent: the result of the start arrives before the earlier watch events.
    (start,) = world.engine.take_effects()
    world.tell(EffectSettled(start.key, Result.GONE), observed(workload("a")))
    assert [decision for decision in world.run() if isinstance(decision, Evict)] == []


def test_a_refused_start_is_not_sent_again_to_a_workload_on_hold() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    (effect,) = world.engine.take_effects()
    held = observed(workload("a", hold=True), generation=2)
    world.tell(held, EffectSettled(effect.key, Result.REFUSED))
    (evict,) = world.run()
    assert isinstance(evict, Evict)
    assert [effect.key.verb for effect in world.engine.take_effects()] == [Verb.STOP]


def test_a_stop_that_is_refused_is_sent_again() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.tell(observed(workload("a", hold=True), suspended=False, generation=2))
    world.run()
    world.settle(Result.REFUSED)
    assert [effect.key.verb for effect in world.engine.take_effects()] == [Verb.STOP]


def test_the_result_of_a_start_superseded_by_a_stop_is_ignored() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    (start,) = world.engine.take_effects()
    world.submit(workload("a", hold=True))
    world.run()
    (stop,) = world.engine.take_effects()
    world.tell(EffectSettled(start.key, Result.DONE, 2), EffectSettled(start.key, Result.REFUSED))
    assert world.plan().probes == ()
    assert world.engine.unacknowledged() == {stop.key}
    world.tell(EffectSettled(stop.key, Result.DONE, 3))
    assert len(world.plan().probes) == 1


def test_a_read_overtaken_by_the_watch_is_ignored() -> None:
    world = World(queue("cq", 0), queue("other", 0), LQ, local_queue("other", "other"))
    newer, older = observed(workload("a", "other")), observed(workload("a", "lq"))
    newer = replace(newer, observation=replace(newer.observation, resource_version="12"))
    older = replace(older, observation=replace(older.observation, resource_version="9"))
    world.tell(newer)
    world.tell(older)
    (keep,) = world.run()
    assert isinstance(keep, Keep)
    assert keep.reason.node == "ClusterQueue/other"


def test_a_new_object_with_the_same_name_is_another_workload() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    again = replace(workload("a", created=9), id=WorkloadId("uid-2"))
    again = replace(again, ref=again.ref._replace(uid="uid-2"))
    world.tell(WorkloadGone(WorkloadId("uid-a")), observed(again))
    assert codes(world) == {"a": Code.WAITING_FOR_QUOTA}
    world.tell(PodsCounted(WorkloadId("uid-a"), 1, alive=False))
    decisions = world.run()
    assert [type(d) for d in decisions] == [Retire, Admit]
    assert [d.attempt.workload for d in decisions if isinstance(d, Admit)] == ["uid-2"]


def test_a_pod_count_is_void_once_the_object_is_observed_again() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.tell(WorkloadGone(WorkloadId("uid-a")))
    world.run()
    world.tell(
        PodsCounted(WorkloadId("uid-a"), 1, alive=False),
        observed(
            workload("a"), suspended=False, generation=2, finished=WorkloadOutcome.SUCCEEDED, quiet=False
        ),
    )
    assert len(world.plan().probes) == 1


def test_a_count_that_began_before_the_object_ran_again_releases_nothing() -> None:
    """Another client started it after its stop, and suspended it again: its pods may be alive (L31)."""
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.tell(observed(workload("a"), generation=3))
    world.run()
    world.settle(generation=3)
    world.run()
    counted = PodsCounted(WorkloadId("uid-a"), 1, alive=False)
    world.tell(observed(workload("a"), suspended=False, generation=4), observed(workload("a"), generation=5))
    world.tell(counted)
    plan = world.plan()
    assert (plan.decisions, len(plan.probes)) == ((), 1)
    world.commit(plan)
    world.tell(counted)
    assert isinstance(world.run()[0], Release)


def test_with_an_exhausted_event_budget_the_pending_queues_are_still_due() -> None:
    world = World(queue("cq", 9), LQ)
    world.submit(*(workload(f"w{n}") for n in range(5)))
    plan = world.plan(5)
    assert (len(plan.decisions) >= 5, plan.more) == (True, True)


def test_after_a_flavor_is_renamed_the_old_one_is_released_only_when_its_workload_ends() -> None:
    world = World(flavor("old"), flavor("new"), queue("cq", groups=[group({"old": {GPU: 1}})]), LQ)
    world.submit(workload("a"), workload("b", created=1))
    world.run()
    world.settle()
    world.tell(policy(queue("cq", groups=[group({"new": {GPU: 1}})])))
    made = world.run()
    assert admitted(made) == ["b"]
    (_, (report,), _) = world.engine.take_reports()
    assert dict(report.used) == {("new", GPU): 1}


def test_a_recreated_queue_still_has_its_usage() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"), workload("b", created=1))
    world.run()
    world.settle()
    world.tell(PolicyGone(ConfigKey("ClusterQueue", "", "cq")))
    assert codes(world) == {"b": Code.QUEUE_NOT_FOUND}
    world.tell(policy(queue("cq", 1)))
    assert codes(world) == {"b": Code.WAITING_FOR_QUOTA}
    world.tell(observed(workload("a"), suspended=False, finished=WorkloadOutcome.SUCCEEDED, generation=2))
    assert admitted(world.run()) == ["b"]


def test_a_flavor_without_users_does_not_leave_a_decision_open() -> None:
    world = World(flavor("old"), flavor("new"), queue("cq", groups=[group({"old": {GPU: 1}})]), LQ)
    world.submit(workload("a"))
    world.run()
    (effect,) = world.engine.take_effects()
    world.tell(policy(queue("cq", groups=[group({"new": {GPU: 0}})])))
    world.run()
    world.tell(PolicyGone(ConfigKey("ResourceFlavor", "", "old")), EffectSettled(effect.key, Result.REFUSED))
    assert world.engine.due
    world.tell(policy(ResourceFlavor(name="old")))
    plan = world.plan()
    assert world.engine.due is bool(plan.decisions or plan.probes)
