"""A short notation for tests of preemption."""

from __future__ import annotations

from collections.abc import Iterable

from queuectl.core.decisions import Decision, Evict, Keep
from queuectl.core.model.events import PodsCounted
from queuectl.core.model.policy import (
    ClusterQueue,
    Cohort,
    Preemption,
    PreemptionPolicy,
    SchedulingConfiguration,
)
from queuectl.core.model.reasons import Code, PreemptionCause
from queuectl.core.model.workload import WorkloadOutcome
from tests.builders import (
    World,
    admitted,
    local_queue,
    observed,
    priority,
    workload,
)
from tests.doubles import engine_state

RECLAIMS = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
OWN = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
PATIENT = SchedulingConfiguration(cooldown=0)


class PreemptionWorld(World):
    """Queues with a LocalQueue of the same name each, and the priority classes `low` and `high`."""

    def __init__(self, *nodes: ClusterQueue | Cohort, settings: SchedulingConfiguration = PATIENT) -> None:
        queues = [node for node in nodes if isinstance(node, ClusterQueue)]
        super().__init__(*nodes, *(local_queue(one.name, one.name) for one in queues), settings=settings)
        self.tell(priority("low", -1), priority("high", 1))

    def hold(self, name: str, queue: str, gpus: int = 1, **fields: object) -> None:
        """Submit a workload that is admitted and runs."""
        one = workload(name, queue, gpus, **fields)  # type: ignore[arg-type]
        self.submit(one)
        assert admitted(self.run()) == [name]
        self.settle()
        self.tell(observed(one, suspended=False, generation=2))

    def request(self, name: str, queue: str, gpus: int = 1, **fields: object) -> list[Decision]:
        """Submit a workload and return the decisions."""
        self.submit(workload(name, queue, gpus, **fields))  # type: ignore[arg-type]
        return self.run()

    def finish(self, name: str, queue: str, gpus: int = 1) -> list[Decision]:
        """What `hold` let run has ended, and none of its pods is alive. Return the decisions."""
        one = workload(name, queue, gpus)
        self.tell(
            observed(one, suspended=False, finished=WorkloadOutcome.SUCCEEDED, quiet=True, generation=2)
        )
        return self.run()

    def end_eviction(self, name: str, attempt: int = 1) -> list[Decision]:
        """The evicted workload `name` has stopped and none of its pods is alive. Return the decisions."""
        self.settle(generation=attempt + 2)
        self.run()
        one = engine_state.entry(self.engine, name).workload
        assert one is not None
        self.tell(PodsCounted(one.id, attempt, alive=False))
        self.tell(observed(one, generation=attempt + 2))
        return self.run()


def evicted(decisions: Iterable[Decision]) -> list[str]:
    """Return the names of the evicted workloads."""
    return [d.ref.name for d in decisions if isinstance(d, Evict)]


def causes(decisions: Iterable[Decision]) -> list[PreemptionCause | None]:
    """Return the causes of the evictions."""
    return [d.reason.cause for d in decisions if isinstance(d, Evict)]


def pending_reasons(decisions: Iterable[Decision]) -> dict[str, Code]:
    """Return the recorded codes of pending workloads by name."""
    return {d.ref.name: d.reason.code for d in decisions if isinstance(d, Keep)}
