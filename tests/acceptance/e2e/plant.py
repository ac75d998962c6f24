"""A site with parts that a test may freeze, kill and restart: nothing else restarts them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
from asyncpg.exceptions import OperatorInterventionError

from queuectl.ledger.admin import schema
from queuectl.sandbox import tenancy
from queuectl.sandbox.control_plane import ControlPlane, find_assets
from queuectl.sandbox.endpoints import Endpoints, listen_on_free_port
from queuectl.sandbox.example import fake_node
from queuectl.sandbox.install import Installer, read_kustomization
from queuectl.sandbox.kubernetes.server import SmallApi
from queuectl.sandbox.players import play
from queuectl.sandbox.players.api import Client
from queuectl.sandbox.postgres import EmbeddedPostgres
from queuectl.sandbox.processes import ChildProcess, spawn
from queuectl.shipped import shipped
from tests.acceptance.e2e.site import Site, cluster_queue, eventually, flavor, local_queue
from tests.acceptance.e2e.world import World
from tests.integration.sandbox.cluster import WallClock

NAMESPACE = "work"
_STAY = frozenset({"api", "etcd", "kube-apiserver", "kube-controller-manager"})
LEASE = "queuectl-system/queuectl-controller"
"""As in the shipped configuration."""


@dataclass(kw_only=True)
class Plant(Site):
    """A Postgres, a control plane and players in this process; controllers and REST as its children."""

    plane: SmallApi | ControlPlane
    postgres: EmbeddedPostgres
    children: dict[str, ChildProcess] = field(default_factory=dict)

    # --- processes of queuectl

    async def controller(
        self,
        name: str = "controller",
        *,
        lease: str | None = None,
        kubeconfig: Path | None = None,
        listen: str = "127.0.0.1:0",
        more: str = "",
    ) -> ChildProcess:
        """Start a controller; it does not lead yet.

        `kubeconfig`: with a context `controller`; `more`: lines of its configuration.
        """
        settings = f"listen: '{listen}', verifySeconds: 2, localQueueMetrics: true"
        settings += f", lease: {lease}" if lease else ""
        config = f"controller: {{{settings}}}\n{more}"
        return await self._command(name, "controller", config, "controller", kubeconfig)

    async def begin_rest(self, api: Client) -> None:
        """Start REST and wait until it answers; before a controller has led it has nothing to serve."""
        cluster = (await api.request("GET", "/api/v1/namespaces/kube-system"))["metadata"]["uid"]
        port = self.endpoints["rest"].rpartition(":")[2]
        config = f"api: {{listen: '127.0.0.1:{port}', cluster: {cluster}, identity: local"
        config += ", probes: '127.0.0.1:0'}"
        await self._command("api", "api", config, "admin")
        await self.says("api", "REST at")

    async def _command(
        self, name: str, command: str, config: str, context: str, kubeconfig: Path | None = None
    ) -> ChildProcess:
        file = self.data / f"{name}.yaml"
        file.write_text(config)
        flags = ["--config", str(file), "--kubeconfig", str(kubeconfig or self.kubeconfig)]
        flags += ["--context", context]
        child = await spawn(
            [sys.executable, "-m", "queuectl", command, *flags],
            name=name,
            log=self.data / f"{name}.log",
            env={**os.environ, "QUEUECTL_DATABASE_URL": self.postgres.url},
        )
        self.children[name] = child
        return child

    def log(self, name: str) -> str:
        return (self.data / f"{name}.log").read_text()

    async def says(self, name: str, text: str, patience: float = 60) -> None:
        """Wait until a process has logged the text."""

        async def look() -> bool:
            assert text in self.log(name) or self.children[name].returncode is None, self.log(name)
            return text in self.log(name)

        await eventually(f"{name} says {text!r}", look, patience)

    async def end(self) -> None:
        """End every process that a test has left running."""
        for child in self.children.values():
            await child.stop(0)
        await self.plane.__aexit__(None, None, None)

    async def clear(self, world: World) -> None:
        """Remove controllers, jobs, pods and logs of the last test; REST keeps running."""
        for name in self.children.keys() - _STAY:
            await self.children.pop(name).stop(0)
            (self.data / f"{name}.log").unlink()
        jobs, pods = world.path("Job"), f"/api/v1/namespaces/{world.namespace}/pods"
        for item in (await world.api.request("GET", jobs))["items"]:
            await world.delete(item["metadata"]["name"])

        async def empty() -> bool:
            return not any([(await world.api.request("GET", path))["items"] for path in (jobs, pods)])

        await eventually("jobs and pods of the last test are gone", empty)

    # --- outages

    @contextlib.contextmanager
    def postgres_frozen(self) -> Iterator[None]:
        """Freeze all processes of Postgres: connections stay open and get no answer."""
        server = self.postgres.pid
        with frozen([server, *_children(server)]):
            yield

    @asynccontextmanager
    async def postgres_away(self) -> AsyncIterator[None]:
        """Kill Postgres, and start it again on its data."""
        server = self.postgres.pid
        children = _children(server)
        os.kill(server, signal.SIGKILL)
        await self.postgres.__aexit__()

        async def gone() -> bool:
            return not any(_alive(pid) for pid in children)

        await eventually("its processes end with it", gone, 20)
        try:
            yield
        finally:
            await self.postgres.__aenter__()

    @contextlib.contextmanager
    def server_frozen(self, program: str = "kube-apiserver") -> Iterator[None]:
        """Freeze the real API server, or another program of the plane: connections get no answer."""
        with frozen([self._server(program)]):
            yield

    @asynccontextmanager
    async def api_server_away(self) -> AsyncIterator[None]:
        """Close its port; then serve there again from what was stored."""
        if isinstance(self.plane, SmallApi):
            port = int(self.plane.url.rpartition(":")[2])
            await self.plane.__aexit__(None, None, None)
            try:
                yield
            finally:
                self.plane = await SmallApi(self.data / "kubernetes", port=port).__aenter__()
            return
        async with self.server_away("kube-apiserver"):
            yield

    @asynccontextmanager
    async def server_away(self, program: str) -> AsyncIterator[None]:
        """Kill a program of the real control plane; then start it again on its data."""
        argv = self.command_line(program)
        os.kill(self._server(program), signal.SIGKILL)
        try:
            yield
        finally:
            self.children[program] = await spawn(argv, name=program, log=self.data / f"{program}.log")

    def command_line(self, program: str) -> list[str]:
        """Of a program of the real control plane, while it runs."""
        return Path(f"/proc/{self._server(program)}/cmdline").read_text().rstrip("\0").split("\0")

    def _server(self, program: str) -> int:
        again = self.children.get(program)
        return again.pid if again else _server_of(self.data, program)

    # --- queries

    async def ask(self, question: str, *values: Any) -> Any:
        """One value of the ledger, by SQL on a new connection; waits for a Postgres that restarts."""

        async def look() -> tuple[Any] | None:
            try:
                connection = await asyncpg.connect(self.postgres.url)
                try:
                    return (await connection.fetchval(question, *values),)
                finally:
                    await connection.close()
            except (OSError, asyncpg.PostgresConnectionError, OperatorInterventionError):
                return None

        found: tuple[Any] = await eventually("Postgres answers", look)
        return found[0]

    async def verified(self) -> None:
        found = await self.run(
            *(sys.executable, "-m", "queuectl", "verify", "--database-url", self.postgres.url)
        )
        assert found.code == 0, found.out + found.err


@contextlib.contextmanager
def frozen(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _server_of(folder: Path, name: str) -> int:
    """The child of this process that keeps its files there; other sites may run too."""
    for pid in _children(os.getpid()):
        program, *arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        if Path(program).name == name and any(str(folder) in one for one in arguments):
            return pid
    raise AssertionError(f"no {name} of {folder}")


@asynccontextmanager
async def plant(folder: Path, kind: str, *, gpus: int = 4) -> AsyncIterator[tuple[Plant, World]]:
    """`kind`: small or real. Namespace `work` with LocalQueue `main` on ClusterQueue `work` for `gpus` GPUs.

    No queuectl process runs yet.
    """
    async with AsyncExitStack() as stack:
        postgres = EmbeddedPostgres(folder / "postgres", settings={"fsync": "off"})
        await stack.enter_async_context(postgres)
        plane = await _plane(folder, kind).__aenter__()
        site = Plant(data=folder, control_plane=kind, plane=plane, postgres=postgres)
        stack.push_async_callback(site.end)
        plane.write_kubeconfig(site.kubeconfig)
        Endpoints(
            kubernetes=plane.url, rest=f"http://127.0.0.1:{_free_port()}", metrics="", postgres=postgres.url
        ).write(folder)
        await schema.migrate(postgres.url)
        api = await stack.enter_async_context(site.client())
        await furnish(site, api)
        world = World(site, api, NAMESPACE)
        await world.policy(cluster_queue(NAMESPACE, gpus))
        await world.policy(local_queue(NAMESPACE, "main", NAMESPACE))
        async with asyncio.TaskGroup() as tasks:
            playing = tasks.create_task(play(api, WallClock(), controller_manager=kind == "small"))
            try:
                yield site, world
            finally:
                playing.cancel()


def _plane(folder: Path, kind: str) -> SmallApi | ControlPlane:
    if kind == "small":
        return SmallApi(folder / "kubernetes")
    assets = find_assets()
    assert assets is not None
    return ControlPlane(folder / "plane", assets, fsync=False)


async def furnish(site: Plant, api: Client) -> None:
    """Install queuectl, with a node, a flavor and the rights of a tenant."""
    installer = Installer(api)
    await installer.apply(read_kustomization(shipped("manifests")))
    mutating = await installer.serves("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy")
    if mutating:
        await installer.apply(read_kustomization(shipped("manifests") / "mutating"))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    await installer.apply([namespace, fake_node("node", "a100", gpus=64)])
    await installer.apply([flavor("a100", {"example.com/accelerator": "a100"})])
    await installer.apply(tenancy.rights(["default", NAMESPACE]))
    async with site.client("tenant") as tenant:
        await tenancy.wait_for_gate(tenant, mutating=mutating)


def _free_port() -> int:
    with listen_on_free_port() as listener:
        return int(listener.getsockname()[1])
