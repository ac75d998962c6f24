"""The database: the ledger's twin behind a connection that may break at any point of a transaction."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

from queuectl.core.decisions import Plan
from queuectl.core.model.policy import SchedulingConfiguration
from queuectl.core.model.start_conditions import NamedWorkload
from queuectl.core.model.workload import (
    NOTHING_FOR_READERS,
    EffectKey,
    ForReaders,
    LedgerSnapshot,
    WorkloadOutcome,
)
from queuectl.ports.ledger import (
    Ledger,
    LedgerPosition,
    LedgerRefused,
    LedgerUnavailable,
    LostLeadership,
    PlanFailed,
)
from queuectl.ports.reader import DecisionRow
from tests.doubles.ledger import MemoryStore
from tests.doubles.readers import ReadableLedger
from tests.world.crash_points import BEFORE, LANDED, LOST, STOPPED, Points
from tests.world.faults import Fault, answer_with, fail, first_met
from tests.world.loop import VirtualLoop
from tests.world.schedule import REPLICAS

T = TypeVar("T")
_TIMEOUT: Final = 10.0
"""Seconds after which the client of a transaction without an answer gives up."""
TAKE_EPOCH: Final = "take_epoch"
HAND_OVER: Final = "hand_over"
_WRITES: Final = (TAKE_EPOCH, "commit", HAND_OVER)
_MOST_LOST: Final = 32
"""Transactions."""


class LedgerCall(NamedTuple):
    epoch: int
    what: str
    outcome: object
    """What it returned, or the name of the error."""
    repeat: Callable[[Ledger, int], Awaitable[object]]
    """With the epoch there."""


class RecordedLedger(ReadableLedger):
    """Keeps what its callers asked of it, to be repeated on Postgres."""

    def __init__(self, clock: Callable[[], datetime], *, settings: SchedulingConfiguration) -> None:
        super().__init__(clock, settings=settings)
        self.calls: list[LedgerCall] = []

    async def take_epoch(self, holder: str) -> int:
        epoch = await super().take_epoch(holder)
        self._note(epoch, TAKE_EPOCH, epoch, lambda ledger, _: ledger.take_epoch(holder))
        return epoch

    async def load(self) -> LedgerSnapshot:
        snapshot = await super().load()
        self._note(self.store.epoch, "load", snapshot, lambda ledger, _: ledger.load())
        return snapshot

    async def hand_over(self, epoch: int, read_up_to: Mapping[str, int]) -> None:
        await super().hand_over(epoch, read_up_to)
        self._note(epoch, HAND_OVER, None, lambda ledger, there: ledger.hand_over(there, read_up_to))

    async def commit(
        self,
        plan: Plan,
        acknowledged: Sequence[EffectKey],
        *,
        epoch: int,
        batch: str,
        for_readers: ForReaders = NOTHING_FOR_READERS,
    ) -> int:
        done = tuple(acknowledged)
        outcome: object = None
        try:
            outcome = await super().commit(plan, done, epoch=epoch, batch=batch, for_readers=for_readers)
            return outcome
        except (LedgerRefused, LostLeadership) as error:
            outcome = type(error).__name__
            raise
        finally:
            self._note(
                *(epoch, f"commit {batch}", outcome),
                lambda ledger, there: ledger.commit(
                    plan, done, epoch=there, batch=batch, for_readers=for_readers
                ),
            )

    def _note(
        self,
        epoch: int,
        what: str,
        outcome: object,
        repeat: Callable[[Ledger, int], Awaitable[object]],
    ) -> None:
        self.calls.append(LedgerCall(epoch, what, outcome, repeat))


class _Moment(NamedTuple):
    """The ledger before a transaction."""

    store: MemoryStore
    calls: int


class Database:
    """One for all replicas."""

    def __init__(
        self,
        loop: VirtualLoop,
        memory: RecordedLedger,
        random: Random,
        on_fault: Callable[[str, str], None],
        points: Points,
    ) -> None:
        self.memory = memory
        self.faults: list[Fault] = []
        self.closed = False
        self.loop = loop
        self.on_commit: Callable[[Sequence[DecisionRow], Sequence[EffectKey]], None] = lambda rows, done: None
        """Called with the decisions and the acknowledgements of each transaction that stored any."""
        self.on_refusal: Callable[[str], None] = lambda why: None
        """Called when the ledger's constraints refuse a plan: memory and ledger disagreed."""
        self._random = random
        self._on_fault = on_fault
        self._points = points
        self._thread = loop.thread("database")
        self.lossy = False
        """Keep what `lose` needs."""
        self.on_loss: Callable[[Sequence[DecisionRow]], None] = lambda rows: None
        """Called with the decisions that are lost."""
        self._moments: deque[_Moment] = deque(maxlen=_MOST_LOST)
        self._servers = 0
        """How many have failed."""
        self._doubtful: set[str] = set()
        """Batches of which a try is without an answer: the ledger looks for them first, and says that a plan
        failed only if it is not stored."""

    def _fault(self, client: str, what: str) -> str | None:
        met = first_met(self.faults, client, self.loop.time(), self._random)
        if met is None:
            return None
        if client in REPLICAS:
            self._on_fault(met.kind, what)
        return met.kind

    def lose(self, transactions: int) -> None:
        """The server fails, and a replica that lacks the last transactions takes its place."""
        self._servers += 1
        if not self._moments:
            return
        for _ in range(min(transactions, len(self._moments))):
            moment = self._moments.pop()
        store = self.memory.store
        lost = store.decisions[len(moment.store.decisions) :]
        store.become(moment.store)
        del self.memory.calls[moment.calls :]
        self.on_loss(lost)

    def call(  # noqa: C901 (one transaction, from its request to its answer)
        self, client: str, what: str, work: Callable[[], Coroutine[Any, Any, T]], batch: str = ""
    ) -> asyncio.Future[T]:
        """Run one transaction, at one moment after now; its answer comes later. `batch`: that it stores."""
        answer: asyncio.Future[T] = self.loop.create_future()
        kind = self._fault(client, what)
        context, uniform = self._thread.context(), self._random.uniform
        there, back = uniform(0.0005, 0.01), uniform(0.0005, 0.01)

        def later(seconds: float, call: Callable[[], None]) -> None:
            self.loop.call_later(seconds, call, context=context)

        def refuse(why: str) -> None:
            self._doubtful.add(batch)
            fail(answer, LedgerUnavailable(f"injected: {why}"))

        if self.closed or kind in ("database away", "connection lost"):
            later(0.01, lambda: refuse("connection refused"))
            return answer

        crash = self._points.meet(client, what) if what in _WRITES else None
        if crash == BEFORE:
            self._points.kill(client)
            return answer
        if crash == STOPPED:
            self._points.stop(client)

        server, kept = self._servers, self.lossy and what in _WRITES

        def arrive() -> None:
            if server != self._servers:
                refuse("server closed the connection unexpectedly")
                return
            if self.closed or kind == "serialization":
                refuse("could not serialize access (SQLSTATE 40001)")
                return
            if kind == "statement fails" and batch and batch not in self._doubtful:
                fail(answer, PlanFailed("injected: canceling statement due to statement timeout", "57014"))
                return
            moment = _Moment(self.memory.store.copy(), len(self.memory.calls)) if kept else None
            try:
                work().send(None)
            except StopIteration as done:
                if moment is not None:
                    self._moments.append(moment)
                value = done.value
                if crash == LANDED:
                    self._points.kill(client)
                elif kind in ("commit lost", "commit late") or crash == LOST:
                    later(back, lambda: refuse("connection closed in COMMIT"))
                else:
                    later(back, lambda: answer_with(answer, value))
            except Exception as error:
                refusal = error
                if isinstance(error, LedgerRefused) and not answer.done():  # else its sender gave up
                    self.on_refusal(str(error))
                later(back, lambda: fail(answer, refusal))

        if kind == "commit late":
            # The client gives up, and the server goes on with what it was sent.
            later(uniform(0.0, _TIMEOUT), lambda: refuse("no answer in time"))
            there = uniform(0.0, 3 * _TIMEOUT)
        later(there, arrive)
        return answer


class WorldLedger:
    """ports.ledger.Ledger of one process."""

    def __init__(self, database: Database, client: str) -> None:
        self._database = database
        self._memory = database.memory
        self._client = client
        self._stored = LedgerPosition()

    async def take_epoch(self, holder: str) -> int:
        return await self._database.call(self._client, "take_epoch", lambda: self._memory.take_epoch(holder))

    async def load(self) -> LedgerSnapshot:
        async def load() -> tuple[LedgerSnapshot, LedgerPosition]:
            stored = self._there()
            stored.check(self._stored)
            return await self._memory.load(), stored

        snapshot, self._stored = await self._database.call(self._client, "load", load)
        return snapshot

    def _there(self) -> LedgerPosition:
        return LedgerPosition(self._memory.store.sequence, self._memory.store.batch)

    async def now(self) -> datetime:
        return await self._database.call(self._client, "now", self._memory.now)

    async def outcomes(
        self, names: Sequence[NamedWorkload]
    ) -> Sequence[tuple[NamedWorkload, WorkloadOutcome | None]]:
        return await self._database.call(self._client, "outcomes", lambda: self._memory.outcomes(names))

    async def commit(
        self,
        plan: Plan,
        acknowledged: Sequence[EffectKey],
        *,
        epoch: int,
        batch: str,
        for_readers: ForReaders = NOTHING_FOR_READERS,
    ) -> int:
        async def commit() -> tuple[int, LedgerPosition]:
            if epoch == self._memory.store.epoch:
                self._there().check(self._stored)
            rows = self._memory.store.decisions
            before = len(rows)
            first = await self._memory.commit(
                plan, acknowledged, epoch=epoch, batch=batch, for_readers=for_readers
            )
            if len(rows) > before or acknowledged:
                self._database.on_commit(rows[before:], acknowledged)
            return first, self._there()

        first, self._stored = await self._database.call(self._client, "commit", commit, batch)
        return first

    async def hand_over(self, epoch: int, read_up_to: Mapping[str, int]) -> None:
        async def hand_over() -> None:
            await self._memory.hand_over(epoch, read_up_to)

        await self._database.call(self._client, HAND_OVER, hand_over)
