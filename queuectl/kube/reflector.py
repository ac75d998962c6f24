"""Sends changes of the cluster's objects to the core: list, send differences, watch, list again on errors.

A custom kind is listed once its CustomResourceDefinition serves its version; if the list of all definitions
does not have it, its objects are gone. Other kinds that the server does not know are listed again every half
minute. If a kind of jobs may not be read, or its lists or its discovery fail for long, the others do not wait
for it, and nothing is known about its objects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Generic

from queuectl.core.model.events import Listed
from queuectl.core.model.workload import WorkloadId
from queuectl.kinds.json_fields import Json
from queuectl.kube.errors import ApiError, Forbidden, Gone, NotFound, Unavailable, from_status
from queuectl.kube.session import JSON, METADATA, METADATA_LIST, Object, Session, number_of
from queuectl.kube.sources import E, Key, Source, changed, events_of, leave, version_of

READS_AT_ONCE: Final = 8
"""Of children."""
OTHERS_AT_ONCE: Final = 16
"""Objects of other sources that are read again before the event loop has its turn: some milliseconds."""

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
    """Between two lists of a kind that is not installed or may not be read, and how long the lists of a kind
    of jobs may fail before the others no longer wait for it."""
    backoff: float = 0.25
    """Longest wait after the first failure; doubled with each further one."""
    backoff_limit: float = 30.0
    doubt: int = 3
    """Consecutive failures after which the source is listed again."""
    catch_up: float = 1.0
    """How long a watch may take to show what the former leader had read; after it, the source is listed."""


class Reflector(Generic[E]):
    """One source. `emit` takes its events in their order, and must not block."""

    def __init__(
        self,
        session: Session,
        source: Source[E],
        emit: Callable[[Sequence[E | Listed]], None],
        random: Random,
        timings: Timings,
        definition: Definition | None = None,
    ) -> None:
        self.source = source
        self.definition = definition
        self.problem: str | None = None
        """Why it cannot be read; None: it can, as far as is known."""
        self._session = session
        self._emit = emit
        self._random = random
        self._timings = timings
        self._known: dict[Key, str] = {}
        self._version: str | None = None
        self._read_up_to: int | None = None
        self._relist_at = 0.0
        self._failures = 0
        self._failing_since: float | None = None
        self._told: Listed | None = None
        """What was last sent about the list."""
        self._heard: float | None = None

    @property
    def listed(self) -> bool:
        """Was it read, and not found to be absent or unreadable since? Never True while it is read first."""
        return self._version is not None

    @property
    def told(self) -> bool:
        """Was something sent about its list?"""
        return self._told is not None

    @property
    def read_up_to(self) -> int | None:
        """The version up to which another process must have read this source to know all that was sent here.
        None: not known."""
        return self._read_up_to if self.listed else None

    def age(self) -> float | None:
        """Seconds since the server's last answer about this source; None: none yet."""
        return None if self._heard is None else asyncio.get_running_loop().time() - self._heard

    async def run(self, handed_over: int | None = None, unobserved: Set[WorkloadId] = frozenset()) -> None:
        """For ever. It begins with a list, of which it sends what is new since the last run.

        `handed_over`: `read_up_to` of the former leader, which is over; None: not known. Where that is read,
        there is no list: the last run's is complete. `unobserved`: workloads that are sent again.
        """
        self._told = None
        if again := [key for key in self._known if key in unobserved]:
            handed_over = None
        for key in again:
            del self._known[key]
        if handed_over is None or not await self._catches_up(handed_over):
            self._version = None
        while True:
            try:
                await self._served()
                await self._turn()
            except NotFound:
                await self._not_installed()
            except Gone as error:
                self._version = None
                await self._pause(error)
            except ApiError as error:
                if self._failures >= self._timings.doubt:
                    self._version = None
                if self.source.optional and self._fails(error):
                    await self._unreadable(error)
                else:
                    await self._pause(error)

    async def _catches_up(self, version_read: int) -> bool:
        """Read on from the last run until that version. Returns whether it was reached (L34)."""
        try:
            async with asyncio.timeout(self._timings.catch_up):
                if self._version is not None and not self._has_read(version_read):
                    await self._watch(self._version, until=version_read)
        except (ApiError, TimeoutError):
            return False
        if not self._has_read(version_read):
            return False
        self._read_up_to = max(version_read, self._read_up_to or 0)
        self._told = Listed(self.source.name, self._workloads())
        self._emit([self._told])
        return True

    async def _served(self) -> None:
        """Return when the server knows the kind, as far as can be known without asking for it."""
        while (definition := self.definition) is not None and not definition.served:
            if definition.versions is not None:
                self._tell_absent()
            changed = await definition.changed(None if self._told is not None else self._timings.absent)
            if not changed and definition.versions is None and self.source.optional:
                self._tell_unreadable("it is not known which versions of it are served")

    async def _turn(self) -> None:
        """A list if one is due, then one watch to its end."""
        if self.source.ready is not None:
            await self.source.ready()
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
        accept = METADATA_LIST if self.source.metadata_only else JSON
        async for page in self._session.pages(self.source.path, query=self.source.query, accept=accept):
            self._hear()
            items = _items(page)
            found.update(self.source.key(item) for item in items)
            self._reach(items)
            children = await self._children(items)
            self._tell(
                event
                for item in items
                for event in events_of(self.source, item, self._known, children.get(self.source.key(item)))
            )
            version = version_of(page)
        lost = [key for key in self._known if key not in found]
        if lost or self._told is None or self._read_up_to is None:
            self._read_up_to = number_of(version)  # when what is not there went is not known
        # They went at that version at the latest: what is made of several objects is as new as that.
        self._tell(event for key in lost for event in leave(self.source, key, self._known, version))
        await self._tell_others()
        self.problem, self._failing_since = None, None
        self._told = Listed(self.source.name, self._workloads())
        self._emit([self._told])
        return version

    async def _watch(self, version: str, until: int | None = None) -> bool:
        """Watch, and send changes until the server ends the watch, or until that version was read.

        Returns whether there was an event.
        """
        query = {
            **self.source.query,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(self._around(self._timings.watch)))),
        }
        progress = False
        accept = METADATA if self.source.metadata_only else JSON
        async with self._session.watch(
            self.source.path, query=query, accept=accept, silence=self._timings.silence
        ) as batches:
            self._hear()
            self._failing_since = None
            async for batch in batches:
                self._hear()
                await self._take(batch)
                progress = True
                self._failures = 0
                if until is not None and self._has_read(until):
                    break
        return progress

    def _has_read(self, version: int) -> bool:
        return (number_of(self._version) or 0) >= version

    def _reach(self, objects: Iterable[Object]) -> None:
        """These objects are sent."""
        if self._read_up_to is not None:
            versions = (number_of(version_of(obj)) for obj in objects)
            self._read_up_to = max(self._read_up_to, *(one or 0 for one in versions), 0)

    async def _take(self, batch: list[Object]) -> None:
        """Send a batch of watch events; those before a broken one also if it raises ApiError."""
        events: list[E] = []
        present = [entry.get("object") for entry in batch if entry.get("type") in ("ADDED", "MODIFIED")]
        gone = [entry.get("object") for entry in batch if entry.get("type") == "DELETED"]
        self._reach(obj for obj in (*present, *gone) if isinstance(obj, dict))
        children = await self._children([obj for obj in present if isinstance(obj, dict)])
        try:
            for entry in batch:
                events += self._changed(entry, children)
        finally:
            self._tell(events)
        await self._tell_others()

    async def _tell_others(self) -> None:
        """Send what objects of this source change of others."""
        while self.source.others is not None and (events := self.source.others(OTHERS_AT_ONCE)):
            self._tell(events)
            await asyncio.sleep(0)

    async def _children(self, objects: Sequence[Object]) -> dict[Key, Json | None]:
        """The children of those that changed, a few reads at a time. Raises ApiError."""
        source, found = self.source, dict[Key, Json | None]()
        if source.child is None:
            return found
        due = {source.key(obj): obj for obj in objects if changed(source, obj, self._known)}
        keys = list(due)
        for first in range(0, len(keys), READS_AT_ONCE):
            some = keys[first : first + READS_AT_ONCE]
            read = await asyncio.gather(*(source.child.read(self._session, due[key]) for key in some))
            found.update(zip(some, read, strict=True))
        return found

    def _changed(self, entry: Object, children: Mapping[Key, Json | None]) -> Sequence[E]:
        kind, obj = entry.get("type"), entry.get("object")
        if not isinstance(obj, dict) or kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"):
            raise Unavailable(f"watch {self.source.path}: an event of type {str(kind)[:40]!r}")
        if kind == "ERROR":
            # Whatever it was, later events of this watch are not known.
            self._version = None
            raise _refusal(self.source.path, obj)
        events: Sequence[E] = ()
        if kind == "DELETED":
            events = leave(self.source, self.source.key(obj), self._known, version_of(obj))
        elif kind != "BOOKMARK":
            events = events_of(self.source, obj, self._known, children.get(self.source.key(obj)))
        self._version = version_of(obj) or self._version
        return events

    async def _not_installed(self) -> None:
        self._hear()
        self._tell_absent()
        if self.definition is None:
            await asyncio.sleep(self._around(self._timings.absent))
            return
        # Its definition has just been removed or made, and servers say so with a delay.
        self.definition.doubt()
        wait = min(2.0, self._timings.absent) if self.definition.there else self._timings.absent
        await self.definition.changed(self._around(wait))

    def _tell_absent(self) -> None:
        """The server does not know the kind. If no definition of it is in the list, its objects are gone."""
        self._version = self.problem = None
        self._failures = 0
        gone = self.definition is not None and self.definition.there is False
        if gone:
            self._tell(
                event for key in list(self._known) for event in leave(self.source, key, self._known, "")
            )
        self._tell_list(Listed(self.source.name, self._workloads() if gone else None), "is not served")

    def _tell_unreadable(self, problem: str) -> None:
        """Nothing is known of its objects, and the others do not wait for it."""
        self._version, self.problem = None, problem
        self._tell_list(Listed(self.source.name, None), f"can't be read: {problem}")

    def _tell_list(self, listed: Listed, why: str) -> None:
        if listed != self._told:
            _log.info("%s %s", self.source.path, why)
            self._told = listed
            self._emit([listed])

    def _fails(self, error: ApiError) -> bool:
        """Is this more than a moment's failure, of a server that answers this request or others?"""
        now = asyncio.get_running_loop().time()
        if isinstance(error, Forbidden):
            return True
        since = self._failing_since = now if self._failing_since is None else self._failing_since
        answers = error.status > 0 or self._session.heard_at > since
        return answers and now - since >= self._timings.absent

    async def _unreadable(self, error: ApiError) -> None:
        """The others do not wait for this source: it is listed again from time to time."""
        self._hear()
        if self.problem is None:
            _log.error("%s can't be read, its objects do not queue: %s", self.source.name, error)
        self._tell_unreadable(str(error))
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

    def _tell(self, events: Iterable[E]) -> None:
        told = list(events)
        if told:
            self._emit(told)

    def _workloads(self) -> frozenset[WorkloadId] | None:
        if not self.source.workloads:
            return None
        if self.source.present is not None:
            return self.source.present()
        return frozenset(WorkloadId(str(key)) for key in self._known)


def _items(page: Object) -> list[dict[str, Any]]:
    items = page.get("items")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _refusal(path: str, status: Object) -> ApiError:
    code, message = status.get("code"), status.get("message")
    return from_status(f"watch {path}", code if isinstance(code, int) else 0, str(message or "no message"))


class Definition:
    """The CustomResourceDefinition of one kind."""

    def __init__(self, version: str, doubted: asyncio.Event) -> None:
        """`doubted` is set to have discovery asked again."""
        self.version = version
        """That is asked for."""
        self.versions: tuple[str, ...] | None = None
        """Served ones, none of a kind that is not installed; None: not known."""
        self.there: bool | None = None
        """Is it installed? None: not known."""
        self._doubted = doubted
        self._moved = asyncio.Event()

    @property
    def served(self) -> bool:
        return self.versions is not None and self.version in self.versions

    @property
    def problem(self) -> str | None:
        """Why an installed kind is not served in the version that is asked for."""
        if self.versions is None or self.served or not self.there:
            return None
        served = ", ".join(self.versions) or "no version"
        return f"its definition serves {served}, not {self.version}"

    def settle(self, there: bool | None, versions: tuple[str, ...] | None) -> None:
        if (there, versions) != (self.there, self.versions):
            self.there, self.versions = there, versions
            self._moved.set()

    async def changed(self, seconds: float | None = None) -> bool:
        """Wait for a change since the last call, at most so long. Returns whether there was one."""
        try:
            async with asyncio.timeout(seconds):
                await self._moved.wait()
        except TimeoutError:
            return False
        self._moved.clear()
        return True

    def doubt(self) -> None:
        """The server does not know the kind, whatever was said before."""
        self._doubted.set()
