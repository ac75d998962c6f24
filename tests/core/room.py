"""Queues whose workloads make room for each other, in a few words."""

from __future__ import annotations

from collections.abc import Iterable

from queuectl.core.decisions import Decision, Evict, Keep
from queuectl.core.events import PodsCounted
from queuectl.core.policy import ClusterQueue, Cohort, Preemption, PreemptionPolicy, SchedulingConfiguration
from queuectl.core.reasons import Code, PreemptionCause
from tests.builders import (
    World,
    admitted,
    local_queue,
    observed,
    priority,
    workload,
)

RECLAIMS = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
OWN = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
PATIENT = SchedulingConfiguration(cooldown=0)


class Room(World):
    """Queues with a LocalQueue of the same name each, and priorities `low` and `high`."""

    def __init__(self, *nodes: ClusterQueue | Cohort, settings: SchedulingConfiguration = PATIENT) -> None:
        queues = [node for node in nodes if isinstance(node, ClusterQueue)]
        super().__init__(*nodes, *(local_queue(one.name, one.name) for one in queues), settings=settings)
        self.tell(priority("low", -1), priority("high", 1))

    def hold(self, name: str, queue: str, gpus: int = 1, **fields: object) -> None:
        """Let it go, and see it run."""
        one = workload(name, queue, gpus, **fields)  # type: ignore[arg-type]
        self.submit(one)
        assert admitted(self.run()) == [name]
        self.settle()
        self.tell(observed(one, suspended=False, generation=2))

    def ask(self, name: str, queue: str, gpus: int = 1, **fields: object) -> list[Decision]:
        self.submit(workload(name, queue, gpus, **fields))  # type: ignore[arg-type]
        return self.run()

    def over(self, name: str, attempt: int = 1) -> list[Decision]:
        """What was evicted has stopped, and nothing of it is alive."""
        self.settle(generation=attempt + 2)
        self.run()
        one = next(e.workload for e in self.engine._state.entries.values() if e.ref.name == name)
        assert one is not None
        self.tell(PodsCounted(one.id, attempt, alive=False))
        self.tell(observed(one, generation=attempt + 2))
        return self.run()


def evicted(decisions: Iterable[Decision]) -> list[str]:
    return [d.ref.name for d in decisions if isinstance(d, Evict)]


def causes(decisions: Iterable[Decision]) -> list[PreemptionCause | None]:
    return [d.reason.cause for d in decisions if isinstance(d, Evict)]


def told(decisions: Iterable[Decision]) -> dict[str, Code]:
    return {d.ref.name: d.reason.code for d in decisions if isinstance(d, Keep)}
