"""One workload's life when things happen at once, late, twice, or around a crash."""

from __future__ import annotations

from dataclasses import replace

from queuectl.core.decisions import Admit, Evict, Keep, Release, Retire
from queuectl.core.engine import Engine
from queuectl.core.events import (
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
from queuectl.core.model import (
    ConfigKey,
    EffectKey,
    LedgerSnapshot,
    Outcome,
    Phase,
    StoredWorkload,
    Verb,
    WorkloadId,
)
from queuectl.core.policy import Gate, Namespace, QueueingStrategy, ResourceFlavor
from queuectl.core.reasons import Code
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

LQ = local_queue("lq", "cq")
STRICT = QueueingStrategy.STRICT_FIFO


def codes(world: World) -> dict[str, Code]:
    return {d.ref.name: d.reason.code for d in world.run() if isinstance(d, Keep)}


def test_one_let_past_the_gate_is_not_stopped_because_the_gate_is_gone_later() -> None:
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


def test_one_that_starts_while_no_gate_is_in_force_is_charged_and_stopped_at_once() -> None:
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
    """The world after a crash: its one admission is in the ledger, the write of it not acknowledged."""
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


def test_one_edited_between_a_crash_and_its_start_is_not_started_on_the_old_charge() -> None:
    world = World(queue("cq", 4), LQ)
    world.submit(workload("a", gpus=1))
    world.run()
    world = restarted(world, Verb.START, observed(workload("a", gpus=3), generation=2))
    assert world.engine.take_effects() == []
    assert [type(d) for d in world.run()] == [Release, Admit]


def test_one_edited_before_its_start_is_handed_out_is_not_started_on_the_old_charge() -> None:
    world = World(queue("cq", 4), LQ)
    world.submit(workload("a", gpus=1))
    world.run()
    world.submit(workload("a", gpus=1))
    world.tell(observed(workload("a", gpus=3), generation=2))
    assert world.engine.take_effects() == []
    assert [type(d) for d in world.run()] == [Release, Admit]


def test_one_whose_start_was_done_before_a_crash_runs_on_although_its_queue_changed() -> None:
    world = World(queue("cq", 4), LQ)
    world.submit(workload("a", gpus=1))
    world.run()
    (admit,) = (e.attempt for e in world.engine._state.entries.values())
    runs = observed(workload("a", "elsewhere"), suspended=False, generation=2, admission=admit)
    world = restarted(world, Verb.START, runs)
    assert world.run() == []
    assert [effect.key.verb for effect in world.engine.take_effects()] == [Verb.START]


def test_a_read_from_before_its_deletion_does_not_bring_one_back() -> None:
    world = World(queue("cq", 0), LQ)
    world.submit(workload("a"))
    world.run()
    stale = observed(workload("a"), generation=2)
    stale = replace(stale, observation=replace(stale.observation, resource_version="5"))
    world.tell(WorkloadGone(WorkloadId("uid-a"), "7"), stale)
    assert [type(d) for d in world.run()] == [Retire]


def test_a_watch_event_from_before_its_deletion_is_no_suspension_by_somebody_else() -> None:
    world = World(queue("cq", 8), LQ)
    world.submit(workload("a"))
    world.run()
    # Deleted before its start was sent: that is heard of before the watch tells what came first.
    (start,) = world.engine.take_effects()
    world.tell(EffectSettled(start.key, Result.GONE), observed(workload("a")))
    assert [decision for decision in world.run() if isinstance(decision, Evict)] == []


def test_a_start_that_is_refused_is_not_sent_again_to_one_on_hold() -> None:
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


def test_a_start_that_was_superseded_by_a_stop_says_nothing_when_it_is_settled() -> None:
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


def test_a_read_that_was_overtaken_by_the_watch_says_nothing() -> None:
    world = World(queue("cq", 0), queue("other", 0), LQ, local_queue("other", "other"))
    newer, older = observed(workload("a", "other")), observed(workload("a", "lq"))
    newer = replace(newer, observation=replace(newer.observation, resource_version="12"))
    older = replace(older, observation=replace(older.observation, resource_version="9"))
    world.tell(newer)
    world.tell(older)
    (keep,) = world.run()
    assert isinstance(keep, Keep)
    assert keep.reason.node == "ClusterQueue/other"


def test_a_name_that_comes_back_is_another_workload() -> None:
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


def test_a_count_of_the_pods_is_void_once_the_object_is_seen_again() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.tell(WorkloadGone(WorkloadId("uid-a")))
    world.run()
    world.tell(
        PodsCounted(WorkloadId("uid-a"), 1, alive=False),
        observed(workload("a"), suspended=False, generation=2, finished=Outcome.SUCCEEDED, quiet=False),
    )
    assert len(world.plan().probes) == 1


def test_a_full_budget_of_events_says_that_the_lines_are_still_to_be_looked_at() -> None:
    world = World(queue("cq", 9), LQ)
    world.submit(*(workload(f"w{n}") for n in range(5)))
    plan = world.plan(5)
    assert (len(plan.decisions) >= 5, plan.more) == (True, True)


def test_a_flavor_renamed_in_the_queue_frees_what_the_old_one_held_only_when_it_ends() -> None:
    world = World(flavor("old"), flavor("new"), queue("cq", groups=[group({"old": {GPU: 1}})]), LQ)
    world.submit(workload("a"), workload("b", created=1))
    world.run()
    world.settle()
    world.tell(policy(queue("cq", groups=[group({"new": {GPU: 1}})])))
    made = world.run()
    assert admitted(made) == ["b"]
    (_, (report,), _) = world.engine.take_reports()
    assert dict(report.used) == {("new", GPU): 1}


def test_a_queue_deleted_and_made_again_still_holds_what_was_charged() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"), workload("b", created=1))
    world.run()
    world.settle()
    world.tell(PolicyGone(ConfigKey("ClusterQueue", "", "cq")))
    assert codes(world) == {"b": Code.QUEUE_NOT_FOUND}
    world.tell(policy(queue("cq", 1)))
    assert codes(world) == {"b": Code.WAITING_FOR_QUOTA}
    world.tell(observed(workload("a"), suspended=False, finished=Outcome.SUCCEEDED, generation=2))
    assert admitted(world.run()) == ["b"]


def test_a_flavor_that_nobody_uses_any_more_does_not_leave_a_decision_undone() -> None:
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
