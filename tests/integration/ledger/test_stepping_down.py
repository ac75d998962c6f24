"""A leader that cannot reach Postgres hands the Lease on; where none can, the Lease is seldom written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from queuectl.app.controller import lead
from queuectl.controller.loop import Controller, LoopOptions
from queuectl.core.engine import Engine
from queuectl.ledger.admin import schema
from queuectl.ledger.admin.verify import verify
from queuectl.ledger.pool import create_pool
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.ports.ledger import LedgerUnavailable
from queuectl.sandbox.postgres import DATABASE, USER, EmbeddedPostgres
from tests.builders import SOURCES, workload
from tests.integration.ledger.places import reachable_folder
from tests.unit.controller.fakes import JobCluster
from tests.unit.controller.site import Silent, Site

DEADLINE = 60.0
STEP_DOWN = 0.5
_SOCKET = ".s.PGSQL.5432"


class Relay:
    """The network between one controller and Postgres: a Unix socket that can be cut off."""

    def __init__(self, folder: Path, server: Path) -> None:
        self._folder, self._server = folder, server
        self._cut = False
        self.refused = 0
        """Number of connections that were closed at once."""
        self._open: set[asyncio.StreamWriter] = set()
        self.url = f"postgresql://{USER}@/{DATABASE}?host={quote(str(folder), safe='')}"

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        self._folder.mkdir()
        listening = await asyncio.start_unix_server(self._take, str(self._folder / _SOCKET))
        try:
            yield
        finally:
            self.cut()
            listening.close()

    def cut(self) -> None:
        self._cut = True
        for writer in self._open:
            writer.close()
        self._open.clear()

    def mend(self) -> None:
        self._cut = False

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            self.refused += 1
            writer.close()
            return
        theirs, ours = await asyncio.open_unix_connection(str(self._server / _SOCKET))
        self._open |= {writer, ours}
        await asyncio.gather(_copy(reader, ours), _copy(theirs, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


class OneLease:
    """The Lease of a cluster, and how often it was written to take it or to hand it on."""

    def __init__(self) -> None:
        self.holder = ""
        self.writes = 0
        self._free = asyncio.Condition()

    async def take(self, name: str) -> None:
        async with self._free:
            await self._free.wait_for(lambda: not self.holder)
            self.holder = name
            self.writes += 1

    async def give(self, name: str) -> None:
        async with self._free:
            if self.holder == name:
                self.holder = ""
                self.writes += 1
                self._free.notify_all()


class Held:
    """ports.cluster.Lease of one controller."""

    def __init__(self, lease: OneLease, name: str) -> None:
        self._lease, self._name = lease, name

    async def acquire(self) -> None:
        await self._lease.take(self._name)

    async def lost(self) -> None:
        await asyncio.Event().wait()

    async def release(self) -> None:
        await self._lease.give(self._name)


class Plant:
    """Two controllers of one cluster of Jobs, each with its own way to Postgres."""

    def __init__(self, cluster: str, relays: dict[str, Relay]) -> None:
        self.site = Site()
        self.jobs: JobCluster = self.site.cluster
        self.lease = OneLease()
        self.cluster = cluster
        self.relays = relays

    async def run(self, name: str) -> None:
        """As a process does: it reaches the ledger, then waits for the Lease, then leads; and again."""
        url = self.relays[name].url
        while True:
            with contextlib.suppress(LedgerUnavailable):
                await schema.check(url, writing=True)
                await self._lead(name, url)
            await asyncio.sleep(0.05)

    async def _lead(self, name: str, url: str) -> None:
        pool = create_pool(url)
        controller = Controller(
            ledger=PostgresLedger(pool, self.cluster),
            cluster=self.jobs,
            engine=Engine(SOURCES),
            observer=Silent(),
            holder=name,
            options=LoopOptions(
                confirm_seconds=0.1,
                step_down_seconds=STEP_DOWN,
            ),
        )
        held = Held(self.lease, name)
        try:
            await held.acquire()
            self.jobs.emit = controller.emit
            controller.emit(self.site.listed())
            await lead(held, controller, dict)
            assert controller.stepped_down
            assert not controller.leads
        finally:
            await pool.dispose()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not condition():
                await asyncio.sleep(0.01)


@pytest.fixture
def folder() -> Iterator[Path]:
    with reachable_folder() as place:
        yield place


@asynccontextmanager
async def two(server: EmbeddedPostgres, cluster: str, folder: Path) -> AsyncIterator[Plant]:
    sockets = server.folder / "socket"
    relays = {name: Relay(folder / name, sockets) for name in ("a", "b")}
    plant = Plant(cluster, relays)
    async with contextlib.AsyncExitStack() as stack:
        for relay in relays.values():
            await stack.enter_async_context(relay.serve())
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(plant.run("a"))
            await plant.until(lambda: plant.lease.holder == "a")
            second = tasks.create_task(plant.run("b"))
            yield plant
            first.cancel()
            second.cancel()


async def broken(url: str, cluster: str) -> list[str]:
    """What the ledger contradicts itself in. Specs of these tests have no quota."""
    return [str(found) for found in await verify(url, cluster) if found.code != "OverQuota"]


async def test_a_leader_that_alone_cannot_reach_postgres_is_replaced(
    server: EmbeddedPostgres, cluster: str, folder: Path
) -> None:
    async with two(server, cluster, folder) as plant:
        plant.jobs.submit(workload("before"))
        await plant.until(lambda: plant.jobs.running() == ["before"])
        plant.relays["a"].cut()
        plant.jobs.submit(workload("after"))
        await plant.until(lambda: plant.jobs.running() == ["after", "before"])
        assert plant.lease.holder == "b"
        plant.relays["a"].mend()
        plant.relays["b"].cut()
        plant.jobs.finish("before")
        plant.jobs.submit(workload("again"))
        await plant.until(lambda: plant.jobs.running() == ["after", "again"])
        assert plant.lease.holder == "a"
        assert [job.starts for job in plant.jobs.jobs.values()] == [[1], [1], [1]]
    assert await broken(server.url, cluster) == []


async def test_an_outage_for_all_ends_no_job_and_costs_few_writes_of_the_lease(
    server: EmbeddedPostgres, cluster: str, folder: Path
) -> None:
    async with two(server, cluster, folder) as plant:
        plant.jobs.submit(workload("before"))
        await plant.until(lambda: plant.jobs.running() == ["before"])
        before = plant.lease.writes
        for relay in plant.relays.values():
            relay.cut()
        plant.jobs.submit(workload("meanwhile"))
        await plant.until(
            lambda: plant.lease.writes == before + 3
        )  # a hands it on; b takes it, and hands it on
        tries = {name: relay.refused for name, relay in plant.relays.items()}
        await plant.until(lambda: all(one.refused > tries[name] + 20 for name, one in plant.relays.items()))
        assert (plant.lease.holder, plant.lease.writes) == ("", before + 3)
        assert plant.jobs.running() == ["before"]
        for relay in plant.relays.values():
            relay.mend()
        await plant.until(lambda: plant.jobs.running() == ["before", "meanwhile"])
        assert plant.lease.writes == before + 4
        assert [job.starts for job in plant.jobs.jobs.values()] == [[1], [1]]
    assert await broken(server.url, cluster) == []
