"""An admin releases the quota of a workload although pods of it exist (L28)."""

from __future__ import annotations

import pytest

from queuectl.core.decisions import Admit, Decision, Release, Retire
from queuectl.core.engine import Engine
from queuectl.core.model.events import ContextObserved, Listed, PodObserved
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import Gate, Namespace
from queuectl.core.model.resources import amounts
from queuectl.core.model.workload import (
    Attempt,
    ForcedRelease,
    LedgerSnapshot,
    Phase,
    StoredWorkload,
    WorkloadOutcome,
)
from tests.builders import (
    GPU,
    SOURCES,
    T0,
    World,
    flavor,
    local_queue,
    observed,
    policy,
    queue,
    workload,
)
from tests.doubles import engine_state
from tests.unit.core.node_worlds import node

OURS = ForcedRelease(1, "ann", "node n0 is scrap")
HELD = workload("a", created=5, hold=True)


def evicting() -> World:
    """Workload `a` is being evicted, its stop is acknowledged, and a pod of it is on a node."""
    world = World(queue("cq", 1), local_queue("lq", "cq"))
    world.tell(ContextObserved(node("n0", 1)))
    world.submit(workload("a", created=5))
    world.run()
    world.settle(generation=2)
    world.tell(observed(workload("a", created=5), suspended=False, generation=2))
    bound = Pod(uid="p", namespace="ns", name="p", node="n0", requests=amounts({GPU: 1}), workload=HELD.id)
    world.tell(PodObserved(bound), observed(HELD, suspended=False, generation=2))
    world.run()
    return world


def released(decisions: list[Decision]) -> list[str]:
    return [one.detail for one in decisions if isinstance(one, Release)]


@pytest.mark.parametrize(
    ("mark", "stopped", "details"),
    [
        (OURS, True, ["by force, by ann: node n0 is scrap"]),
        (OURS, False, []),
        (OURS._replace(attempt=2), True, []),
        (None, True, []),
    ],
    ids=[
        "the attempt that is being evicted is released",
        "not before its stop is acknowledged",
        "a release of another attempt counts for nothing",
        "without a release its quota is held",
    ],
)
def test_an_evicted_workload_whose_pods_do_not_end(
    mark: ForcedRelease | None, stopped: bool, details: list[str]
) -> None:
    world = evicting()
    if stopped:
        world.settle(generation=3)
    world.tell(observed(HELD, generation=3, release=mark))
    made = world.run()
    assert released(made) == details
    entry = engine_state.entry(world.engine, HELD.id)
    assert entry.phase is (Phase.PENDING if details else Phase.EVICTING)


def test_a_running_workload_is_not_released_by_force() -> None:
    world = World(queue("cq", 1), local_queue("lq", "cq"))
    world.submit(workload("a"))
    world.run()
    world.settle(generation=2)
    world.tell(observed(workload("a"), suspended=False, generation=2, release=OURS))
    assert world.run() == []


def test_a_workload_that_is_over_is_released_and_then_retired() -> None:
    world = evicting()
    world.settle(generation=3)
    over = {"generation": 3, "finished": WorkloadOutcome.DELETED, "quiet": False}
    world.tell(observed(HELD, **over))
    assert not [one for one in world.run() if isinstance(one, Release | Retire)]
    world.tell(observed(HELD, **over, release=OURS))
    made = world.run()
    assert [type(one) for one in made if isinstance(one, Release | Retire)] == [Release, Retire]


def test_its_quota_is_free_and_its_pods_keep_their_room() -> None:
    world = evicting()
    world.settle(generation=3)
    world.submit(workload("b", created=6))
    world.run()
    world.tell(observed(HELD, generation=3, release=OURS))
    world.run()
    reason = world.reason("b")
    assert reason is not None
    assert reason.code == "CapacityMissing"
    world.tell(ContextObserved(node("n1", 1)))
    assert [one.ref.name for one in world.run() if isinstance(one, Admit)] == ["b"]


def test_its_next_attempt_is_not_released_by_the_same_mark() -> None:
    world = evicting()
    world.settle(generation=3)
    world.tell(observed(HELD, generation=3, release=OURS))
    world.run()
    world.tell(ContextObserved(node("n1", 1)))
    free = workload("a", created=5)
    world.tell(observed(free, generation=3, release=OURS))
    assert [one.attempt.number for one in world.run() if isinstance(one, Admit)] == [2]
    world.settle(generation=4)
    world.tell(observed(HELD, suspended=False, generation=4, release=OURS))
    world.run()
    world.settle(generation=5)
    world.tell(observed(HELD, generation=5, release=OURS))
    assert released(world.run()) == []


def attacked() -> World:
    """Workload `a` had a mark before it was admitted; it was evicted, and a pod of it lives."""
    world = World(queue("cq", 1), local_queue("lq", "cq"))
    world.tell(ContextObserved(node("n0", 1)), observed(workload("a", created=5), release=OURS))
    assert [one.attempt.number for one in world.run() if isinstance(one, Admit)] == [1]
    world.settle(generation=2)
    bound = Pod(uid="p", namespace="ns", name="p", node="n0", requests=amounts({GPU: 1}), workload=HELD.id)
    world.tell(PodObserved(bound), observed(HELD, suspended=False, generation=2, release=OURS))
    world.run()
    world.settle(generation=3)
    world.tell(observed(HELD, generation=3, release=OURS))
    return world


def test_a_mark_that_was_there_when_it_was_admitted_releases_nothing() -> None:
    world = attacked()
    assert released(world.run()) == []
    assert engine_state.entry(world.engine, HELD.id).phase is Phase.EVICTING
    world.tell(observed(HELD, generation=3, release=OURS._replace(reason="the node is scrap, really")))
    assert released(world.run()) == ["by force, by ann: the node is scrap, really"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_mark_that_was_there_when_it_was_started_by_hand_releases_nothing(restarted: bool) -> None:
    world = World(queue("cq", 1), local_queue("lq", "cq"))
    world.tell(ContextObserved(node("n0", 1)), ContextObserved(Gate("queuectl-jobs", T0)))
    world.tell(observed(workload("a", created=5), release=OURS))
    world.tell(observed(workload("a", created=5), suspended=False, generation=2, release=OURS))
    (admit,) = (one for one in world.run() if isinstance(one, Admit))
    assert admit.attempt.debt
    if restarted:
        world = again(admit.attempt)
        world.tell(observed(workload("a", created=5), suspended=False, generation=2, release=OURS))
        world.tell(Listed("Job", frozenset({HELD.id})), ContextObserved(node("n0", 1)))
    bound = Pod(uid="p", namespace="ns", name="p", node="n0", requests=amounts({GPU: 1}), workload=HELD.id)
    world.tell(PodObserved(bound), observed(HELD, suspended=False, generation=2, release=OURS))
    world.run()
    world.settle(generation=3)
    world.tell(observed(HELD, generation=3, release=OURS))
    assert released(world.run()) == []
    world.tell(observed(HELD, generation=3, release=OURS._replace(by="bea")))
    assert released(world.run()) == ["by force, by bea: node n0 is scrap"]


def again(attempt: Attempt) -> World:
    """A controller that starts while the ledger has this open attempt of workload `a`."""
    one = workload("a", created=5)
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
        attempt=attempt,
        reason=None,
        pod_sets=one.pod_sets,
    )
    world = World(queue("cq", 1), local_queue("lq", "cq"))
    world.engine = Engine(SOURCES)
    world.engine.restore(LedgerSnapshot(sequence=3, now=T0, workloads=(stored,)))
    world.sequence = 3
    world.tell(ContextObserved(Namespace("ns")), policy(flavor("default")), policy(queue("cq", 1)))
    world.tell(policy(local_queue("lq", "cq")), Listed("policies"))
    return world
