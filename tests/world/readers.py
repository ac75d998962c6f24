"""Processes that read the ledger: a REST server's view of it, and the notifier with one sink."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from random import Random
from typing import Any, Final

from queuectl.answers.state import CommittedState
from queuectl.api.view import View
from queuectl.app.api import scheduling
from queuectl.core.reports import LocalQueueReport
from queuectl.kinds.policy import parse_policy
from queuectl.notifications.delivery import Delivery, Sink, SinkFailed
from queuectl.notifications.messages import Message
from queuectl.notifications.rules import Selection, selected
from queuectl.ports.outbox import Cursor, Occurrences
from queuectl.ports.reader import Reading
from queuectl.settings.notifications import RuleSettings
from tests.doubles.readers import ReadableLedger
from tests.unit.notifications.books import Book, may_be_told, occurrence
from tests.world.database import Database
from tests.world.loop import Thread, VirtualLoop

READERS: Final = "readers"
"""The client of both: one process."""
_PERIOD: Final = 3.0
"""Seconds between readings of the view."""
_COMPARED: Final = ("sequence", "epoch", "workloads", "policies", "specs", "lines", "demands", "pods_ready")
_SELECTION: Final = Selection(
    tuple(
        RuleSettings.model_validate({"event": one}) for one in ("Started", "Evicted", "CanNeverRun", "Idle")
    )
)
LATEST: Final = 330.0
"""Seconds after the faults within which all is told: the longest pause of a sink, and more."""


class _Unseen:
    def sent(self, sink: str) -> None: ...
    def failed(self, sink: str) -> None: ...
    def behind(self, sink: str, decisions: int) -> None: ...


class Readers:
    """`start`, and `restart` as often as they are killed."""

    def __init__(
        self,
        loop: VirtualLoop,
        database: Database,
        memory: ReadableLedger,
        random: Random,
        violated: Callable[[str], None],
    ) -> None:
        self.failing = 0.0
        """Share of the messages that the sink does not accept, or accepts and does not say so."""
        self.accepted: set[tuple[int, int]] = set()
        """Epochs and sequences of the decisions that the sink was told of."""
        self._loop = loop
        self._database = database
        self._memory = memory
        self._random = random
        self._violated = violated
        self._thread: Thread | None = None
        self._view: View | None = None
        self._book = Book(memory.store.decisions)
        self._latest = (0, 0)
        self._first: int | None = None
        """Sequence up to which the sink is told of nothing."""

    def start(self) -> None:
        self._thread = self._loop.thread(READERS)
        self._view = self._new_view(self)
        sink = Sink(name="sink", selection=_SELECTION, send=self._send)
        self._loop.spawn(self._thread, self._view.run(_PERIOD), "view")
        self._loop.spawn(self._thread, Delivery("world", sink, self, _Unseen()).run(), "notifier")

    def restart(self) -> None:
        if self._thread is not None:
            self._loop.kill(self._thread)
        self.start()

    def _new_view(self, readings: Any) -> View:
        return View(readings, parse_policy, self._loop.time, configure=scheduling)

    def _call(self, what: str, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return self._database.call(READERS, what, work)

    # --- ports.reader.Readings, as far as a view reads

    async def since(self, sequence: int, batch: int = 0) -> Reading:
        found: Reading = await self._call("since", lambda: self._memory.since(sequence, batch))
        return found

    # --- ports.outbox.Outbox

    async def occurrences(self, after: int, limit: int) -> Occurrences:
        found: Occurrences = await self._call("occurrences", lambda: self._book.occurrences(after, limit))
        return found

    async def cursor(self, sink: str) -> Cursor:
        async def read() -> Cursor:
            found = await self._book.cursor(sink)
            self._first = found.sequence if self._first is None else self._first
            return found

        found: Cursor = await self._call("cursor", read)
        return found

    async def advance(self, cursor: Cursor, to: int, sent: int) -> bool:
        done: bool = await self._call("advance", lambda: self._book.advance(cursor, to, sent))
        return done

    async def failed(self, cursor: Cursor, failures: int, error: str, seconds: float) -> None:
        await self._call("failed", lambda: self._book.failed(cursor, failures, error, seconds))

    # --- the sink

    async def _send(self, message: Message) -> None:
        fails = self._random.random() < self.failing
        if fails and self._random.random() < 0.5:
            raise SinkFailed("injected: it is away")
        _, epoch, sequence, *_ = message.id.split("/")
        which = int(epoch), int(sequence)
        if which not in self.accepted and which < self._latest:
            self._violated(f"the sink is told of decision {which} after {self._latest}")
        self.accepted.add(which)
        self._latest = max(self._latest, which)
        if fails:
            raise SinkFailed("injected: its answer is lost")

    def lost(self) -> None:
        """The ledger has lost its last decisions, and what was told of them."""
        for name, cursor in self._book.cursors.items():
            self._book.cursors[name] = replace(cursor, sequence=min(cursor.sequence, len(self._book.rows)))
        self._first = None if self._first is None else min(self._first, len(self._book.rows))

    # --- at rest

    @property
    def told(self) -> bool:
        """Whether the sink was told of all."""
        cursor = self._book.cursors.get("sink")
        return cursor is not None and cursor.sequence >= len(self._book.rows)

    def check_told(self) -> None:
        """Each decision that the sink's rules select was accepted."""
        due = [
            (row.epoch, row.sequence)
            for row in self._book.rows
            if row.sequence > (self._first or 0) and may_be_told(row)
            for found in [occurrence(self._book.rows, row)]
            if selected(_SELECTION, found) is not None
        ]
        if missing := sorted(set(due) - self.accepted):
            self._violated(f"the sink was not told of decisions {missing[:5]}")

    async def check_view(self, reports: Iterable[LocalQueueReport]) -> None:
        """The view of a process that has read changes is that of one that reads all, and says what `reports`
        do."""
        assert self._view is not None
        other = self._new_view(self._memory)
        await other.refresh()
        mine, theirs = self._view.sight(), other.sight()
        if mine is None or theirs is None or self._view.problem is not None:
            self._violated(f"a view is not up to date: {self._view.problem}")
            return
        for name in _COMPARED:
            if getattr(mine.state, name) != getattr(theirs.state, name):
                self._violated(f"{name} of a view differ from those of one that reads all")
        self._positions(mine.state, reports)

    def _positions(self, state: CommittedState, reports: Iterable[LocalQueueReport]) -> None:
        for report in reports:
            found = state.local_queue(report.name)
            if found is None or (found.pending, found.admitted) != (report.pending, report.admitted):
                numbers = found and (found.pending, found.admitted)
                self._violated(
                    f"{report.name}: REST has {numbers}, {report.pending, report.admitted} are due"
                )
            for waiting in report.first:
                # Of two groups of pods of one name, one waits for the places of the other.
                alike = [state.workloads[id] for _, id in state.names.get(waiting.ref[:3], ())]
                told = [(state.position(one) or 0, one.reason and one.reason.code) for one in alike]
                if (waiting.position, waiting.reason.code) not in told:
                    due = f"{waiting.position, waiting.reason.code} is due"
                    self._violated(f"{waiting.ref}: REST has {told}, {due}")
