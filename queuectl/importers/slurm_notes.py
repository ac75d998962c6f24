"""Which settings of Slurm have no counterpart, and what to do instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from queuectl.importers.result import Note
from queuectl.importers.slurm_text import Field, Record, SlurmKind, fields_of
from queuectl.importers.slurm_values import ranges_of, unset

_RUN_TIME: Final = "set spec.maxExecutionTime (default, ceiling, onExceeded) of the queues of its accounts"
_MEMORY: Final = "pods set their requests; a LimitRange of the namespace gives defaults and maxima"
_PER_JOB: Final = "no queue limits the size of one workload"
_WALL: Final = "a Budget counts hours of a resource, not of workloads"
_RUN_MINUTES: Final = "a Budget in mode Safe reserves what the run time limits of running workloads allow"
_RBAC: Final = "rights are those of Kubernetes: RBAC decides who creates workloads in a namespace"
_ANY_PRIORITY: Final = (
    "any workload may name any WorkloadPriorityClass: restrict it, and give the verb use to those that may"
)
_ORDER: Final = "priority comes from WorkloadPriorityClasses alone"
_NODES: Final = "the pod scheduler places pods: use requests, affinity and taints"
_WEIGHTS: Final = "set scheduling.admissionFairSharing.resourceWeights, which hold for the whole cluster"
_WCKEYS: Final = "there are no work keys: label the workloads"
_NOTHING: Final = "has no counterpart"


def _limit(target: str, subject: str, field: str) -> str:
    return f"make a UsageLimit with target.kind {target}, subject.kind {subject}, and set spec.{field}"


def _budget(target: str) -> str:
    return f"make a Budget with target.kind {target}, and set spec.hours of a resource"


_OWN_QUEUE: Final = "ClusterQueue, Cohort or LocalQueue"
_CLASS: Final = "WorkloadPriorityClass"
_RESOURCES: Final = "resources"
_RUNNING: Final = "running"
_PENDING: Final = "pending, which does not count what runs"
_OF_USER: Final = "EachUser"
_OF_ACCOUNT: Final = "EachAccount"
_ALL: Final = "All"

_GROUP: Final = "not carried over: take its flavors out of the ClusterQueues of all other accounts"

# Beside the values that Slurm prints for "not set" and "no limit" (slurm_values.unset).
_NONE: Final[frozenset[str]] = frozenset()
_NO: Final = frozenset({"NO"})
_ZERO: Final = frozenset({"0", "00:00:00"})
_ONE: Final = frozenset({"0", "1"})
_EVERYBODY: Final = frozenset({"ALL"})
_FACTOR_ONE: Final = frozenset({"1", "1.0", "1.000000"})


class _Setting(NamedTuple):
    instead: str
    neutral: frozenset[str] = _NONE
    """Values that ask for nothing."""


_PARTITION: Final[Mapping[str, _Setting]] = {
    "AllowGroups": _Setting(_GROUP, _EVERYBODY),
    "AllowQos": _Setting(_ANY_PRIORITY, _EVERYBODY),
    "DenyQos": _Setting(_ANY_PRIORITY),
    "AllocNodes": _Setting(_RBAC, _EVERYBODY),
    "QoS": _Setting(
        "a partition has no limits of its own: set borrowingLimit of its flavors, or flavors of UsageLimits"
    ),
    "DefaultTime": _Setting(_RUN_TIME),
    "MaxTime": _Setting(_RUN_TIME),
    "GraceTime": _Setting("set terminationGracePeriodSeconds of the pods", _ZERO),
    "MaxNodes": _Setting(_PER_JOB),
    "MinNodes": _Setting(_PER_JOB, _ONE),
    "MaxCPUsPerNode": _Setting(_NODES),
    "MaxCPUsPerSocket": _Setting(_NODES),
    "ExclusiveUser": _Setting(_NODES, _NO),
    "ExclusiveTopo": _Setting(_NODES, _NO),
    "LLN": _Setting(_NODES, _NO),
    "OverSubscribe": _Setting(_NODES, _NO),
    "DisableRootJobs": _Setting(_RBAC, _NO),
    "Hidden": _Setting("flavors and ClusterQueues are seen by all that may read them", _NO),
    "RootOnly": _Setting(_GROUP, _NO),
    "Exclusive": _Setting(_NODES, _NO),
    "PowerDownOnIdle": _Setting(_NODES, _NO),
    "CpuBind": _Setting(_NODES),
    "ResumeTimeout": _Setting(_NODES, frozenset({"GLOBAL"})),
    "SuspendTimeout": _Setting(_NODES, frozenset({"GLOBAL"})),
    "SuspendTime": _Setting(_NODES, frozenset({"GLOBAL"})),
    "SelectTypeParameters": _Setting(_NODES),
    "ReqResv": _Setting("there are no reservations", _NO),
    "PriorityJobFactor": _Setting(_ORDER, _ONE),
    "OverTimeLimit": _Setting(_RUN_TIME),
    "State": _Setting("a flavor is not stopped: `queuectl stop` stops queues", frozenset({"UP"})),
    "JobDefaults": _Setting(_MEMORY),
    "DefMemPerCPU": _Setting(_MEMORY),
    "DefMemPerNode": _Setting(_MEMORY),
    "MaxMemPerCPU": _Setting(_MEMORY),
    "MaxMemPerNode": _Setting(_MEMORY),
    "Alternate": _Setting(_NOTHING),
    "TRESBillingWeights": _Setting(_WEIGHTS),
}
_QOS: Final[Mapping[str, _Setting]] = {
    "GraceTime": _Setting("set terminationGracePeriodSeconds of the pods", _ZERO),
    "PreemptExemptTime": _Setting("set spec.preemption.minRunTime of ClusterQueues", _ZERO),
    "PreemptMode": _Setting(
        "victims are suspended and pending again", frozenset({"cluster", "REQUEUE", "requeue"})
    ),
    "UsageFactor": _Setting("all workloads count alike", _FACTOR_ONE),
    "LimitFactor": _Setting("a limit is the same for all classes", _FACTOR_ONE),
    "MinPrioThresh": _Setting(_ORDER),
    "GrpJobsAccrue": _Setting(_ORDER),
    "MaxJobsAccruePA": _Setting(_ORDER),
    "MaxJobsAccruePU": _Setting(_ORDER),
    "MaxTRESRunMinsPA": _Setting(_RUN_MINUTES),
    "MaxTRESRunMinsPU": _Setting(_RUN_MINUTES),
    "UsageThres": _Setting("a low share orders workloads, it stops none"),
    "Flags": _Setting(
        "a WorkloadPriorityClass has no flags: what is above a limit waits, with a reason; for DenyOnLimit "
        "set spec.onExhausted of Budgets to Refuse, UsageLimits refuse nothing"
    ),
    "MaxWall": _Setting(_RUN_TIME),
    "MaxWallDurationPerJob": _Setting(_RUN_TIME),
    "MaxTRESPerJob": _Setting(_PER_JOB),
    "MaxTRESPerUser": _Setting(_limit(_CLASS, _OF_USER, _RESOURCES)),
    "MaxJobsPerUser": _Setting(_limit(_CLASS, _OF_USER, _RUNNING)),
    "MaxSubmitJobsPerUser": _Setting(_limit(_CLASS, _OF_USER, _PENDING)),
    "GrpSubmitJobs": _Setting(_limit(_CLASS, _ALL, _PENDING)),
    "GrpTRES": _Setting(_limit(_CLASS, _ALL, _RESOURCES)),
    "GrpJobs": _Setting(_limit(_CLASS, _ALL, _RUNNING)),
    "GrpSubmit": _Setting(_limit(_CLASS, _ALL, _PENDING)),
    "GrpWall": _Setting(_WALL),
    "GrpTRESMins": _Setting(_budget(_CLASS)),
    "GrpTRESRunMins": _Setting(_RUN_MINUTES),
    "MaxTRES": _Setting(_PER_JOB),
    "MinTRES": _Setting(_limit(_CLASS, _ALL, "minRequest")),
    "MaxTRESPerNode": _Setting(_PER_JOB),
    "MaxTRESMins": _Setting(_PER_JOB),
    "MaxTRESPU": _Setting(_limit(_CLASS, _OF_USER, _RESOURCES)),
    "MaxJobsPU": _Setting(_limit(_CLASS, _OF_USER, _RUNNING)),
    "MaxSubmitPU": _Setting(_limit(_CLASS, _OF_USER, _PENDING)),
    "MaxTRESPA": _Setting(_limit(_CLASS, _OF_ACCOUNT, _RESOURCES)),
    "MaxJobsPA": _Setting(_limit(_CLASS, _OF_ACCOUNT, _RUNNING)),
    "MaxSubmitPA": _Setting(_limit(_CLASS, _OF_ACCOUNT, _PENDING)),
}
_ASSOCIATION: Final[Mapping[str, _Setting]] = {
    "QOS": _Setting(_ANY_PRIORITY, frozenset({"normal"})),
    "DefaultQOS": _Setting("workloads without the label have priority 0", frozenset({"normal"})),
    "AdminLevel": _Setting(_RBAC),
    "DefaultWCKey": _Setting(_WCKEYS),
    "WCKeys": _Setting(_WCKEYS),
    "Classification": _Setting(_NOTHING),
    "Coordinator": _Setting(_RBAC),
    "Partition": _Setting("an account may use the same flavors as a whole"),
    "Priority": _Setting(_ORDER),
    "MaxJobs": _Setting(_limit(_OWN_QUEUE, _OF_USER, _RUNNING)),
    "MaxJobsAccrue": _Setting(_ORDER),
    "MaxSubmit": _Setting(_limit(_OWN_QUEUE, _OF_USER, _PENDING)),
    "MaxSubmitJobs": _Setting(_limit(_OWN_QUEUE, _OF_USER, _PENDING)),
    "GrpJobs": _Setting(_limit(_OWN_QUEUE, _ALL, _RUNNING)),
    "GrpJobsAccrue": _Setting(_ORDER),
    "GrpSubmitJobs": _Setting(_limit(_OWN_QUEUE, _ALL, _PENDING)),
    "GrpSubmit": _Setting(_limit(_OWN_QUEUE, _ALL, _PENDING)),
    "MaxTRESPerJob": _Setting(_PER_JOB),
    "MaxTRESPerNode": _Setting(_PER_JOB),
    "MaxWallDurationPerJob": _Setting(_RUN_TIME),
    "MaxTRES": _Setting(_PER_JOB),
    "MaxWall": _Setting(_RUN_TIME),
    "GrpWall": _Setting(_WALL),
    "GrpTRESMins": _Setting(_budget(_OWN_QUEUE)),
    "GrpTRESRunMins": _Setting(_RUN_MINUTES),
    "MaxTRESMins": _Setting(_PER_JOB),
    "MaxTRESMinsPerJob": _Setting(_PER_JOB),
}
_NODE: Final[Mapping[str, _Setting]] = {
    "CoreSpecCount": _Setting("quota includes these cores: what nodes reserve is set for the kubelet", _ZERO),
    "MemSpecLimit": _Setting("quota includes this memory: what nodes reserve is set for the kubelet", _ZERO),
    "AvailableFeatures": _Setting("label the nodes with the features that pods select"),
    "Owner": _Setting(_RBAC),
    "MCS_label": _Setting(_RBAC),
}
"""All other fields of nodes are facts, and no settings."""
_SETTINGS: Final[Mapping[SlurmKind, Mapping[str, _Setting]]] = {
    SlurmKind.PARTITION: _PARTITION,
    SlurmKind.NODE: _NODE,
    SlurmKind.QOS: _QOS,
    SlurmKind.CLUSTER: {
        **_ASSOCIATION,
        "Fairshare": _Setting("the root Cohort has no share", _ONE),
        "GrpTRES": _Setting("set nominalQuota of the root Cohort"),
    },
    SlurmKind.ACCOUNT: _ASSOCIATION,
    SlurmKind.DESCRIPTION: {"Coord": _Setting(_RBAC), "Coordinators": _Setting(_RBAC)},
    SlurmKind.USER: {**_ASSOCIATION, "GrpTRES": _Setting(_limit("LocalQueue", _ALL, _RESOURCES))},
}
_PARTITION_USED: Final = frozenset(
    {
        *("PartitionName", "AllowAccounts", "DenyAccounts", "Default", "PriorityTier", "PreemptMode"),
        *("Nodes", "NodeSets", "TotalCPUs", "TotalNodes", "TRES"),
    }
)
_USED: Final[Mapping[SlurmKind, frozenset[str]]] = {
    # What is carried over, or is a fact about the cluster and no setting.
    SlurmKind.PARTITION: _PARTITION_USED,
    SlurmKind.NODE: frozenset(),
    SlurmKind.QOS: frozenset({"Name", "Priority", "Preempt", "Description", "Descr", "ID"}),
    SlurmKind.CLUSTER: frozenset(),
    SlurmKind.ACCOUNT: frozenset({"Fairshare", "GrpTRES", "Description", "Organization"}),
    SlurmKind.DESCRIPTION: frozenset({"Description", "Organization"}),
    SlurmKind.USER: frozenset({"Fairshare", "DefaultAccount"}),
}


class Notes:
    """Notes on places in files. Equal ones are one note with all their lines."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
        self._kept: set[str] = set()
        """Texts of notes on what is carried over."""
        self._carried: set[tuple[str, int, str, str]] = set()

    def add(self, record: Record, field: str, text: str, *, left_out: bool = True) -> None:
        """On a field of the record, or (empty) on the record."""
        if not left_out:
            self._kept.add(text)
        given = record.fields.get(field) or Field("", record.line)
        what = f"{record.kind} {record.name}" + (f" {field}={given.value}" if field else "")
        places = self._found.setdefault((record.file, f"{record.kind} {field}".strip(), text), [])
        places.append((given.line, what))

    def carried(self, record: Record, field: str) -> None:
        """The field is carried over: `settings` has no note on it."""
        self._carried.add((record.file, record.line, record.name, field))

    def settings(self, records: Iterable[Record]) -> None:
        """All settings that have no counterpart, or were not carried over."""
        for record in records:
            if record.kind is SlurmKind.USER and record.name == record.parent == "root":
                continue
            for name, field in fields_of(record):
                if name in _USED[record.kind]:
                    continue
                if (record.file, record.line, record.name, name) in self._carried:
                    continue
                setting = _SETTINGS[record.kind].get(name, _Setting(_NOTHING))
                if record.kind is SlurmKind.NODE and name not in _NODE:
                    continue
                if field.value not in setting.neutral and not unset(field.value):
                    self.add(record, name, setting.instead)

    def all(self) -> tuple[Note, ...]:
        """By file and line."""
        found = sorted(self._found.items(), key=lambda one: (one[0][0], min(one[1])))
        return tuple(
            _note(file, general, text, places)._replace(left_out=text not in self._kept)
            for (file, general, text), places in found
        )


def _note(file: str, general: str, text: str, places: list[tuple[int, str]]) -> Note:
    lines = {line for line, _ in places}
    if len(places) == 1:
        ((line, what),) = places
        return Note(f"{file}: line {line}:", what, text)
    word = "line" if len(lines) == 1 else "lines"
    return Note(f"{file}: {word} {ranges_of(lines)}:", f"{general} ({len(places)} times)", text)
