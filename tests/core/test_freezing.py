"""A root that the ledger refuses stands still, the others go on; loaded again, it forgets nothing seen."""

from __future__ import annotations

from queuectl.core.decisions import Admit, Keep, Release
from queuectl.core.model import AttemptState, EffectKey, LedgerSnapshot, Phase, StoredWorkload, Verb
from queuectl.core.reasons import Code
from tests.builders import T0, World, admitted, local_queue, observed, queue, workload

LQ = local_queue("lq", "cq")


def running(world: World, *unsent: Verb) -> LedgerSnapshot:
    """What the ledger has of a world with one workload, which it has let go."""
    (entry,) = world.engine._state.entries.values()
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


def test_what_is_frozen_waits_and_is_told_so_while_other_roots_go_on() -> None:
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


def test_thawing_does_not_take_a_start_for_undone_because_the_watch_is_late() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.settle()
    world.engine.freeze("ClusterQueue/cq")
    world.engine.thaw("ClusterQueue/cq", running(world))
    assert world.engine.check() == []
    assert world.run() == []
    world.tell(observed(workload("a"), suspended=False, generation=2))
    assert world.run() == []


def test_thawing_judges_a_start_by_the_object_as_it_is() -> None:
    world = World(queue("cq", 4), LQ)
    world.submit(workload("a", gpus=1))
    world.run()
    (effect,) = world.engine.take_effects()
    world.engine.freeze("ClusterQueue/cq")
    world.tell(observed(workload("a", gpus=2), generation=2))
    world.engine.thaw("ClusterQueue/cq", running(world, effect.key.verb))
    assert world.engine.check() == []
    assert world.engine.take_effects() == []
    assert [type(d) for d in world.run()] == [Release, Admit]


def test_what_the_ledger_does_not_know_is_queued_anew_when_it_thaws() -> None:
    world = World(queue("cq", 1), LQ)
    world.submit(workload("a"))
    world.run()
    world.engine.freeze("ClusterQueue/cq")
    world.engine.thaw("ClusterQueue/cq", LedgerSnapshot(sequence=0, now=None))
    assert admitted(world.run()) == ["a"]


def test_a_plan_is_split_by_root_and_each_part_stands_for_itself() -> None:
    world = World(queue("cq", 1), queue("other", 1), LQ, local_queue("other", "other"))
    world.run()
    world.submit(workload("a"), workload("c", "other"), workload("n", "nowhere"))
    plan = world.plan()
    parts = world.engine.split(plan)
    assert [root for root, _ in parts] == ["", "ClusterQueue/cq", "ClusterQueue/other"]
    assert sorted(map(repr, plan.decisions)) == sorted(repr(d) for _, part in parts for d in part.decisions)
    for _, part in reversed(parts):
        world.engine.commit_part(part, world.sequence + 1)
        assert world.engine.check() == []
    assert world.run() == []
