"""An object of each kind of job, as an API server returns it, with podsets whose size is given."""

from __future__ import annotations

from typing import Any

from queuectl.kinds.jobs import JobKind
from queuectl.kinds.podsets import Templates
from tests.unit.kinds.job_objects import container, job, metadata

SUSPENDED = {"type": "Suspended", "status": "True", "reason": "Suspended", "message": ""}


def template() -> dict[str, Any]:
    return {"spec": {"containers": [container()], "restartPolicy": "Never"}}


def sample(row: JobKind, **sizes: int) -> dict[str, Any]:
    """A suspended object; `sizes`: pods by replica type or replicated job. Of a Job: `main`."""
    if row.group == "ray.io":
        return _ray(row, **sizes)
    assert isinstance(row.podsets, Templates)
    group = row.podsets.groups[0]
    if group.each is None:
        return job(parallelism=sizes.get("main", 1), completions=sizes.get("main", 1))
    if group.each.key:
        groups = [_group(name, 1, size) for name, size in sizes.items()]
        spec: dict[str, Any] = {"suspend": True, group.parent[-1]: groups}
    else:
        specs = {name: {"replicas": size, "template": template()} for name, size in sizes.items()}
        spec = {"runPolicy": {"suspend": True}, group.parent[-1]: specs}
    return {
        "apiVersion": row.api_version,
        "kind": row.kind,
        "metadata": metadata(),
        "spec": spec,
        "status": {},
    }


def _ray(row: JobKind, head: int = 1, **workers: int) -> dict[str, Any]:
    groups = [
        {"groupName": name, "replicas": size, "minReplicas": 0, "maxReplicas": 99, "rayStartParams": {}}
        | {"template": template()}
        for name, size in workers.items()
    ]
    cluster = {
        "headGroupSpec": {"rayStartParams": {}, "template": template()},
        "workerGroupSpecs": groups,
    }
    specs = {
        "RayJob": {
            "suspend": True,
            "submissionMode": "HTTPMode",
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": cluster,
        },
        "RayCluster": {"suspend": True, **cluster},
        "RayService": {"rayClusterConfig": {"suspend": True, **cluster}},
    }
    return {
        "apiVersion": row.api_version,
        "kind": row.kind,
        "metadata": metadata(),
        "spec": specs[row.name],
        "status": {},
    }


def seen_suspended(row: JobKind) -> dict[str, Any]:
    """The status of an object that its controller has seen suspended."""
    sign = row.seen.sign
    if isinstance(sign.of, str):
        return {"conditions": [SUSPENDED | {"type": sign.of}]}
    _, field = sign.of
    return {field: sign.value if row.seen.asked else metadata()["generation"]}


def job_set(*groups: tuple[str, int, int], **spec: Any) -> dict[str, Any]:
    """A suspended JobSet with groups of `(name, Jobs, pods of each)`."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata(),
        "spec": {"suspend": True, "replicatedJobs": [_group(*group) for group in groups], **spec},
        "status": {},
    }


def _group(name: str, jobs: int, pods: int) -> dict[str, Any]:
    spec = {"parallelism": pods, "completions": pods, "template": template()}
    return {"name": name, "replicas": jobs, "template": {"spec": spec}}
