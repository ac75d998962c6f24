"""A real control plane and a Postgres to measure on: no controller manager, no players, the gate in force."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import asyncpg

from benchmarks.machine import child_named, cpu_seconds
from queuectl.ledger import schema
from queuectl.sandbox import tenancy
from queuectl.sandbox.client import Client
from queuectl.sandbox.control_plane import TENANT_USER, ControlPlane, find_assets
from queuectl.sandbox.install import Installer, read_kustomization
from queuectl.sandbox.postgres import EmbeddedPostgres
from queuectl.sandbox.processes import Child, spawn
from queuectl.shipped import shipped

GPU: Final = "nvidia.com/gpu"
QUEUE: Final = "main"
_GROUP: Final = "queuectl.dev/v1beta1"
_REQUESTS: Final = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU seconds so far of the serving processes, and answered requests by verb and resource."""

    api_server: float
    etcd: float
    postgres: float
    requests: Counter[tuple[str, str]]

    def since(self, before: Costs) -> Costs:
        return Costs(
            self.api_server - before.api_server,
            self.etcd - before.etcd,
            self.postgres - before.postgres,
            self.requests - before.requests,
        )


@dataclass
class Site:
    folder: Path
    plane: ControlPlane
    postgres: EmbeddedPostgres
    api: Client
    """A client as admin."""

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    async def process(self, name: str, *arguments: str | Path) -> Child:
        """Start `python -m` with these arguments; it is a child process and ends with this one."""
        log = self.folder / f"{name}.log"
        log.unlink(missing_ok=True)
        environment = {**os.environ, "QUEUECTL_DATABASE_URL": self.postgres.url}
        argv = [sys.executable, "-m", *arguments]
        return await spawn(argv, name=name, log=log, env=environment)

    async def controller(self, profile: Path | None = None) -> Child:
        """Start the program; `profile`: the file for its CPU profile."""
        config = self.folder / "controller.yaml"
        config.write_text("controller: {listen: '127.0.0.1:0'}\n")
        flags = ("--config", config, "--kubeconfig", self.kubeconfig, "--context", "controller")
        command = ("queuectl",) if profile is None else ("benchmarks.under_profile", profile)
        return await self.process("controller", *command, "controller", *flags)

    async def costs(self) -> Costs:
        return Costs(
            cpu_seconds(child_named("kube-apiserver")),
            cpu_seconds(child_named("etcd")),
            cpu_seconds(self.postgres.pid, family=True),
            await self.requests(),
        )

    async def requests(self) -> Counter[tuple[str, str]]:
        """Answered requests by the API server's metrics; watches count when they end."""
        headers = {"Authorization": f"Bearer {self.plane.tokens['admin']}"}
        trust = self.plane.ssl_context()
        async with (
            aiohttp.ClientSession(headers=headers, trust_env=False) as session,
            session.get(f"{self.plane.url}/metrics", ssl=trust) as answer,
        ):
            text = await answer.text()
        found: Counter[tuple[str, str]] = Counter()
        for labels, value in _REQUESTS.findall(text):
            label = dict(_LABEL.findall(labels))
            resource = "/".join(part for part in (label["resource"], label["subresource"]) if part)
            found[label["verb"], resource] += int(float(value))
        return found

    async def ask(self, question: str) -> Any:
        """One value of the ledger, by SQL."""
        connection = await asyncpg.connect(self.postgres.url)
        try:
            return await connection.fetchval(question)
        finally:
            await connection.close()

    async def none_open(self) -> bool:
        """Are all workloads over in the ledger?"""
        return not await self.ask("SELECT count(*) FROM queuectl.workload_open")


async def until(look: Callable[[], Awaitable[object]], seconds: float = 120.0, pause: float = 0.1) -> None:
    """Call it until the result is true. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not await look():  # noqa: ASYNC110 - nothing would set an event
            await asyncio.sleep(pause)


async def says(child: Child, text: str) -> None:
    """Wait until it has printed that."""

    async def look() -> bool:
        if child.returncode is not None:
            raise child.death()
        return text in child.tail(100)

    await until(look)


@asynccontextmanager
async def site(folder: Path, quotas: Mapping[str, int]) -> AsyncIterator[Site]:
    """`quotas`: GPUs by namespace; each has a ClusterQueue of its name and LocalQueue `main`.

    Postgres runs with fsync; etcd without, so that queuectl's own writes weigh more.
    """
    assets = find_assets()
    assert assets is not None, "the caller has looked for them"
    async with AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(EmbeddedPostgres(folder / "postgres"))
        plane = ControlPlane(folder / "plane", assets, controllers=False, fsync=False)
        await stack.enter_async_context(plane)
        plane.write_kubeconfig(folder / "kubeconfig")
        await schema.migrate(postgres.url)
        client = Client(plane.url, plane.ssl_context(), plane.tokens["admin"])
        api = await stack.enter_async_context(client)
        await _install(plane, api, quotas)
        yield Site(folder, plane, postgres, api)


async def _install(plane: ControlPlane, api: Client, quotas: Mapping[str, int]) -> None:
    installer = Installer(api)
    await installer.apply(read_kustomization(shipped("manifests")))
    await installer.apply(read_kustomization(shipped("manifests") / "mutating"))
    named = ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in quotas)
    await installer.apply(named)
    await installer.apply(_rights())
    await installer.apply(_policy(quotas))
    async with Client(plane.url, plane.ssl_context(), plane.tokens["tenant"]) as tenant:
        await tenancy.wait_for_gate(tenant, mutating=True)


def _rights() -> Iterator[dict[str, Any]]:
    """The tenant may create Jobs anywhere. No controller manager aggregates the built-in roles here."""
    group = "rbac.authorization.k8s.io"
    role: dict[str, Any] = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "makes-jobs"},
    }
    kinds = {"batch": "jobs", "kubeflow.org": "pytorchjobs"}
    rules = [{"apiGroups": [name], "resources": [kind], "verbs": ["create"]} for name, kind in kinds.items()]
    yield {**role, "rules": rules}
    yield {
        **role,
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "makes-jobs"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": TENANT_USER}],
    }


def _policy(quotas: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    labels = {"example.com/accelerator": "a100"}
    yield _object("ResourceFlavor", "a100", {"nodeLabels": labels})
    plenty = [{"name": name, "nominalQuota": amount} for name, amount in (("cpu", "9k"), ("memory", "99Ti"))]
    for name, gpus in quotas.items():
        flavors = [{"name": "a100", "resources": [*plenty, {"name": GPU, "nominalQuota": gpus}]}]
        group = {"coveredResources": ["cpu", "memory", GPU], "flavors": flavors}
        spec = {"namespaceSelector": {}, "resourceGroups": [group]}
        yield _object("ClusterQueue", name, spec)
        yield _object("LocalQueue", QUEUE, {"clusterQueue": name}, namespace=name)


def _object(kind: str, name: str, spec: dict[str, Any], **metadata: str) -> dict[str, Any]:
    return {"apiVersion": _GROUP, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def training_job(name: str) -> dict[str, Any]:
    """About 2 KB as stored, a usual size of Jobs; it requests one GPU."""
    container = {
        "name": "train",
        "image": "registry.example/research/trainer:2030.1",
        "command": ["python", "-m", "trainer", "--config", "/etc/trainer/config.yaml", "--resume"],
        "env": [{"name": f"TRAINER_OPTION_{number}", "value": f"value-{number}"} for number in range(8)],
        "resources": {
            "requests": {"cpu": "8", "memory": "64Gi"},
            "limits": {"memory": "64Gi", GPU: "1"},
        },
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "config", "mountPath": "/etc/trainer"},
        ],
    }
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "config", "configMap": {"name": "trainer"}},
    ]
    template = {
        "metadata": {"labels": {"app": "trainer"}},
        "spec": {"restartPolicy": "Never", "containers": [container], "volumes": volumes},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"queuectl.dev/queue-name": QUEUE, "team": "research"}},
        "spec": {"suspend": True, "backoffLimit": 0, "template": template},
    }
