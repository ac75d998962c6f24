"""Answers that cost somebody else work, kept for a while: few of them, and each asked for once at a time."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from queuectl.ports import ClusterUnavailable

Key = TypeVar("Key")
Value = TypeVar("Value")
Ask = Callable[[], Awaitable[Value]]

log = logging.getLogger(__name__)

AHEAD: Final = 0.5
"""After this part of its time a good answer is asked for again beside those who use it."""
BESIDE: Final = 4
"""How many are asked for beside at one time."""
MOST_BESIDE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """In seconds. An answer that is true (a user, a yes) is a good one."""

    good: float = 30.0
    bad: float = 5.0
    bad_in_lists: float = 60.0
    """Where many are needed at once, an older no will do while a newer one is fetched."""


@dataclass(slots=True)
class _Entry(Generic[Value]):
    value: Value
    asked_at: float


class Remembered(Generic[Key, Value]):
    """The most recently used of them. `clock`: seconds that never run back."""

    def __init__(
        self,
        lifetimes: Lifetimes,
        clock: Callable[[], float],
        *,
        most: int,
        together: asyncio.Semaphore,
        count: Callable[[bool], None] = lambda hit: None,
    ) -> None:
        """`together`: how many are asked for at one time. `count` is told of each hit and each question."""
        self._lifetimes = lifetimes
        self._clock = clock
        self._most = most
        self._together = together
        self._entries: OrderedDict[Key, _Entry[Value]] = OrderedDict()
        self._asking: dict[Key, asyncio.Future[Value]] = {}
        self._due: asyncio.Queue[tuple[Key, Ask[Value]]] = asyncio.Queue(MOST_BESIDE)
        self._beside: set[Key] = set()
        self._count = count

    def known(self, key: Key, ask: Ask[Value], *, in_list: bool = False) -> Value | None:
        """What is remembered and still holds; None: `get` must ask."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        age = self._clock() - entry.asked_at
        limits = self._lifetimes
        limit = limits.good if entry.value else (limits.bad_in_lists if in_list else limits.bad)
        if age >= limit:
            return None
        self._entries.move_to_end(key)
        self._count(True)
        if age >= (limits.good * AHEAD if entry.value else limits.bad):
            self._ask_beside(key, ask)
        return entry.value

    def was_good(self, key: Key) -> bool:
        """Was the last answer a good one, be it as old as it may?"""
        entry = self._entries.get(key)
        return entry is not None and bool(entry.value)

    async def get(self, key: Key, ask: Ask[Value], *, in_list: bool = False) -> Value:
        """Raises what `ask` raises; that is not remembered."""
        found = self.known(key, ask, in_list=in_list)
        return await self._asked(key, ask) if found is None else found

    async def keep_fresh(self) -> None:
        """Ask again for what is in use before it is too old, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(BESIDE):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key, ask = await self._due.get()
            try:
                await self._asked(key, ask)
            except ClusterUnavailable:
                pass  # whoever needs it when it is too old is told
            except Exception:
                log.exception("an answer could not be asked for again")
            finally:
                self._beside.discard(key)

    def _ask_beside(self, key: Key, ask: Ask[Value]) -> None:
        if key not in self._beside and not self._due.full():
            self._beside.add(key)
            self._due.put_nowait((key, ask))

    async def _asked(self, key: Key, ask: Ask[Value]) -> Value:
        while (pending := self._asking.get(key)) is not None:
            try:
                return await asyncio.shield(pending)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not pending.cancelled() or (task is not None and task.cancelling()):
                    raise
                # Whoever was asking has gone away: one of those who wait asks in its place.
        future: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        self._asking[key] = future
        try:
            self._count(False)
            async with self._together:
                asked_at = self._clock()
                value = await ask()
            self._remember(key, _Entry(value, asked_at))
            future.set_result(value)
        except Exception as error:
            future.set_exception(error)
            future.exception()  # seen: it is raised here
            raise
        finally:
            del self._asking[key]
            future.cancel()  # if it is still open, we are being cancelled
        return value

    def _remember(self, key: Key, entry: _Entry[Value]) -> None:
        self._entries[key] = entry
        self._entries.move_to_end(key)
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)
