"""A work queue of keys: each is at most once in the queue, and never processed twice at the same time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from queuectl.kube.errors import ApiError
from queuectl.sandbox.players.api import Clock

_log = logging.getLogger(__name__)
_MOST_SECONDS = 10.0


class WorkQueue:
    """Calls `reconcile(key)` for each key added, and again later for those that failed.

    `reconcile` gets only the key and compares the actual with the wanted state: it may be repeated.
    """

    def __init__(
        self, name: str, reconcile: Callable[[str], Awaitable[None]], clock: Clock, workers: int = 8
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._clock = clock
        self._workers = workers
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._active: set[str] = set()
        self._again: set[str] = set()
        self._failures: dict[str, int] = {}
        self._later: list[tuple[str, float]] = []
        self._tasks: asyncio.TaskGroup | None = None

    def add(self, key: str) -> None:
        if key in self._active:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.put_nowait(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Add it once `seconds` of the clock have passed."""
        if self._tasks is None:
            self._later.append((key, seconds))
        else:
            self._tasks.create_task(self._wait(key, seconds))

    async def run(self) -> None:
        """Process keys until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for key, seconds in self._later:
                self.add_after(key, seconds)
            self._later.clear()
            for _ in range(self._workers):
                tasks.create_task(self._work())

    async def _wait(self, key: str, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self.add(key)

    async def _work(self) -> None:
        while True:
            key = await self._ready.get()
            self._queued.discard(key)
            self._active.add(key)
            try:
                await self._reconcile(key)
                self._failures.pop(key, None)
            except ApiError as error:
                self._retry(key)
                if error.status not in (404, 409, 410):  # conflicts and missing objects are normal
                    _log.warning("%s %s: %s", self.name, key, error)
            except Exception:
                # One unusual object must not stop the work on all others.
                self._retry(key)
                _log.exception("%s %s", self.name, key)
            finally:
                self._active.discard(key)
                if key in self._again:
                    self._again.discard(key)
                    self.add(key)

    def _retry(self, key: str) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.add_after(key, min(0.05 * 2**failures, _MOST_SECONDS))
