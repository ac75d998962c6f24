"""The states that answers come from: the newest in memory, earlier ones, and the ledger's history."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar
from urllib.parse import quote

from queuectl.answers.charged_pods import demands_of
from queuectl.answers.state import CommittedState, Configure, Parse
from queuectl.api import schemas
from queuectl.api.http import Refusal, bad_request, not_found, unavailable
from queuectl.api.limits import Turns
from queuectl.api.requests import (
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    LOCAL_QUEUES,
    WORKLOADS,
    Caller,
    Cursor,
    Cursors,
    Endpoint,
    KnownKinds,
    Question,
    endpoints_of,
    is_name,
)
from queuectl.core.model.capacity import NO_FLAVOR, PodDemand
from queuectl.core.model.workload import ForReaders, LedgerSnapshot, ObjectRef
from queuectl.ports.ledger import LedgerUnavailable, NotStored, SchemaMismatch
from queuectl.ports.reader import GONE_KEPT, Past, Reading, Readings

LEDGER_SECONDS: Final = 5.0
"""How long one read of the ledger's history may take."""

HEARTBEAT_SECONDS: Final = 1.0
"""Interval at which a request that takes long checks that its client is still connected."""
_PART: Final = 25
"""After so many items of a page it is the turn of other requests."""

Item = TypeVar("Item", bound=schemas.Document)
Detail = TypeVar("Detail", bound=schemas.Committed)
Found = TypeVar("Found")


log = logging.getLogger(__name__)

READ_SECONDS = 10.0
"""How long one read of the ledger may take."""
PATIENT_SECONDS = 2.0
"""How long a read may take before the state in memory counts as stale."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A committed state, its age, and whether it is stale."""

    state: CommittedState
    age_seconds: float
    """Since the ledger last confirmed that this is its newest state."""
    committed_at: datetime
    """When the leading controller last committed, as far as is known."""
    silent_seconds: float
    """Since then, by the clock of the ledger."""
    stale: bool
    """The last read of the ledger failed, or the one in progress takes too long."""
    observed: bool = False
    """It is an observer's: none of its decisions was carried out."""


class View:
    """One reader of the ledger for all requests of this process."""

    def __init__(
        self,
        readings: Readings,
        parse: Parse,
        clock: Callable[[], float] = time.monotonic,
        *,
        observed: bool = False,
        configure: Configure | None = None,
    ) -> None:
        """`clock`: monotonic, in seconds; `observed`: it is an observer's ledger."""
        self._configure = configure
        self._observed = observed
        self._readings = readings
        self._parse = parse
        self._clock = clock
        self._lock = asyncio.Lock()
        self._state: CommittedState | None = None
        self._committed_at = datetime.min.replace(tzinfo=UTC)
        """Of the last read."""
        self._silence = 0.0
        """Seconds from there to the last read, by the clock of the ledger."""
        self._news = asyncio.Event()
        """Set, and replaced, at each new state."""
        self.awaited = 0
        """How many requests wait for a new state."""
        self._read_at = float("-inf")
        self._asked_at = float("-inf")
        """Start of the last read; it is still in progress if this is later than `_read_at`."""
        self.problem: str | None = "the ledger has not been read yet"
        """Why the state cannot be brought up to date; None: it can."""

    def sight(self) -> Sight | None:
        """None before the first read."""
        if self._state is None:
            return None
        now = self._clock()
        age = max(0.0, now - self._read_at)
        slow = self._asked_at > self._read_at and now - self._asked_at > PATIENT_SECONDS
        stale = self.problem is not None or slow
        return Sight(self._state, age, self._committed_at, self._silence + age, stale, self._observed)

    async def run(self, period_seconds: float) -> None:
        """Read changes until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(period_seconds)

    async def refresh(self, since: float | None = None) -> None:
        """Bring the state up to date, unless that was tried after `since` on the clock. Ledger errors are not
        raised, but kept in `problem`."""
        async with self._lock:
            # Also after a failure: requests that wait at the same time share one read.
            if since is not None and self._asked_at >= since:
                return
            self._asked_at = self._clock()
            try:
                async with asyncio.timeout(READ_SECONDS):
                    await self._read()
            except (LedgerUnavailable, SchemaMismatch, TimeoutError) as error:
                problem = str(error) or f"the ledger did not answer within {READ_SECONDS:g} s"
                if problem != self.problem:
                    log.warning("ledger not readable: %s", problem)
                self.problem = problem
            except Exception as error:
                # A defect: one bad row must not end the reading of all others.
                if self.problem != (problem := f"{type(error).__name__}: {error}"):
                    log.exception("a reading of the ledger could not be processed")
                self.problem = problem

    def moment(self) -> float:
        return self._clock()

    async def beyond(self, sequence: int, seconds: float) -> None:
        """Return once there is a state above `sequence`, or after the timeout."""
        self.awaited += 1
        try:
            async with asyncio.timeout(seconds):
                while self._state is None or self._state.sequence <= sequence:
                    await self._news.wait()
        except TimeoutError:
            return
        finally:
            self.awaited -= 1

    async def _read(self) -> None:
        # After an error it may be another database, restored from a backup or rebuilt from the cluster.
        known = self._state if self.problem is None else None
        reading = await self._readings.since(*((known.sequence, known.batch) if known else (0, 0)))
        if known and (
            reading.sequence < known.sequence
            or reading.epoch != known.epoch
            or reading.batch - known.batch > GONE_KEPT
        ):
            known = None
            reading = await self._readings.since(0)
        # A batch without decisions changes nothing else.
        changed = reading.workloads or reading.configs or any(reading.for_readers)
        if known is None or changed or reading.sequence != known.sequence:
            self._state = (known or CommittedState()).advance(reading, self._parse, self._configure)
            self._news.set()
            self._news = asyncio.Event()
        self._committed_at = reading.committed_at
        self._silence = max(0.0, (reading.read_at - reading.committed_at).total_seconds())
        self._read_at = self._asked_at
        self.problem = None


# --- earlier states


KEPT: Final = 4
"""How many states are kept, those used last."""
MOST_WORKLOADS: Final = 60_000
"""In all kept states together; one is always kept. 50,000 take some 90 MiB."""
PAST_SECONDS: Final = 20.0
"""How long one request waits for an earlier state, with the reads of others before its own."""


class PastStates:
    """One reader of earlier states for all requests of this process. It reads one at a time."""

    def __init__(self, past: Past, parse: Parse, configure: Configure | None = None) -> None:
        self._past = past
        self._parse = parse
        self._configure = configure
        self._known: OrderedDict[datetime, CommittedState] = OrderedDict()
        self._epoch = 0
        """Of the ledger that they were read from."""
        self._turns = Turns()

    async def sight(self, when: datetime, *, observed: bool, epoch: int = 0, tenant: str = "") -> Sight:
        """The state as of then, with ages as of then. Raises a 400 or a 503.

        `epoch`: of the newest state. `tenant`: of the caller.
        """
        if epoch != self._epoch:  # the ledger may have been restored: then it has another past
            self._known.clear()
            self._epoch = epoch
        if when in self._known:
            self._known.move_to_end(when)
            state = self._known[when]
        else:
            state = await _within(self._one(when, tenant))
        return _at(when, state, observed)

    async def _one(self, when: datetime, tenant: str) -> CommittedState:
        async with asyncio.timeout(PAST_SECONDS) as deadline, self._turns.turn(tenant):
            if when not in self._known:  # another request may have read it meanwhile
                self._forget(max((len(one.workloads) for one in self._known.values()), default=0))
                snapshot = await self._past.at(when)
                deadline.reschedule(None)  # what was read is not read again for a slow machine
                self._known[when] = await asyncio.to_thread(self._state, snapshot, when)
                self._forget(0)
            return self._known[when]

    async def _first_capacity(self) -> datetime | None:
        async with asyncio.timeout(PAST_SECONDS):
            return await self._past.first_capacity()

    def _forget(self, more: int) -> None:
        """Those used least recently, until there is room for `more` workloads. The last one stays, if none
        is to come."""
        while self._known and (len(self._known) > 1 or more):
            kept = sum(len(one.workloads) for one in self._known.values())
            if len(self._known) <= KEPT and kept + more <= MOST_WORKLOADS:
                return
            self._known.popitem(last=False)

    async def with_demands(self, sight: Sight, when: datetime, tenant: str = "") -> Sight:
        """`sight` of then, with what its pending workloads wait for, computed when first needed."""
        state = sight.state
        if not state.demands:
            demands = await _within(self._demands(state, tenant))
            state = replace(state, demands=demands)
            if when in self._known:
                self._known[when] = state
        return replace(sight, state=state)

    async def _demands(self, state: CommittedState, tenant: str) -> Mapping[str, tuple[PodDemand, ...]]:
        async with asyncio.timeout(PAST_SECONDS) as deadline, self._turns.turn(tenant):
            deadline.reschedule(None)
            return await asyncio.to_thread(lambda: dict(demands_of(state)))

    async def no_capacity(self, when: datetime) -> Refusal:
        """Why a state of then is without what nodes had. Raises a 503."""
        first = await _within(self._first_capacity())
        told = "none is stored yet" if first is None else f"the first is of {first.isoformat()}"
        return bad_request(
            f"parameter asOf: the ledger has no capacity of {when.isoformat()} or before: {told}"
        )

    def _state(self, snapshot: LedgerSnapshot, when: datetime) -> CommittedState:
        committed_at = snapshot.now or when
        reading = Reading(
            sequence=snapshot.sequence,
            committed_at=committed_at,
            read_at=committed_at,
            epoch=self._epoch,
            workloads=snapshot.workloads,
            configs=snapshot.configs,
            for_readers=ForReaders(capacities=snapshot.capacities),
        )
        return CommittedState().advance(reading, self._parse, self._configure)


def nothing_at(when: datetime, *, observed: bool) -> Sight:
    """A state without any object."""
    return _at(when, CommittedState(), observed)


def _at(when: datetime, state: CommittedState, observed: bool) -> Sight:
    return Sight(
        state, age_seconds=0.0, committed_at=when, silent_seconds=0.0, stale=False, observed=observed
    )


async def _within(reading: Awaitable[Found]) -> Found:
    """Raises a 400 or a 503."""
    try:
        return await reading
    except NotStored as error:
        raise bad_request(f"parameter asOf: {error}") from None
    except TimeoutError:
        raise unavailable(f"no answer within {PAST_SECONDS:g} s") from None
    except (LedgerUnavailable, SchemaMismatch) as error:
        raise unavailable(str(error)) from None


# --- what routes read


class AnswerSource:
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


class Routes:
    """Methods that answer endpoints."""

    def __init__(self, source: AnswerSource) -> None:
        self._source = source

    def endpoints(self) -> Iterable[Endpoint]:
        return endpoints_of(self, self._source.kinds)


async def reads_any(caller: Caller, resource: str, state: CommittedState) -> bool:
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
    if not is_name(name) or not await question.caller.may("get", resource, "", name):
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


def shallow(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def detail(model: type[Detail], document: schemas.Document, committed: Mapping[str, Any]) -> Detail:
    """`document` as the answer to a question about it alone."""
    return model(**dict(document), **committed)


def now(sight: Sight) -> datetime:
    """By the clock of the ledger."""
    return sight.committed_at + timedelta(seconds=sight.silent_seconds)


def links_of(templates: Mapping[str, str], ref: ObjectRef) -> dict[str, str]:
    """URLs by title: each field of `ref` in braces is its value, with all that a URL reserves escaped."""
    values = {f"{{{name}}}": quote(value, safe="") for name, value in ref._asdict().items()}
    return {
        title: re.sub("|".join(map(re.escape, values)), lambda field: values[field[0]], url)
        for title, url in templates.items()
    }
