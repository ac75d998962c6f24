"""Earlier states of the ledger, for requests with `asOf`. A few are kept: a list is read page by page."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeVar

from queuectl.answers.past_demand import demands_of
from queuectl.answers.state import Configure, Parse, State
from queuectl.api.limits import Turns
from queuectl.api.problems import Refusal, bad_request, unavailable
from queuectl.api.view import Sight
from queuectl.core.capacity import Demand
from queuectl.core.model import ForReaders, LedgerSnapshot
from queuectl.ports.ledger import LedgerUnavailable, NotStored, SchemaMismatch
from queuectl.ports.reader import Past, Reading

Found = TypeVar("Found")

KEPT: Final = 4
"""How many states are kept, those used last."""
MOST_WORKLOADS: Final = 60_000
"""In all kept states together; one is always kept. 50,000 take some 90 MiB."""
READ_SECONDS: Final = 20.0
"""How long one request waits for an earlier state, with the reads of others before its own."""


class PastStates:
    """One reader of earlier states for all requests of this process. It reads one at a time."""

    def __init__(self, past: Past, parse: Parse, configure: Configure | None = None) -> None:
        self._past = past
        self._parse = parse
        self._configure = configure
        self._known: OrderedDict[datetime, State] = OrderedDict()
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
            state = await _answer(self._one(when, tenant))
        return _at(when, state, observed)

    async def _one(self, when: datetime, tenant: str) -> State:
        async with asyncio.timeout(READ_SECONDS) as deadline, self._turns.turn(tenant):
            if when not in self._known:  # another request may have read it meanwhile
                self._forget(max((len(one.workloads) for one in self._known.values()), default=0))
                snapshot = await self._past.at(when)
                deadline.reschedule(None)  # what was read is not read again for a slow machine
                self._known[when] = await asyncio.to_thread(self._state, snapshot, when)
                self._forget(0)
            return self._known[when]

    async def _first_capacity(self) -> datetime | None:
        async with asyncio.timeout(READ_SECONDS):
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
            demands = await _answer(self._demands(state, tenant))
            state = replace(state, demands=demands)
            if when in self._known:
                self._known[when] = state
        return replace(sight, state=state)

    async def _demands(self, state: State, tenant: str) -> Mapping[str, tuple[Demand, ...]]:
        async with asyncio.timeout(READ_SECONDS) as deadline, self._turns.turn(tenant):
            deadline.reschedule(None)
            return await asyncio.to_thread(lambda: dict(demands_of(state)))

    async def no_capacity(self, when: datetime) -> Refusal:
        """Why a state of then is without what nodes had. Raises a 503."""
        first = await _answer(self._first_capacity())
        told = "none is stored yet" if first is None else f"the first is of {first.isoformat()}"
        return bad_request(
            f"parameter asOf: the ledger has no capacity of {when.isoformat()} or before: {told}"
        )

    def _state(self, snapshot: LedgerSnapshot, when: datetime) -> State:
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
        return State().advance(reading, self._parse, self._configure)


def nothing_at(when: datetime, *, observed: bool) -> Sight:
    """A state without any object."""
    return _at(when, State(), observed)


def _at(when: datetime, state: State, observed: bool) -> Sight:
    return Sight(
        state, age_seconds=0.0, committed_at=when, silent_seconds=0.0, stale=False, observed=observed
    )


async def _answer(reading: Awaitable[Found]) -> Found:
    """Raises a 400 or a 503."""
    try:
        return await reading
    except NotStored as error:
        raise bad_request(f"parameter asOf: {error}") from None
    except TimeoutError:
        raise unavailable(f"no answer within {READ_SECONDS:g} s") from None
    except (LedgerUnavailable, SchemaMismatch) as error:
        raise unavailable(str(error)) from None
