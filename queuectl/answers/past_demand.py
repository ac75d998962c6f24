"""What pending workloads wait for, from the rows of a state alone (rule A31). Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from queuectl.answers.state import CommittedState
from queuectl.core.directory import AffectedObjects, Directory
from queuectl.core.entries import Shape
from queuectl.core.model.capacity import ClusterQueueDemand
from queuectl.core.model.workload import PodSet, StoredWorkload, Workload, WorkloadId
from queuectl.core.queues.demand import PendingRequest, demand
from queuectl.kinds.context import is_kept, kept_context


def demands_of(state: CommittedState) -> Iterator[ClusterQueueDemand]:
    """Yield the demand of each ClusterQueue, as the controller tells it (core/queues/demand).

    What pods request follows from the context that the state has: without ResourceClaims, which the ledger
    does not keep (docs/decisions/0039-answers-from-copies-of-the-engine.md).
    """
    shapes = _Shapes(state)
    for queue in state.cluster_queues():
        pending = (state.workloads[WorkloadId(one[1][-1])] for one in queue.workloads.order)
        yield ClusterQueueDemand(
            queue.name, demand(PendingRequest(shapes.of(one), one.reason) for one in pending if one.reason)
        )


class _Shapes:
    """What workloads request, computed once for those of a namespace with the same podsets."""

    def __init__(self, state: CommittedState) -> None:
        self._directory = Directory(state.configuration)
        self._known: dict[tuple[str, tuple[PodSet, ...]], Shape] = {}
        for key, spec in state.specs.items():
            if is_kept(key.kind):
                with contextlib.suppress(ValueError):  # of another version
                    self._directory.observe_context(kept_context(key, spec).value, AffectedObjects())

    def of(self, stored: StoredWorkload) -> Shape:
        key = (stored.ref.namespace, stored.pod_sets)
        found = self._known.get(key)
        if found is None:
            workload = Workload(
                id=stored.id,
                ref=stored.ref,
                queue=stored.queue,
                created_at=stored.created_at,
                pod_sets=stored.pod_sets,
            )
            found = self._known[key] = self._directory.charges(workload)
        return found
