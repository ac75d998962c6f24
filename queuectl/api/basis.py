"""Parts of a committed state to try changes on: whole trees, with all that decides there. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from queuectl.api.state import State
from queuectl.core.model import ConfigKey, LedgerSnapshot, StoredWorkload
from queuectl.core.nodes.facts import with_unmanaged
from queuectl.core.policy import ClusterQueue, LocalQueue
from queuectl.ports import Basis


def everything(state: State, now: datetime) -> Basis:
    """All trees. `now`: by the clock of the ledger."""
    return _basis(state, now, None)


def of_namespace(state: State, now: datetime, namespace: str, cluster_queue: str | None = None) -> Basis:
    """The trees that LocalQueues of a namespace point to, and that of ClusterQueue `cluster_queue`."""
    named = {one.local.cluster_queue for one in state.local_queues() if one.local.name.namespace == namespace}
    if cluster_queue is not None:
        named.add(cluster_queue)
    queues = frozenset(queue.name for name in named for queue in state.in_tree_of(name))
    return _basis(state, now, queues)


def _basis(state: State, now: datetime, queues: frozenset[str] | None) -> Basis:
    return Basis(
        queues=queues,
        sequence=state.sequence,
        configuration=state.configuration,
        snapshot=lambda: snapshot(state, now, queues),
    )


def snapshot(state: State, now: datetime, queues: frozenset[str] | None) -> LedgerSnapshot:
    """The open state of these ClusterQueues; None: of all. Past usage is not in it.

    Pods of workloads of other trees are unmanaged on nodes: they take room, and no change displaces them.
    """
    workloads = sorted(_workloads(state, queues), key=lambda one: (one.arrival, one.id))
    others = state.workloads.keys() - {one.id for one in workloads}
    return LedgerSnapshot(
        sequence=state.sequence,
        now=now,
        workloads=tuple(workloads),
        nodes=tuple(with_unmanaged(state.nodes[name], others) for name in sorted(state.nodes)),
        configs=tuple((key, spec) for key, spec in state.specs.items() if _counts(key, state, queues)),
    )


def _workloads(state: State, queues: frozenset[str] | None) -> Iterator[StoredWorkload]:
    """Those in these queues, and those that have none."""
    for one in state.workloads.values():
        held = one.attempt.assignment.cluster_queue if one.attempt is not None else one.cluster_queue
        if queues is None or held is None or held in queues or one.cluster_queue in queues:
            yield one


def _counts(key: ConfigKey, state: State, queues: frozenset[str] | None) -> bool:
    """Queues of other trees decide nothing here."""
    if queues is None:
        return True
    policy = state.policies.get(key)
    match policy:
        case ClusterQueue():
            return policy.name in queues
        case LocalQueue():
            return policy.cluster_queue in queues
        case _:
            return True
