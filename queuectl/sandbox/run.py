"""`queuectl sandbox`: all parts on this machine, started in order and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from queuectl.kube.errors import ApiError
from queuectl.ports.ledger import LedgerUnavailable
from queuectl.ports.reader import Readings
from queuectl.sandbox.api_server import (
    Plane,
    choose_plane,
    client_as,
    client_of,
    cluster_id,
    install,
    watch_plane,
)
from queuectl.sandbox.control_plane import ControlPlane, ControlPlaneError
from queuectl.sandbox.endpoints import Endpoints, SandboxError, choose_ports, locked, port_of
from queuectl.sandbox.example import SETTINGS, USERS, play_rounds
from queuectl.sandbox.install import InstallError
from queuectl.sandbox.kubernetes.server import SmallApi
from queuectl.sandbox.narration import Teller, controller_command, tell_decisions, what_to_try
from queuectl.sandbox.players import play
from queuectl.sandbox.players.api import Client
from queuectl.sandbox.postgres import EmbeddedPostgres
from queuectl.sandbox.postgres_folder import PostgresFailed, delete_folder
from queuectl.sandbox.processes import ChildDied, ChildProcess, age, end_with_make
from queuectl.sandbox.programs import Programs, watch_over
from queuectl.sandbox.webhook import suspending

_LOG_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOptions:
    """The user's options. Port 0 takes a free one, the last one if it is free."""

    data: Path
    control_plane: Literal["small", "real"] = "small"
    kubernetes_version: str | None = None
    """The older release that a real one emulates."""
    reset: bool = False
    """Begin with empty data: what earlier runs left in the folder is deleted."""
    empty: bool = False
    """Load no example."""
    nodes: tuple[int, int] = (0, 0)
    """Of an empty one: how many nodes, and GPUs of each."""
    pace: float = 1.0
    """All times of the example are multiplied by it."""
    headless: bool = False
    controller: bool = True
    """False: it is run apart."""
    kubernetes_port: int = 0
    rest_port: int = 0
    metrics_port: int = 0
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Sections of the controller's configuration; the sandbox sets its listen addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxParts:
    """Parts of the program that the sandbox is given."""

    now: Callable[[], datetime]
    """Aware, UTC."""
    migrate: Callable[[str], Awaitable[None]]
    """Migrate the database at this URL to this version's schema."""
    readings: Callable[[str, str], AbstractAsyncContextManager[Readings]]
    """Reads the ledger at this URL for this cluster id."""
    screen: Callable[[str, Path, Sequence[str]], Awaitable[None]] | None = None
    """Show the state from the REST server at this URL, with the folder of the data and commands to try, until
    the user leaves.

    None: no screen.
    """


async def run(options: SandboxOptions, parts: SandboxParts) -> int:
    """Serve until Ctrl-C, SIGTERM or SIGHUP: 0. If a part of it fails: 1, with a message on stderr."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    end_with_make()
    problem: BaseException | None = None
    try:
        with locked(options.data):
            if options.reset:
                reset(options.data)
            _log_to(options.data / "log" / "sandbox.log")
            await _until(stop, _Sandbox(options, parts, stop.set).serve())
    except BaseExceptionGroup as group:
        problem = _known(group)
        if problem is None:
            raise
    except _KNOWN as error:
        problem = error
    if problem is not None:
        with contextlib.suppress(OSError):
            print(f"Error: {problem}", file=sys.stderr, flush=True)
    return 0 if problem is None else 1


_KNOWN: Final = (
    SandboxError,
    InstallError,
    ChildDied,
    PostgresFailed,
    ControlPlaneError,
    ApiError,
    BrokenPipeError,
)


def _known(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """The failure to report, if all of them are of kinds that the user can correct."""
    known, rest = group.split(_KNOWN)
    if rest is not None or known is None:
        return None
    error: BaseException = known
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _until(stop: asyncio.Event, work: Awaitable[None]) -> None:
    """Run the work until it ends or is stopped, including its clean-up."""

    async def watch() -> None:
        await stop.wait()
        working.cancel()

    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(_awaited(work))
        watching = tasks.create_task(watch())
        working.add_done_callback(lambda _: watching.cancel())


async def _awaited(work: Awaitable[None]) -> None:
    await work


def _log_to(path: Path) -> None:
    """Logs go to a file: the terminal is for decisions."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for log in path.parent.glob("*.log"):
        if log.stat().st_size > _LOG_BYTES:
            log.unlink()
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)


class _Clock:
    """The clock of players: real time."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.now = now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Sandbox:
    """One run. `serve` starts the parts in order; they end in reverse order."""

    def __init__(self, options: SandboxOptions, parts: SandboxParts, stop: Callable[[], None]) -> None:
        self._options = options
        self._parts = parts
        self._stop = stop
        self._folder = options.data.absolute()
        self._teller = Teller(plain=options.headless)
        self._beside: list[ChildProcess] = []

    async def serve(self) -> None:
        """Runs until it is cancelled or one of its parts fails."""
        before = Endpoints.retire(self._folder)
        ports = choose_ports(
            [
                (self._options.kubernetes_port, port_of(before.kubernetes if before else None)),
                (self._options.rest_port, port_of(before.rest if before else None)),
                (self._options.metrics_port, port_of(before.metrics if before else None)),
            ]
        )
        async with AsyncExitStack() as stack:
            postgres = EmbeddedPostgres(self._folder / "postgres")
            plane = choose_plane(
                self._folder,
                self._options.control_plane,
                port=ports[0],
                version=self._options.kubernetes_version,
            )
            async with asyncio.TaskGroup() as starting:
                starting.create_task(asyncio.to_thread(self._teller.prepare))
                starting.create_task(self._start_postgres(stack, postgres))
                serving = starting.create_task(self._start_plane(stack, plane))
            endpoints = Endpoints(
                kubernetes=plane.url,
                rest=f"http://127.0.0.1:{ports[1]}",
                metrics=f"http://127.0.0.1:{ports[2]}/metrics",
                postgres=postgres.url,
            )
            await self._live(stack, serving.result(), plane, postgres, endpoints)

    async def _start_postgres(self, stack: AsyncExitStack, postgres: EmbeddedPostgres) -> None:
        asked = postgres.folder
        await stack.enter_async_context(postgres)
        if postgres.folder != asked:
            self._teller.say(f"Postgres keeps its data in {postgres.folder}: its user can't reach {asked}")
        await self._parts.migrate(postgres.url)
        self._teller.say(f"  Postgres after {age():.1f} s", "dim")

    async def _start_plane(self, stack: AsyncExitStack, plane: Plane) -> Client:
        """Returns the admin's client."""
        await stack.enter_async_context(plane)
        plane.write_kubeconfig(self._folder / "kubeconfig")
        api = await stack.enter_async_context(client_of(plane, "admin"))
        self._teller.say(f"  Kubernetes API after {age():.1f} s", "dim")
        await install(api, plane, empty=self._options.empty, nodes=self._options.nodes)
        if isinstance(plane, ControlPlane):
            self._beside += await stack.enter_async_context(suspending(plane, api, self._folder))
        return api

    async def _live(
        self,
        stack: AsyncExitStack,
        api: Client,
        plane: Plane,
        postgres: EmbeddedPostgres,
        endpoints: Endpoints,
    ) -> None:
        """Start the programs that use API server and database, and supervise all parts."""
        cluster = await cluster_id(api)
        programs = Programs(
            self._folder,
            endpoints,
            controller=self._options.controller,
            settings={**({} if self._options.empty else SETTINGS), **self._options.settings},
        )
        readings = await stack.enter_async_context(self._parts.readings(postgres.url, cluster))
        last = await _last_decision(readings)
        children = await stack.enter_async_context(programs.running(cluster))
        stack.callback(Endpoints.retire, self._folder)
        admitted = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for child in (*self._beside, *children):
                tasks.create_task(watch_over(child))
            tasks.create_task(_watch_postgres(postgres))
            tasks.create_task(watch_plane(plane))
            small = isinstance(plane, SmallApi)
            tasks.create_task(play(api, _Clock(self._parts.now), controller_manager=small))
            await programs.ready()
            endpoints.write(self._folder)
            self._greet(endpoints, programs.config)
            tasks.create_task(self._tell(endpoints, readings, last, admitted))
            if not self._options.empty:
                tenant = await stack.enter_async_context(client_of(plane, "tenant"))
                users = {name: await stack.enter_async_context(client_as(plane, name)) for name in USERS}
                tasks.create_task(play_rounds(tenant, users, self._options.pace))
            tasks.create_task(self._tell_first(admitted))

    def _greet(self, endpoints: Endpoints, config: Path) -> None:
        say = self._teller.say
        say(f"queuectl sandbox is up after {age():.1f} s; Ctrl-C stops it, the data stays", "bold")
        for name, value in (
            ("data", self._folder),
            ("Kubernetes", endpoints.kubernetes),
            ("web page", f"{endpoints.rest}/"),
            ("REST", endpoints.rest),
            ("metrics", endpoints.metrics),
            ("Postgres", endpoints.postgres),
        ):
            say(f"  {name:<11} {value}")
        if not self._options.controller:
            say("run the controller:", "bold")
            say(f"  {controller_command(self._folder, config, endpoints)}")
        say("try:", "bold")
        for line in self._lines(endpoints):
            say(f"  {line}")

    def _lines(self, endpoints: Endpoints) -> list[str]:
        return what_to_try(self._folder, endpoints, example=not self._options.empty)

    async def _tell(
        self, endpoints: Endpoints, readings: Readings, last: int, admitted: asyncio.Event
    ) -> None:
        """On a screen if there is one, else a line for each decision."""
        screen = None if self._options.headless else self._parts.screen
        if screen is None:
            self._teller.say("decisions:", "bold")
            await tell_decisions(readings, last, self._teller.say, admitted.set)
            return

        def untold(line: str, style: str) -> None:
            """No lines: the screen shows them."""

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(tell_decisions(readings, last, untold, admitted.set))
            with self._teller.held():
                await screen(endpoints.rest, self._folder, self._lines(endpoints))
            self._stop()

    async def _tell_first(self, admitted: asyncio.Event) -> None:
        await admitted.wait()
        self._teller.say(f"first admission {age():.1f} s after the start of the program", "bold")


async def _last_decision(readings: Readings) -> int:
    """Sequence of the newest decision, 0 if there is none."""
    try:
        return (await readings.since(0)).sequence
    except LedgerUnavailable:
        return 0


async def _watch_postgres(postgres: EmbeddedPostgres) -> None:
    await postgres.wait()
    raise SandboxError(f"Postgres has ended, see {postgres.folder / 'postgres.log'}")


_MARKS: Final = {
    "postgres": ("lock", "elsewhere"),
    "kubernetes": ("objects.sqlite3", "tokens.json", "certificates"),
    "control-plane": ("tokens.json", "certificates", "etcd"),
}
"""The folders with data, and what at least one of is in each that the sandbox made."""


def reset(folder: Path) -> None:
    """Delete the ledger and the clusters, small and real. `folder` is locked and no sandbox runs on it.

    Logs stay, and so do the ports of the last run. Raises SandboxError, before anything is deleted, if one of
    the folders is not the sandbox's, and PostgresFailed if a Postgres runs on it.
    """
    found = [folder / name for name in _MARKS if (folder / name).exists()]
    for path in found:
        if any(path.iterdir()) and not any((path / mark).exists() for mark in _MARKS[path.name]):
            raise SandboxError(
                f"--reset deletes {path}, and that was not made by a sandbox: remove it yourself"
            )
    for path in found:
        if path.name == "postgres":
            delete_folder(path)
        else:
            shutil.rmtree(path)
    (folder / "kubeconfig").unlink(missing_ok=True)
