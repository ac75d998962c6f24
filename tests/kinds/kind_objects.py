"""An object of each kind of job, as an API server returns it, with podsets whose size is given."""

from __future__ import annotations

from typing import Any

from queuectl.kinds.jobs import JobKind
from tests.kinds.job_objects import container, job, metadata

SUSPENDED = {"type": "Suspended", "status": "True", "reason": "Suspended", "message": ""}


def template() -> dict[str, Any]:
    return {"spec": {"containers": [container()], "restartPolicy": "Never"}}


def sample(row: JobKind, **sizes: int) -> dict[str, Any]:
    """A suspended object; `sizes`: pods by replica type or replicated job. Of a Job: `main`."""
    if row.replicas is None:
        return job(parallelism=sizes.get("main", 1), completions=sizes.get("main", 1))
    if row.replicas.listed:
        groups = [_group(name, 1, size) for name, size in sizes.items()]
        spec: dict[str, Any] = {"suspend": True, row.replicas.field: groups}
    else:
        specs = {name: {"replicas": size, "template": template()} for name, size in sizes.items()}
        spec = {"runPolicy": {"suspend": True}, row.replicas.field: specs}
    return {
        "apiVersion": row.api_version,
        "kind": row.kind,
        "metadata": metadata(),
        "spec": spec,
        "status": {},
    }


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
