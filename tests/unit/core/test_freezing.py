"""A tree that the ledger refuses is frozen and the others continue; a reload keeps all observations."""

from __future__ import annotations

import pytest

from queuectl.core.decisions import Admit, Evict, Keep, Release
from queuectl.core.model.policy import Preemption, PreemptionPolicy
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import AttemptState, EffectKey, LedgerSnapshot, Phase, StoredWorkload, Verb
from tests.builders import T0, World, admitted, local_queue, observed, priority, queue, workload
from tests.doubles import engine_state
from tests.doubles.invariants import violations

LQ = local_queue("lq", "cq")


def running(world: World, *unsent: Verb) -> LedgerSnapshot:
    """Return the ledger content of a cluster with one admitted workload."""
    (entry,) = engine_state.entries(world.engine).values()
    assert entry.attempt is not None
    assert entry.attempt.state is AttemptState.ADMITTED
    stored = StoredWorkload(
        id=entry.id,
        ref=entry.ref,
        queue="lq",
        cluster_queue="cq",
        priority=0,
        created_at=T0,
        arrival=1,
        phase=Phase.ADMITTED,
        attempts=1,
        attempt=entry.attempt,
        reason=None,
    )
    effects = tuple(EffectKey(entry.id, 1, verb) for verb in unsent)
    return LedgerSnapshot(sequence=world.sequence, now=T0, workloads=(stored,), effects=effects)


def test_a_frozen_tree_reports_ledger_mismatch_while_other_trees_continue() -> None:
    world = World(queue("cq", 1), queue("other", 1), LQ, local_queue("other", "other"))
    world.submit(workload("a"), workload("b", created=1))
    assert admitted(world.run()) == ["a"]
    world.engine.freeze("ClusterQueue/cq")
    world.submit(workload("c", "other"))
    decisions = world.run()
    assert admitted(decisions) == ["c"]
    assert {d.ref.name: d.reason.code for d in decisions if isinstance(d, Keep)} == {
        "b": Code.LEDGER_MISMATCH
    }
    assert world.engine.frozen == {"ClusterQueue/cq"}


def test_after_a_reload_a_late_watch_does_not_make_a_start_look_undone() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.engine.freeze("ClusterQueue/cq")
    world.engine.thaw("ClusterQueue/cq", running(world))
    assert violations(world.engine) == []
    assert world.run() == []
    world.tell(observed(workload("a"), suspended=False, generation=2))
    assert world.run() == []


def test_after_a_reload_a_start_is_checked_against_the_current_object() -> None:
    world = World(queue("cq", 4), LQ)
    world.submit(workload("a", gpus=1))
    world.run()
    (effect,) = world.engine.take_effects()
    world.engine.freeze("ClusterQueue/cq")
    world.tell(observed(workload("a", gpus=2), generation=2))
    world.engine.thaw("ClusterQueue/cq", running(world, effect.key.verb))
    assert violations(world.engine) == []
    assert world.engine.take_effects() == []
    assert [type(d) for d in world.run()] == [Release, Admit]


def test_after_a_reload_workloads_missing_in_the_ledger_are_queued() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.engine.freeze("ClusterQueue/cq")
    world.engine.thaw("ClusterQueue/cq", LedgerSnapshot(sequence=0, now=None))
    assert admitted(world.run()) == ["a"]


@pytest.mark.parametrize(("aside", "victim"), [("a", "b"), ("b", "a")])
def test_a_workload_that_is_set_aside_is_no_victim_and_gets_no_decision(aside: str, victim: str) -> None:
    preempting = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = World(queue("cq", 2, preemption=preempting), LQ)
    world.tell(priority("high", 2))
    world.submit(workload("a", gpus=1), workload("b", gpus=1, created=1))
    world.run()
    world.engine.freeze(f"uid-{aside}")
    world.submit(workload("c", gpus=1, created=2, priority_class="high"))
    assert {d.ref.name for d in world.run() if isinstance(d, Evict)} == {victim}
    world.tell(observed(workload(aside, gpus=1, hold=True), suspended=False, generation=2))
    assert world.run() == []
    assert violations(world.engine) == []
    assert world.engine.cluster_report().set_aside == 1


def test_a_plan_is_split_by_root_into_independent_parts() -> None:
    world = World(queue("cq", 1), queue("other", 1), LQ, local_queue("other", "other"))
    world.run()
    world.submit(workload("a"), workload("c", "other"), workload("n", "nowhere"))
    plan = world.plan()
    parts = world.engine.split(plan)
    assert [root for root, _ in parts] == ["", "ClusterQueue/cq", "ClusterQueue/other"]
    assert sorted(map(repr, plan.decisions)) == sorted(repr(d) for _, part in parts for d in part.decisions)
    for _, part in reversed(parts):
        world.engine.commit_part(part, world.sequence + 1)
        assert violations(world.engine) == []
    assert world.run() == []
