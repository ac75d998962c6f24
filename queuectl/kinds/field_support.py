"""Which rule obeys each field of the policy kinds, and which fields are not supported yet.

Queue conditions, policy tests, the notes of an import and docs/scheduling.md are all made from this table. A
field that is not supported makes the queues that it concerns inactive: an admin who asks for a check before
each start and gets none would not notice it. The fields are in the CRDs, so that the YAML of a Kueue user can
be applied. Paths are those of the CRDs; `[]` is an item of a list, `{}` a value of a map.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from queuectl.kinds.json_fields import Json

NO_CHECKS: Final = "admission checks are not supported yet"
NO_TOPOLOGY: Final = "topology-aware placement is not supported yet"
_NOT_FOR_ITS_TREE: Final = "only a root Cohort decides what quotas of its tree count while nodes are missing"
_NOT_ON_A_ROOT: Final = "only a root Cohort decides on the fair sharing of its tree"


class Unsupported(NamedTuple):
    """A field, with all below it, that queuectl does not obey: the queues concerned are not active (Q1)."""

    why: str
    without: str = ""
    """What becomes of a queue if the field is left out."""
    beside: str | None = None
    """It is not supported beside this field of the object only; None: never."""


_QUOTAS: Final = {
    "spec.resourceGroups[].coveredResources[]": "F1",
    "spec.resourceGroups[].flavors[].name": "F6",
    "spec.resourceGroups[].flavors[].resources[].name": "F1",
    "spec.resourceGroups[].flavors[].resources[].nominalQuota": "Q2",
    "spec.resourceGroups[].flavors[].resources[].borrowingLimit": "Q4",
    "spec.resourceGroups[].flavors[].resources[].lendingLimit": "Q3",
}

RULES: Final[Mapping[str, Mapping[str, str]]] = {
    "ClusterQueue": {
        **_QUOTAS,
        "spec.resourceGroups[].flavors[].waitBeforeNextSeconds": "F10",
        "spec.cohortName": "Q4",
        "spec.queueingStrategy": "C4",
        "spec.headCanNeverRun": "C4",
        "spec.namespaceSelector.matchLabels{}": "G8",
        "spec.namespaceSelector.matchExpressions[].key": "G8",
        "spec.namespaceSelector.matchExpressions[].operator": "G8",
        "spec.namespaceSelector.matchExpressions[].values[]": "G8",
        "spec.flavorFungibility.whenCanBorrow": "F6",
        "spec.flavorFungibility.whenCanPreempt": "F6",
        "spec.flavorFungibility.preference": "F7",
        "spec.preemption.reclaimWithinCohort": "P2",
        "spec.preemption.borrowWithinCohort.policy": "P3",
        "spec.preemption.borrowWithinCohort.maxPriorityThreshold": "P3",
        "spec.preemption.withinClusterQueue": "P2",
        "spec.preemption.minRunTime.InClusterQueue": "P10",
        "spec.preemption.minRunTime.InCohortReclamation": "P10",
        "spec.preemption.minRunTime.InCohortFairSharing": "P10",
        "spec.preemption.minRunTime.InCohortReclaimWhileBorrowing": "P10",
        "spec.stopPolicy": "G7",
        "spec.stopReason": "L9",
        "spec.maxExecutionTime.default": "L13",
        "spec.maxExecutionTime.ceiling": "G12",
        "spec.maxExecutionTime.onExceeded": "L13",
        "spec.waitForPodsReady.schedulingTimeoutSeconds": "L24",
        "spec.waitForPodsReady.startupTimeoutSeconds": "L25",
        "spec.waitForPodsReady.recoveryTimeoutSeconds": "L26",
        "spec.waitForPodsReady.requeuing.backoffBaseSeconds": "L18",
        "spec.waitForPodsReady.requeuing.backoffLimitSeconds": "L18",
        "spec.waitForPodsReady.requeuing.backoffLimitCount": "L18",
        "spec.waitForPodsReady.requeuing.jitterPercent": "L18",
        "spec.fairSharing.weight": "S3",
        "spec.admissionScope.admissionMode": "U1",
        "spec.admissionScope.userOrder": "U6",
    },
    "Cohort": {
        **_QUOTAS,
        "spec.parentName": "Q4",
        "spec.fairSharing.weight": "S3",
        "spec.fairSharing.enabled": "S1",
        "spec.fairSharing.preemptionStrategies[]": "P8",
        "spec.fairSharing.admissionOrder": "U7",
        "spec.capacityShortage": "M11",
    },
    "ResourceFlavor": {
        "spec.nodeLabels{}": "F2",
        "spec.nodeTaints[].key": "F2",
        "spec.nodeTaints[].value": "F2",
        "spec.nodeTaints[].effect": "F2",
        "spec.tolerations[].key": "F2",
        "spec.tolerations[].operator": "F2",
        "spec.tolerations[].value": "F2",
        "spec.tolerations[].effect": "F2",
        "spec.tolerations[].tolerationSeconds": "F2",
        "spec.nodes.mode": "M2",
        "spec.nodes.resources{}": "M2",
        "spec.nodes.headroom{}": "M6",
    },
    "LocalQueue": {
        "spec.clusterQueue": "G4",
        "spec.stopPolicy": "G6",
        "spec.stopReason": "L9",
        "spec.maxExecutionTime.default": "L13",
        "spec.maxExecutionTime.ceiling": "G12",
        "spec.maxExecutionTime.onExceeded": "L13",
        "spec.fairSharing.weight": "U2",
    },
    "WorkloadPriorityClass": {"value": "O3"},
    "UsageLimit": {
        "spec.target.kind": "X1",
        "spec.target.name": "X1",
        "spec.target.namespace": "X1",
        "spec.subject.kind": "X2",
        "spec.subject.name": "X2",
        "spec.subject.key": "X2",
        "spec.running": "X3",
        "spec.pending": "X6",
        "spec.resources{}": "X3",
        "spec.flavors[].name": "X4",
        "spec.flavors[].resources{}": "X4",
        "spec.minRequest{}": "X7",
    },
    "IdlePolicy": {
        "spec.target.kind": "I1",
        "spec.target.name": "I1",
        "spec.target.namespace": "I1",
        "spec.notifyAfterSeconds": "I2",
        "spec.holdAfterSeconds": "I3",
        "spec.cancelAfterSeconds": "I8",
        "spec.lowerAfterSeconds": "I7",
        "spec.lowerClass": "I7",
        "spec.dryRun": "I5",
    },
    "Budget": {
        "spec.target.kind": "X1",
        "spec.target.name": "X1",
        "spec.target.namespace": "X1",
        "spec.subject.kind": "X2",
        "spec.subject.name": "X2",
        "spec.subject.key": "X2",
        "spec.resource": "Y1",
        "spec.hours": "Y1",
        "spec.period.kind": "Y2",
        "spec.period.timeZone": "Y2",
        "spec.period.begins": "Y2",
        "spec.period.ends": "Y2",
        "spec.mode": "Y3",
        "spec.refunds.preempted": "Y5",
        "spec.refunds.nodeFailures": "Y5",
        "spec.onExhausted": "Y8",
        "spec.lowerClass": "Y8",
    },
}
"""By kind and path, the rule of docs/scheduling.md that obeys the field."""

FOR_READERS: Final = {"WorkloadPriorityClass": ("description",)}
"""Fields that only describe the object."""

UNSUPPORTED: Final[Mapping[str, Mapping[str, Unsupported]]] = {
    "ClusterQueue": {
        "spec.admissionChecksStrategy": Unsupported(NO_CHECKS, "workloads start without them"),
        "spec.admissionChecks": Unsupported(NO_CHECKS, "workloads start without them"),
        "spec.concurrentAdmissionPolicy": Unsupported(
            "concurrent admission is not supported yet", "flavors are tried one after another"
        ),
    },
    "Cohort": {
        "spec.fairSharing.enabled": Unsupported(_NOT_ON_A_ROOT, beside="spec.parentName"),
        "spec.fairSharing.preemptionStrategies": Unsupported(_NOT_ON_A_ROOT, beside="spec.parentName"),
        "spec.fairSharing.admissionOrder": Unsupported(_NOT_ON_A_ROOT, beside="spec.parentName"),
        "spec.capacityShortage": Unsupported(_NOT_FOR_ITS_TREE, beside="spec.parentName"),
    },
    "ResourceFlavor": {"spec.topologyName": Unsupported(NO_TOPOLOGY, "only quota is counted")},
}
"""By kind and path."""


def unsupported(kind: str, obj: Json) -> tuple[str, ...]:
    """The fields of `obj` that queuectl does not obey, each as `PATH: WHY`."""
    return tuple(
        f"{path}: {field.why}"
        for path, field in UNSUPPORTED.get(kind, {}).items()
        if _set(obj, path) and (field.beside is None or _set(obj, field.beside))
    )


def leave_out(kind: str, obj: dict[str, Any]) -> dict[str, str]:
    """Remove the fields of `obj` that queuectl never obeys; what that means, by path."""
    found = {}
    for path, field in UNSUPPORTED.get(kind, {}).items():
        if field.beside is None and _set(obj, path):
            *above, last = path.split(".")
            del _at(obj, above)[last]
            found[path] = f"{field.why}: {field.without}"
    return found


def table() -> list[str]:
    """The lines of the table of UNSUPPORTED in docs/scheduling.md, by reason."""
    fields: dict[str, list[str]] = {}
    for kind, by_path in UNSUPPORTED.items():
        for path, field in by_path.items():
            beside = f" beside `{field.beside}`" if field.beside else ""
            fields.setdefault(field.why, []).append(f"{kind} `{path}`{beside}")
    rows = [f"| {', '.join(named)} | {why} |" for why, named in fields.items()]
    return ["| field | why it is not obeyed |", "|---|---|", *rows]


def _set(obj: Json, path: str) -> bool:
    """Whether the field has a value. An empty list or object asks for nothing; `false` does."""
    return _at(obj, path.split(".")) not in (None, "", [], {})


def _at(obj: Any, path: list[str]) -> Any:
    for name in path:
        obj = obj.get(name) if isinstance(obj, Mapping) else None
    return obj
