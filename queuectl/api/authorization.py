"""Callers by the cluster's own reviews: TokenReview for the user, SubjectAccessReview for each right.

Answers are cached as the API server caches those of its own webhook authorizers: for a fixed time, bounded.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Generic, TypeVar
from weakref import WeakValueDictionary

from aiohttp import web

from queuectl.api.http import SILENT, Refusal, RestObserver, bad_request, no_identity
from queuectl.api.limits import STRANGERS_BURST, STRANGERS_PER_SECOND, Buckets
from queuectl.api.requests import ALL, Allowed, Caller
from queuectl.ports.changes import Access, Reviews, User
from queuectl.ports.cluster import ClusterUnavailable

MAX_TOKEN: Final = 8000
_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9\-._~+/]+=*)", re.IGNORECASE)
GRANTED_SECONDS: Final = 30.0
"""Lifetime of a user, or of a right that is granted."""
REFUSED_SECONDS: Final = 5.0
"""Lifetime of a refusal in an answer about one object."""
REFUSED_IN_LISTS_SECONDS: Final = 300.0
"""The same in lists: with 5 s, one caller of pages over 1,000 namespaces would cause 200 reviews a second."""
TOGETHER: Final = 16
"""Reviews in flight at one time."""
MOST_TOKENS: Final = 4096
MOST_ACCESSES: Final = 65_536
PATIENCE_SECONDS: Final = 8.0
"""How long one request waits for all its reviews."""
TELL_SECONDS: Final = 10.0
"""Least time between two equal lines of the log."""

_SERVICE_ACCOUNTS: Final = "system:serviceaccount:"

log = logging.getLogger(__name__)
Key = TypeVar("Key")
Value = TypeVar("Value")
Result = TypeVar("Result")


class ReviewCache(Generic[Key, Value]):
    """The answers used last, one request for each key at a time. A refusal is an answer that is false."""

    def __init__(
        self,
        clock: Callable[[], float],
        granted_seconds: float,
        most: int,
        together: asyncio.Semaphore,
        count: Callable[[bool], None] = lambda hit: None,
    ) -> None:
        """`clock`: monotonic, in seconds. `most`: entries. `together`: how many requests run at one time.
        `count` is called for each hit (true) and each request (false)."""
        self._clock = clock
        self._granted_seconds = granted_seconds
        self._most = most
        self._together = together
        self._count = count
        self._entries: OrderedDict[Key, tuple[Value, float]] = OrderedDict()
        """Answers, and when they were requested."""
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        """Of the keys that are requested or waited for."""

    def last(self, key: Key) -> Value | None:
        """The last answer, whatever its age; None: none is cached."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def known(self, key: Key, *, in_list: bool = False) -> Value | None:
        """The cached answer, if it is still valid; None: `get` must request it."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, requested_at = entry
        refused_seconds = REFUSED_IN_LISTS_SECONDS if in_list else REFUSED_SECONDS
        if self._clock() - requested_at >= (self._granted_seconds if value else refused_seconds):
            return None
        self._entries.move_to_end(key)
        self._count(True)
        return value

    async def get(self, key: Key, ask: Callable[[], Awaitable[Value]], *, in_list: bool = False) -> Value:
        """The cached answer, else that of `ask`. Raises what `ask` raises; errors are not cached."""
        value = self.known(key, in_list=in_list)
        if value is not None:
            return value
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:  # those that waited for the same request find its answer
            value = self.known(key, in_list=in_list)
            if value is None:
                self._count(False)
                async with self._together:
                    requested_at = self._clock()
                    value = await ask()
                self._entries[key] = value, requested_at
                self._entries.move_to_end(key)
                if len(self._entries) > self._most:
                    self._entries.popitem(last=False)
        return value


@dataclass(frozen=True, slots=True)
class _Owner:
    """The user of a token; None: the token is not valid."""

    user: User | None
    key: bytes = b""
    """In all reviews of this user."""

    def __bool__(self) -> bool:
        return self.user is not None


class Reviewer:
    """Requests reviews and caches the answers: by a hash of the token, never by the token itself."""

    def __init__(
        self,
        reviews: Reviews,
        audiences: Sequence[str],
        clock: Callable[[], float],
        granted_seconds: float = GRANTED_SECONDS,
        observer: RestObserver = SILENT,
    ) -> None:
        """`clock`: monotonic, in seconds. Raises ValueError without an audience."""
        if not audiences:
            raise ValueError("without an audience any token of the cluster would be accepted")
        together = asyncio.Semaphore(TOGETHER)
        self._reviews = reviews
        self._audiences = tuple(audiences)
        self._clock = clock
        self._told_at = float("-inf")
        self._strangers = Buckets(STRANGERS_BURST, STRANGERS_PER_SECOND, clock)
        self.tokens: ReviewCache[bytes, _Owner] = ReviewCache(
            clock, granted_seconds, MOST_TOKENS, together, lambda hit: observer.reviewed("token", hit)
        )
        self.accesses: ReviewCache[tuple[bytes, Access], bool] = ReviewCache(
            clock, granted_seconds, MOST_ACCESSES, together, lambda hit: observer.reviewed("access", hit)
        )

    async def __call__(self, request: web.Request) -> Caller:
        """requests.Identify: the caller of a request, by its token. Raises Refusal."""
        token = bearer_token(request, self._audiences)
        key = hashlib.sha256("\0".join((token, *self._audiences)).encode()).digest()

        async def ask() -> _Owner:
            user = await self._reviews.who(token, self._audiences)
            return _Owner(user, _digest(user)) if user else _Owner(None)

        owner = self.tokens.known(key)
        if owner is None:
            # A token that was valid at its last review passes during a flood of invalid ones.
            address = None if self.tokens.last(key) else request.remote or ""
            owner = await self._owner(address, key, ask)
        if owner.user is None:
            raise unauthorized("the token is not valid here, or no longer", self._audiences)
        return _Reviewed(self, owner.user, owner.key)

    async def _owner(self, address: str | None, key: bytes, ask: Callable[[], Awaitable[_Owner]]) -> _Owner:
        """Invalid tokens count against the client address; None: they are not counted."""
        if address is None:
            return await self.patiently(self.tokens.get(key, ask))
        self._strangers.take(address)
        invalid = False
        try:
            owner = await self.patiently(self.tokens.get(key, ask))
            invalid = not owner
            return owner
        finally:
            if not invalid:
                self._strangers.put_back(address)

    async def may(self, user: User, key: bytes, access: Access, *, in_list: bool = False) -> bool:
        """Whether the user has the right. Raises ClusterUnavailable."""
        return await self.accesses.get(
            (key, access), lambda: self._reviews.may(user, access), in_list=in_list
        )

    async def among(self, user: User, key: bytes, accesses: dict[str, Access]) -> Allowed:
        """The names whose right is granted. Raises ClusterUnavailable."""
        rights = {name: self.accesses.known((key, access), in_list=True) for name, access in accesses.items()}
        unknown = [name for name, granted in rights.items() if granted is None]
        try:
            async with asyncio.TaskGroup() as tasks:
                reviews = {
                    name: tasks.create_task(self.may(user, key, accesses[name], in_list=True))
                    for name in unknown
                }
        except* ClusterUnavailable as group:
            raise group.exceptions[0] from None
        rights |= {name: review.result() for name, review in reviews.items()}
        return Allowed(frozenset(name for name, granted in rights.items() if granted))

    async def patiently(self, work: Awaitable[Result]) -> Result:
        """Raises a 503 if the cluster does not answer: a right that is not granted is denied."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await work
        except TimeoutError:
            problem = f"no answer within {PATIENCE_SECONDS:g} s"
        except ClusterUnavailable as error:
            problem = str(error)
        if self._clock() - self._told_at > TELL_SECONDS:
            self._told_at = self._clock()
            log.warning("the API server does not review callers: %s", problem)
        raise no_identity()


class _Reviewed:
    """requests.Caller of one user."""

    limited = True

    def __init__(self, reviewer: Reviewer, user: User, key: bytes) -> None:
        self._reviewer = reviewer
        self._user = user
        self._key = key

    @property
    def name(self) -> str:
        return json.dumps([self._user.name, self._user.uid])

    @property
    def user(self) -> str:
        return self._user.name

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(group for group in self._user.groups if not group.startswith("system:"))

    @property
    def tenant(self) -> str:
        # A tenant makes as many service accounts in its namespace as it likes.
        kind, _, _ = self._user.name.rpartition(":")
        return kind if kind.startswith(_SERVICE_ACCOUNTS) else self.name

    async def may(self, verb: str, resource: str, namespace: str = "", name: str = "") -> bool:
        access = Access(verb, resource, namespace, name)
        return await self._reviewer.patiently(self._reviewer.may(self._user, self._key, access))

    async def namespaces(self, verb: str, resource: str, among: Iterable[str]) -> Allowed:
        each = {name: Access(verb, resource, name) for name in among}
        return await self._reviewer.patiently(self._among(Access(verb, resource), each))

    async def names(self, resource: str, among: Iterable[str]) -> Allowed:
        each = {name: Access("get", resource, "", name) for name in among}
        return await self._reviewer.patiently(self._among(Access("list", resource), each))

    async def _among(self, whole: Access, each: dict[str, Access]) -> Allowed:
        # One review for all of them, which is enough for most callers that may read everything.
        if len(each) > 1 and await self._reviewer.may(self._user, self._key, whole, in_list=True):
            return ALL
        return await self._reviewer.among(self._user, self._key, each)


def _digest(user: User) -> bytes:
    content = json.dumps([user.name, user.uid, user.groups, user.extra])
    return hashlib.sha256(content.encode()).digest()


def bearer_token(request: web.Request, audiences: Sequence[str]) -> str:
    """The bearer token of a request. Raises Refusal."""
    headers = request.headers.getall("Authorization", [])
    if len(headers) > 1:
        raise bad_request("header Authorization is given twice")
    if not headers:
        raise unauthorized("no token is given", audiences)
    header = _BEARER.fullmatch(headers[0].strip())
    if header is None or len(header[1]) > MAX_TOKEN:
        raise unauthorized("header Authorization must be `Bearer TOKEN`", audiences)
    return header[1]


def given_token(request: web.Request) -> str | None:
    """The bearer token of a request that was identified; None: it has none."""
    header = _BEARER.fullmatch(request.headers.get("Authorization", "").strip())
    return header[1] if header is not None else None


def unauthorized(problem: str, audiences: Sequence[str]) -> Refusal:
    audience = audiences[0]
    return Refusal(
        HTTPStatus.UNAUTHORIZED,
        f"{problem}: send `Authorization: Bearer TOKEN` with a token of this cluster for the audience "
        f"{audience}, such as `kubectl create token SERVICEACCOUNT --audience {audience}` prints",
        audiences=audiences,
        headers={"WWW-Authenticate": 'Bearer realm="queuectl"'},
    )
