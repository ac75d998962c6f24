"""API servers for tests of the client, and objects for them."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from queuectl.core.model.policy import ResourceFlavor, Toleration
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    AttemptState,
    Effect,
    EffectKey,
    PodSetAssignment,
    Verb,
)
from queuectl.kinds.jobs import QUEUE_LABEL, JobKind, KindRegistry
from queuectl.kinds.labels import OWN, QueueLabels
from queuectl.kinds.workloads import observe
from queuectl.kube.account import Bearer
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.errors import Conflict
from queuectl.kube.session import Session, api_path
from queuectl.sandbox.control_plane import ControlPlane
from queuectl.sandbox.kubernetes.server import SmallApi
from queuectl.sandbox.kubernetes.wire import Request
from tests.doubles.faults import Faults, injected
from tests.doubles.inprocess import InProcessTransport
from tests.job_kinds import JOB_KINDS

MANIFESTS = Path(__file__).parents[3] / "manifests"
NAMESPACE = "team-a"
AT = datetime(2026, 11, 21, 10, tzinfo=UTC)
SPOT = ResourceFlavor(
    name="spot",
    node_labels=(("pool", "spot"),),
    tolerations=(Toleration("spot", "Exists", None, "NoSchedule"),),
)
PYTORCH_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "pytorchjobs.kubeflow.org"},
    "spec": {
        "group": "kubeflow.org",
        "names": {
            "kind": "PyTorchJob",
            "listKind": "PyTorchJobList",
            "plural": "pytorchjobs",
            "singular": "pytorchjob",
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}
CRDS = api_path("apiextensions.k8s.io", "v1", "customresourcedefinitions")


def definition(row: JobKind) -> dict[str, Any]:
    """A definition of this kind that keeps all fields."""
    found = copy.deepcopy(PYTORCH_CRD)
    names = {"kind": row.kind, "listKind": f"{row.kind}List", "plural": row.plural}
    found["metadata"]["name"] = row.resource
    found["spec"] |= {"group": row.group, "names": names | {"singular": row.kind.lower()}}
    found["spec"]["versions"][0]["name"] = row.version
    return found


@dataclass(slots=True)
class Site:
    """One server, with the client as its admin."""

    session: Session
    faults: Faults | None = None
    """Faults of the small API."""

    @property
    def cluster(self) -> KubeCluster:
        return KubeCluster(self.session, JOB_KINDS)

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self.session.create(path, body)

    async def job(self, name: str, **spec: Any) -> dict[str, Any]:
        return await self.create(jobs(), job(name, **spec))


def jobs(name: str | None = None) -> str:
    return api_path("batch", "v1", "jobs", NAMESPACE, name)


def pytorch_jobs(name: str | None = None) -> str:
    return api_path("kubeflow.org", "v1", "pytorchjobs", NAMESPACE, name)


def _template() -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {"spec": {"containers": [container], "restartPolicy": "Never"}}


def job(name: str, *, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": NAMESPACE, "labels": {QUEUE_LABEL: "main"}}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"suspend": True, "template": _template(), **spec},
    }


def pytorch_job(name: str, **spec: Any) -> dict[str, Any]:
    replicas = {kind: {"replicas": count, "template": _template()} for kind, count in
                (("Master", 1), ("Worker", 3))}  # fmt: skip
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {QUEUE_LABEL: "main"}},
        "spec": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": replicas, **spec},
    }


def effect(
    obj: dict[str, Any],
    kind: str = "Job",
    *,
    attempt: int = 1,
    verb: Verb = Verb.START,
    honoured: QueueLabels = OWN,
    child: dict[str, Any] | None = None,
    kinds: KindRegistry = JOB_KINDS,
    pods: int | None = None,
) -> Effect:
    """The effect that starts or stops `obj` as it was read, with the child that has its podsets.

    `pods`: quota for so many of the last podset.
    """
    event = observe(kinds[kind], obj, honoured, child)
    assert event is not None
    workload = event.workload
    *others, last = workload.pod_sets
    last = last if pods is None else replace(last, count=pods)
    pod_sets = tuple(
        PodSetAssignment(
            name=one.name,
            count=one.count,
            requests=one.requests,
            flavors=tuple((resource, "spot") for resource, _ in one.requests),
            node_selector=one.node_selector,
            tolerations=one.tolerations,
        )
        for one in (*others, last)
    )
    return Effect(
        key=EffectKey(workload.id, attempt, verb),
        workload=workload,
        observation=event.observation,
        attempt=Attempt(
            workload=workload.id,
            number=attempt,
            state=AttemptState.ADMITTED,
            assignment=Assignment(cluster_queue="gpus", pod_sets=pod_sets),
            admitted_at=AT + timedelta(seconds=attempt),
            sequence=attempt,
        ),
        flavors=(SPOT,),
    )


@asynccontextmanager
async def small(folder: Path, **options: Any) -> AsyncIterator[Site]:
    """The small API over TLS, by its kubeconfig."""
    async with SmallApi(folder / "small", **options) as api:
        api.write_kubeconfig(folder / "small.kubeconfig")
        with injected(api.api) as faults:
            async with served(folder / "small.kubeconfig", faults) as site:
                yield site


@asynccontextmanager
async def in_process(folder: Path, **options: Any) -> AsyncIterator[Site]:
    """The small API without sockets between it and the client."""
    async with SmallApi(folder / "small", **options) as api:

        async def handle(method: str, path: str, query: Any, headers: Any, body: bytes) -> Any:
            return await api.api.handle(Request(method, path, query, headers, body))

        session = Session(InProcessTransport(handle), Bearer(api.tokens["admin"]))
        await _prepare(session)
        with injected(api.api) as faults:
            yield Site(session, faults)


@asynccontextmanager
async def real(folder: Path, *, controllers: bool = False, **options: Any) -> AsyncIterator[Site]:
    """A kube-apiserver; skips the test if there is none."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        pytest.skip("KUBEBUILDER_ASSETS is not set: the real kube-apiserver is not tried")
    async with ControlPlane(
        folder / "real", Path(assets), controllers=controllers, fsync=False, **options
    ) as plane:
        plane.write_kubeconfig(folder / "real.kubeconfig")
        async with served(folder / "real.kubeconfig", None) as site:
            # Pods are refused without it.
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            with suppress(Conflict):  # a controller may have made it
                await site.create(api_path("", "v1", "serviceaccounts", NAMESPACE), account)
            yield site


SITES: dict[str, Callable[[Path], Any]] = {"small": small, "in_process": in_process, "real": real}


@asynccontextmanager
async def served(kubeconfig: Path, faults: Faults | None) -> AsyncIterator[Site]:
    """The server of a kubeconfig."""
    session = await Session.from_kubeconfig(str(kubeconfig), "admin")
    try:
        await _prepare(session)
        yield Site(session, faults)
    finally:
        await session.close()


@functools.cache
def _own_definitions() -> list[dict[str, Any]]:
    paths = sorted((MANIFESTS / "crds").glob("queuectl.dev_*.yaml"))
    return [yaml.load(path.read_text(), yaml.CSafeLoader) for path in paths]


async def _prepare(session: Session) -> None:
    for body in _own_definitions():
        await session.create(CRDS, body)
    for name in (NAMESPACE, "queuectl-system"):
        try:
            await session.create(
                api_path("", "v1", "namespaces"),
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
            )
        except Conflict:
            continue
