"""What a process that stood by reads when it leads: nothing twice that the former leader had read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

from queuectl.core.model.events import Listed
from queuectl.core.model.workload import WorkloadId
from queuectl.kube.reflector import Timings
from queuectl.kube.reflectors import LeaderState, reflectors
from queuectl.kube.session import Deadlines, Session
from queuectl.kube.transport import HttpTransport
from tests.integration.kube.scripted import QUICK, Scripted, Watching, bookmark, job, line, source, told

NOTHING = frozenset[WorkloadId]()
FOR_LONG = replace(QUICK, catch_up=60.0)
NOT_AT_ALL = replace(QUICK, catch_up=0.02)


class Standby(Watching):
    """Reflectors that read, and read on once they lead."""

    session: Session
    task: asyncio.Task[None]

    def __init__(self, group: asyncio.TaskGroup) -> None:
        super().__init__()
        self._group = group

    async def read(self, former: LeaderState | None = None) -> None:
        """Read on, until all is listed again."""
        self.events.clear()
        assert self.reflectors is not None
        self.task = self._group.create_task(self.reflectors.run(former))
        await self.until(lambda: bool(self.of(Listed)))

    async def lead(self, read_up_to: int | None, unobserved: frozenset[WorkloadId] = NOTHING) -> list[str]:
        """Return what is told from then on until all is listed."""
        await self.stop()
        await self.read(LeaderState({} if read_up_to is None else {"Job": read_up_to}, unobserved))
        return told(self)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


@asynccontextmanager
async def standing_by(script: Scripted, timings: Timings = FOR_LONG) -> AsyncIterator[Standby]:
    async with script.serve() as url, asyncio.TaskGroup() as group:
        standby = Standby(group)
        standby.session = Session(HttpTransport(url), None, deadlines=Deadlines(unary=2, page=2))
        standby.reflectors = reflectors(
            standby.session,
            standby.events.extend,
            [source("Job")],
            random=Random(1),
            timings=timings,
        )
        try:
            await standby.read()
            if standby.reflectors.read_up_to():
                await standby.until(lambda: bool(script.watched))
            yield standby
        finally:
            await standby.stop()
            await standby.session.close()


async def test_what_the_former_leader_had_read_is_not_listed_again() -> None:
    script = Scripted()
    script.listing(5, job("a", 1))
    async with standing_by(script) as standby:
        assert await standby.lead(read_up_to=5) == ["[a]"]
        await standby.until(lambda: script.watched == ["5", "5"])
    assert script.listed == 1


async def test_a_watch_that_is_behind_the_former_leader_is_waited_for() -> None:
    script = Scripted()
    script.listing(5, job("a", 1))
    script.watch(stay=True)
    script.watch(
        line("ADDED", job("b", 6)), line("DELETED", job("a", 7)), line("ADDED", job("c", 9)), stay=True
    )
    async with standing_by(script) as standby:
        assert await standby.lead(read_up_to=7) == ["b@6", "-a", "[b]"]
        await standby.until(lambda: script.watched[:3] == ["5", "5", "7"])
    assert script.listed == 1


async def test_a_bookmark_shows_that_nothing_is_missed() -> None:
    script = Scripted()
    script.listing(5, job("a", 1))
    script.watch(stay=True)
    script.watch(bookmark(8), stay=True)
    async with standing_by(script) as standby:
        assert await standby.lead(read_up_to=8) == ["[a]"]
    assert script.listed == 1


async def test_a_watch_that_stays_behind_is_not_waited_for_long() -> None:
    script = Scripted()
    script.listing(5, job("a", 1), job("b", 2))
    script.listing(9, job("a", 8))
    async with standing_by(script, NOT_AT_ALL) as standby:
        assert await standby.lead(read_up_to=8) == ["a@8", "-b", "[a]"]
    assert script.listed == 2


async def test_a_watch_that_fails_is_replaced_by_a_list() -> None:
    script = Scripted()
    script.listing(5, job("a", 1))
    script.watch(stay=True)
    script.watches.append(410)
    script.listing(9, job("a", 8))
    async with standing_by(script) as standby:
        assert await standby.lead(read_up_to=8) == ["a@8", "[a]"]


async def test_after_a_leader_that_was_killed_all_is_listed() -> None:
    script = Scripted()
    script.listing(5, job("a", 1))
    async with standing_by(script) as standby:
        assert await standby.lead(read_up_to=None) == ["[a]"]
    assert script.listed == 2


async def test_a_workload_that_the_engine_lacks_is_sent_again() -> None:
    """It was over before the ledger had it, as far as this process knew, and was forgotten."""
    script = Scripted()
    script.listing(5, job("a", 1), job("b", 2))
    async with standing_by(script) as standby:
        assert await standby.lead(5, frozenset({WorkloadId("b"), WorkloadId("of-another-kind")})) == [
            "b@2",
            "[a b]",
        ]


async def test_a_leader_has_read_what_it_was_sent_and_what_it_was_answered() -> None:
    script = Scripted()
    script.listing(5, job("a", 1))
    script.watch(line("MODIFIED", job("a", 6)), line("DELETED", job("a", 7)), bookmark(9), stay=True)
    async with standing_by(script) as standby:
        assert standby.reflectors is not None
        await standby.until(lambda: "-a" in told(standby))
        assert standby.reflectors.read_up_to() == {"Job": 7}
        standby.session.newest.update({"Job": 8, "Pod": 30})
        assert standby.reflectors.read_up_to() == {"Job": 8}


async def test_an_answer_says_which_version_of_its_kind_was_read() -> None:
    script = Scripted()
    for version in (6, 4):
        script.lists.append((200, {"kind": "Job", **job("a", version)}, {}))
    async with script.serve() as url:
        session = Session(HttpTransport(url), None)
        for _ in range(2):
            await session.get("/apis/batch/v1/namespaces/ns/jobs/a")
        await session.close()
    assert session.newest == {"Job": 6}


async def test_what_a_list_lacks_went_at_its_version_at_the_latest() -> None:
    script = Scripted()
    script.listing(5, job("a", 1), job("b", 2))
    script.watch(stay=True)
    script.watches.append(410)
    script.listing(20, job("a", 1))
    async with standing_by(script) as standby:
        await standby.stop()
        assert standby.reflectors is not None
        assert await standby.lead(read_up_to=6) == ["-b", "[a]"]
        assert standby.reflectors.read_up_to() == {"Job": 20}


async def test_what_cannot_be_read_is_not_handed_over() -> None:
    script = Scripted()
    script.refuse(403)
    async with standing_by(script) as standby:
        assert standby.reflectors is not None
        assert standby.reflectors.read_up_to() == {}
