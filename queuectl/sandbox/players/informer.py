"""The objects of one resource, kept current by list and watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from queuectl.kube.errors import ApiError, Gone, NotFound, from_status
from queuectl.kube.session import Session
from queuectl.sandbox.players.api import Clock, Object, key_of, version_of

_log = logging.getLogger(__name__)
_WATCH_SECONDS = "290"
_ABSENT_SECONDS = 2.0
_MOST_SECONDS = 5.0

Change = Callable[[str, Object | None, Object | None], None]
"""Called with key, object before, object after."""


class Informer:
    """Objects by key (`namespace/name`), and by the values of the named indexes."""

    def __init__(
        self,
        api: Session,
        path: str,
        clock: Clock,
        indexes: Mapping[str, Callable[[Object], str | None]] = {},
    ) -> None:
        self.path = path
        self.synced = asyncio.Event()
        self._api = api
        self._clock = clock
        self._objects: dict[str, Object] = {}
        self._index_of = dict(indexes)
        self._indexed: dict[tuple[str, str], dict[str, Object]] = {}
        self._subscribers: list[Change] = []
        self._seen = 0

    def subscribe(self, change: Change) -> None:
        """Call `change` at each change from now on; the first list counts as changes."""
        self._subscribers.append(change)

    def path_of(self, namespace: str, name: str) -> str:
        """Of an object in the API."""
        base, _, plural = self.path.rpartition("/")
        return f"{base}/namespaces/{namespace}/{plural}/{name}"

    def get(self, key: str) -> Object | None:
        return self._objects.get(key)

    def by(self, index: str, value: str) -> list[Object]:
        return list(self._indexed.get((index, value), {}).values())

    def values(self) -> Iterable[Object]:
        return self._objects.values()

    def observe(self, written: Object) -> None:
        """Store the answer to a write of our own, unless the watch has sent a newer version."""
        if version_of(written) > self._seen:
            self._put(written)

    async def run(self) -> None:
        """List and watch until cancelled, whatever errors occur."""
        failures = 0
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list()
                    self.synced.set()
                    failures = 0
                version = await self._watch(version)
                failures = 0
            except Gone:
                version = ""
            except NotFound:  # a kind that is not installed (any more)
                version = ""
                self._replace({}, self._seen)
                self.synced.set()
                await self._clock.sleep(_ABSENT_SECONDS)
            except ApiError as error:
                failures += 1
                _log.info("%s: %s", self.path, error)
                await self._clock.sleep(min(0.1 * 2**failures, _MOST_SECONDS))

    async def _list(self) -> str:
        """Read all pages; returns the version of the list."""
        found: dict[str, Object] = {}
        version = ""
        async for page in self._api.pages(self.path):
            # Items of a list may lack their kind.
            head = {"apiVersion": page["apiVersion"], "kind": page["kind"].removesuffix("List")}
            found |= {key_of(item): {**head, **item} for item in page["items"]}
            version = str(page["metadata"]["resourceVersion"])
        self._replace(found, int(version))
        return version

    async def _watch(self, version: str) -> str:
        """Process one watch to its end; returns the last version."""
        query = {
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": _WATCH_SECONDS,
        }
        async with self._api.watch(self.path, query=query) as batches:
            async for event in (event async for batch in batches for event in batch):
                thing = event["object"]
                if event["type"] == "ERROR":
                    raise from_status(self.path, int(thing.get("code", 500)), str(thing.get("message")))
                version = str(thing["metadata"]["resourceVersion"])
                self._seen = max(self._seen, int(version))
                if event["type"] == "DELETED":
                    self._drop(thing)
                elif event["type"] != "BOOKMARK":
                    self._put(thing)
        return version

    def _replace(self, found: dict[str, Object], version: int) -> None:
        self._seen = version
        for key, before in list(self._objects.items()):
            if key not in found and version_of(before) <= version:
                self._change(key, before, None)
        for thing in found.values():
            self._put(thing)

    def _put(self, thing: Object) -> None:
        key = key_of(thing)
        before = self._objects.get(key)
        if before is None or version_of(before) < version_of(thing):
            self._change(key, before, thing)

    def _drop(self, thing: Object) -> None:
        key = key_of(thing)
        before = self._objects.get(key)
        if before is not None and version_of(before) <= version_of(thing):
            self._change(key, before, None)

    def _change(self, key: str, before: Object | None, after: Object | None) -> None:
        if after is None:
            del self._objects[key]
        else:
            self._objects[key] = after
        for name, value_of in self._index_of.items():
            if before is not None and (old := value_of(before)) is not None:
                cell = self._indexed[(name, old)]
                del cell[key]
                if not cell:
                    del self._indexed[(name, old)]
            if after is not None and (new := value_of(after)) is not None:
                self._indexed.setdefault((name, new), {})[key] = after
        for change in self._subscribers:
            change(key, before, after)
