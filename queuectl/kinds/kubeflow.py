"""Kinds of the Kubeflow training operator and of the MPI operator.

Each has replica types, with a number of pods and a pod template.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from queuectl.core.model.workload import WorkloadOutcome
from queuectl.kinds.jobs import (
    CountAnnotations,
    Elastic,
    Ending,
    JobKind,
    PodLabel,
    Sign,
    Status,
    conditions,
    value_at,
)
from queuectl.kinds.json_fields import BadField, Json, integer, mapping
from queuectl.kinds.podsets import Count, Each, Pods, PodSetGroup, Templates
from queuectl.kinds.start_patch import LABELLED

_ENDS: Final = (
    Ending(Sign("Succeeded"), WorkloadOutcome.SUCCEEDED),
    Ending(Sign("Failed"), WorkloadOutcome.FAILED),
)


def _kubeflow_status(specs: str, ordered: Callable[[Json], bool] | None) -> Callable[[Json], Status]:
    def status(obj: Json) -> Status:
        found = conditions(obj)
        # Whether pods remain depends on its cleanPodPolicy: only the pods themselves show it.
        if any(end.sign.shows(obj, found) for end in _ENDS):
            return Status()
        # An ended pod is created again if it is deleted: no quota is released before the end of the job.
        return Status(
            ready=_replicas_run(obj, specs, found.get("Running") == "True"),
            pods_ready=_replicas_active(obj, specs),
            held_back=_launchers(obj) if ordered is not None and ordered(obj) else 0,
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


def _waits_for_workers(obj: Json) -> bool:
    """Is the launcher of this MPIJob made when its workers are ready?"""
    return bool(value_at(obj, ("spec", "launcherCreationPolicy")) == "WaitForWorkersReady")


def _launchers(obj: Json) -> int:
    """How many pods of the launcher are held back: none any more once all workers run."""
    workers: Json = {
        "spec": {"replicas": {"Worker": value_at(obj, ("spec", "mpiReplicaSpecs", "Worker")) or {}}},
        "status": obj.get("status"),
    }
    return 0 if _replicas_run(workers, "replicas", running=False) else 1


class _Added(NamedTuple):
    """An init container that the operator adds to the pods of one podset."""

    pod_set: str
    requests: Mapping[str, str]
    needs: str = ""
    """Only where the object has this podset too."""


def _completed(added: tuple[_Added, ...]) -> Callable[[Json, list[Pods]], list[Pods]]:
    def completed(_: Json, found: list[Pods]) -> list[Pods]:
        names = {pods.name for pods in found}
        for one in added:
            if not one.needs or one.needs in names:
                found = [pods.with_init(one.requests) if pods.name == one.pod_set else pods for pods in found]
        return found

    return completed


_REPLICAS: Final = "pytorchReplicaSpecs"


def _elastic(obj: Json, _: CountAnnotations) -> Elastic | None:
    """The workers of a PyTorchJob with an elastic policy. Raises BadField."""
    spec = mapping(obj, "spec", "")
    policy = mapping(spec, "elasticPolicy", "spec")
    replicas = mapping(spec, _REPLICAS, "spec")
    if policy.get("minReplicas") is None or "Worker" not in replicas:
        return None
    where = f"spec.{_REPLICAS}.Worker"
    wanted = integer(mapping(replicas, "Worker", f"spec.{_REPLICAS}"), "replicas", where, default=1)
    least = integer(policy, "minReplicas", "spec.elasticPolicy", default=None, low=1, high=wanted)
    most = integer(policy, "maxReplicas", "spec.elasticPolicy", default=wanted)
    if wanted > most:
        raise BadField(f"{where}.replicas", f"{wanted} is more than {most} of spec.elasticPolicy.maxReplicas")
    return Elastic("worker", least, (_WORKERS,)) if least < wanted else None


_WORKERS: Final = ("spec", _REPLICAS, "Worker", "replicas")


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
    added: tuple[_Added, ...] = ()
    elastic: Callable[[Json, CountAnnotations], Elastic | None] | None = None
    counts: tuple[tuple[str, ...], ...] = ()


_MPI: Final = _Replicated("MPIJob", "mpiReplicaSpecs", ("Launcher", "Worker"), "mpi")
_KUBECTL_DELIVERY: Final = _Added("launcher", {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"})
_INIT_PYTORCH: Final = _Added("worker", {"cpu": "50m", "memory": "10Mi"}, needs="master")
_PYTORCH: Final = _Replicated(
    "PyTorchJob",
    _REPLICAS,
    ("Master", "Worker"),
    "pytorch",
    scale=True,
    added=(_INIT_PYTORCH,),
    elastic=_elastic,
    counts=(_WORKERS,),
)
_TRAINING: Final = (
    _PYTORCH,
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
    children: tuple[str, ...] = (),
    kept: str = "",
    ordered: Callable[[Json], bool] | None = None,
) -> JobKind:
    return JobKind(
        name=name or one.kind,
        group="kubeflow.org",
        version=version,
        plural=f"{one.kind.lower()}s",
        names=(one.short,) if not name else (),
        suspend=("spec", "runPolicy", "suspend"),
        podsets=Templates(groups=(_replicas(one),), completed=_completed(one.added)),
        status=_kubeflow_status(one.field, ordered),
        ordered=ordered,
        ends=_ENDS,
        pods=(PodLabel("training.kubeflow.org/job-name"), LABELLED),
        children=children,
        managed_by=(("spec", "runPolicy", "managedBy"), (f"kubeflow.org/{operator}",)),
        priority_class=("spec", "runPolicy", "schedulingPolicy", "priorityClass"),
        scale=one.scale,
        elastic=one.elastic,
        counts=one.counts,
        kept=kept,
    )


def _replicas(one: _Replicated) -> PodSetGroup:
    """One podset per replica type, in a fixed order whatever the object's."""
    return PodSetGroup(at=("spec", one.field, Each()), types=one.types, counts=(Count(("replicas",)),))


_DEADLINE: Final = ("spec", "runPolicy", "activeDeadlineSeconds")
_TRAINING_ENDS: Final = (_ENDS[0], _ENDS[1]._replace(deadline=_DEADLINE))
TRAINING: Final = tuple(replace(_row(one), ends=_TRAINING_ENDS) for one in _TRAINING)
"""Kinds of the training operator. It looks at their deadline at each change of them."""
MPI_JOB: Final = _row(
    _MPI,
    version="v2beta1",
    operator="mpi-operator",
    children=("Job",),
    kept="the Job of its launcher exists already, and stays as it is",
    ordered=_waits_for_workers,
)
"""The MPI operator's: a Job has the launcher's pods."""
MPI_JOB_V1: Final = _row(replace(_MPI, added=(_KUBECTL_DELIVERY,)), "MPIJob.v1.kubeflow.org")
"""The training operator's. The definitions of both have one name, so at most one of them is installed."""
