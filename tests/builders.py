"""Short names for test worlds; every default is visible in the test that overrides it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from queuectl.core.decisions import (
    Admit,
    ChildToCheck,
    Configure,
    Decision,
    Enqueue,
    Keep,
    Plan,
    PodOwnerToRead,
    PodsToCount,
)
from queuectl.core.engine import Engine
from queuectl.core.model.events import (
    ContextObserved,
    EffectSettled,
    Event,
    Listed,
    PolicyObserved,
    Result,
    TimeCame,
    WorkloadObserved,
)
from queuectl.core.model.policy import (
    ClusterQueue,
    FlavorQuotas,
    LabelSelector,
    LocalQueue,
    LocalQueueName,
    Namespace,
    Policy,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    SchedulingConfiguration,
    StopPolicy,
    Taint,
    Toleration,
    WorkloadPriorityClass,
)
from queuectl.core.model.reasons import Reason
from queuectl.core.model.resources import amounts
from queuectl.core.model.workload import (
    Attempt,
    ConfigKey,
    ForcedRelease,
    ObjectRef,
    Observation,
    Phase,
    PodSet,
    StoredWorkload,
    Workload,
    WorkloadId,
    WorkloadOutcome,
)
from tests.doubles.invariants import violations

GPU = "nvidia.com/gpu"
SETTINGS = SchedulingConfiguration()
T0 = datetime(2030, 1, 1, tzinfo=UTC)
ALL_NAMESPACES = LabelSelector()
SOURCES = frozenset({"policies", "Job"})


def flavor(
    name: str,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    tolerations: Sequence[Toleration] = (),
    unsupported: tuple[str, ...] = (),
) -> ResourceFlavor:
    return ResourceFlavor(
        name=name,
        node_labels=tuple(sorted((labels or {}).items())),
        node_taints=tuple(taints),
        tolerations=tuple(tolerations),
        unsupported=unsupported,
    )


def group(quotas: Mapping[str, Mapping[str, int]]) -> ResourceGroup:
    """`{"a100": {GPU: 8}, "spot": {GPU: 4}}`: flavors in order, with the nominal quota of each resource."""
    covered = next(iter(quotas.values()))
    return ResourceGroup(
        covered=tuple(covered),
        flavors=tuple(
            FlavorQuotas(
                name=name, resources=tuple((r, ResourceQuota(nominal=n)) for r, n in resources.items())
            )
            for name, resources in quotas.items()
        ),
    )


def queue(
    name: str,
    gpus: int | None = None,
    *,
    groups: Sequence[ResourceGroup] | None = None,
    strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO,
    stop: StopPolicy = StopPolicy.NONE,
    selector: LabelSelector | None = ALL_NAMESPACES,
    cohort: str | None = None,
    **fields: object,
) -> ClusterQueue:
    if groups is None:
        groups = [group({"default": {GPU: gpus or 0}})]
    return ClusterQueue(
        name=name,
        cohort=cohort,
        resource_groups=tuple(groups),
        namespace_selector=selector,
        queueing_strategy=strategy,
        stop_policy=stop,
        **fields,  # type: ignore[arg-type]
    )


def local_queue(
    name: str,
    cluster_queue: str,
    namespace: str = "ns",
    stop: StopPolicy = StopPolicy.NONE,
    **fields: object,
) -> LocalQueue:
    return LocalQueue(
        name=LocalQueueName(namespace, name),
        cluster_queue=cluster_queue,
        stop_policy=stop,
        **fields,  # type: ignore[arg-type]
    )


def pod_set(
    count: int = 1, requests: Mapping[str, int] | None = None, name: str = "main", **fields: object
) -> PodSet:
    return PodSet(name=name, count=count, requests=amounts(requests or {}), **fields)  # type: ignore[arg-type]


def workload(
    name: str,
    queue: str = "lq",
    gpus: int = 1,
    *,
    namespace: str = "ns",
    pods: Sequence[PodSet] | None = None,
    created: float = 0,
    **fields: object,
) -> Workload:
    """A Job `ns/Job/NAME` with UID `uid-NAME`; `created` in seconds after T0."""
    return Workload(
        id=WorkloadId(f"uid-{name}"),
        ref=ObjectRef(namespace, "Job", name, f"uid-{name}"),
        queue=queue,
        created_at=T0 + timedelta(seconds=created),
        pod_sets=tuple(pods) if pods is not None else (pod_set(1, {GPU: gpus}),),
        **fields,  # type: ignore[arg-type]
    )


def pending_row(one: Workload, *, arrival: int = 1, attempts: int = 0, **fields: object) -> StoredWorkload:
    """What the ledger has of a workload that is pending in ClusterQueue `cq`."""
    return StoredWorkload(
        id=one.id,
        ref=one.ref,
        queue="lq",
        cluster_queue="cq",
        priority=0,
        created_at=one.created_at,
        arrival=arrival,
        phase=Phase.PENDING,
        attempts=attempts,
        attempt=None,
        reason=None,
        **fields,  # type: ignore[arg-type]
    )


def seen(
    *,
    suspended: bool = True,
    finished: WorkloadOutcome | None = None,
    quiet: bool | None = None,
    generation: int = 1,
    admission: Attempt | None = None,
    bypassed_by: str | None = None,
    ready: bool | None = None,
    reclaimable: tuple[tuple[str, int], ...] = (),
    pods_ready: int | None = None,
    started_at: datetime | None = None,
    release: ForcedRelease | None = None,
    **more: Any,
) -> Observation:
    return Observation(
        resource_version="1",
        generation=generation,
        suspended=suspended,
        annotated=True,
        finished=finished,
        quiet=finished is not None if quiet is None else quiet,
        admission=admission,
        bypass=(bypassed_by or "", ""),
        ready=ready,
        reclaimable=reclaimable,
        pods_ready=pods_ready,
        started_at=started_at,
        release=release,
        **more,
    )


def observed(workload: Workload, **state: object) -> WorkloadObserved:
    return WorkloadObserved(workload, seen(**state))  # type: ignore[arg-type]


def policy(value: Policy) -> PolicyObserved:
    if isinstance(value, LocalQueue):
        key = ConfigKey("LocalQueue", value.name.namespace, value.name.name)
    else:
        key = ConfigKey(type(value).__name__, "", value.name)
    return PolicyObserved(key, value, json.dumps({"value": repr(value)}))


def listed(workloads: Iterable[WorkloadId]) -> list[Listed]:
    """Complete lists of all sources."""
    present = frozenset(workloads)
    return [Listed(source, present) for source in sorted(SOURCES)]


def priority(name: str, value: int) -> PolicyObserved:
    return policy(WorkloadPriorityClass(name, value))


class World:
    """An engine, with a ledger that accepts everything: sequence numbers run from 1."""

    def __init__(
        self,
        *policies: Policy,
        namespaces: Iterable[str] = ("ns",),
        settings: SchedulingConfiguration = SETTINGS,
    ) -> None:
        self.engine = Engine(SOURCES, settings)
        self.sequence = 0
        self.now = T0
        self.settled: list[EffectSettled] = []
        self.probes: list[PodsToCount] = []
        """Attempts whose pods the driver was asked to count."""
        self.checks: list[ChildToCheck | PodOwnerToRead] = []
        """Children of which the driver was asked to read the owners."""
        self.decided: list[Decision] = []
        """All decisions that were committed, also those that are not recorded."""
        flavors = [flavor("default")] if not any(isinstance(p, ResourceFlavor) for p in policies) else []
        self.tell(
            *(ContextObserved(Namespace(name)) for name in namespaces),
            *(policy(value) for value in (*flavors, *policies)),
            Listed("policies"),
            Listed("Job", frozenset()),
        )

    def tell(self, *events: Event) -> None:
        self.engine.handle(events)
        assert violations(self.engine) == []

    def pass_time(self, seconds: float) -> None:
        """Advance the clock; as the driver does, only when a timer of the engine is due by then."""
        self.now += timedelta(seconds=seconds)
        due = self.engine.due_at
        if due is not None and due <= self.now:
            self.tell(TimeCame(self.now))

    def submit(self, *workloads: Workload) -> None:
        self.tell(*(observed(workload) for workload in workloads))

    def plan(self, budget: int = 1000) -> Plan:
        return self.engine.decide(self.now, budget)

    def commit(self, plan: Plan) -> None:
        assert violations(self.engine, plan) == []
        self.engine.commit(plan, self.sequence + 1)
        assert violations(self.engine) == []
        self.sequence += len(plan.recorded)
        self.decided += plan.decisions
        self.probes += plan.probes
        self.checks += plan.checks

    def run(self, budget: int = 1000) -> list[Decision]:
        """Decide and commit until nothing is left to decide; the recorded decisions, policy left out."""
        made: list[Decision] = []
        for _ in range(10_000):
            plan = self.plan(budget)
            if not plan.decisions and not plan.probes and not plan.checks and not plan.more:
                assert not self.engine.due, "due, and nothing to do: a driver would spin"
                return [d for d in made if not isinstance(d, Configure | Enqueue)]
            self.commit(plan)
            made.extend(plan.recorded)
        raise AssertionError("decisions never end")

    def reason(self, name: str) -> Reason | None:
        """Return why a workload waits, by the last decision about it."""
        kept = (d.reason for d in self.decided if isinstance(d, Keep) and d.ref.name == name)
        return next(iter(reversed(list(kept))), None)

    def settle(self, result: Result = Result.DONE, generation: int = 2) -> list[EffectSettled]:
        """Acknowledge every dispatched effect as done."""
        settled = [EffectSettled(effect.key, result, generation) for effect in self.engine.take_effects()]
        self.tell(*settled)
        return settled


def admitted(decisions: Iterable[Decision]) -> list[str]:
    """Names of the admitted workloads, in order."""
    return [d.ref.name for d in decisions if isinstance(d, Admit)]
