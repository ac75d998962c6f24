"""Builds the core's snapshot and events from a document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, NamedTuple

from queuectl.core.features.usage_history.decay import UsageHistory
from queuectl.core.model.capacity import NodeFacts
from queuectl.core.model.events import (
    ContextObserved,
    Event,
    Listed,
    PodObserved,
    PolicyObserved,
    WorkloadObserved,
)
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import (
    AdmissionFairSharing,
    LocalQueue,
    LocalQueueName,
    Namespace,
    SchedulingConfiguration,
    WorkloadPriorityClass,
)
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.resources import amounts
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    AttemptState,
    ConfigKey,
    LedgerSnapshot,
    ObjectRef,
    Observation,
    PastAttempts,
    Phase,
    PodSet,
    PodSetAssignment,
    StoredWorkload,
    UsageSum,
    Workload,
    WorkloadId,
    WorkloadOutcome,
)
from queuectl.kinds.context import as_created
from queuectl.kinds.json_fields import BadField
from queuectl.kinds.node_constraints import read_constraints, required_affinity
from queuectl.kinds.requests import RequestProblem
from queuectl.scenarios import documents
from queuectl.scenarios import rebuilt_engine as rebuilding
from queuectl.scenarios.reader import Scenario

SOURCE: Final = "document"
KIND: Final = "Job"
"""Event source of all workloads of a document."""
_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Creation time of a workload without one in its document."""


class Beginning(NamedTuple):
    """Input that puts an engine into the state that a document describes."""

    snapshot: LedgerSnapshot
    """Workloads that hold quota, as in a ledger."""
    batches: tuple[tuple[Event, ...], ...]
    """Events in the order for the engine."""
    references: dict[WorkloadId, str]
    """NAMESPACE/NAME of the workloads."""
    queues: dict[LocalQueueName, str]
    """ClusterQueue of the LocalQueues, with those that only this format needs."""


def beginning(scenario: Scenario) -> Beginning:
    document = scenario.document
    assert document is not None
    ledger = document.config.ledger
    stored = tuple(
        w.ledger or (_stored(w, number) if w.holds else _set_back(w, number))
        for number, w in enumerate(document.workloads, 1)
        if w.ledger is not None or w.holds or _loses_place(w)
    )
    policy = (*scenario.policy, *_implied(scenario))
    batches: list[tuple[Event, ...]] = [(*policy, *_nodes(document), Listed(SOURCE))]
    # One by one: workloads created in the same second arrive in the order of the document (O2).
    batches += [(observed(workload),) for workload in document.workloads]
    if pods := tuple(_bound(document)):
        batches.append(pods)
    return Beginning(
        snapshot=LedgerSnapshot(
            sequence=0,
            now=None if ledger is None else document.config.now,
            workloads=stored,
            past_usage=_past_usage(document.config),
            budget_sums=ledger.budget_sums if ledger is not None else (),
            budget_entries=ledger.budget_entries if ledger is not None else (),
            nodes=avoided(document),
        ),
        batches=tuple(batches),
        references={identity(w): w.reference for w in document.workloads},
        queues={
            event.value.name: event.value.cluster_queue
            for event in policy
            if isinstance(event, PolicyObserved) and isinstance(event.value, LocalQueue)
        },
    )


def settings(config: documents.Config) -> SchedulingConfiguration:
    if config.ledger is not None:
        return config.ledger.scheduling
    usage = config.admission_fair_sharing
    return SchedulingConfiguration(
        fair_sharing=config.fair_sharing.enabled,
        strategies=config.fair_sharing.strategies,
        usage_sharing=AdmissionFairSharing(
            half_life=usage.usage_half_life_time,
            sampling_interval=usage.usage_sampling_interval,
            weights=tuple(sorted((name, round(w * 1000)) for name, w in usage.resource_weights.items())),
        )
        if usage is not None and usage.enabled
        else None,
        resources=config.resources.forms(),
        nodes=config.nodes.rules(),
    )


def _nodes(document: documents.ScenarioDocument) -> Iterator[Event]:
    return (ContextObserved(node) for given in document.nodes for node in given.values())


def avoided(document: documents.ScenarioDocument) -> tuple[NodeFacts, ...]:
    """Nodes that do not count for some time, as the ledger tells of them."""
    return tuple(
        NodeFacts(name=name, node=None, avoided_until=given.avoided_until)
        for given in document.nodes
        if given.avoided_until is not None
        for name in given.names
    )


def _bound(document: documents.ScenarioDocument) -> Iterator[Event]:
    """The pods that the document binds to nodes."""
    owners = {workload.reference: identity(workload) for workload in document.workloads}
    for given in document.pods:
        for number in range(1, given.count + 1):
            name, requests = f"{given.name}-{number}", amounts(given.requests)
            uid = f"pods:{given.namespace}/{name}"
            yield PodObserved(
                Pod(
                    uid=uid,
                    namespace=given.namespace,
                    name=name,
                    node=given.node,
                    requests=requests,
                    workload=owners[given.workload] if given.workload is not None else None,
                    terminating=given.terminating,
                )
            )
    for workload in document.workloads:
        asked = {pod_set.name: pod_set for pod_set in workload.pod_sets}
        for name, held in workload.admission.pod_sets.items() if workload.admission is not None else ():
            for number, node in enumerate(held.nodes, 1):
                yield PodObserved(
                    Pod(
                        uid=f"{identity(workload)}/{name}/{number}",
                        namespace=workload.namespace,
                        name=f"{workload.name}-{name}-{number}",
                        node=node,
                        requests=amounts(dict(asked[name].charged)),
                        workload=identity(workload),
                        terminating=workload.evicted is not None,
                    )
                )


def _past_usage(config: documents.Config) -> tuple[UsageSum, ...]:
    if config.ledger is not None:
        return config.ledger.past_usage
    sharing, given = settings(config).usage_sharing, config.admission_fair_sharing
    if sharing is None or given is None:
        return ()
    history = UsageHistory(sharing)
    for name, decayed in given.initial_usage.items():
        history.add_decayed(LocalQueueName(*name.split("/")), decayed, config.now)
    return history.sums(config.now)


def _implied(scenario: Scenario) -> Iterator[Event]:
    """Objects that a document may omit: namespaces, priority classes, LocalQueues for `clusterQueue`."""
    assert scenario.document is not None
    workloads = scenario.document.workloads
    contexts = (event.value for event in scenario.policy if isinstance(event, ContextObserved))
    given = {value.name for value in contexts if isinstance(value, Namespace)}
    for namespace in sorted({workload.namespace for workload in workloads} - given):
        yield ContextObserved(as_created(Namespace(namespace)))
    for value in sorted({workload.priority for workload in workloads if workload.ledger is None}):
        name = _priority_class(value)
        spec = f'{{"value":{value}}}'
        key = ConfigKey("WorkloadPriorityClass", "", name)
        yield PolicyObserved(key, WorkloadPriorityClass(name, value), spec)
    direct = {
        (LocalQueueName(workload.namespace, _queue(workload)), _cluster_queue(workload))
        for workload in workloads
        if workload.queue is None
    }
    for local, cluster_queue in sorted(direct):
        queue = LocalQueue(name=local, cluster_queue=cluster_queue)
        spec = f'{{"clusterQueue":"{cluster_queue}"}}'
        yield PolicyObserved(ConfigKey("LocalQueue", *local), queue, spec)


def _priority_class(value: int) -> str:
    return f"priority:{value}"


def _cluster_queue(workload: documents.ScenarioWorkload) -> str:
    """The LocalQueue of a workload that names none."""
    if workload.cluster_queue is not None:
        return workload.cluster_queue
    assert workload.admission is not None
    return workload.admission.cluster_queue


def _queue(workload: documents.ScenarioWorkload) -> str:
    # No object name contains a colon.
    return workload.queue if workload.queue is not None else f"clusterqueue:{_cluster_queue(workload)}"


def identity(workload: documents.ScenarioWorkload) -> WorkloadId:
    """Sorts by `uid`; UIDs in a document need not be unique."""
    if workload.ledger is not None:
        return workload.ledger.id
    return WorkloadId(f"{workload.uid or ''} {workload.reference}")


def _ref(workload: documents.ScenarioWorkload) -> ObjectRef:
    return ObjectRef(workload.namespace, KIND, workload.name, identity(workload))


def _stored(workload: documents.ScenarioWorkload, arrival: int) -> StoredWorkload:
    """A workload that holds quota, as in the ledger."""
    assert workload.admission is not None
    evicting = workload.evicted is not None
    asked = {pod_set.name: pod_set for pod_set in workload.pod_sets}
    attempt = Attempt(
        workload=identity(workload),
        number=1,
        state=AttemptState.EVICTING if evicting else AttemptState.ADMITTED,
        assignment=Assignment(
            cluster_queue=workload.admission.cluster_queue,
            pod_sets=tuple(
                _held(name, held, asked[name]) for name, held in workload.admission.pod_sets.items()
            ),
        ),
        admitted_at=workload.quota_reserved_at or workload.admitted_at or _FIRST,
        sequence=arrival,
    )
    return StoredWorkload(
        id=identity(workload),
        ref=_ref(workload),
        queue=_queue(workload),
        cluster_queue=workload.admission.cluster_queue,
        priority=workload.priority,
        created_at=workload.created_at or _FIRST,
        arrival=arrival,
        phase=Phase.EVICTING if evicting else Phase.ADMITTED,
        attempts=1,
        attempt=attempt,
        reason=None,
    )


_SETS_BACK = ("PodsReadyTimeout", "AdmissionCheck")


def _loses_place(workload: documents.ScenarioWorkload) -> bool:
    """It is pending again, since its eviction (O6)."""
    return workload.evicted is not None and workload.evicted.reason in _SETS_BACK


def _set_back(workload: documents.ScenarioWorkload, arrival: int) -> StoredWorkload:
    """A pending workload that was evicted before, as in the ledger."""
    assert workload.evicted is not None
    return StoredWorkload(
        id=identity(workload),
        ref=_ref(workload),
        queue=_queue(workload),
        cluster_queue=workload.cluster_queue,
        priority=workload.priority,
        created_at=workload.created_at or _FIRST,
        arrival=arrival,
        phase=Phase.PENDING,
        attempts=1,
        attempt=None,
        reason=None,
        past=PastAttempts(failures=1, until=workload.evicted.at),
    )


def _held(name: str, held: documents.PodSetAdmission, asked: documents.ScenarioPodSet) -> PodSetAssignment:
    count = asked.count if held.count is None else held.count
    if held.usage is not None:
        each = {resource: amount // count for resource, amount in held.usage.items() if amount}
    else:
        each = dict(asked.charged)
    return PodSetAssignment(
        name=name,
        count=count,
        requests=amounts(each),
        flavors=tuple(sorted((r, flavor) for r, flavor in held.flavors.items() if each.get(r))),
    )


def observed(workload: documents.ScenarioWorkload) -> WorkloadObserved:
    """The observation of its object without changes."""
    if workload.ledger is not None:
        return rebuilding.observed(workload.ledger, frozenset())
    pod_sets, problem = _pod_sets(workload)
    return WorkloadObserved(
        Workload(
            id=identity(workload),
            ref=_ref(workload),
            queue=_queue(workload),
            created_at=workload.created_at or _FIRST,
            pod_sets=pod_sets,
            priority_class=_priority_class(workload.priority),
            problem=problem,
        ),
        Observation(resource_version="1", generation=1, suspended=not workload.holds, annotated=False),
    )


def over(workload: documents.ScenarioWorkload) -> WorkloadObserved:
    """The observation of its finished object, with nothing alive."""
    found = observed(workload)
    ended = replace(found.observation, resource_version="2", finished=WorkloadOutcome.DELETED, quiet=True)
    return WorkloadObserved(found.workload, ended)


def _pod_sets(workload: documents.ScenarioWorkload) -> tuple[tuple[PodSet, ...], Reason | None]:
    """Read as in any job: an error becomes the workload's problem."""
    try:
        return tuple(map(pod_set, workload.pod_sets)), None
    except RequestProblem as problem:
        return (), problem.reason
    except BadField as problem:
        return (), Reason(code=Code.MISCONFIGURED, detail=str(problem))


def pod_set(given: documents.ScenarioPodSet) -> PodSet:
    spec = {
        "nodeSelector": given.node_selector,
        "tolerations": given.tolerations,
        "affinity": given.affinity,
    }
    own = read_constraints(spec, given.name)
    return PodSet(
        name=given.name,
        count=given.count,
        min_count=given.min_count,
        requests=given.charged,
        pod=given.pod,
        node_selector=own.node_selector,
        tolerations=own.tolerations,
        affinity=required_affinity(spec, given.name),
    )
