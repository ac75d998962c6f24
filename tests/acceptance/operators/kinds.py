"""The kinds of the matrix: how an object of each is made, and which steps have no meaning for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from queuectl.kinds.jobs import QUEUE_LABEL
from queuectl.kinds.podsets import Templates
from tests.acceptance.operators.ray import ray_cluster, ray_job, ray_service
from tests.acceptance.operators.subjects import Json, Parts, Subject
from tests.acceptance.operators.toy_kinds import app_wrapper, spark_application
from tests.acceptance.operators.trainer import train_job
from tests.job_kinds import JOB_KINDS

_NO_SCALE: Final = {"scale": "its definition has no scale subresource"}
_ENDS_WITH_PODS: Final = {"finished with pods left behind": "it has finished only when its pods have ended"}
_NO_CHILDREN: Final = {"child passes the gate": "its controller makes pods, and no object that could queue"}
_KEYS_STAY: Final = {
    "restarted on a flavor with other label keys": (
        "the JobSet controller adds the new keys to those of its Jobs, as docs/kinds.md says"
    )
}
_KEEPS_PODS: Final[Json] = {"cleanPodPolicy": "None"}


def _job(parts: Parts, settings: Json) -> Json:
    part = parts["main"]
    return {"parallelism": part.pods, "completions": part.pods, "template": part.template, **settings}


# --- kinds with replica types ----------------------------------------------------------------------------


def _replicated(field_name: str, **spec: Any) -> Callable[[Parts, Json], Json]:
    def make(parts: Parts, settings: Json) -> Json:
        settings = dict(settings)
        restart = settings.pop("restartPolicy", "Never")
        for part in parts.values():
            # The replica type has it; some operators refuse one that differs from that of the template.
            part.template["spec"].pop("restartPolicy", None)
        replicas = {
            name: {"replicas": part.pods, "restartPolicy": restart, "template": part.template}
            for name, part in parts.items()
        }
        return {"runPolicy": settings, field_name: replicas, **spec}

    return make


def _training(
    name: str, container: str, sizes: Mapping[str, int], without: Mapping[str, str] = {}, **more: Any
) -> Subject:
    row = JOB_KINDS[name]
    assert isinstance(row.podsets, Templates)
    return Subject(
        row=row,
        site="all",
        sizes=sizes,
        make=_replicated(row.podsets.groups[0].parent[-1]),
        container=container,
        retried={"restartPolicy": "ExitCode", "backoffLimit": 5},
        expires={"ttlSecondsAfterFinished": 1, "cleanPodPolicy": "All"},
        leaves=_KEEPS_PODS,
        without={**({} if row.scale else _NO_SCALE), **_NO_CHILDREN, **without},
        **more,
    )


# --- JobSet ----------------------------------------------------------------------------------------------


def _job_set(parts: Parts, settings: Json) -> Json:
    settings, groups = dict(settings), []
    labels, replicas = settings.pop("labelsOfJobs", None), settings.pop("replicas", 1)
    for name, part in parts.items():
        spec = {
            "parallelism": part.pods,
            "completions": part.pods,
            "backoffLimit": 0,
            "template": part.template,
        }
        template: Json = {"spec": spec}
        if labels is not None:
            template["metadata"] = {"labels": labels}
        groups.append({"name": name, "replicas": replicas, "template": template})
    return {"replicatedJobs": groups, **settings}


SUBJECTS: Final[tuple[Subject, ...]] = (
    Subject(
        row=JOB_KINDS["Job"],
        site="all",
        sizes={"main": 2},
        make=_job,
        once={"backoffLimit": 0},
        retried={"backoffLimit": 5},
        expires={"ttlSecondsAfterFinished": 1},
        without={
            **_NO_SCALE,
            **_NO_CHILDREN,
            **_ENDS_WITH_PODS,
            "CRD absent, then installed": "it is part of Kubernetes",
        },
    ),
    _training("PyTorchJob", "pytorch", {"Master": 1, "Worker": 2}),
    _training("TFJob", "tensorflow", {"Chief": 1, "Worker": 2}),
    _training("XGBoostJob", "xgboost", {"Master": 1, "Worker": 2}),
    _training("PaddleJob", "paddle", {"Master": 1, "Worker": 2}),
    _training("JAXJob", "jax", {"Worker": 2}, _ENDS_WITH_PODS),
    _training(
        "MPIJob.v1.kubeflow.org",
        "mpi",
        {"Launcher": 1, "Worker": 2},
        {"retried by its own policy": "its operator makes no failed pod again: containers are restarted"},
    ),
    Subject(
        row=JOB_KINDS["MPIJob"],
        site="mpi",
        sizes={"Launcher": 1, "Worker": 2},
        make=_replicated("mpiReplicaSpecs", sshAuthMountPath="/root/.ssh", mpiImplementation="OpenMPI"),
        once={"backoffLimit": 0},
        retried={"backoffLimit": 5},
        leaves=_KEEPS_PODS,
        retries_late=True,
        without=_NO_SCALE
        | {"TTL while suspended": "its operator deletes the Job of its launcher by age, not the object"},
    ),
    Subject(
        row=JOB_KINDS["JobSet"],
        site="all",
        sizes={"driver": 1, "workers": 2},
        make=_job_set,
        retried={"failurePolicy": {"maxRestarts": 5}},
        labelled_children={"labelsOfJobs": {QUEUE_LABEL: "main"}},
        webhooks=True,
        retries_late=True,
        expires={"ttlSecondsAfterFinished": 1},
        without=_NO_SCALE
        | {
            "finished with pods left behind": "its operator deletes the pods of its Jobs as it finishes",
            **_KEYS_STAY,
        },
    ),
    ray_cluster(**_NO_SCALE, **_NO_CHILDREN),
    ray_job(**_NO_SCALE),
    ray_service(**_NO_SCALE),
    train_job(**_NO_SCALE, **_ENDS_WITH_PODS, **_KEYS_STAY),
    spark_application(**_NO_SCALE, **_NO_CHILDREN),
    app_wrapper(**_NO_SCALE, **_ENDS_WITH_PODS),
)
BY_NAME: Final = {subject.row.name: subject for subject in SUBJECTS}
