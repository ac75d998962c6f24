"""Engines with many objects, under a driver for which every commit succeeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from queuectl.core.decisions import Admit, Plan
from queuectl.core.engine import Engine
from queuectl.core.model.events import (
    ContextObserved,
    EffectSettled,
    Event,
    Listed,
    PolicyObserved,
    Result,
    WorkloadObserved,
)
from queuectl.core.model.policy import (
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    LabelSelector,
    LocalQueue,
    LocalQueueName,
    Namespace,
    Policy,
    Preemption,
    PreemptionPolicy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
)
from queuectl.core.model.workload import (
    ConfigKey,
    EffectKey,
    ObjectRef,
    Observation,
    PodSet,
    Workload,
    WorkloadId,
    WorkloadOutcome,
)

GPU = "nvidia.com/gpu"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
NAMESPACE = "bench"
BATCH = 500
"""Events folded at the same time, as from a busy reflector."""


def seen(
    *, generation: int = 1, suspended: bool = True, finished: WorkloadOutcome | None = None
) -> Observation:
    return Observation(
        resource_version=str(generation),
        generation=generation,
        suspended=suspended,
        annotated=False,
        finished=finished,
        quiet=finished is not None,
    )


def job(number: int, queue: str, gpus: int) -> Workload:
    uid = f"{number:08x}-5eed-4000-8000-{number:012x}"
    requests = (("cpu", 1000 * gpus), ("memory", gpus << 30), (GPU, gpus))
    return Workload(
        id=WorkloadId(uid),
        ref=ObjectRef(NAMESPACE, "Job", f"job-{number}", uid),
        queue=queue,
        created_at=NOW + timedelta(milliseconds=number),
        pod_sets=(PodSet(name="main", count=1, requests=requests),),
    )


def quotas(flavor: str, gpus: int) -> FlavorQuotas:
    cpu, memory = ResourceQuota(nominal=1000 * gpus), ResourceQuota(nominal=gpus << 30)
    resources = (("cpu", cpu), ("memory", memory), (GPU, ResourceQuota(nominal=gpus)))
    return FlavorQuotas(name=flavor, resources=resources)


class World:
    """`queues` ClusterQueues of two flavors each, `gpus` of each flavor, with one LocalQueue each."""

    def __init__(
        self,
        queues: int,
        gpus: int,
        *,
        now: datetime = NOW,
        record: Callable[[Plan, tuple[EffectKey, ...]], None] | None = None,
    ) -> None:
        """`record` gets each plan that becomes a transaction, with the effects that it acknowledges."""
        self.now = now
        self._record = record
        self._done: list[EffectKey] = []
        self.engine = Engine(frozenset({"policy", "Job"}))
        self.sequence = 1
        self.queues = queues
        self.gpus = gpus
        policies: list[Policy] = [ResourceFlavor(name="a100"), ResourceFlavor(name="spot"), *self.cohorts()]
        for number in range(queues):
            policies.append(self.queue(number, gpus))
            name = LocalQueueName(NAMESPACE, f"lq-{number}")
            policies.append(LocalQueue(name=name, cluster_queue=f"cq-{number}"))
        self.policy: list[Event] = [
            ContextObserved(Namespace(NAMESPACE)),
            *(observed(policy) for policy in policies),
            Listed("policy"),
        ]
        self.engine.handle([*self.policy, Listed("Job", frozenset())])
        self.run()

    def cohorts(self) -> list[Cohort]:
        """Decisions that have an object."""
        return []

    def queue(self, number: int, gpus: int) -> ClusterQueue:
        group = ResourceGroup(
            covered=("cpu", "memory", GPU), flavors=(quotas("a100", gpus), quotas("spot", gpus))
        )
        return ClusterQueue(
            name=f"cq-{number}",
            cohort=f"cohort-{number % 10}",
            resource_groups=(group,),
            namespace_selector=LabelSelector(),
        )

    def submit(self, jobs: list[Workload]) -> None:
        for at in range(0, len(jobs), BATCH):
            self.engine.handle([WorkloadObserved(one, seen()) for one in jobs[at : at + BATCH]])

    def run(self) -> list[Admit]:
        """Decide and commit until nothing is left; starts succeed at once. Returns the admitted workloads."""
        admitted: list[Admit] = []
        while self.engine.due:
            plan = self.engine.decide(self.now)
            if not plan.decisions and not plan.probes:
                break
            if self._record is not None:
                self._record(plan, tuple(self._done))
                self._done.clear()
            self.engine.commit(plan, self.sequence)
            self.sequence += len(plan.recorded)
            admitted += [decision for decision in plan.decisions if isinstance(decision, Admit)]
            keys = [effect.key for effect in self.engine.take_effects()]
            if self._record is not None:
                self._done += keys
            if keys:
                self.engine.handle([EffectSettled(key, Result.DONE, 2) for key in keys])
        return admitted

    def finish(self, workloads: list[Workload]) -> None:
        done = seen(generation=2, suspended=False, finished=WorkloadOutcome.SUCCEEDED)
        for at in range(0, len(workloads), BATCH):
            events: list[Event] = [WorkloadObserved(one, done) for one in workloads[at : at + BATCH]]
            self.engine.handle(events)


class Forest(World):
    """1,000 queues, or a tenth of that, under ten cohort trees of three levels: one over three over six.

    A third of the quota is defined at the cohorts above the queues: further admissions have to borrow.
    """

    MIDDLE, LEAVES = 3, 6

    def cohorts(self) -> list[Cohort]:
        middle = [Cohort(name=f"middle-{n}", parent="root") for n in range(self.MIDDLE)]
        per_leaf = -(-self.queues // self.LEAVES)
        shared = per_leaf * -(-self.gpus // 2)
        group = ResourceGroup(
            covered=("cpu", "memory", GPU), flavors=(quotas("a100", shared), quotas("spot", shared))
        )
        leaves = [
            Cohort(name=f"leaf-{n}", parent=f"middle-{n % self.MIDDLE}", resource_groups=(group,))
            for n in range(self.LEAVES)
        ]
        return [Cohort(name="root"), *middle, *leaves]

    def queue(self, number: int, gpus: int) -> ClusterQueue:
        return replace(super().queue(number, gpus), cohort=f"leaf-{number % self.LEAVES}")


class Lent(Forest):
    """Queue 0 has lent all its quota; it may reclaim it from all the others, which borrow."""

    def cohorts(self) -> list[Cohort]:
        return [replace(cohort, resource_groups=()) for cohort in super().cohorts()]

    def queue(self, number: int, gpus: int) -> ClusterQueue:
        quota = (self.queues - 1) * gpus if number == 0 else gpus
        group = ResourceGroup(covered=("cpu", "memory", GPU), flavors=(quotas("a100", quota),))
        return replace(
            super().queue(number, gpus),
            resource_groups=(group,),
            preemption=Preemption(reclaim_within_cohort=PreemptionPolicy.ANY),
        )


def observed(policy: Policy) -> PolicyObserved:
    spec = json.dumps(repr(policy))
    if isinstance(policy, LocalQueue):
        return PolicyObserved(ConfigKey("LocalQueue", *policy.name), policy, spec)
    return PolicyObserved(ConfigKey(type(policy).__name__, "", policy.name), policy, spec)


def distinct(one: Workload, number: int) -> Workload:
    """The same job with a shape of its own."""
    (pods,) = one.pod_sets
    requests = tuple((name, amount + (number if name == "memory" else 0)) for name, amount in pods.requests)
    return replace(one, pod_sets=(replace(pods, requests=requests),))
