"""Parts of a committed state to try changes on: whole trees, with all that decides there. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator
from datetime import datetime
from operator import attrgetter
from typing import Final

from queuectl.answers.queue_states import queue_of
from queuectl.answers.state import CommittedState
from queuectl.core.context_records import namespace_of
from queuectl.core.directory import DEFAULT_PRIORITY_CLASS
from queuectl.core.features.nodes.facts import with_unmanaged
from queuectl.core.model.policy import ClusterQueue, LocalQueue, Policy
from queuectl.core.model.reasons import Family
from queuectl.core.model.usage_limits import UsageLimit
from queuectl.core.model.workload import (
    NO_PAST_ATTEMPTS,
    ConfigKey,
    LedgerSnapshot,
    Phase,
    Place,
    StoredWorkload,
    WorkloadId,
)
from queuectl.core.queues.pending import is_refusal, queue_place
from queuectl.ports.reader import Basis

FIRST: Final = 2
"""How many pending workloads that are alike are tried with, of other namespaces than the one asked about."""
FIRST_OF_OWN: Final = 16
"""How many of that namespace: those before a workload start before it."""


def everything(state: CommittedState, now: datetime) -> Basis:
    """All trees. `now`: by the clock of the ledger."""
    return Basis(
        namespace=None,
        configuration=state.configuration,
        snapshot=lambda: _snapshot(state, now, list(state.workloads.values()), state.specs.items()),
    )


def of_namespace(
    state: CommittedState, now: datetime, namespace: str, cluster_queue: str | None = None
) -> Basis:
    """The trees that LocalQueues of a namespace point to, and that of ClusterQueue `cluster_queue`; and those
    with workloads that count under the UsageLimit of a class."""
    named = {one.cluster_queue for one in _local_queues(state) if one.name.namespace == namespace}
    if cluster_queue is not None:
        named.add(cluster_queue)
    named |= queues_of_limited_classes(state.policies.values(), state.workloads.values())
    queues = _trees_of(state, named)
    return Basis(
        namespace=namespace,
        configuration=state.configuration,
        snapshot=lambda: _part(state, now, queues, namespace),
    )


def _part(state: CommittedState, now: datetime, queues: frozenset[str], namespace: str) -> LedgerSnapshot:
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
    state: CommittedState,
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


def _trees_of(state: CommittedState, names: Iterable[str]) -> frozenset[str]:
    """These ClusterQueues, and those of their cohort trees."""
    named = [name for name in names if name in state.queues]
    return frozenset((*named, *(one.name for name in named for one in state.in_tree_of(name))))


def queues_of_limited_classes(
    policies: Iterable[Policy | str], workloads: Iterable[StoredWorkload]
) -> set[str]:
    """The ClusterQueues with workloads of the WorkloadPriorityClasses that UsageLimits are about (X1)."""
    targets = (one.target for one in policies if isinstance(one, UsageLimit))
    classes = {target.name for target in targets if target.kind == "WorkloadPriorityClass"}
    if not classes:
        return set()
    counted = (one for one in workloads if (one.options.priority_class or DEFAULT_PRIORITY_CLASS) in classes)
    return {queue for one in counted if (queue := queue_of(one)) is not None}


def _local_queues(state: CommittedState) -> Iterator[LocalQueue]:
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


def without_alike(
    workloads: Iterable[StoredWorkload], namespace: str, asked: WorkloadId | None, *, by_user: bool = False
) -> tuple[tuple[StoredWorkload, ...], frozenset[WorkloadId]]:
    """Return `workloads` without most of those that are alike, and the last ones that stand for these.

    In an engine, pending workloads of a queue with the same shape and priority are one equivalence group:
    none behind its head starts before the head does. So as long as no last one starts, an engine without
    those behind it decides what one with all would decide. `asked`, of `namespace`, stays in any case.
    `by_user`: something limits users, so those of two users are not alike.
    """
    groups: defaultdict[Hashable, list[StoredWorkload]] = defaultdict(list)
    numbers: dict[Hashable, int] = {}
    known: dict[int, int] = {}
    """Numbers by identity: podsets take long to hash, and most are one object for many workloads."""
    for one in workloads:
        if _waits_as_others(one):
            pods = one.pod_sets
            shape = known.get(id(pods))
            if shape is None:
                shape = known[id(pods)] = numbers.setdefault(pods, len(numbers))
            refused = one.reason is not None and is_refusal(one.reason)  # its group is judged first (C12)
            queue = (one.cluster_queue, one.queue, one.ref.namespace, one.ref.kind, by_user and one.submitter)
            groups[(*queue, one.priority, shape, one.options, one.labels, refused)].append(one)
    absent: set[WorkloadId] = set()
    last: set[WorkloadId] = set()
    for group in groups.values():
        first = FIRST_OF_OWN if group[0].ref.namespace == namespace else FIRST
        if len(group) > first:
            group.sort(key=_place)
            absent.update(one.id for one in group[first:] if one.id != asked)
            last.add(group[first - 1].id)
    return tuple(one for one in workloads if one.id not in absent), frozenset(last)


def _waits_as_others(one: StoredWorkload) -> bool:
    """Return whether it waits in a queue, and nothing that happened to it before counts."""
    if one.phase is not Phase.PENDING or one.cluster_queue is None or one.preempted_at:
        return False
    if one.past is not NO_PAST_ATTEMPTS and one.past != NO_PAST_ATTEMPTS:
        return False
    return one.reason is None or one.reason.family is not Family.HELD


def _place(one: StoredWorkload) -> Place:
    return queue_place(one.priority, one.created_at, one.arrival, one.id)
