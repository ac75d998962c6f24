"""A cache of answers from the API server: bounded, with a lifetime, one request for each key at a time."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Generic, TypeVar

from queuectl.ports.cluster import ClusterUnavailable

Key = TypeVar("Key")
Value = TypeVar("Value")
Ask = Callable[[], Awaitable[Value]]

log = logging.getLogger(__name__)

AHEAD: Final = 0.75
"""After this part of its lifetime a good answer is refreshed in the background when it is used, and one that
was used lately also if nothing uses it just now."""
LATELY: Final = 6.0
"""Lifetimes since its last use."""
LOOK_SECONDS: Final = 0.2
MOST_LATE: Final = 8
"""How many are refreshed for that at one look: a caller with rights in 1,000 namespaces may have left. A few,
as requests that need a review would wait behind all that are due in a second."""
BESIDE: Final = 4
"""How many refreshes run at one time."""
REFUSED_SECONDS: Final = 0.2
"""Pause of each of them after a refusal was asked for again: a page may need 1,000, which are not urgent."""
MOST_BESIDE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """In seconds. A good answer is a truthy one: a user, or a right that is granted."""

    good: float = 30.0
    bad: float = 5.0
    bad_in_lists: float = 300.0
    """Where many answers are needed at once: with 5 s, one caller of pages over 1,000 namespaces would cause
    200 reviews a second."""
    bad_in_lists_again: float = 90.0
    """A refusal that a list uses after that is refreshed in the background."""


@dataclass(slots=True)
class _Entry(Generic[Value]):
    value: Value
    asked_at: float
    used_at: float


class _Why(IntEnum):
    """Why something is asked for in the background; the most urgent first."""

    GOOD = 0  # a caller would wait for it once it has expired
    EXPECTED = 1  # a caller would wait for it with one of its next questions
    BAD = 2  # it is still valid for some minutes


@dataclass(frozen=True, slots=True, order=True)
class _Due(Generic[Key, Value]):
    """What is to be asked for in the background."""

    why: _Why
    number: int
    key: Key = field(compare=False)
    ask: Ask[Value] = field(compare=False)


class Remembered(Generic[Key, Value]):
    """Keeps the most recently used answers. `clock`: monotonic, in seconds."""

    def __init__(
        self,
        lifetimes: Lifetimes,
        clock: Callable[[], float],
        *,
        most: int,
        together: asyncio.Semaphore,
        count: Callable[[bool], None] = lambda hit: None,
        ahead: bool = False,
    ) -> None:
        """`together`: how many requests run at one time. `count` is called for each hit and each request.
        `ahead`: good answers that were used lately are refreshed before they expire. It keeps their `ask`."""
        self._lifetimes = lifetimes
        self._clock = clock
        self._most = most
        self._together = together
        self._entries: OrderedDict[Key, _Entry[Value]] = OrderedDict()
        self._asking: dict[Key, asyncio.Future[Value]] = {}
        self._due: asyncio.PriorityQueue[_Due[Key, Value]] = asyncio.PriorityQueue(MOST_BESIDE)
        self._good_due = 0
        """How many of these are good answers."""
        self._numbers = itertools.count()
        self._beside: set[Key] = set()
        self._late: deque[tuple[float, Key, Ask[Value]]] | None = deque() if ahead else None
        """When good answers were asked for, in the order in which they came."""
        self._count = count

    def known(self, key: Key, ask: Ask[Value], *, in_list: bool = False) -> Value | None:
        """The cached answer, if it is still valid; None: `get` must request it."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        age, limit = self._clock() - entry.asked_at, self._limit(entry, in_list=in_list)
        if age >= limit:
            return None
        self._entries.move_to_end(key)
        entry.used_at = self._clock()
        self._count(True)
        if age >= self._again(entry, in_list=in_list):
            self._ask_beside(key, ask, _Why.GOOD if entry.value else _Why.BAD)
        return entry.value

    def expect(self, key: Key, ask: Ask[Value]) -> bool:
        """Ask for it in the background, if a list that needs it would have to wait for it. Was that so?"""
        missing = self._clock() >= self.expires_at(key, in_list=True)
        if missing:
            self._ask_beside(key, ask, _Why.EXPECTED)
        return missing

    def expires_at(self, key: Key, *, in_list: bool = False) -> float:
        """By the clock; in the past if nothing is cached."""
        entry = self._entries.get(key)
        return float("-inf") if entry is None else entry.asked_at + self._limit(entry, in_list=in_list)

    def _limit(self, entry: _Entry[Value], *, in_list: bool) -> float:
        if entry.value:
            return self._lifetimes.good
        return self._lifetimes.bad_in_lists if in_list else self._lifetimes.bad

    def _again(self, entry: _Entry[Value], *, in_list: bool) -> float:
        """The age from which on it is refreshed in the background when it is used."""
        if entry.value:
            return self._lifetimes.good * AHEAD
        return self._lifetimes.bad_in_lists_again if in_list else self._lifetimes.bad

    def last(self, key: Key) -> Value | None:
        """The last answer, whatever its age; None: none is cached."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    async def get(self, key: Key, ask: Ask[Value], *, in_list: bool = False) -> Value:
        """Raises what `ask` raises; errors are not cached."""
        found = self.known(key, ask, in_list=in_list)
        if found is None:
            found = await self._asked(key, ask)
            if (entry := self._entries.get(key)) is not None:
                entry.used_at = self._clock()
        return found

    async def keep_fresh(self, look_seconds: float = LOOK_SECONDS) -> None:
        """Refresh answers in use before they expire, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(BESIDE):
                tasks.create_task(self._work())
            while True:
                await asyncio.sleep(look_seconds)
                self._refresh_late()

    def _refresh_late(self) -> None:
        """A caller that asks about many namespaces in turn waits for a review of each one only once."""
        now, good, late = self._clock(), self._lifetimes.good, self._late
        left = MOST_LATE - self._good_due
        while late and left > 0 and now - late[0][0] >= good * AHEAD:
            asked_at, key, ask = late.popleft()
            entry = self._entries.get(key)
            if entry is None or entry.asked_at != asked_at or now - asked_at >= good:
                continue
            if now - entry.used_at < good * LATELY:
                self._ask_beside(key, ask, _Why.GOOD)
                left -= 1

    async def _work(self) -> None:
        while True:
            due = await self._due.get()
            self._good_due -= due.why is _Why.GOOD
            expected = due.why is _Why.EXPECTED
            try:
                if not expected or self._clock() >= self.expires_at(due.key, in_list=True):
                    await self._asked(due.key, due.ask, keep=expected)
            except ClusterUnavailable:
                pass  # a caller that needs it once it has expired gets the error
            except Exception:
                log.exception("a cached answer could not be refreshed")
            finally:
                self._beside.discard(due.key)
            if due.why is _Why.BAD:
                await asyncio.sleep(REFUSED_SECONDS)

    def _ask_beside(self, key: Key, ask: Ask[Value], why: _Why) -> None:
        if key not in self._beside and not self._due.full():
            self._beside.add(key)
            self._good_due += why is _Why.GOOD
            self._due.put_nowait(_Due(why, next(self._numbers), key, ask))

    async def _asked(self, key: Key, ask: Ask[Value], *, keep: bool = True) -> Value:
        """`keep`: also if nothing is cached, as after too many others."""
        while (pending := self._asking.get(key)) is not None:
            try:
                return await asyncio.shield(pending)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not pending.cancelled() or (task is not None and task.cancelling()):
                    raise
                # The request that fetched it was cancelled: a waiting request fetches it instead.
        future: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        self._asking[key] = future
        try:
            self._count(False)
            async with self._together:
                asked_at = self._clock()
                value = await ask()
            self._remember(key, value, asked_at, keep=keep)
            if value and self._late is not None:
                self._late.append((asked_at, key, ask))
            future.set_result(value)
        except Exception as error:
            future.set_exception(error)
            future.exception()  # marks it as retrieved: it is raised here
            raise
        finally:
            del self._asking[key]
            future.cancel()  # still open only while this task is being cancelled
        return value

    def _remember(self, key: Key, value: Value, asked_at: float, *, keep: bool) -> None:
        entry = self._entries.get(key)
        if entry is not None:
            entry.value, entry.asked_at = value, asked_at
        elif keep:
            self._entries[key] = _Entry(value, asked_at, self._clock())
        if entry is not None and keep:
            self._entries.move_to_end(key)
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)
