"""A cluster and a ledger without a controller: the controller is a process that a test starts and ends."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from queuectl.kube.session import MERGE_PATCH
from queuectl.ledger.admin import schema
from queuectl.sandbox import tenancy
from queuectl.sandbox.control_plane import ControlPlane, find_assets
from queuectl.sandbox.example import fake_node, pytorchjob_crd
from queuectl.sandbox.install import Installer, read_kustomization
from queuectl.sandbox.kubernetes.server import SmallApi
from queuectl.sandbox.players import play
from queuectl.sandbox.players.api import Client
from queuectl.sandbox.postgres import DATABASE, EmbeddedPostgres
from queuectl.sandbox.processes import ChildProcess, spawn
from queuectl.sandbox.webhook import suspending
from queuectl.shipped import shipped
from tests.acceptance.e2e.audit import Audit, Recorder, audited
from tests.acceptance.e2e.site import PATIENCE, Json, Run, cluster_queue, eventually, flavor, local_queue
from tests.doubles.open_holds import OpenHold, open_holds
from tests.integration.sandbox.cluster import WallClock

NAMESPACE = "load"
QUEUE = "load"
_AT_ONCE = 16
"""Concurrent requests while many objects are created."""


@dataclass
class Stand:
    """A control plane with players and an audit log, and a database. Namespace and ClusterQueue `load`."""

    folder: Path
    plane: SmallApi | ControlPlane
    postgres: EmbeddedPostgres
    audit: Audit
    api: Client
    """A client as admin."""
    tenant: Client

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    # --- processes

    async def controller(self, *more: str, config: str = "") -> ChildProcess:
        """Start a controller; it does not lead yet. `more`: flags; `config`: more sections."""
        file = self.folder / "queuectl.yaml"
        file.write_text(f"controller: {{listen: '127.0.0.1:0', verifySeconds: 5}}\n{config}\n")
        return await spawn(
            [sys.executable, "-m", "queuectl", "controller", *more, "--config", file, *self._flags()],
            name="queuectl controller",
            log=self.folder / "controller.log",
        )

    def _flags(self) -> list[str]:
        flags = ["--kubeconfig", str(self.kubeconfig), "--context", "controller"]
        return [*flags, "--database-url", self.postgres.url]

    async def queuectl(self, *arguments: str) -> Run:
        """Run a command as an operator does."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "queuectl", *arguments, *self._flags()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
        assert process.returncode is not None
        return Run(process.returncode, out.decode(), err.decode())

    # --- objects

    async def submit(self, bodies: Iterable[Json]) -> list[Json]:
        """Create workloads in `load` as a tenant, several at a time."""
        plurals = {"Job": "/apis/batch/v1", "PyTorchJob": "/apis/kubeflow.org/v1"}
        free = asyncio.Semaphore(_AT_ONCE)

        async def create(body: Json) -> Json:
            kind = body["kind"]
            async with free:
                path = f"{plurals[kind]}/namespaces/{NAMESPACE}/{kind.lower()}s"
                return await self.tenant.request("POST", path, body)

        async with asyncio.TaskGroup() as tasks:
            making = [tasks.create_task(create(body)) for body in bodies]
        return [task.result() for task in making]

    async def items(self, kind: str) -> list[Json]:
        group = {"jobs": "apis/batch/v1", "pytorchjobs": "apis/kubeflow.org/v1", "pods": "api/v1"}[kind]
        answer = await self.api.request("GET", f"/{group}/namespaces/{NAMESPACE}/{kind}")
        found: list[Json] = answer["items"]
        return found

    async def running_pods(self) -> list[Json]:
        return [pod for pod in await self.items("pods") if pod["status"].get("phase") == "Running"]

    async def end_pods(self) -> None:
        """Set all running pods to Succeeded, as their kubelet would."""
        for pod in await self.running_pods():
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}/status"
            done = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"phase": "Succeeded"}}
            await self.api.request("PATCH", path, done, content_type=MERGE_PATCH)

    async def unfinished(self, kind: str = "jobs") -> list[str]:
        """Names of workloads that have neither completed nor failed."""
        over = {"Complete", "Failed", "Succeeded"}
        return [
            item["metadata"]["name"]
            for item in await self.items(kind)
            if not any(
                c["type"] in over and c["status"] == "True"
                for c in (item.get("status") or {}).get("conditions") or ()
            )
        ]

    # --- the ledger

    async def ask(self, question: str, *values: Any) -> Any:
        """One value of the ledger, by SQL on a new connection."""
        connection = await asyncpg.connect(self.postgres.url)
        try:
            return await connection.fetchval(question, *values)
        finally:
            await connection.close()

    async def holds(self) -> list[OpenHold]:
        return await open_holds(self.postgres.url)

    async def all_retired(self, patience: float = PATIENCE) -> None:
        """Wait until all workloads in the ledger are over."""

        async def look() -> bool:
            return not await self.ask("SELECT count(*) FROM queuectl.workload WHERE open")

        await eventually("all workloads are over in the ledger", look, patience)

    async def lose_database(self) -> None:
        """Drop the database while it is in use, and create an empty one."""
        connection = await asyncpg.connect(self.postgres.database_url("postgres"))
        try:
            await connection.execute(f'DROP DATABASE "{DATABASE}" WITH (FORCE)')
            await connection.execute(f'CREATE DATABASE "{DATABASE}"')
        finally:
            await connection.close()


async def killed(child: ChildProcess) -> None:
    child.send(signal.SIGKILL)
    assert await child.wait() == -signal.SIGKILL


async def ended(child: ChildProcess) -> None:
    """Stop the controller; it must exit with 0."""
    assert await child.stop(30.0) == 0, child.tail()


@asynccontextmanager
async def stand(folder: Path, kind: str, *, gpus: int, gated: bool = True) -> AsyncIterator[Stand]:
    """`kind`: small, real, or as-1.33 for a real one that behaves as that release. One
    ClusterQueue for `gpus` of one flavor; a node has room for all that fit.

    `gated`: with the policies that keep labelled work suspended.
    """
    async with AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(EmbeddedPostgres(folder / "postgres"))
        plane, audit = await _plane(stack, folder, kind)
        plane.write_kubeconfig(folder / "kubeconfig")
        clients = [
            await stack.enter_async_context(Client(plane.url, plane.ssl_context(), plane.tokens[name]))
            for name in ("admin", "tenant")
        ]
        found = Stand(folder, plane, postgres, audit, *clients)
        await schema.migrate(postgres.url)
        await _install(found, gpus, gated=gated)
        if gated and isinstance(plane, ControlPlane):
            await stack.enter_async_context(suspending(plane, clients[0], folder))
        async with asyncio.TaskGroup() as tasks:
            playing = tasks.create_task(play(clients[0], WallClock(), controller_manager=kind == "small"))
            try:
                yield found
            finally:
                playing.cancel()


async def _plane(stack: AsyncExitStack, folder: Path, kind: str) -> tuple[SmallApi | ControlPlane, Audit]:
    if kind == "small":
        small = await stack.enter_async_context(SmallApi(folder / "kubernetes"))
        return small, Recorder(small)
    assets = find_assets()
    assert assets is not None
    older = kind.removeprefix("as-") if kind.startswith("as-") else None
    audit, flags = audited(folder)
    plane = ControlPlane(folder / "plane", assets, emulated=older, flags=flags, fsync=False)
    await stack.enter_async_context(plane)
    return plane, audit


async def _install(site: Stand, gpus: int, *, gated: bool) -> None:
    installer = Installer(site.api)
    shipped_objects = read_kustomization(shipped("manifests"))
    await installer.apply([one for one in shipped_objects if gated or "AdmissionPolicy" not in one["kind"]])
    mutating = await installer.serves("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy")
    if mutating and gated:
        await installer.apply(read_kustomization(shipped("manifests") / "mutating"))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    await installer.apply([pytorchjob_crd(), namespace, fake_node("node", "a100", gpus=1000)])
    await installer.apply(tenancy.rights(["default", NAMESPACE]))
    await installer.apply(
        [
            flavor("a100", {"example.com/accelerator": "a100"}),
            cluster_queue(QUEUE, gpus),
            local_queue(NAMESPACE, "main", QUEUE),
        ]
    )
    if gated:
        await tenancy.wait_for_gate(site.tenant, mutating=mutating)
