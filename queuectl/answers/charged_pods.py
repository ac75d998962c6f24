"""What the workloads of a committed state are charged and booked on, and what pending pods wait for. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from queuectl.answers.state import CommittedState
from queuectl.core.entries import Shape
from queuectl.core.features.feature_set import kernel_with
from queuectl.core.model.capacity import ClusterQueueDemand
from queuectl.core.model.workload import Attribution, PodSet, StoredWorkload, WorkloadId
from queuectl.core.queues.demand import PendingRequest, demand
from queuectl.kinds.context import is_kept, kept_context
from queuectl.scenarios.rebuilt_engine import requested


def demands_of(state: CommittedState) -> Iterator[ClusterQueueDemand]:
    """Yield the demand of each ClusterQueue, as the controller tells it (core/queues/demand).

    What pods request follows from the context that the state has: without ResourceClaims, which the ledger
    does not keep (docs/decisions/0039-answers-from-copies-of-the-engine.md).
    """
    pods = PodsAsCharged(state)
    for queue in state.cluster_queues():
        pending = (state.workloads[WorkloadId(one[1][-1])] for one in queue.workloads.order)
        yield ClusterQueueDemand(
            queue.name, demand(PendingRequest(pods.shape(one), one.reason) for one in pending if one.reason)
        )


class PodsAsCharged:
    """What workloads are charged and booked on now, with the context that the state has."""

    def __init__(self, state: CommittedState) -> None:
        context = []
        for key, spec in state.specs.items():
            if is_kept(key.kind):
                with contextlib.suppress(ValueError):  # of another version
                    context.append(kept_context(key, spec))
        self._directory, self._features = kernel_with(context, state.configuration)
        self._known: dict[tuple[str, tuple[PodSet, ...]], Shape] = {}

    def shape(self, stored: StoredWorkload) -> Shape:
        """Computed once for those of a namespace with the same podsets."""
        key = (stored.ref.namespace, stored.pod_sets)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._directory.pods.charges(requested(stored))
        return found

    def requests(self, stored: StoredWorkload) -> dict[str, int]:
        """What all pods of a workload request together, in base units."""
        return self._directory.pods.total(requested(stored))

    def booked(self, stored: StoredWorkload) -> Attribution:
        """What an admission would be booked on."""
        workload = requested(stored)
        return Attribution.of(workload, self._features.accounts.account(workload))
