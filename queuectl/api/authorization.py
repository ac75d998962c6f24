"""Callers by the cluster's own reviews: TokenReview for the user, SubjectAccessReview for each right."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from aiohttp import web

from queuectl.api.hooks import SILENT, Observer
from queuectl.api.identity import ALL, Allowed, Caller, bearer_token, unauthorized
from queuectl.api.limits import STRANGERS_BURST, STRANGERS_PER_SECOND, Buckets
from queuectl.api.problems import no_identity
from queuectl.api.review_cache import Lifetimes, Remembered
from queuectl.ports.cluster import ClusterUnavailable
from queuectl.ports.reviews import Access, Reviews, User

TOGETHER: Final = 16
"""Reviews in flight at one time."""
MOST_TOKENS: Final = 4096
MOST_ACCESSES: Final = 65_536
MOST_LISTS: Final = 64
LONG_LIST: Final = 32
"""Names of a list that is kept."""
LIST_SECONDS: Final = 1.0
"""How long the answer to a question about many objects is used, if all its reviews are valid for so long."""
EXPECTED: Final = 8
"""How many rights that later questions may need one question has reviewed: most callers ask only once."""
PATIENCE_SECONDS: Final = 8.0
"""How long one request waits for all its reviews."""
TELL_SECONDS: Final = 10.0
"""Least time between two equal lines of the log."""

_SERVICE_ACCOUNTS: Final = "system:serviceaccount:"

log = logging.getLogger(__name__)
Found = TypeVar("Found")
Question = tuple[bytes, Access, frozenset[str]]
"""Key of the user, the right with `*` in the place of a name, and the names."""


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
        lifetimes: Lifetimes | None = None,
        observer: Observer = SILENT,
    ) -> None:
        """`clock`: monotonic, in seconds."""
        if not audiences:
            raise ValueError("without an audience any token of the cluster would be accepted")
        lifetimes = lifetimes or Lifetimes()
        together = asyncio.Semaphore(TOGETHER)
        self._reviews = reviews
        self._audiences = tuple(audiences)
        self._clock = clock
        self._told_at = float("-inf")
        self._strangers = Buckets(STRANGERS_BURST, STRANGERS_PER_SECOND, clock)
        self.tokens: Remembered[bytes, _Owner] = Remembered(
            lifetimes,
            clock,
            most=MOST_TOKENS,
            together=together,
            count=lambda hit: observer.reviewed("token", hit),
        )
        self.accesses: Remembered[tuple[bytes, Access], bool] = Remembered(
            lifetimes,
            clock,
            most=MOST_ACCESSES,
            together=together,
            count=lambda hit: observer.reviewed("access", hit),
            ahead=True,
        )

        self._lists: OrderedDict[Question, tuple[Allowed, float]] = OrderedDict()
        """Which of many names, and until when. To look up a thousand reviews takes a quarter of a page."""

    async def run(self) -> None:
        """Refresh the answers in use, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.tokens.keep_fresh())
            tasks.create_task(self.accesses.keep_fresh())

    async def __call__(self, request: web.Request) -> Caller:
        """identity.Identify: the caller of a request, by its token. Raises Refusal."""
        token = bearer_token(request, self._audiences)
        key = hashlib.sha256("\0".join((token, *self._audiences)).encode()).digest()

        async def ask() -> _Owner:
            user = await self._reviews.who(token, self._audiences)
            return _Owner(user, _digest(user)) if user else _Owner(None)

        owner = self.tokens.known(key, ask)
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
        """Raises ClusterUnavailable."""
        return await self.accesses.get((key, access), self._question(user, access), in_list=in_list)

    async def among(self, user: User, question: Question, each: Callable[[str], Access]) -> Allowed:
        """The names whose right is granted. Raises ClusterUnavailable."""
        found, until = self._lists.get(question, (None, 0.0))
        if found is not None and self._clock() < until:
            return found
        key, _, names = question
        accesses = {name: each(name) for name in sorted(names)}
        found = await self._among(user, key, accesses)
        if len(names) < LONG_LIST:
            return found
        expiries = (self.accesses.expires_at((key, one), in_list=True) for one in accesses.values())
        self._lists[question] = found, min(self._clock() + LIST_SECONDS, *expiries)
        self._lists.move_to_end(question)
        if len(self._lists) > MOST_LISTS:
            self._lists.popitem(last=False)
        return found

    async def _among(self, user: User, key: bytes, accesses: dict[str, Access]) -> Allowed:
        allowed, unknown = set(), []
        for name, access in accesses.items():
            found = self.accesses.known((key, access), self._question(user, access), in_list=True)
            if found is None:
                unknown.append((name, access))
            elif found:
                allowed.add(name)
        if unknown:
            answers = await _all(self.may(user, key, access, in_list=True) for _, access in unknown)
            allowed |= {name for (name, _), yes in zip(unknown, answers, strict=True) if yes}
        return Allowed(frozenset(allowed))

    def expect(self, user: User, key: bytes, whole: Access, accesses: Iterable[Access]) -> None:
        """Have rights reviewed that later questions need: the one to all of them, or EXPECTED at a time."""
        everywhere = self.accesses.last((key, whole))
        if everywhere:
            return
        left = EXPECTED
        for access in accesses:
            asked = whole if everywhere is None else access
            left -= self.accesses.expect((key, asked), self._question(user, asked))
            if asked is whole or left == 0:
                return

    async def patiently(self, work: Awaitable[Found]) -> Found:
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

    def _question(self, user: User, access: Access) -> Callable[[], Awaitable[bool]]:
        return lambda: self._reviews.may(user, access)


class _Reviewed:
    """identity.Caller of one user."""

    limited = True

    def __init__(self, reviewer: Reviewer, user: User, key: bytes) -> None:
        self._reviewer = reviewer
        self._user = user
        self._key = key

    @property
    def name(self) -> str:
        return json.dumps([self._user.name, self._user.uid])

    @property
    def tenant(self) -> str:
        # A tenant makes as many service accounts in its namespace as it likes.
        kind, _, _ = self._user.name.rpartition(":")
        return kind if kind.startswith(_SERVICE_ACCOUNTS) else self.name

    async def may(self, verb: str, resource: str, namespace: str = "", name: str = "") -> bool:
        access = Access(verb, resource, namespace, name)
        return await self._reviewer.patiently(self._reviewer.may(self._user, self._key, access))

    async def namespaces(
        self, verb: str, resource: str, among: Iterable[str], soon: Iterable[str] = ()
    ) -> Allowed:
        return await self._among(
            Access(verb, resource), lambda name: Access(verb, resource, name), among, soon
        )

    async def names(self, resource: str, among: Iterable[str], soon: Iterable[str] = ()) -> Allowed:
        return await self._among(
            Access("list", resource), lambda name: Access("get", resource, "", name), among, soon
        )

    async def _among(
        self, whole: Access, each: Callable[[str], Access], among: Iterable[str], soon: Iterable[str]
    ) -> Allowed:
        names = frozenset(among)

        async def look() -> Allowed:
            # One review for all of them, which is enough for most callers that may read everything.
            if len(names) > 1 and await self._reviewer.may(self._user, self._key, whole, in_list=True):
                return ALL
            return await self._reviewer.among(self._user, (self._key, each("*"), names), each)

        found = await self._reviewer.patiently(look())
        self._reviewer.expect(self._user, self._key, whole, map(each, soon))
        return found


def _digest(user: User) -> bytes:
    content = json.dumps([user.name, user.uid, user.groups, user.extra])
    return hashlib.sha256(content.encode()).digest()


async def _all(work: Iterable[Awaitable[bool]]) -> list[bool]:
    """Raises the first ClusterUnavailable and cancels the others."""

    async def one(asking: Awaitable[bool]) -> bool:
        return await asking

    try:
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(one(asking)) for asking in work]
    except* ClusterUnavailable as group:
        raise group.exceptions[0] from None
    return [task.result() for task in asked]
