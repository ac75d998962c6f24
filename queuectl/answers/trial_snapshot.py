"""Parts of a committed state to try changes on: whole trees, with all that decides there. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from datetime import datetime
from operator import attrgetter

from queuectl.answers.state import State
from queuectl.core.context_records import namespace_of
from queuectl.core.model import ConfigKey, LedgerSnapshot, StoredWorkload
from queuectl.core.nodes.facts import with_unmanaged
from queuectl.core.policy import ClusterQueue, LocalQueue, Policy
from queuectl.ports.reader import Basis


def everything(state: State, now: datetime) -> Basis:
    """All trees. `now`: by the clock of the ledger."""
    return Basis(
        queues=None,
        sequence=state.sequence,
        epoch=state.epoch,
        configuration=state.configuration,
        snapshot=lambda: _snapshot(state, now, list(state.workloads.values()), state.specs.items()),
    )


def of_namespace(state: State, now: datetime, namespace: str, cluster_queue: str | None = None) -> Basis:
    """The trees that LocalQueues of a namespace point to, and that of ClusterQueue `cluster_queue`."""
    named = {one.cluster_queue for one in _local_queues(state) if one.name.namespace == namespace}
    if cluster_queue is not None:
        named.add(cluster_queue)
    queues = _trees_of(state, named)
    return Basis(
        queues=queues,
        sequence=state.sequence,
        epoch=state.epoch,
        configuration=state.configuration,
        snapshot=lambda: _part(state, now, queues, namespace),
    )


def _part(state: State, now: datetime, queues: frozenset[str], namespace: str) -> LedgerSnapshot:
    """The open state of these ClusterQueues, and of what counts in `namespace` and for their workloads."""
    workloads = list(state.around(queues))
    namespaces = {namespace, *(one.ref.namespace for one in workloads)}
    namespaces |= {one.name.namespace for one in _local_queues(state) if one.cluster_queue in queues}
    configs = (
        (key, spec)
        for key, spec in state.specs.items()
        if _counts(key, state.policies.get(key), queues, namespaces)
    )
    return _snapshot(state, now, workloads, configs)


def _snapshot(
    state: State,
    now: datetime,
    workloads: list[StoredWorkload],
    configs: Iterable[tuple[ConfigKey, str]],
) -> LedgerSnapshot:
    """Past usage is not in it.

    Pods of workloads of other trees are unmanaged on nodes: they take room, and no change displaces them.
    """
    others = state.workloads.keys() - {one.id for one in workloads} if state.nodes else set()
    return LedgerSnapshot(
        sequence=state.sequence,
        now=now,
        workloads=tuple(sorted(workloads, key=attrgetter("arrival", "id"))),
        nodes=tuple(with_unmanaged(state.nodes[name], others) for name in sorted(state.nodes)),
        configs=tuple(configs),
    )


def _trees_of(state: State, names: Iterable[str]) -> frozenset[str]:
    """These ClusterQueues, and those of their cohort trees."""
    named = [name for name in names if name in state.queues]
    return frozenset((*named, *(one.name for name in named for one in state.in_tree_of(name))))


def _local_queues(state: State) -> Iterator[LocalQueue]:
    return (one for one in state.policies.values() if isinstance(one, LocalQueue))


def _counts(
    key: ConfigKey, policy: Policy | str | None, queues: frozenset[str], namespaces: Container[str]
) -> bool:
    """Queues of other trees, and what is in other namespaces, decide nothing here."""
    match policy:
        case ClusterQueue():
            return policy.name in queues
        case LocalQueue():
            return policy.cluster_queue in queues
        case _:
            namespace = namespace_of(key)
            return not namespace or namespace in namespaces
