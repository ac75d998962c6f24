"""Rate limits for each caller: token buckets."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from queuectl.api.http import Refusal

BURST: Final = 30.0
PER_SECOND: Final = 10.0
HEAVY_PER_SECOND: Final = 2.0
"""For requests that read the ledger's history."""
STRANGERS_BURST: Final = 20.0
STRANGERS_PER_SECOND: Final = 3.0
"""For invalid tokens, by client address."""
WAITING: Final = 8
"""Requests of one caller that may wait for changes at one time."""
WAITING_IN_ALL: Final = 256
IN_WORK: Final = 16
"""Requests of one tenant in work at one time, from the check of the token to the answer."""
IN_WORK_IN_ALL: Final = 384
"""Less than the connections of the server: the others are for probes and for the check of tokens."""
_MOST: Final = 10_000
"""Callers that are remembered; a forgotten one starts with a full bucket."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class Buckets:
    """One bucket for each key. `clock`: monotonic, in seconds."""

    def __init__(self, burst: float, per_second: float, clock: Callable[[], float]) -> None:
        self._burst = burst
        self._rate = per_second
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, key: str) -> None:
        """Take one token. Raises a 429 that says when the next one is available."""
        bucket = self._filled(key)
        if bucket.tokens < 1:
            raise _too_many(math.ceil((1 - bucket.tokens) / self._rate), f"{self._rate:g} a second")
        bucket.tokens -= 1

    def put_back(self, key: str) -> None:
        """Give back one token."""
        self._filled(key).tokens += 1

    def _filled(self, key: str) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.setdefault(key, _Bucket(self._burst, now))
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.at) * self._rate)
        bucket.at = now
        self._buckets.move_to_end(key)
        while len(self._buckets) > _MOST:
            self._buckets.popitem(last=False)
        return bucket


class Turns:
    """What one request at a time does. Tenants that wait take turns, so that none of them holds it."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """By tenant; the first one is next."""

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Held while this request does it. The caller sets the deadline of the wait."""
        if self._taken:
            await self._wait(tenant)
        self._taken = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, tenant: str) -> None:
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """To the request that has waited longest of the next tenant."""
        while self._waiting:
            tenant, line = self._waiting.popitem(last=False)
            following = line.popleft()
            if line:
                self._waiting[tenant] = line
            if not following.done():
                following.set_result(None)
                return
        self._taken = False


class RequestLimits:
    """The limits of all callers of one server."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._light = Buckets(BURST, PER_SECOND, clock)
        self._heavy = Buckets(BURST, HEAVY_PER_SECOND, clock)
        self._waiting: Counter[str] = Counter()
        self._in_work: Counter[str] = Counter()

    def take(self, caller: str, *, heavy: bool) -> None:
        """Raises a 429."""
        (self._heavy if heavy else self._light).take(caller)

    @contextmanager
    def waiting(self, caller: str) -> Iterator[None]:
        """Held while a request of the caller waits for changes. Raises a 429."""
        if self._waiting[caller] >= WAITING or self._waiting.total() >= WAITING_IN_ALL:
            raise _too_many(1, f"at most {WAITING} may wait at one time")
        with _counted(self._waiting, caller):
            yield

    @contextmanager
    def in_work(self, tenant: str) -> Iterator[None]:
        """Held while a request of the tenant is in work. Raises a 429, or a 503 if the server is busy."""
        if self._in_work[tenant] >= IN_WORK:
            raise _too_many(1, f"at most {IN_WORK} requests at one time of one user or one namespace")
        if self._in_work.total() >= IN_WORK_IN_ALL:
            busy = f"{IN_WORK_IN_ALL} requests are in work on this server"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, busy, retry_after=1)
        with _counted(self._in_work, tenant):
            yield


@contextmanager
def _counted(counts: Counter[str], key: str) -> Iterator[None]:
    counts[key] += 1
    try:
        yield
    finally:
        counts[key] -= 1
        if not counts[key]:
            del counts[key]


def _too_many(seconds: int, limit: str) -> Refusal:
    return Refusal(
        HTTPStatus.TOO_MANY_REQUESTS,
        f"too many requests ({limit}): retry in {seconds} s",
        retry_after=max(1, seconds),
    )
