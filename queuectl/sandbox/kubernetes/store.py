"""Objects by kind, name and revision, as bytes; each change is sent to the watchers.

With a folder, they are in SQLite too: a write is in its journal before the answer.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from uuid import NAMESPACE_URL, uuid5

import orjson

from queuectl.sandbox.kubernetes.wire import Json, StatusError

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped) and name."""

_SCHEMA = """
pragma journal_mode = wal;
pragma synchronous = normal;
create table if not exists object (
  collection text, namespace text, name text, body blob not null, primary key (collection, namespace, name)
) without rowid;
create table if not exists setting (name text primary key, value text not null) without rowid;
"""
_MAX_PENDING = 10_000
"""A watcher that is this far behind is dropped."""
_PUT = "insert or replace into object (collection, namespace, name, body) values (?, ?, ?, ?)"
_REMOVE = "delete from object where collection = ? and namespace = ? and name = ?"
_REVISION = "insert or replace into setting (name, value) values ('revision', ?)"


@dataclass(frozen=True, slots=True)
class Stored:
    """One object at one revision."""

    key: Key
    revision: int
    uid: str
    api_version: str
    raw: bytes
    labels: dict[str, str]
    owners: tuple[str, ...]
    """UIDs of its owners."""

    def read(self) -> Json:
        """A new copy that the caller may change."""
        return dict(orjson.loads(self.raw))


class ObjectChange(NamedTuple):
    """`stored` is the object to send: for DELETED the last state, at the revision of the deletion."""

    collection: str
    type: str
    before: Stored | None
    stored: Stored


@dataclass(eq=False, slots=True)
class Subscription:
    """Changes of one collection since its creation. When closed it ends its watch."""

    pending: deque[ObjectChange] = field(default_factory=deque)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False
    failure: StatusError | None = None
    """Sent as an ERROR event before the end."""

    def close(self, failure: StatusError | None = None) -> None:
        self.closed, self.failure = True, failure
        self.ready.set()


class ObjectStore:
    """`history`: number of changes that are kept; an older revision is Expired for lists and watches."""

    def __init__(self, folder: Path | None, *, seed: str | None = None, history: int = 10_000) -> None:
        self.revision = 0
        self.uids: dict[str, tuple[str, Key]] = {}
        self.changes: Counter[str] = Counter()
        """How often each collection has changed."""
        self.dependents: dict[str, set[tuple[str, Key]]] = {}
        """By the owner's UID."""
        self._collections: dict[str, dict[Key, Stored]] = {}
        self._changes: deque[ObjectChange] = deque(maxlen=history)
        self._subscriptions: dict[str, dict[Subscription, None]] = {}
        """In the order of their creation."""
        self._seed = seed or secrets.token_hex(16)
        self._database: sqlite3.Connection | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._database = sqlite3.connect(folder / "objects.sqlite3")
            self._load(self._database)
        self.floor = self.revision
        """Changes up to this revision are dropped."""

    def _load(self, database: sqlite3.Connection) -> None:
        database.executescript(_SCHEMA)
        settings = dict(database.execute("select name, value from setting"))
        self._seed = settings.get("seed", self._seed)
        database.execute("insert or ignore into setting (name, value) values ('seed', ?)", (self._seed,))
        self.revision = int(settings.get("revision", 0))
        for collection, body in database.execute("select collection, body from object"):
            self._index(collection, None, as_stored(orjson.loads(body)))
        database.commit()

    def close(self) -> None:
        for collection in list(self._subscriptions):
            self.close_watches(collection)
        if self._database is not None:
            self._database.close()

    def new_uid(self, collection: str, key: Key) -> str:
        """A UID. It is unique, as it contains the next revision."""
        return str(uuid5(NAMESPACE_URL, f"{self._seed}/{collection}/{key[0]}/{key[1]}/{self.revision + 1}"))

    def collection(self, name: str) -> dict[Key, Stored]:
        return self._collections.setdefault(name, {})

    def collections(self) -> Iterator[tuple[str, dict[Key, Stored]]]:
        yield from list(self._collections.items())

    def put(self, collection: str, obj: Json) -> Stored:
        """Store a new or changed object; sets the next resourceVersion."""
        stored = self._next(obj)
        self._persist(_PUT, (collection, *stored.key, stored.raw), stored.revision)
        before = self.collection(collection).get(stored.key)
        self._index(collection, before, stored)
        self._publish(ObjectChange(collection, "MODIFIED" if before else "ADDED", before, stored))
        return stored

    def remove(self, collection: str, obj: Json) -> Stored:
        """Remove it; `obj` is its last state."""
        last = self._next(obj)
        self._persist(_REMOVE, (collection, *last.key), last.revision)
        before = self.collection(collection)[last.key]
        self._index(collection, before, None)
        self._publish(ObjectChange(collection, "DELETED", before, last))
        return last

    def _next(self, obj: Json) -> Stored:
        obj["metadata"]["resourceVersion"] = str(self.revision + 1)
        # These two come first: lists of built-in kinds cut them off the text of their items.
        return as_stored({"apiVersion": obj["apiVersion"], "kind": obj["kind"], **obj})

    def _persist(self, statement: str, values: tuple[object, ...], revision: int) -> None:
        if self._database is not None:
            with self._database:
                self._database.execute(statement, values)
                self._database.execute(_REVISION, (str(revision),))
        self.revision = revision

    def _index(self, collection: str, before: Stored | None, after: Stored | None) -> None:
        self.changes[collection] += 1
        if before is not None:
            for owner in before.owners:
                if rest := self.dependents.get(owner):
                    rest.discard((collection, before.key))
            if after is None:
                del self.collection(collection)[before.key]
                self.uids.pop(before.uid, None)
        if after is not None:
            self.collection(collection)[after.key] = after
            self.uids[after.uid] = (collection, after.key)
            for owner in after.owners:
                self.dependents.setdefault(owner, set()).add((collection, after.key))

    def _publish(self, change: ObjectChange) -> None:
        if len(self._changes) == self._changes.maxlen:
            self.floor = self._changes[0].stored.revision
        self._changes.append(change)
        for subscription in self.watches(change.collection):
            if len(subscription.pending) >= _MAX_PENDING:
                self.unsubscribe(change.collection, subscription)
                subscription.close()
            subscription.pending.append(change)
            subscription.ready.set()

    # --- changes ---

    def forget(self) -> None:
        """A compaction: all older revisions are Expired from now on."""
        self._changes.clear()
        self.floor = self.revision

    def since(self, collection: str, revision: int) -> list[ObjectChange]:
        """Changes after `revision`, oldest first. Raises StatusError 410."""
        if revision < self.floor:
            raise StatusError(410, f"too old resource version: {revision} ({self.floor})")
        if revision > self.revision:
            causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
            message = f"Timeout: Too large resource version: {revision}, current: {self.revision}"
            raise StatusError(504, message, details={"causes": causes}, retry_after=1)
        newest_first: list[ObjectChange] = []
        for change in reversed(self._changes):
            if change.stored.revision <= revision:
                break
            if change.collection == collection:
                newest_first.append(change)
        return newest_first[::-1]

    def at(self, collection: str, revision: int) -> dict[Key, Stored]:
        """The collection as it was at `revision`. Raises StatusError 410."""
        then = dict(self.collection(collection))
        for change in reversed(self.since(collection, revision)):
            if change.before is None:
                del then[change.stored.key]
            else:
                then[change.stored.key] = change.before
        return then

    def subscribe(self, collection: str, revision: int | None) -> Subscription:
        """Changes after `revision` (None: from now on). Raises StatusError 410."""
        subscription = Subscription()
        if revision is not None:
            subscription.pending.extend(self.since(collection, revision))
        self._subscriptions.setdefault(collection, {})[subscription] = None
        return subscription

    def unsubscribe(self, collection: str, subscription: Subscription) -> None:
        self._subscriptions.get(collection, {}).pop(subscription, None)

    def watches(self, collection: str) -> list[Subscription]:
        return list(self._subscriptions.get(collection, ()))

    def close_watches(self, collection: str, failure: StatusError | None = None) -> None:
        for subscription in self.watches(collection):
            subscription.close(failure)


def as_stored(obj: Json) -> Stored:
    metadata = obj["metadata"]
    return Stored(
        key=(metadata.get("namespace", ""), metadata["name"]),
        revision=int(metadata["resourceVersion"]),
        uid=metadata["uid"],
        api_version=obj["apiVersion"],
        raw=orjson.dumps(obj),
        labels=metadata.get("labels") or {},
        owners=tuple(owner["uid"] for owner in metadata.get("ownerReferences") or ()),
    )
