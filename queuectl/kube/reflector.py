"""Sends changes of the cluster's objects to the core: list, send differences, watch, list again on errors.

Kinds that are not installed are listed again every half minute. A watch on the CRDs would notice them sooner,
at the price of one more permission and one more stream. The list costs one refused request per absent kind,
and finds built-in kinds of other Kubernetes versions as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from queuectl.core.events import Event, Listed
from queuectl.core.model import WorkloadId
from queuectl.kube.errors import ApiError, Gone, NotFound, Unavailable, from_status
from queuectl.kube.session import Object, Session
from queuectl.kube.sources import Key, Source, events_of, leave, version_of

Emit = Callable[[Sequence[Event]], None]
"""Takes events in their order; must not block."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """In seconds. Where many requests must not come at once, the value is random from half of it upwards."""

    watch: float = 290.0
    """timeoutSeconds of a watch request."""
    silence: float = 75.0
    """An open watch without a byte for this long counts as dead; servers send bookmarks every minute."""
    relist: float = 600.0
    """Between complete lists, in case an event was lost."""
    absent: float = 30.0
    """Between two lists of a kind that is not installed."""
    backoff: float = 0.25
    """Longest wait after the first failure; doubled with each further one."""
    backoff_limit: float = 30.0
    doubt: int = 3
    """Consecutive failures after which the source is listed again."""


class Reflector:
    """One source."""

    def __init__(
        self, session: Session, source: Source, emit: Emit, random: Random, timings: Timings
    ) -> None:
        self.source = source
        self._session = session
        self._emit = emit
        self._random = random
        self._timings = timings
        self._known: dict[Key, str] = {}
        self._version: str | None = None
        self._relist_at = 0.0
        self._failures = 0
        self._absent = False
        self._heard: float | None = None

    def age(self) -> float | None:
        """Seconds since the server's last answer about this source; None: none yet."""
        return None if self._heard is None else asyncio.get_running_loop().time() - self._heard

    async def run(self) -> None:
        """For ever."""
        while True:
            try:
                await self._turn()
            except NotFound:
                await self._not_installed()
            except Gone as error:
                self._version = None
                await self._pause(error)
            except ApiError as error:
                if self._failures >= self._timings.doubt:
                    self._version = None
                await self._pause(error)

    async def _turn(self) -> None:
        """A list if one is due, then one watch to its end."""
        now = asyncio.get_running_loop().time
        if self._version is None or now() >= self._relist_at:
            self._version = await self._list()
            self._relist_at = now() + self._around(self._timings.relist)
        begun = now()
        progress = await self._watch(self._version)
        if progress or now() - begun >= min(1.0, self._timings.watch / 2):
            self._failures = 0
        else:
            await self._pause(Unavailable(f"watch {self.source.path}: ended at once"))

    async def _list(self) -> str:
        """List, and send what changed. Returns the version to watch from."""
        found: set[Key] = set()
        version = ""
        async for page in self._session.pages(self.source.path, query=self.source.query):
            self._hear()
            items = _items(page)
            found.update(self.source.key(item) for item in items)
            self._tell(event for item in items for event in events_of(self.source, item, self._known))
            version = version_of(page)
        lost = [key for key in self._known if key not in found]
        self._tell(event for key in lost for event in leave(self.source, key, self._known, ""))
        self._absent = False
        self._emit([Listed(self.source.name, self._workloads())])
        return version

    async def _watch(self, version: str) -> bool:
        """Watch, and send changes until the server ends the watch. Returns whether there was an event."""
        query = {
            **self.source.query,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(self._around(self._timings.watch)))),
        }
        progress = False
        async with self._session.watch(
            self.source.path, query=query, silence=self._timings.silence
        ) as batches:
            self._hear()
            async for batch in batches:
                self._hear()
                self._take(batch)
                progress = True
                self._failures = 0
        return progress

    def _take(self, batch: list[Object]) -> None:
        """Send a batch of watch events; those before a broken one also if it raises ApiError."""
        events: list[Event] = []
        try:
            for entry in batch:
                events += self._changed(entry)
        finally:
            self._tell(events)

    def _changed(self, entry: Object) -> Sequence[Event]:
        kind, obj = entry.get("type"), entry.get("object")
        if not isinstance(obj, dict) or kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"):
            raise Unavailable(f"watch {self.source.path}: an event of type {str(kind)[:40]!r}")
        if kind == "ERROR":
            # Whatever it was, later events of this watch are not known.
            self._version = None
            raise _refusal(self.source.path, obj)
        events: Sequence[Event] = ()
        if kind == "DELETED":
            events = leave(self.source, self.source.key(obj), self._known, version_of(obj))
        elif kind != "BOOKMARK":
            events = events_of(self.source, obj, self._known)
        self._version = version_of(obj) or self._version
        return events

    async def _not_installed(self) -> None:
        self._hear()
        self._version = None
        if not self._absent:
            self._absent = True
            self._failures = 0
            _log.info("%s is not installed", self.source.path)
            self._emit([Listed(self.source.name, None)])
        await asyncio.sleep(self._around(self._timings.absent))

    async def _pause(self, error: ApiError) -> None:
        limit = min(self._timings.backoff_limit, self._timings.backoff * 2 ** min(self._failures, 20))
        self._failures += 1
        wait = max(self._random.uniform(limit / 2, limit), error.retry_after or 0.0)
        _log.log(logging.WARNING if self._failures > 2 else logging.INFO, "%s; again in %.2f s", error, wait)
        await asyncio.sleep(wait)

    def _around(self, seconds: float) -> float:
        return self._random.uniform(seconds / 2, seconds)

    def _hear(self) -> None:
        self._heard = asyncio.get_running_loop().time()

    def _tell(self, events: Iterable[Event]) -> None:
        told = list(events)
        if told:
            self._emit(told)

    def _workloads(self) -> frozenset[WorkloadId] | None:
        if not self.source.workloads:
            return None
        return frozenset(WorkloadId(str(key)) for key in self._known)


class Reflectors:
    """All sources of one cluster."""

    def __init__(self, each: Sequence[Reflector]) -> None:
        self._each = each
        self.sources = frozenset(reflector.source.name for reflector in each)
        """Each of them sends a `Listed`."""

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._each:
                group.create_task(reflector.run(), name=f"reflect {reflector.source.name}")

    def ages(self) -> dict[str, float | None]:
        """Seconds since the server's last answer, by source; None: none yet."""
        return {reflector.source.name: reflector.age() for reflector in self._each}


def reflectors(
    session: Session,
    emit: Emit,
    watched: Sequence[Source],
    *,
    random: Random | None = None,
    timings: Timings | None = None,
) -> Reflectors:
    """`random` spreads requests in time."""
    spread, times = random or Random(), timings or Timings()
    return Reflectors([Reflector(session, source, emit, spread, times) for source in watched])


def _items(page: Object) -> list[dict[str, Any]]:
    items = page.get("items")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _refusal(path: str, status: Object) -> ApiError:
    code, message = status.get("code"), status.get("message")
    return from_status(f"watch {path}", code if isinstance(code, int) else 0, str(message or "no message"))
