"""The sandbox's example: fake GPU nodes, and the jobs of three teams and a scavenger.

Their queues are those of manifests/examples. The jobs of one round show what queuectl does: what is borrowed,
reclaimed, preempted by priority and by shares, admitted as a whole or not at all, never admitted, and which
flavor comes next. They are created and deleted round after round: a round begins with nothing of an earlier
one, so that neither hours nor restarts fill the cluster.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from queuectl.kinds.jobs import PRIORITY_LABEL, QUEUE_LABEL
from queuectl.kube.errors import ApiError
from queuectl.kube.session import Session
from queuectl.kubernetes_yaml import load
from queuectl.sandbox.players.api import Object
from queuectl.sandbox.players.kubelet import FAKE_NODE, RUN_SECONDS, TERMINATE_SECONDS

NAMESPACES: Final = ("team-a", "team-b", "team-c", "scavenger")
EXAMPLE_LABEL: Final = "sandbox.queuectl.dev/example"
"""On the jobs of the example and their pods: they are deleted at the end of a round."""
TOO_LARGE: Final = ("team-a", "too-large")
"""Namespace and name of the job that can never run."""
ROUND_SECONDS: Final = 65.0
"""From the first job of a round to its end."""

USERS: Final = ("ada", "bob", "carol")
"""Who creates the jobs of the example."""
PROJECT_LABEL: Final = "example.com/project"
_COST_CENTER_LABEL: Final = "example.com/cost-center"
_COST_CENTERS: Final = {"team-a": "4100", "team-b": "4200"}
_OTHER_COST_CENTER: Final = "4300"
_GPU_HOUR: Final = {"resource": "nvidia.com/gpu", "from": "2020-01-01", "price": "2.50"}
SETTINGS: Final = {
    "accounting": {
        "keys": [
            {"name": "project", "label": PROJECT_LABEL},
            {"name": "cost-center", "label": _COST_CENTER_LABEL},
        ],
        "rateCard": {"currency": "EUR", "account": "project", "rates": [_GPU_HOUR]},
    }
}
"""Of the controller, for the example."""

_QUEUE: Final = "main"
_ACCELERATOR: Final = "example.com/accelerator"
_SPOT_TAINT: Final = {"key": "example.com/spot", "value": "true", "effect": "NoSchedule"}
_CPU_PER_GPU: Final = 2
_MEMORY_GI_PER_GPU: Final = 8
_TERMINATE_SECONDS: Final = 1
"""The pods of a stopped job take so long to end."""

_CLEAR_SECONDS: Final = 30.0
"""A round begins after so long whatever is left: a person may keep a pod with a finalizer."""
_POLL_SECONDS: Final = 0.25
_AT_ONCE: Final = 55
"""Rounds that follow each other: those of an hour. A round adds 200 kB to the ledger."""
_LATER_SECONDS: Final = 240.0
"""The pause after each later round."""
_GROUPS: Final = {"Job": "apis/batch/v1", "PyTorchJob": "apis/kubeflow.org/v1"}

_log = logging.getLogger(__name__)


class _Job(NamedTuple):
    """One job of the example."""

    at: float
    """Seconds after the first job of its round."""
    namespace: str
    name: str
    gpus: int
    """GPUs of each pod: at most 4, so that no pod waits for a node."""
    pods: int
    seconds: int
    """Run time of each pod in seconds."""
    priority: str
    flavor: str = "a100"
    """The only flavor that it may get; empty: any."""
    kind: str = "Job"

    @property
    def user(self) -> str:
        """ada and bob share team-a."""
        if self.namespace == "team-a" and self.name.startswith("sweep"):
            return "bob"
        return {"team-b": "bob", "team-c": "carol"}.get(self.namespace, "ada")

    @property
    def project(self) -> str:
        return "language" if self.namespace == "team-b" or "bert" in self.name else "vision"


_STORY: Final = (
    # team-a uses its 8 GPUs, and borrows 4. The scavenger borrows the other 12; its next job gets spot.
    _Job(0, "team-a", "train-resnet", 4, 1, 32, "normal"),
    _Job(1, "team-a", "train-bert", 2, 2, 26, "normal"),
    _Job(2, "team-a", "sweep-1", 2, 1, 28, "low"),
    _Job(2, "team-a", "sweep-2", 2, 1, 28, "low"),
    _Job(3, "scavenger", "fold-1", 4, 1, 20, "low", ""),
    _Job(3, "scavenger", "fold-2", 4, 1, 20, "low", ""),
    _Job(3, "scavenger", "fold-3", 4, 1, 20, "low", ""),
    _Job(4, "scavenger", "fold-4", 4, 1, 20, "low", ""),
    # 24 GPUs, more than team-a can ever have.
    _Job(4, *TOO_LARGE, 4, 6, 30, "normal"),
    # The owners come: the scavenger loses what it borrowed. The gang starts when all of its 8 GPUs are free.
    _Job(8, "team-b", "finetune-llm", 2, 4, 19, "normal", kind="PyTorchJob"),
    _Job(12, "team-c", "render", 4, 1, 20, "normal"),
    # team-b borrows as well: team-a borrows more, and loses a job.
    _Job(17, "team-b", "distill", 2, 1, 12, "low"),
    # In its own queue a higher priority comes first.
    _Job(21, "team-a", "urgent-eval", 4, 1, 10, "high"),
    # team-c takes back the rest of its quota, from both teams that borrow it.
    _Job(26, "team-c", "eval-nightly", 4, 1, 8, "normal"),
    _Job(38, "team-b", "embeddings", 1, 4, 10, "low", ""),
    _Job(40, "team-c", "regression", 2, 1, 10, "high"),
)


def pytorchjob_crd() -> Object:
    """A small definition, used if the real one is not installed."""
    return _file("pytorchjob_crd.yaml")[0]


def accounting() -> list[Object]:
    """What each user may hold, and each cost center use in a month."""
    return _file("accounting.yaml")


def _file(name: str) -> list[Object]:
    return [dict(one) for one, _ in load(Path(__file__).with_name(name).read_bytes())]


def nodes() -> list[Object]:
    """Three machines of one kind, and three cheaper ones with a taint: what the quotas sum up to."""
    return [
        *(fake_node(f"a100-{number}", "a100", gpus=8) for number in (1, 2, 3)),
        *(fake_node(f"spot-{number}", "spot", gpus=4, taints=[_SPOT_TAINT]) for number in (1, 2, 3)),
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


def jobs(pace: float = 1.0) -> list[tuple[float, Object]]:
    """The jobs of a round, each with its time in seconds after the first.

    `pace`: all times are multiplied by it.
    """
    makers = {"Job": _job, "PyTorchJob": _pytorchjob}
    return [(one.at * pace, makers[one.kind](one, pace)) for one in _STORY]


def _metadata(one: _Job) -> Object:
    labels = {QUEUE_LABEL: _QUEUE, PRIORITY_LABEL: one.priority, EXAMPLE_LABEL: "true"}
    labels[PROJECT_LABEL] = one.project
    labels[_COST_CENTER_LABEL] = _COST_CENTERS.get(one.namespace, _OTHER_COST_CENTER)
    return {"name": one.name, "namespace": one.namespace, "labels": labels}


def _template(one: _Job, pace: float) -> Object:
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
    if one.flavor:
        spec["nodeSelector"] = {_ACCELERATOR: one.flavor}
    if one.kind == "Job":
        spec["restartPolicy"] = "Never"
    seconds = {RUN_SECONDS: one.seconds * pace, TERMINATE_SECONDS: _TERMINATE_SECONDS * pace}
    annotations = {name: f"{value:g}" for name, value in seconds.items()}
    return {"metadata": {"labels": {EXAMPLE_LABEL: "true"}, "annotations": annotations}, "spec": spec}


def _job(one: _Job, pace: float) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(one),
        "spec": {"parallelism": one.pods, "completions": one.pods, "template": _template(one, pace)},
    }


def _pytorchjob(one: _Job, pace: float) -> Object:
    def replica(count: int) -> Object:
        return {"replicas": count, "restartPolicy": "Never", "template": _template(one, pace)}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": _metadata(one),
        "spec": {
            "runPolicy": {"cleanPodPolicy": "None"},
            "pytorchReplicaSpecs": {"Master": replica(1), "Worker": replica(one.pods - 1)},
        },
    }


async def play_rounds(api: Session, users: Mapping[str, Session], pace: float = 1.0) -> None:
    """Play the example until cancelled. `pace`: all times are multiplied by it.

    `api`: as the tenant, which deletes the jobs. `users`: as each of USERS, which creates them.
    """
    loop = asyncio.get_running_loop()
    for number in itertools.count():
        await _clear(api)
        start = loop.time()
        for one, (at, thing) in zip(_STORY, jobs(pace), strict=True):
            await asyncio.sleep(start + at - loop.time())
            await _create(users[one.user], thing)
        pause = _LATER_SECONDS if number >= _AT_ONCE else 0.0
        await asyncio.sleep(start + (ROUND_SECONDS + pause) * pace - loop.time())


async def _create(api: Session, thing: Object) -> None:
    metadata = thing["metadata"]
    try:
        await api.request("POST", _path(thing["kind"], metadata["namespace"]), thing)
    except ApiError as error:  # the user may have done anything to the example by now
        _log.warning("%s/%s of the example: %s", metadata["namespace"], metadata["name"], error)


async def _clear(api: Session) -> None:
    """Delete the example's jobs, and wait until they and their pods are gone."""
    try:
        async with asyncio.timeout(_CLEAR_SECONDS):
            while await _delete_left(api):  # noqa: ASYNC110 - what is polled is on the API server
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        _log.warning("objects of the example are there %g s after they were deleted", _CLEAR_SECONDS)


async def _delete_left(api: Session) -> bool:
    """Whether any object of the example is there; each job that is not being deleted is deleted."""
    left = False
    try:
        for namespace in NAMESPACES:
            for kind in _GROUPS:
                for name, ending in await _found(api, _path(kind, namespace)):
                    left = True
                    if not ending:
                        path = f"{_path(kind, namespace)}/{name}"
                        await api.request("DELETE", path, {"propagationPolicy": "Background"})
            left = left or bool(await _found(api, f"/api/v1/namespaces/{namespace}/pods"))
    except ApiError as error:
        _log.warning("the example is not cleared: %s", error)
        return True
    return left


async def _found(api: Session, path: str) -> list[tuple[str, bool]]:
    """Name of each object of the example in this collection, and whether it is being deleted."""
    found = await api.request("GET", path, query={"labelSelector": f"{EXAMPLE_LABEL}=true"})
    return [
        (thing["metadata"]["name"], bool(thing["metadata"].get("deletionTimestamp")))
        for thing in found["items"]
    ]


def _path(kind: str, namespace: str) -> str:
    return f"/{_GROUPS[kind]}/namespaces/{namespace}/{kind.lower()}s"
