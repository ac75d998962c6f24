"""Tells one sink of the decisions after its cursor, in order and each at least once.

A message that fails is sent again until the sink accepts it, with pauses that grow; messages after it wait.
So a sink that is down loses none, and its messages stay in order. A message that failed GIVE_UP_AFTER times
is given up once the sink accepts the next one. Each sink has its own cursor and its own task: none waits for
another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final, Protocol

from queuectl.notifications.messages import Message, about, budget_used, gap
from queuectl.notifications.rules import Selection, budget_levels, selected
from queuectl.ports.ledger import LedgerUnavailable
from queuectl.ports.outbox import Cursor, Occurrences, Outbox

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 2.0
"""Between two reads of the ledger where all is told."""
SPAN: Final = 1_000
"""Decisions of one read."""
_FIRST_PAUSE: Final = 1.0
MAX_PAUSE: Final = 300.0
"""Seconds between two tries, also where a sink asks for more."""
_MAX_DOUBLINGS: Final = 16
GIVE_UP_AFTER: Final = 12
"""Failures of one message, in some 25 minutes, after which the next one is tried too."""


class SinkFailed(Exception):
    """The sink did not accept a message. The text has no secret: it is stored and shown."""

    def __init__(self, problem: str, retry_after: float | None = None) -> None:
        super().__init__(problem)
        self.retry_after = retry_after
        """Seconds that the sink asks to wait."""


Send = Callable[[Message], Awaitable[None]]
"""Raises SinkFailed."""


class DeliveryObserver(Protocol):
    """Counts what happens, for metrics."""

    def sent(self, sink: str) -> None: ...

    def failed(self, sink: str) -> None: ...

    def behind(self, sink: str, decisions: int) -> None:
        """How many decisions after the cursor are in the ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    name: str
    selection: Selection
    send: Send


class Delivery:
    """The messages of one sink. One task at a time may use it."""

    def __init__(self, cluster: str, sink: Sink, outbox: Outbox, observer: DeliveryObserver) -> None:
        self._cluster = cluster
        self._sink = sink
        self._outbox = outbox
        self._observer = observer
        self._cursor: Cursor | None = None
        self._accepted = ""
        """Id of the last message: it is not sent again while another one about its decision fails."""

    async def run(self) -> None:
        """Until cancelled. Failures of ledger and sink are logged, and tried again."""
        outages = 0
        while True:
            try:
                seconds = await self.step()
                outages = 0
            except LedgerUnavailable as error:
                seconds, outages = _pause(outages), outages + 1
                self._cursor = None
                log.warning("sink %s: no ledger, again in %g s: %s", self._sink.name, seconds, error)
            await asyncio.sleep(seconds)

    async def step(self) -> float:
        """Send what is due, up to the first failure. Returns the seconds to wait before the next step.

        Raises LedgerUnavailable: what was sent and not stored is sent again.
        """
        # Read each time: after a restore of the ledger it may be at an earlier decision.
        cursor = self._cursor = await self._outbox.cursor(self._sink.name)
        found = await self._outbox.occurrences(cursor.sequence, SPAN)
        self._observer.behind(self._sink.name, found.head - cursor.sequence)
        messages = self._messages(found)
        accepted: Message | None = None
        partly = (until == cursor.sequence and one.id == self._accepted for until, one in messages)
        first = next((number for number, told in enumerate(partly, 1) if told), 0)
        for (until, message), after in zip_longest(messages[first:], messages[first + 1 :]):
            problem = None if message is accepted else await self._send(message)
            if problem is not None:
                if self._cursor.failures < GIVE_UP_AFTER or after is None or await self._send(after[1]):
                    return await self._again(message, problem)
                accepted = after[1]
                # The sink may have come back in between.
                problem = await self._send(message)
            if problem is not None:
                log.error("sink %s: message %s is given up: %s", self._sink.name, message.id, problem)
            if not await self._advance(until, sent=int(problem is None)):
                return 0.0
            self._accepted = message.id
        if self._cursor.sequence < found.until and not await self._advance(found.until, sent=0):
            return 0.0
        self._observer.behind(self._sink.name, found.head - self._cursor.sequence)
        return 0.0 if found.until < found.head else POLL_SECONDS

    async def _send(self, message: Message) -> SinkFailed | None:
        """Return why the sink does not accept it; None: it does."""
        try:
            await self._sink.send(message)
        except SinkFailed as problem:
            return problem
        self._observer.sent(self._sink.name)
        return None

    def _messages(self, found: Occurrences) -> list[tuple[int, Message]]:
        """The messages in order, each with the sequence up to which all is told once it is sent."""
        messages = []
        if found.deleted is not None:
            messages.append((found.deleted.last, gap(self._cluster, found.deleted, found.read_at)))
        selection = self._sink.selection
        for one in found.found:
            before = one.decision.sequence - 1
            messages += [
                (before, budget_used(self._cluster, level, one)) for level in budget_levels(selection, one)
            ]
            if (event := selected(selection, one)) is not None:
                message = about(self._cluster, event, one, selection.readable, selection.page)
                messages.append((one.decision.sequence, message))
        return messages

    async def _advance(self, to: int, *, sent: int) -> bool:
        assert self._cursor is not None
        if await self._outbox.advance(self._cursor, to, sent):
            self._cursor = replace(self._cursor, sequence=to, failures=0)
            return True
        log.warning("sink %s: another process has moved its cursor: reading it again", self._sink.name)
        self._cursor = None
        return False

    async def _again(self, message: Message, problem: SinkFailed) -> float:
        assert self._cursor is not None
        name, failures = self._sink.name, self._cursor.failures
        seconds = min(MAX_PAUSE, max(_pause(failures), problem.retry_after or 0.0))
        self._observer.failed(name)
        log.warning("sink %s: message %s failed, again in %g s: %s", name, message.id, seconds, problem)
        await self._outbox.failed(self._cursor, failures + 1, str(problem), seconds)
        self._cursor = replace(self._cursor, failures=failures + 1)
        return seconds


def _pause(failures: int) -> float:
    """Seconds after that many failures in a row before."""
    return min(MAX_PAUSE, _FIRST_PAUSE * 2.0 ** min(failures, _MAX_DOUBLINGS))
