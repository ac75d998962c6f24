"""Requests after parsing, and the data that answers come from: the view, then the ledger's history."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from queuectl.answers.state import State
from queuectl.api import query, schemas
from queuectl.api.identity import CLUSTER_QUEUES, COHORTS, FLAVORS, LOCAL_QUEUES, WORKLOADS, Caller
from queuectl.api.past import PastStates, nothing_at
from queuectl.api.problems import bad_request, not_found, unavailable
from queuectl.api.query import Cursor, Cursors, KnownKinds, Parameter
from queuectl.api.view import Sight, View
from queuectl.core.capacity import NO_FLAVOR
from queuectl.ports.ledger import LedgerUnavailable, SchemaMismatch
from queuectl.ports.reader import Readings

LEDGER_SECONDS: Final = 5.0
"""How long one read of the ledger's history may take."""

HEARTBEAT_SECONDS: Final = 1.0
"""Interval at which a request that takes long checks that its client is still connected."""
_PART: Final = 25
"""After so many items of a page it is the turn of other requests."""

Item = TypeVar("Item", bound=schemas.Document)
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Question:
    caller: Caller
    path: Mapping[str, str]
    values: Mapping[str, Any]
    """Query parameters, parsed."""
    scope: str
    """A cursor is valid for the same scope only."""
    again: Callable[[], Awaitable[Caller]]
    """Authenticates the caller again: the token may have been revoked during a wait. Raises Refusal."""
    waiting: Callable[[], AbstractContextManager[None]] = field(default=nullcontext)
    """Held while the request waits for changes. Raises Refusal."""
    gone: Callable[[], bool] = field(default=lambda: False)
    """Has the client closed the connection?"""
    body: bytes = b""
    yaml: bool = False
    """The body is YAML, not JSON."""
    token: str | None = field(default=None, repr=False)
    """The caller's, for an endpoint that changes something."""

    @property
    def limit(self) -> int:
        return int(self.values.get("limit", query.DEFAULT_LIMIT))


def _light(values: Mapping[str, Any]) -> bool:
    return "asOf" in values


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row of the table of paths."""

    path: str
    summary: str
    answer: Callable[[Question], Awaitable[schemas.Committed]]
    model: type[schemas.Committed]
    parameters: tuple[Parameter, ...] = ()
    heavy: Callable[[Mapping[str, Any]], bool] = _light
    """Do these parameters make it read the ledger's history?"""
    notes: str = ""
    """Further text for the OpenAPI document."""
    body: int = 0
    """It is a POST with a JSON body of at most so many bytes; 0: a GET without one."""
    yaml: int = 0
    """The body may be YAML of at most so many bytes."""
    changes: bool = False
    """It changes an object, for a request that no page of another server can send."""


class Source:
    """The data behind all routes."""

    def __init__(
        self, view: View, readings: Readings, kinds: KnownKinds, cursors: Cursors, past: PastStates
    ) -> None:
        self.view = view
        self._past = past
        self.readings = readings
        self.kinds = kinds
        self._cursors = cursors

    def sight(self) -> Sight:
        """Raises a 503 before the first read of the ledger."""
        sight = self.view.sight()
        if sight is None:
            raise unavailable(self.view.problem or "not read yet")
        return sight

    async def sight_of(self, question: Question, lists: str | None = None) -> Sight:
        """The state that is asked for: as of a time, or the newest. Raises a 400 or a 503.

        `lists`: the resource of a list; None: a right was checked already. No earlier state is read for a
        caller that may read nothing of the resource now: its answer is of an empty state.
        """
        sight, when = self.sight(), question.values.get("asOf")
        if when is None:
            return sight
        if lists is not None and not await reads_any(question.caller, lists, sight.state):
            return nothing_at(when, observed=sight.observed)
        past = self._past.sight(
            when, observed=sight.observed, epoch=sight.state.epoch, tenant=question.caller.tenant
        )
        try:
            return await while_asked(question, past)
        except TimeoutError:
            raise unavailable("the client is gone") from None

    async def capacity_of(self, question: Question, lists: str | None = None) -> Sight:
        """As `sight_of`. Raises a 400 also for a time of which it is not stored what nodes had."""
        sight, when = await self.sight_of(question, lists), question.values.get("asOf")
        if when is not None and NO_FLAVOR not in sight.state.capacities:
            raise await self._past.no_capacity(when)
        return sight

    async def demand_of(self, question: Question, lists: str | None = None) -> Sight:
        """As `sight_of`, with what pending workloads wait for."""
        sight, when = await self.sight_of(question, lists), question.values.get("asOf")
        if when is None:
            return sight
        return await self._past.with_demands(sight, when, question.caller.tenant)

    async def after(self, question: Question) -> Cursor | None:
        """The position after which the page starts. Raises a 400 if the ledger was restored since."""
        text = question.values.get("next")
        if text is None:
            return None
        epoch, sequence, *position = self._cursors.read(text, question.scope)
        if await self.still_there(sequence, epoch) < sequence:
            raise bad_request(
                "parameter next is of a ledger that was restored from a backup since then: "
                "start again without it"
            )
        return position

    async def still_there(self, sequence: int, epoch: int) -> int:
        """Return up to which sequence the ledger has what an answer up to `sequence`, of that epoch, told.

        It is lower only if the ledger was restored since. Raises a 503.
        """
        if self.sight().state.epoch <= epoch:
            return sequence
        return min(sequence, await self.ask(self.readings.last_of(epoch)))

    def next(self, question: Question, position: Cursor) -> str:
        state = self.sight().state
        return self._cursors.write([state.epoch, state.sequence, *position], question.scope)

    def cut(
        self, question: Question, rows: Sequence[Found], end: Callable[[Found], Cursor]
    ) -> tuple[Sequence[Found], str | None]:
        page = rows[: question.limit]
        more = len(rows) > len(page)
        return page, self.next(question, end(page[-1])) if more else None

    async def by_name(
        self, question: Question, resource: str, found: Mapping[str, Found]
    ) -> tuple[Sequence[Found], str | None]:
        """A page of the items that the caller may read."""
        after = await self.after(question)
        allowed = await question.caller.names(resource, found)
        names = sorted(name for name in found if name in allowed and (after is None or name > after[0]))
        shown, next = self.cut(question, names, lambda name: [name])
        return [found[name] for name in shown], next

    async def ask(self, reading: Awaitable[Found]) -> Found:
        """Raises a 503."""
        try:
            async with asyncio.timeout(LEDGER_SECONDS):
                return await reading
        except TimeoutError:
            raise unavailable(f"no answer within {LEDGER_SECONDS:g} s") from None
        except (LedgerUnavailable, SchemaMismatch) as error:
            raise unavailable(str(error)) from None


async def reads_any(caller: Caller, resource: str, state: State) -> bool:
    """Whether the caller may read any object of a resource that is in `state`, or all of them."""
    if await caller.may("list", resource):
        return True
    if resource in (WORKLOADS, LOCAL_QUEUES):
        namespaces = {key.namespace for key in state.policies if key.kind == "LocalQueue"}
        if resource == WORKLOADS:
            namespaces |= state.arrivals.keys()
        allowed = await caller.namespaces("list", resource, namespaces)
    else:
        flavors = [one.name for one in state.flavors()]
        present = {CLUSTER_QUEUES: state.queues, COHORTS: state.cohorts(), FLAVORS: flavors}
        allowed = await caller.names(resource, present[resource])
    return allowed.names is None or bool(allowed.names)


async def while_asked(question: Question, answer: Awaitable[Found]) -> Found:
    """Await what costs much, as long as its client is connected. Raises TimeoutError if it is gone."""
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    async with asyncio.timeout(None) as deadline:

        def look() -> None:
            if question.gone():
                deadline.reschedule(loop.time())
            else:
                timers[:] = [loop.call_later(HEARTBEAT_SECONDS, look)]

        look()
        try:
            return await answer
        finally:
            for timer in timers:
                timer.cancel()


async def may_get(question: Question, resource: str) -> str:
    """Called before the lookup, so that the response time does not reveal whether the object exists."""
    name = str(question.path["name"])
    if not query.is_name(name) or not await question.caller.may("get", resource, "", name):
        raise not_found()
    return name


def committed(sight: Sight) -> dict[str, Any]:
    return {
        "sequence": sight.state.sequence,
        "age_seconds": round(sight.age_seconds, 3),
        "controller": controller(sight),
        "stale": sight.stale,
        "observed": sight.observed,
    }


def controller(sight: Sight) -> schemas.Controller:
    """When the leading controller was last seen to commit."""
    return schemas.Controller(last_seen=sight.committed_at, seconds=round(sight.silent_seconds, 3))


async def page(
    model: type[Item], items: Iterable[Item], next: str | None, sight: Sight
) -> schemas.Page[Item]:
    """Requests that take less are answered while a long page is made."""
    found: list[Item] = []
    for one in items:
        found.append(one)
        if len(found) % _PART == 0:
            await asyncio.sleep(0)
    return schemas.Page[model](items=tuple(found), next=next, **committed(sight))  # type: ignore[valid-type]
