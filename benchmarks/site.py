"""A real control plane and a Postgres to measure on: no controller manager, no players, the gate in force."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import asyncpg

from benchmarks.machine import child_named, cpu_seconds
from benchmarks.objects import NODE_GPUS, NODES, Object, gpu_nodes, rights, training_job
from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from queuectl.ledger.admin import schema
from queuectl.sandbox import tenancy
from queuectl.sandbox.control_plane import ControlPlane, find_assets
from queuectl.sandbox.install import Installer, read_kustomization
from queuectl.sandbox.players.api import Client
from queuectl.sandbox.postgres import EmbeddedPostgres
from queuectl.sandbox.processes import ChildProcess, spawn
from queuectl.shipped import shipped

_REQUESTS: Final = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
ENFORCED: Final = """
    SELECT coalesce(sum((one ->> 'free')::bigint), 0)
    FROM queuectl.flavor_capacity, jsonb_array_elements(capacity -> 'resources') AS one
    WHERE flavor = 'a100' AND one ->> 'resource' = 'nvidia.com/gpu' AND one ->> 'mode' = 'Enforce'
"""
"""GPUs that are free on nodes and limit admissions."""
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
    tenant: Client
    _gated: bool = False
    _on_nodes: bool = False

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    async def process(self, name: str, *arguments: str | Path) -> ChildProcess:
        """Start `python -m` with these arguments; it is a child process and ends with this one."""
        log = self.folder / f"{name}.log"
        log.unlink(missing_ok=True)
        environment = {**os.environ, "QUEUECTL_DATABASE_URL": self.postgres.url}
        argv = [sys.executable, "-m", *arguments]
        return await spawn(argv, name=name, log=log, env=environment)

    async def controller(
        self,
        profile: Path | None = None,
        kinds: Sequence[str] = (),
        *,
        name: str = "controller",
        lease: str = "null",
    ) -> ChildProcess:
        """Start the program; `profile`: the file for its CPU profile. `kinds`: optional kinds.

        `lease`: `NAMESPACE/NAME` of the Lease by which one of several leads.
        """
        config = self.folder / f"{name}.yaml"
        settings = f"controller: {{listen: '127.0.0.1:0', lease: {lease}}}"
        config.write_text(f"{settings}\nkinds: [{', '.join(kinds)}]\n")
        flags = ("--config", config, "--kubeconfig", self.kubeconfig, "--context", "controller")
        command = ("queuectl",) if profile is None else ("benchmarks.under_profile", profile)
        return await self.process(name, *command, "controller", *flags)

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

    async def gate(self, on: bool) -> None:
        """Install the admission policies, or remove all of them; returns once that has taken effect."""
        if on is self._gated:
            return
        policies, self._gated = [one for one in shipped_manifests() if _gates(one)], on
        if on:
            await Installer(self.api).apply(policies)
            await tenancy.wait_for_gate(self.tenant, mutating=True)
            return
        for policy in policies:
            plural = f"{policy['kind'].lower()}s".replace("policys", "policies")
            path = f"/apis/{policy['apiVersion']}/{plural}/{policy['metadata']['name']}"
            await self.api.request("DELETE", path)
        await until(self._is_open)

    async def nodes(self, there: bool) -> None:
        """Add nodes that have more GPUs than all queues have quota for, or remove them."""
        if there is self._on_nodes:
            return
        self._on_nodes = there
        if not there:
            await self.api.request("DELETE", "/api/v1/nodes")
            return
        async with asyncio.TaskGroup() as tasks:
            for body in gpu_nodes():
                tasks.create_task(self._add_node(body))

    async def limited_by_nodes(self) -> bool:
        """Has the controller told of the GPUs of these nodes, as a limit of admissions?"""
        return bool(await self.ask(ENFORCED) == NODES * NODE_GPUS)

    async def _add_node(self, body: Object) -> None:
        await self.api.request("POST", "/api/v1/nodes", body)
        # The API server taints new nodes as not ready; the node controller would remove that.
        path, change = f"/api/v1/nodes/{body['metadata']['name']}", {"spec": {"taints": None}}
        await self.api.request("PATCH", path, change, content_type=MERGE_PATCH)

    async def _is_open(self) -> bool:
        """Does a labelled Job of a tenant start by itself?"""
        body = training_job("open")
        body["spec"]["suspend"] = False
        path = "/apis/batch/v1/namespaces/default/jobs"
        try:
            answer = await self.tenant.request("POST", path, body, query={"dryRun": "All"})
        except ApiError:  # refused by a policy
            return False
        return not answer["spec"].get("suspend")

    async def cluster(self) -> str:
        """Its name in the ledger."""
        uid: str = (await self.api.request("GET", "/api/v1/namespaces/kube-system"))["metadata"]["uid"]
        return uid

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

    def events_at_rest(self) -> Callable[[], Awaitable[bool]]:
        """A check that returns True once no Event was written since it was called before."""
        before = -1

        async def look() -> bool:
            nonlocal before
            events = (await self.requests())["POST", "events"]
            rest, before = events == before, events
            return rest

        return look


async def until(look: Callable[[], Awaitable[object]], seconds: float = 120.0, pause: float = 0.1) -> None:
    """Call it until the result is true. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not await look():  # noqa: ASYNC110 - nothing would set an event
            await asyncio.sleep(pause)


async def says(child: ChildProcess, text: str) -> None:
    """Wait until it has printed that."""

    async def look() -> bool:
        if child.returncode is not None:
            raise child.death()
        return text in child.tail(100)

    await until(look)


@asynccontextmanager
async def site(
    folder: Path, policy: Iterable[Object], tuned: Mapping[str, str] | None = None, *, gated: bool = True
) -> AsyncIterator[Site]:
    """`policy`: namespaces, queues and what they refer to. `tuned`: environment of the API server and etcd.
    `gated`: with the admission policies.

    Postgres runs with fsync; etcd without, so that queuectl's own writes weigh more.
    """
    assets = find_assets()
    assert assets is not None, "the caller has looked for them"
    async with AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(EmbeddedPostgres(folder / "postgres"))
        plane = ControlPlane(folder / "plane", assets, controllers=False, fsync=False)
        plane.environment = tuned or {}
        await stack.enter_async_context(plane)
        plane.write_kubeconfig(folder / "kubeconfig")
        await schema.migrate(postgres.url)
        api, tenant = [
            await stack.enter_async_context(Client(plane.url, plane.ssl_context(), plane.tokens[name]))
            for name in ("admin", "tenant")
        ]
        found = Site(folder, plane, postgres, api, tenant)
        installer = Installer(found.api)
        await installer.apply(one for one in shipped_manifests() if not _gates(one))
        await installer.apply(rights())
        await installer.apply(policy)
        await found.gate(gated)
        yield found


def shipped_manifests() -> list[Object]:
    return read_kustomization(shipped("manifests")) + read_kustomization(shipped("manifests") / "mutating")


def _gates(thing: Object) -> bool:
    return "AdmissionPolicy" in thing["kind"]
