"""Metrics with at least one series in every family, and a parser of the export."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from prometheus_client.parser import text_string_to_metric_families

from queuectl.core.decisions import Admit, Evict, Plan, Release
from queuectl.core.feature import Number
from queuectl.core.model.capacity import (
    AwaitedLimit,
    FlavorCapacity,
    FlavorResourceCapacity,
    FreeNodes,
    PodDemand,
)
from queuectl.core.model.device_use import UseFinding, UseVerdict
from queuectl.core.model.events import Result
from queuectl.core.model.policy import CapacityMode, Condition, LocalQueueName
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    AttemptState,
    EffectKey,
    ObjectRef,
    Verb,
    WorkloadId,
)
from queuectl.core.reports import ClusterQueueReport, ClusterReport, LocalQueueReport
from queuectl.metrics.collectors import Sampled
from queuectl.metrics.exposition import Exposition, NotifierMetrics, RestMetrics, WebhookMetrics
from queuectl.metrics.registry import Metrics
from queuectl.ports.cluster import KindState

NOW = datetime(2026, 1, 5, tzinfo=UTC)
REF = ObjectRef("tenant-namespace", "Job", "tenant-name", "tenant-uid")
CELL = FlavorResource("a100", "cpu")


@dataclass(frozen=True)
class Family:
    """`kind`: counter, gauge or histogram. `labels`: those of its series, without `le`."""

    kind: str
    labels: frozenset[str]


def families(text: str) -> dict[str, Family]:
    """Families by the name in queries: counters with `_total`, histograms without `_bucket`."""
    found = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name] = Family(family.type, frozenset(labels))
    return found


def of(*expositions: Exposition) -> dict[str, Family]:
    found: dict[str, Family] = {}
    for exposition in expositions:
        found |= families(exposition.render().decode())
    return found


def admit(queue: str) -> Admit:
    attempt = Attempt(
        workload=WorkloadId("tenant-uid"),
        number=1,
        state=AttemptState.ADMITTED,
        assignment=Assignment(cluster_queue=queue, pod_sets=()),
        admitted_at=NOW,
    )
    return Admit(attempt, REF, created_at=NOW - timedelta(seconds=20))


CAPACITY = FlavorCapacity(
    flavor="a100",
    nodes=(("Ready", 1), ("Cordoned", 1)),
    resources=(
        FlavorResourceCapacity(
            resource="cpu",
            mode=CapacityMode.OBSERVE,
            allocatable=(("Ready", 64_000), ("Cordoned", 32_000)),
            used=8_000,
            unmanaged=(("kube-system", 1_500), ("", 500)),
            expected=4_000,
            free=50_000,
            shapes=(FreeNodes(50_000, 1),),
        ),
    ),
)
DEMAND = PodDemand(flavor="a100", awaits=AwaitedLimit.ROOM, workloads=2, pods=16, requests=(("cpu", 500),))


LOCAL_QUEUE = LocalQueueReport(
    name=LocalQueueName("ns", "main"),
    cluster_queue="a",
    condition=Condition(True, "Ready", ""),
    pending=1,
    admitted=2,
    first=(),
    used=((CELL, 500),),
)


def controller() -> Metrics:
    """A controller's metrics after each kind of event has happened once."""
    metrics = Metrics(of_local_queues=True)
    evict = Evict(WorkloadId("b"), REF, 1, Reason(code=Code.PREEMPTED))
    release = Release(WorkloadId("b"), REF, 1, "its pods are gone")
    plan = Plan(version=1, cycle=1, now=NOW, decisions=(admit("a"), evict, release))
    metrics.evaluated(2, seconds=0.01)
    metrics.committed(plan, seconds=0.01, sequence=2)
    metrics.reported(
        [LOCAL_QUEUE],
        [
            ClusterQueueReport(
                name="a",
                condition=Condition(True, "Ready", ""),
                pending=1,
                admitted=1,
                nominal=((CELL, 1500),),
                used=((CELL, 500),),
                reasons=((Code.WAITING_FOR_QUOTA, 1),),
                demand=(DEMAND,),
                share=250,
            )
        ],
        (),
    )
    metrics.capacity([CAPACITY])
    metrics.ledger_findings([])
    metrics.devices_used([("a", UseFinding(UseVerdict.IDLE, 8, 8))])
    metrics.settled(EffectKey(WorkloadId("a"), 1, Verb.START), Result.DONE, seconds=0.1)
    metrics.kubernetes_answered("patch", "jobs", 200, 0.01)
    metrics.loop_lag(0.001)
    metrics.took_epoch(1)
    metrics.observe(
        Sampled(
            leads=lambda: True,
            lease_age=lambda: 1.0,
            silence=lambda: {"Job": 1.0},
            kinds=lambda: {"Job": KindState(True, (), None)},
            cluster_report=lambda: ClusterReport(
                local_queues={LOCAL_QUEUE.name}, strays=(), frozen=0, set_aside=0, gate_installed=True
            ),
            numbers=lambda: [
                Number("slow_stops", "Late.", 0),
                *(
                    Number(f"budget_{name}", "Of it.", 1.0, (("budget", "b"), ("resource", "cpu")))
                    for name in ("seconds", "reserved_seconds", "used_seconds")
                ),
                Number("budget_lowered_workloads", "Of it.", 1.0, (("budget", "b"),)),
            ],
            unsettled=lambda: (0, 0.0),
        )
    )
    return metrics


def serving() -> RestMetrics:
    metrics = RestMetrics(age=lambda: 0.25)
    metrics.answered("/api/v1/workloads", 200, 0.004)
    metrics.kubernetes_answered("create", "tokenreviews", 201, 0.003)
    return metrics


def webhook() -> WebhookMetrics:
    metrics = WebhookMetrics(not_after=lambda: NOW, problem=lambda: None)
    metrics.reviewed("changed", 0.001)
    return metrics


def notifier() -> NotifierMetrics:
    return NotifierMetrics(["team"])
