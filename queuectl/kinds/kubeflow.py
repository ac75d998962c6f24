"""Kinds of the Kubeflow training operator and of the MPI operator.

Each has replica types, with a number of pods and a pod template.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from queuectl.core.model import Outcome
from queuectl.kinds.fields import BadField, Json, integer, mapping, text
from queuectl.kinds.jobs import JobKind, Path, Pods, Replicas, Status, conditions, pod_template


def _replica_pod_sets(specs: str, order: tuple[str, ...]) -> Callable[[Json], list[Pods]]:
    """Its podsets: one per replica type, in a fixed order whatever the object's."""

    def find(obj: Json) -> list[Pods]:
        spec = mapping(obj, "spec", "")
        replicas = mapping(spec, specs, "spec")
        strange = next((name for name in replicas if name not in order), None)
        if strange is not None:
            raise BadField(f"spec.{specs}", f"replica type {strange[:40]!r}, known are {', '.join(order)}")
        if not replicas:
            raise BadField(f"spec.{specs}", "no replicas")
        policy = mapping(mapping(spec, "runPolicy", "spec"), "schedulingPolicy", "spec.runPolicy")
        priority_class = text(policy, "priorityClass", "spec.runPolicy.schedulingPolicy")
        pod_sets = []
        for name in order:
            if name in replicas:
                path = f"spec.{specs}.{name}"
                replica = mapping(replicas, name, f"spec.{specs}")
                count = integer(replica, "replicas", path, default=1)
                template = pod_template(replica, path)
                pod_sets.append(Pods(name.lower(), count, f"{path}.template", *template, priority_class))
        return pod_sets

    return find


def _replica_template(specs: str, order: tuple[str, ...]) -> Callable[[str, int], Path]:
    keys = {name.lower(): name for name in order}
    return lambda pod_set, _: ("spec", specs, keys[pod_set], "template")


def _kubeflow_status(specs: str) -> Callable[[Json], Status]:
    def status(obj: Json) -> Status:
        found = conditions(obj)
        # Whether pods remain depends on its cleanPodPolicy: only the pods themselves show it.
        if found.get("Succeeded") == "True":
            return Status(Outcome.SUCCEEDED, None)
        if found.get("Failed") == "True":
            return Status(Outcome.FAILED, None)
        # An ended pod is created again if it is deleted: no quota is released before the end of the job.
        return Status(
            None,
            None,
            _replicas_run(obj, specs, found.get("Running") == "True"),
            pods_ready=_replicas_active(obj, specs),
        )

    return status


def _replicas_run(obj: Json, specs: str, running: bool) -> bool | None:
    """Whether all replicas run or have succeeded; `running`: the job's condition Running."""
    try:
        replicas = mapping(mapping(obj, "spec", ""), specs, "spec")
        statuses = mapping(mapping(obj, "status", ""), "replicaStatuses", "status")
        if not statuses or not replicas.keys() <= statuses.keys():
            return True if running else None
        for name in replicas:
            told = mapping(statuses, name, "status.replicaStatuses")
            up = sum(integer(told, key, "status", default=0) for key in ("active", "succeeded"))
            if up < integer(mapping(replicas, name, f"spec.{specs}"), "replicas", "spec", default=1):
                return False
    except BadField:
        return None
    return True


def _replicas_active(obj: Json, specs: str) -> int | None:
    """How many of its replicas run; None if the status does not say."""
    try:
        replicas = mapping(mapping(obj, "spec", ""), specs, "spec")
        statuses = mapping(mapping(obj, "status", ""), "replicaStatuses", "status")
        told = [mapping(statuses, name, "status.replicaStatuses") for name in replicas if name in statuses]
        return sum(integer(one, "active", "status", default=0) for one in told) if told else None
    except BadField:
        return None


@dataclass(frozen=True, slots=True)
class _Replicated:
    """What differs between these kinds."""

    kind: str
    field: str
    """Of the spec, with the replica types."""
    types: tuple[str, ...]
    """All replica types, in the order of the podsets."""
    short: str
    scale: bool = False


_MPI: Final = _Replicated("MPIJob", "mpiReplicaSpecs", ("Launcher", "Worker"), "mpi")
_TRAINING: Final = (
    _Replicated("PyTorchJob", "pytorchReplicaSpecs", ("Master", "Worker"), "pytorch", scale=True),
    _Replicated("TFJob", "tfReplicaSpecs", ("Chief", "Master", "PS", "Worker", "Evaluator"), "tf"),
    _Replicated("XGBoostJob", "xgbReplicaSpecs", ("Master", "Worker"), "xgboost"),
    _Replicated("PaddleJob", "paddleReplicaSpecs", ("Master", "Worker"), "paddle", scale=True),
    _Replicated("JAXJob", "jaxReplicaSpecs", ("Worker",), "jax", scale=True),
)


def _row(
    one: _Replicated,
    name: str = "",
    version: str = "v1",
    operator: str = "training-operator",
    *,
    has_jobs: bool = False,
) -> JobKind:
    return JobKind(
        name=name or one.kind,
        group="kubeflow.org",
        version=version,
        plural=f"{one.kind.lower()}s",
        names=(one.short,) if not name else (),
        suspend=("spec", "runPolicy", "suspend"),
        find=_replica_pod_sets(one.field, one.types),
        template=_replica_template(one.field, one.types),
        status=_kubeflow_status(one.field),
        pod_label="training.kubeflow.org/job-name",
        pod_label_is_uid=False,
        managed_by=(("spec", "runPolicy", "managedBy"), (f"kubeflow.org/{operator}",)),
        replicas=Replicas(one.field),
        scale=one.scale,
        has_jobs=has_jobs,
    )


TRAINING: Final = tuple(map(_row, _TRAINING))
"""Kinds of the training operator."""
MPI_JOB: Final = _row(_MPI, version="v2beta1", operator="mpi-operator", has_jobs=True)
"""The MPI operator's: a Job has the launcher's pods."""
MPI_JOB_V1: Final = _row(_MPI, "MPIJob.v1.kubeflow.org")
"""The training operator's. The definitions of both have one name, so at most one of them is installed."""
