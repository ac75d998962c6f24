"""The sandbox's example: a few fake GPU nodes, and jobs of two teams that arrive one after another.

Their queues are those of manifests/examples. Some jobs run at once, some are pending first, and one is larger
than the quota of its queue.
"""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from queuectl.kinds.jobs import PRIORITY_LABEL, QUEUE_LABEL
from queuectl.sandbox.endpoints import write_private
from queuectl.sandbox.players.api import Api, ApiError, Object
from queuectl.sandbox.players.kubelet import RUN_SECONDS
from queuectl.sandbox.players.nodes import FAKE_NODE

NAMESPACES: Final = ("team-a", "team-b")
TOO_LARGE: Final = ("team-a", "too-large")
"""Namespace and name of the job that stays pending."""

_QUEUE: Final = "main"
_ACCELERATOR: Final = "example.com/accelerator"
_SPOT_TAINT: Final = {"key": "example.com/spot", "value": "true", "effect": "NoSchedule"}
_CPU_PER_GPU: Final = 2
_MEMORY_GI_PER_GPU: Final = 8

_log = logging.getLogger(__name__)


class _Job(NamedTuple):
    """One job of the example."""

    at: float
    """Seconds after the first job."""
    namespace: str
    name: str
    gpus: int
    """GPUs of each pod."""
    pods: int
    seconds: int
    """Run time of each pod in seconds."""
    priority: str
    kind: str = "Job"


_STORY: Final = (
    _Job(0, "team-a", "train-resnet", 4, 1, 25, "normal"),
    _Job(0, "team-b", "tokenize", 2, 1, 15, "low"),
    _Job(1, "team-a", "train-bert", 2, 2, 20, "normal"),
    _Job(1, "team-b", "finetune-llm", 2, 4, 20, "normal", "PyTorchJob"),
    _Job(2, *TOO_LARGE, 16, 1, 30, "normal"),
    _Job(3, "team-a", "sweep-1", 2, 1, 12, "low"),
    _Job(3, "team-a", "sweep-2", 2, 1, 12, "low"),
    _Job(3, "team-a", "sweep-3", 2, 1, 12, "low"),
    _Job(4, "team-a", "ablation", 4, 1, 15, "normal"),
    _Job(5, "team-b", "eval-nightly", 4, 1, 10, "normal"),
    _Job(8, "team-a", "urgent-eval", 4, 1, 10, "high"),
    _Job(10, "team-b", "distill", 2, 2, 15, "normal"),
    _Job(12, "team-b", "embeddings", 1, 4, 12, "low"),
    _Job(16, "team-a", "convert", 1, 1, 8, "normal"),
    _Job(20, "team-b", "regression", 2, 1, 10, "high"),
)


_ROUNDS: Final = 6
_ROUND_SECONDS: Final = 40.0
"""The jobs are created so many times, at this distance in seconds: some minutes of activity."""


def pytorchjob_crd() -> Object:
    """A small definition, used if the real one is not installed."""
    path = Path(__file__).with_name("pytorchjob_crd.yaml")
    found: Object = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def nodes() -> list[Object]:
    """Two machines of one kind, and two cheaper ones with a taint."""
    return [
        *(fake_node(f"a100-{number}", "a100", gpus=8) for number in (1, 2)),
        *(fake_node(f"spot-{number}", "spot", gpus=4, taints=[_SPOT_TAINT]) for number in (1, 2)),
    ]


def fake_node(name: str, accelerator: str, *, gpus: int, taints: list[Object] | None = None) -> Object:
    """A node that exists only in the API, with four times the cpu and memory that its GPUs' pods request."""
    room = {
        "cpu": str(4 * _CPU_PER_GPU * gpus),
        "memory": f"{4 * _MEMORY_GI_PER_GPU * gpus}Gi",
        "pods": "110",
        "nvidia.com/gpu": str(gpus),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                _ACCELERATOR: accelerator,
                FAKE_NODE: "true",
            },
        },
        "spec": {"taints": taints} if taints else {},
        "status": {"capacity": room, "allocatable": room},
    }


def jobs() -> list[tuple[float, Object]]:
    """Each job with its time, in seconds after the first."""
    told = sorted((one for number in range(_ROUNDS) for one in _round(number)), key=lambda one: one.at)
    return [(one.at, _pytorchjob(one) if one.kind == "PyTorchJob" else _job(one)) for one in told]


def _round(number: int) -> list[_Job]:
    """The jobs of repetition n, from 0, without the one that is too large: it exists already."""
    if number == 0:
        return list(_STORY)
    return [
        one._replace(at=one.at + number * _ROUND_SECONDS, name=f"{one.name}-r{number + 1}")
        for one in _STORY
        if (one.namespace, one.name) != TOO_LARGE
    ]


async def load(api: Api, told: Path) -> None:
    """Create the jobs, each at its time. The file `told` lists those created: none is created twice."""
    done = _read(told)
    start = asyncio.get_running_loop().time()
    for at, thing in jobs():
        name = f"{thing['metadata']['namespace']}/{thing['metadata']['name']}"
        if name in done:
            continue
        await asyncio.sleep(start + at - asyncio.get_running_loop().time())
        group, plural = ("batch", "jobs") if thing["kind"] == "Job" else ("kubeflow.org", "pytorchjobs")
        path = f"/apis/{group}/v1/namespaces/{thing['metadata']['namespace']}/{plural}"
        try:
            await api.request("POST", path, thing)
        except ApiError as error:  # the user may have done anything to the example by now
            _log.warning("%s of the example: %s", name, error)
        done.append(name)
        write_private(told, json.dumps(done))


def _read(told: Path) -> list[str]:
    """Names of the jobs created in earlier runs."""
    try:
        names: list[str] = json.loads(told.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return names


def _metadata(one: _Job) -> Object:
    labels = {QUEUE_LABEL: _QUEUE, PRIORITY_LABEL: one.priority}
    return {"name": one.name, "namespace": one.namespace, "labels": labels}


def _template(one: _Job) -> Object:
    amounts: dict[str, Any] = {
        "cpu": str(_CPU_PER_GPU * one.gpus),
        "memory": f"{_MEMORY_GI_PER_GPU * one.gpus}Gi",
        "nvidia.com/gpu": str(one.gpus),
    }
    container = {
        # The training operator finds its container by this name.
        "name": "pytorch" if one.kind == "PyTorchJob" else "main",
        "image": "example.com/train:1",
        "resources": {"requests": amounts, "limits": {"nvidia.com/gpu": str(one.gpus)}},
    }
    spec: Object = {"containers": [container]}
    if one.kind == "Job":
        spec["restartPolicy"] = "Never"
    return {"metadata": {"annotations": {RUN_SECONDS: str(one.seconds)}}, "spec": spec}


def _job(one: _Job) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(one),
        "spec": {"parallelism": one.pods, "completions": one.pods, "template": _template(one)},
    }


def _pytorchjob(one: _Job) -> Object:
    def replica(count: int) -> Object:
        return {"replicas": count, "restartPolicy": "Never", "template": _template(one)}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": _metadata(one),
        "spec": {
            "runPolicy": {"cleanPodPolicy": "None"},
            "pytorchReplicaSpecs": {"Master": replica(1), "Worker": replica(one.pods - 1)},
        },
    }
