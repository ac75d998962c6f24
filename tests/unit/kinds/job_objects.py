"""Jobs and PyTorchJobs as an API server returns them."""

from __future__ import annotations

from typing import Any

UID = "6f2c2f0e-6a5d-4d0c-9b53-0d9a4f3f1c11"


def metadata(name: str = "train", **more: Any) -> dict[str, Any]:
    return {
        "namespace": "team-a",
        "name": name,
        "uid": UID,
        "resourceVersion": "41",
        "generation": 1,
        "creationTimestamp": "2026-11-21T10:00:00Z",
        "labels": {"queuectl.dev/queue-name": "main"},
        **more,
    }


def container(requests: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", "resources": {"requests": requests or {"nvidia.com/gpu": "2"}}, **more}


def job(*, pod: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A suspended Job of one container with two GPUs; `pod` adds to its pod spec, the rest to its spec."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(),
        "spec": {
            "suspend": True,
            "template": {"spec": {"containers": [container()], "restartPolicy": "Never"} | (pod or {})},
            **spec,
        },
        "status": {},
    }


def pytorch_job(**replicas: int | None) -> dict[str, Any]:
    """A suspended PyTorchJob with replicas such as `Master=1, Worker=3`."""
    specs: dict[str, Any] = {}
    for kind, count in replicas.items():
        specs[kind] = {"template": {"spec": {"containers": [container()]}}}
        if count is not None:
            specs[kind]["replicas"] = count
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": metadata(),
        "spec": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": specs},
    }
