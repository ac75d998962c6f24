"""Earlier states of the ledger, for requests with `asOf`. A few are kept: a list is read page by page."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeVar

from queuectl.api.past_demand import demands_of
from queuectl.api.problems import Refusal, bad_request, unavailable
from queuectl.api.state import Configure, Parse, State
from queuectl.api.view import Sight
from queuectl.core.model import ForReaders, LedgerSnapshot
from queuectl.ports import LedgerUnavailable, NotStored, SchemaMismatch
from queuectl.readings import Past, Reading

Found = TypeVar("Found")

KEPT: Final = 4
"""How many states are kept, those used last."""
READ_SECONDS: Final = 20.0
"""How long one read of an earlier state may take."""


class PastStates:
    """One reader of earlier states for all requests of this process. It reads one at a time."""

    def __init__(self, past: Past, parse: Parse, configure: Configure | None = None) -> None:
        self._past = past
        self._parse = parse
        self._configure = configure
        self._known: OrderedDict[datetime, State] = OrderedDict()
        self._epoch = 0
        """Of the ledger that they were read from."""
        self._lock = asyncio.Lock()

    async def sight(self, when: datetime, *, observed: bool, epoch: int) -> Sight:
        """The state as of then, with ages as of then. `epoch`: of the newest state. Raises a 400 or a 503."""
        async with self._lock:
            if epoch != self._epoch:  # the ledger may have been restored: then it has another past
                self._known.clear()
                self._epoch = epoch
            state = self._known.pop(when, None) or await self._read(when)
            self._known[when] = state
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        return Sight(
            state, age_seconds=0.0, committed_at=when, silent_seconds=0.0, stale=False, observed=observed
        )

    async def with_demands(self, sight: Sight, when: datetime) -> Sight:
        """`sight` of then, with what its pending workloads wait for, computed when first needed."""
        state = sight.state
        if not state.demands:
            demands = await asyncio.to_thread(lambda: dict(demands_of(state)))
            state = replace(state, demands=demands)
            if when in self._known:
                self._known[when] = state
        return replace(sight, state=state)

    async def no_capacity(self, when: datetime) -> Refusal:
        """Why a state of then is without what nodes had. Raises a 503."""
        first = await _answer(self._past.first_capacity())
        told = "none is stored yet" if first is None else f"the first is of {first.isoformat()}"
        return bad_request(
            f"parameter asOf: the ledger has no capacity of {when.isoformat()} or before: {told}"
        )

    async def _read(self, when: datetime) -> State:
        snapshot = await _answer(self._past.at(when))
        return await asyncio.to_thread(self._state, snapshot, when)

    def _state(self, snapshot: LedgerSnapshot, when: datetime) -> State:
        committed_at = snapshot.now or when
        reading = Reading(
            sequence=snapshot.sequence,
            committed_at=committed_at,
            read_at=committed_at,
            epoch=0,
            workloads=snapshot.workloads,
            configs=snapshot.configs,
            for_readers=ForReaders(capacities=snapshot.capacities),
        )
        return State().advance(reading, self._parse, self._configure)


async def _answer(reading: Awaitable[Found]) -> Found:
    """Raises a 400 or a 503."""
    try:
        async with asyncio.timeout(READ_SECONDS):
            return await reading
    except NotStored as error:
        raise bad_request(f"parameter asOf: {error}") from None
    except TimeoutError:
        raise unavailable(f"no answer within {READ_SECONDS:g} s") from None
    except (LedgerUnavailable, SchemaMismatch) as error:
        raise unavailable(str(error)) from None
