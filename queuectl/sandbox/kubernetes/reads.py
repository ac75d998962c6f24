"""The verbs get, list and watch."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime

import orjson

from queuectl.sandbox.kubernetes import tables
from queuectl.sandbox.kubernetes.builtin import from_stored
from queuectl.sandbox.kubernetes.resources import ServedKind
from queuectl.sandbox.kubernetes.selectors import Match, selection
from queuectl.sandbox.kubernetes.store import Key, ObjectChange, ObjectStore, Stored, Subscription, as_stored
from queuectl.sandbox.kubernetes.wire import Json, Request, ServerResponse, StatusError

_INITIAL_END = {"k8s.io/initial-events-end": "true"}


@dataclass(frozen=True, slots=True)
class Representation:
    """Form of the answer for objects of one kind: whole objects or a table."""

    kind: ServedKind
    tabular: bool
    include: str
    clock: Callable[[], datetime]

    @classmethod
    def of(cls, kind: ServedKind, request: Request, clock: Callable[[], datetime]) -> Representation:
        accept = request.headers.get("accept", "").partition(",")[0]
        return cls(kind, "as=Table" in accept, request.query.get("includeObject", "Metadata"), clock)

    def table(self, items: list[Stored], metadata: Json, *, heading: bool = True) -> bytes:
        objects = [item.read() for item in items]
        table = tables.table(self.kind, objects, metadata, self.clock(), self.include, heading=heading)
        return orjson.dumps(table)

    def show(self, stored: Stored) -> bytes:
        if self.tabular:
            return self.table([stored], {"resourceVersion": str(stored.revision)})
        if stored.api_version == self.kind.api_version:
            return stored.raw
        return orjson.dumps(from_stored(self.kind, stored.read()))

    def show_list(self, items: list[Stored], metadata: Json) -> bytes:
        if self.tabular:
            return self.table(items, metadata)
        version = self.kind.api_version
        head = orjson.dumps({"kind": self.kind.list_kind, "apiVersion": version, "metadata": metadata})
        shown = list(map(self.show, items))
        prefix = f'{{"apiVersion":"{version}","kind":"{self.kind.kind}",'.encode()
        if not self.kind.custom:
            shown = [b"{" + item.removeprefix(prefix).removeprefix(b"{") for item in shown]
        return b'%s,"items":[%s]}' % (head[:-1], b",".join(shown))


def _selection(kind: ServedKind, namespace: str, request: Request, *fields: str) -> Match | None:
    place = [f"metadata.namespace={namespace}"] if kind.namespaced and namespace else []
    asked = ",".join([*filter(None, [request.query.get("fieldSelector", ""), *fields]), *place])
    return selection(kind, request.query.get("labelSelector", ""), asked)


def list_objects(
    store: ObjectStore, view: Representation, namespace: str, request: Request
) -> ServerResponse:
    """One page; a later page shows the same revision as the first. Raises StatusError 400 or 410."""
    query = request.query
    match = _selection(view.kind, namespace, request)
    revision, after = store.revision, None
    if query.get("continue"):
        revision, after = _read_token(query["continue"])
    elif wanted := _revision(query.get("resourceVersion", "")):
        store.since(view.kind.collection, max(wanted, store.floor))  # too large: refused
    objects = store.collection(view.kind.collection)
    if revision != store.revision:
        objects = store.at(view.kind.collection, revision)
    keys = sorted(key for key in objects if after is None or key > after)
    found = [objects[key] for key in keys if match is None or match(objects[key])]
    metadata: Json = {"resourceVersion": str(revision)}
    limit = int(query.get("limit") or 0)
    if limit and len(found) > limit:
        metadata["continue"] = _write_token(revision, found[limit - 1].key)
        if not (query.get("labelSelector") or query.get("fieldSelector")):
            metadata["remainingItemCount"] = len(found) - limit
        found = found[:limit]
    return ServerResponse(200, view.show_list(found, metadata))


def _write_token(revision: int, key: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps([revision, *key]).encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, Key]:
    try:
        revision, namespace, name = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(revision), (str(namespace), str(name))
    except ValueError:
        raise StatusError(400, "continue key is not valid") from None


def _revision(text: str) -> int | None:
    """None for an absent version and 0: any state is sufficient."""
    if text and not text.isdecimal():
        raise StatusError(400, f'resourceVersion: Invalid value: "{text}": must be a number')
    return int(text or 0) or None


def watch(
    store: ObjectStore,
    view: Representation,
    namespace: str,
    name: str,
    request: Request,
    bookmark_seconds: float,
) -> ServerResponse:
    """A stream of whole lines. If the revision is too old, the answer is an ERROR event."""
    query = request.query
    match = _selection(view.kind, namespace, request, name and f"metadata.name={name}")
    revision = _revision(query.get("resourceVersion", ""))
    initial = query.get("sendInitialEvents") == "true"
    bookmarks = query.get("allowWatchBookmarks") == "true"
    if initial and not (bookmarks and query.get("resourceVersionMatch") == "NotOlderThan"):
        raise StatusError(
            422, "resourceVersionMatch: Forbidden: sendInitialEvents needs NotOlderThan and bookmarks"
        )
    collection = view.kind.collection
    first: list[bytes] = []
    try:
        subscription = store.subscribe(collection, None if initial else revision)
    except StatusError as error:
        return ServerResponse(200, _failed(error))
    if initial or (revision is None and query.get("sendInitialEvents") != "false"):
        objects = store.collection(collection)
        shown = [objects[key] for key in sorted(objects) if match is None or match(objects[key])]
        first = [_line(b"ADDED", view.show(stored)) for stored in shown]
    if initial:
        first.append(_bookmark(view, store.revision, _INITIAL_END))
    seconds = float(query.get("timeoutSeconds") or 0) or 3600.0
    stream = Watch(store, view, match, subscription, bookmark_seconds if bookmarks else None)
    return ServerResponse(200, stream.lines(first, seconds))


@dataclass(slots=True)
class Watch:
    """One open watch; `bookmark_seconds` None sends no bookmarks."""

    store: ObjectStore
    view: Representation
    match: Match | None
    subscription: Subscription
    bookmark_seconds: float | None

    async def lines(self, first: list[bytes], seconds: float) -> AsyncIterator[bytes]:
        loop, subscription = asyncio.get_running_loop(), self.subscription
        end = loop.time() + seconds
        try:
            if first:
                yield b"".join(first)
            while not subscription.closed:
                if chunk := self._drain():
                    yield chunk
                if not await self._wait(end - loop.time()):
                    # Bookmarks, from time to time and before the end: the next watch may start from them.
                    if self.bookmark_seconds is not None:
                        yield _bookmark(self.view, self.store.revision, None)
                    if loop.time() >= end:
                        return
            # What came before the end, such as the deletion of an object with its definition.
            if chunk := self._drain():
                yield chunk
            if subscription.failure is not None:
                yield _line(b"ERROR", orjson.dumps(subscription.failure.status))
        finally:
            self.store.unsubscribe(self.view.kind.collection, subscription)

    async def _wait(self, left: float) -> bool:
        """Wait for changes; True if there are any."""
        patience = left if self.bookmark_seconds is None else min(left, self.bookmark_seconds)
        try:
            async with asyncio.timeout(max(patience, 0)):
                await self.subscription.ready.wait()
        except TimeoutError:
            return False
        return True

    def _drain(self) -> bytes:
        pending = self.subscription.pending
        self.subscription.ready.clear()
        return b"".join([self._event(pending.popleft()) for _ in range(len(pending))])

    def _event(self, change: ObjectChange) -> bytes:
        """The change within this watcher's selection; empty if it is outside."""
        kind, stored = change.type, change.stored
        if self.match is not None:
            was = change.before is not None and self.match(change.before)
            now = change.type != "DELETED" and self.match(stored)
            if not was and not now:
                return b""
            kind = "MODIFIED" if was and now else "ADDED" if now else "DELETED"
            if kind == "DELETED" and change.type != "DELETED" and change.before is not None:
                left = change.before.read()
                left["metadata"]["resourceVersion"] = str(stored.revision)
                stored = as_stored(left)
        return _line(kind.encode(), self.view.show(stored))


async def _failed(error: StatusError) -> AsyncIterator[bytes]:
    yield _line(b"ERROR", orjson.dumps(error.status))


def _line(kind: bytes, body: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind, body)


def _bookmark(view: Representation, revision: int, annotations: Json | None) -> bytes:
    metadata: Json = {"resourceVersion": str(revision), "creationTimestamp": None}
    if annotations:
        metadata["annotations"] = annotations
    if view.tabular:
        return _line(b"BOOKMARK", view.table([], metadata, heading=False))
    obj = {"kind": view.kind.kind, "apiVersion": view.kind.api_version, "metadata": metadata}
    return _line(b"BOOKMARK", orjson.dumps(obj))
