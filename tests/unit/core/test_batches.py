"""The same events in other batches: budgets, order within a batch, and repetition do not matter."""

from __future__ import annotations

from queuectl.core.model.events import EffectSettled, Event, Listed, Result
from queuectl.core.model.policy import QueueingStrategy
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import WorkloadId, WorkloadOutcome
from tests.builders import (
    GPU,
    World,
    flavor,
    group,
    local_queue,
    observed,
    policy,
    priority,
    queue,
    workload,
)
from tests.doubles import engine_state

LQ = local_queue("lq", "cq")


def end(budget: int) -> tuple[dict[str, str], dict[str, Code]]:
    """Return the flavors of the admitted workloads and the reasons of the others after two rounds."""
    groups = [group({"f1": {GPU: 7}, "f2": {GPU: 3}})]
    strict = queue("strict", 4, strategy=QueueingStrategy.STRICT_FIFO)
    world = World(flavor("f1"), flavor("f2"), flavor("default"), queue("cq", groups=groups), strict, LQ)
    world.tell(policy(local_queue("s", "strict")), priority("high", 2))
    for name, count in (("lq", 14), ("s", 7), ("none", 2)):
        for n in range(count):
            klass = "high" if n % 3 == 1 else None
            world.submit(workload(f"{name}{n}", name, 1 + n % 3, created=n % 4, priority_class=klass))
    world.run(budget)
    done = [e for e in world.engine.take_effects() if e.workload.ref.name.endswith(("1", "2"))]
    world.tell(
        *(EffectSettled(effect.key, Result.DONE, 2) for effect in done),
        *(
            observed(effect.workload, suspended=False, finished=WorkloadOutcome.SUCCEEDED, generation=2)
            for effect in done
        ),
    )
    assert world.run(budget)
    entries = engine_state.entries(world.engine).values()
    held = {e.ref.name: e.attempt.assignment.pod_sets[0].flavors[0][1] for e in entries if e.attempt}
    return held, {e.ref.name: e.reason.code for e in entries if e.reason}


def test_every_budget_size_leads_to_the_same_result() -> None:
    ends = [end(budget) for budget in (*range(1, 26), 1000)]
    held, waiting = ends[0]
    assert set(held.values()) == {"f1", "f2", "default"}
    assert set(waiting.values()) == {Code.WAITING_FOR_QUOTA, Code.WAITING_FOR_HEAD, Code.QUEUE_NOT_FOUND}
    assert all(found == ends[0] for found in ends)


def test_the_order_of_events_in_one_batch_does_not_matter() -> None:
    def plan(reverse: bool) -> object:
        world = World(queue("cq", 2), queue("empty", 0), LQ, local_queue("x", "empty"))
        events: list[Event] = [
            *(observed(workload(f"w{n}", created=n % 3, gpus=1 + n % 2)) for n in range(9)),
            *(observed(workload(f"x{n}", "x", created=n % 2)) for n in range(4)),
            *(observed(workload(f"n{n}", "nowhere")) for n in range(3)),
            priority("any", 3),
        ]
        world.tell(*(reversed(events) if reverse else events))
        made = [world.plan()]
        world.commit(made[0])
        made.append(world.plan())
        return made

    assert plan(False) == plan(True)


def test_the_same_events_twice_change_nothing() -> None:
    world = World(queue("cq", 1), LQ)
    events: list[Event] = [observed(workload("a")), observed(workload("b", created=1))]
    world.tell(*events)
    world.run()
    done = world.settle()
    world.tell(
        *events,
        *done,
        Listed("policies"),
        Listed("Job", frozenset({WorkloadId("uid-a"), WorkloadId("uid-b")})),
    )
    assert world.run() == []
    assert not world.engine.due
