"""How many rows work costs that waits: all queues are full, and work comes and ends all the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from queuectl.core.decisions import Plan, Verdict
from queuectl.core.model.policy import (
    FlavorQuotas,
    Preemption,
    PreemptionPolicy,
    ResourceGroup,
    ResourceQuota,
)
from queuectl.scenarios.arrivals import Arrival
from queuectl.simulation.player import Play
from tests.builders import GPU, T0, World, local_queue, priority, queue, workload

QUEUES = tuple(f"q{number}" for number in range(6))
CLASSES = (
    ("small", 50, 35, 100, 200, 1),
    ("medium", 100, 10, 500, 500, 5),
    ("large", 200, 5, 1200, 1000, 20),
)
"""Name, priority, Jobs in each queue, milliseconds between them, milliseconds that one runs, GPUs."""
STEP = 50
"""Milliseconds: what happens within them is decided together, as the controller does."""


def contended() -> World:
    """Queues of 20 GPUs each that borrow from each other, reclaim, and preempt lower priority."""
    lent = FlavorQuotas(name="default", resources=((GPU, ResourceQuota(nominal=20, borrowing_limit=100)),))
    rules = Preemption(
        reclaim_within_cohort=PreemptionPolicy.ANY, within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY
    )
    world = World(
        *(
            queue(
                name, groups=[ResourceGroup(covered=(GPU,), flavors=(lent,))], cohort="all", preemption=rules
            )
            for name in QUEUES
        ),
        *(local_queue(name, name) for name in QUEUES),
    )
    world.tell(*(priority(name, value) for name, value, *_ in CLASSES))
    world.run()
    return world


def arrivals() -> Iterator[Arrival]:
    for where in QUEUES:
        for name, _, count, every, runs, gpus in CLASSES:
            for number in range(count):
                at = (number * every // STEP + 1) * STEP
                job = workload(
                    f"{where}-{name}-{number}", where, gpus, created=at // 1000, priority_class=name
                )
                yield Arrival(at=at, workload=job, run=runs)


def test_a_workload_that_waits_under_contention_gets_about_one_row_for_each_time_that_it_waits() -> None:
    """R2: which preempts which, what is protected, in use or reserved moves all the time."""
    world, rows = contended(), Counter[Verdict]()
    commit = world.engine.commit

    def counted(plan: Plan, first: int) -> None:
        rows.update(decision.verdict for decision in plan.recorded)
        commit(plan, first)

    world.engine.commit = counted  # type: ignore[method-assign]
    work = list(arrivals())
    played = Play(world.engine, T0, eviction_seconds=STEP / 1000).play(work)
    assert all(life.finished for life in played.lives)
    assert rows[Verdict.QUEUED] == rows[Verdict.RETIRED] == len(work) == 300
    waits = rows[Verdict.QUEUED] + rows[Verdict.RELEASED]
    assert waits > 1.2 * len(work), "there is contention: some work is preempted"
    assert rows[Verdict.PENDING] <= 1.25 * waits, rows
