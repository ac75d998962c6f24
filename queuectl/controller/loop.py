"""Drain events, decide, store the plan, commit it, submit its effects. One task owns the engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from queuectl.controller.effects import WORKERS, Lanes
from queuectl.controller.notices import notices
from queuectl.core.decisions import Plan
from queuectl.core.engine import DEFAULT_BUDGET, Engine
from queuectl.core.events import EffectSettled, Event, Result, TimeCame
from queuectl.core.model import EffectKey
from queuectl.core.policy import LocalQueueName
from queuectl.core.reports import ClusterQueueReport, LocalQueueReport
from queuectl.core.resources import Usage
from queuectl.ports import Cluster, ClusterUnavailable, Ledger, LedgerRefused, LedgerUnavailable

T = TypeVar("T")
Name = TypeVar("Name", LocalQueueName, str)
Report = TypeVar("Report", LocalQueueReport, ClusterQueueReport)
log = logging.getLogger(__name__)

_GATHER = 0.02
"""Least seconds from the end of one transaction to the next; an event after a pause is handled at once."""
_FIRST_RETRY, _LAST_RETRY = 0.1, 2.0
_FIRST_THAW, _LAST_THAW = 1.0, 60.0
_LONGEST_SLEEP = 3600.0
"""Seconds until the ledger's clock is read again if nothing is due before: the two clocks may drift."""
_MOST_UNWRITTEN = 3
"""Refused status writes after which the other queues wait for the next round."""


class _Stopped(Exception):
    """Asked to stop while the ledger is unavailable."""


class Observer(Protocol):
    """Receives what happens, for metrics. Called on the loop, must not block."""

    def took_epoch(self, epoch: int) -> None: ...
    def committed(self, plan: Plan, *, seconds: float, sequence: int) -> None: ...
    def ledger_unavailable(self) -> None: ...
    def ledger_refused(self) -> None: ...
    def settled(self, key: EffectKey, result: Result, *, seconds: float) -> None: ...
    def capacity(self, flavors: Usage) -> None: ...
    def reported(
        self,
        local_queues: Sequence[LocalQueueReport],
        cluster_queues: Sequence[ClusterQueueReport],
        gone: Sequence[str],
    ) -> None: ...


class Controller:
    """Owns the engine. No other code may use it while `run` runs; events come in through `emit`."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        cluster: Cluster,
        engine: Engine,
        observer: Observer,
        holder: str,
        budget: int = DEFAULT_BUDGET,
        workers: int = WORKERS,
        status_seconds: float = 5.0,
        confirm_seconds: float = 10.0,
    ) -> None:
        """`budget`: workloads evaluated in one plan; `workers`: Kubernetes writes under way at one time;
        `status_seconds`: least time between two writes of one queue's status; `confirm_seconds`: between two
        commits if there is nothing to decide, so that a deposed leader finds out."""
        self._ledger = ledger
        self._cluster = cluster
        self._engine = engine
        self._observer = observer
        self._holder = holder
        self._budget = budget
        self._status_seconds = status_seconds
        self._confirm_seconds = confirm_seconds
        self._confirm = False
        """Nothing was committed for that long: commit, to check that the epoch is still ours."""
        self._epoch = 0
        self._batch = 0
        self._committed_at = float("-inf")
        self._inbox: list[Event] = []
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._acknowledged: list[EffectKey] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at: datetime | None = None
        """By the ledger's clock."""
        self._rang = False
        self._thaw_in: dict[str, float] = {}
        self._thaw_due: set[str] = set()
        self._lanes = Lanes(cluster, self.emit, observer.settled, workers=workers)

    @property
    def leads(self) -> bool:
        return self._epoch > 0

    def unsettled(self) -> tuple[int, float]:
        """Number of committed Kubernetes writes that are not done, and age of the oldest in seconds."""
        return self._lanes.unsettled()

    @property
    def ready(self) -> bool:
        """Whether it leads and has read all sources once."""
        return self._epoch > 0 and self._engine.synced

    def emit(self, events: Iterable[Event]) -> None:
        """Add events."""
        self._inbox.extend(events)
        self._wake.set()

    def stop(self) -> None:
        """Finish the commit under way, start nothing new, then let `run` return."""
        self._stopping.set()
        self._wake.set()

    async def run(self) -> None:
        """Lead until `stop`. Raises LostLeadership when another process has taken over."""
        try:
            await self._lead()
        except _Stopped:
            log.warning("stopped without the ledger: the next leader sends what is not acknowledged")

    async def _lead(self) -> None:
        self._epoch = await self._reach(lambda: self._ledger.take_epoch(self._holder))
        self._observer.took_epoch(self._epoch)
        snapshot = await self._reach(self._ledger.load)
        self._engine.restore(snapshot)
        log.info("leading with epoch %d from sequence %d", self._epoch, snapshot.sequence)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._lanes.run(), name="effects")
            beside = [tasks.create_task(work) for work in (self._publish(), self._ask_to_confirm())]
            away = None
            try:
                await self._decide_until_stopped()
            except _Stopped as stopped:
                away = stopped
            for task in beside:
                task.cancel()
            await self._lanes.stop()
        if away is not None:
            raise away
        await self._commit_acknowledged()

    async def _decide_until_stopped(self) -> None:
        while not self._stopping.is_set():
            await self._wake.wait()
            self._wake.clear()
            while not self._stopping.is_set():
                await self._gather()
                self._drain()
                if self._thaw_due:
                    await self._thaw()
                if not await self._decide_once() and not self._inbox:
                    break
            await self._set_alarm()

    async def _set_alarm(self) -> None:
        """Wake the loop when something becomes due by time alone."""
        due = self._engine.due_at
        if due == self._alarm_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = None, due
        if due is not None and not self._stopping.is_set():
            wait = (due - await self._reach(self._ledger.now)).total_seconds()
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(min(max(wait, 0.0), _LONGEST_SLEEP), self._ring)

    def _ring(self) -> None:
        self._alarm_at, self._rang = None, True
        self._wake.set()

    async def _gather(self) -> None:
        """Collect more events if a transaction has just ended: ten workloads cost as much as one."""
        wait = self._committed_at + _GATHER - asyncio.get_running_loop().time()
        if wait > 0:
            await asyncio.sleep(wait)

    def _drain(self) -> None:
        events, self._inbox = self._inbox, []
        for event in events:
            if isinstance(event, EffectSettled) and event.result in (Result.DONE, Result.GONE):
                self._acknowledged.append(event.key)
        if events:
            self._engine.handle(events)

    async def _decide_once(self) -> bool:
        """One plan, if there is anything to plan. Returns whether there was."""
        wanted = bool(self._acknowledged or self._confirm)
        if not self._engine.due and not wanted and not self._rang:
            self._lanes.add_effects(self._engine.take_effects())
            return False
        now = await self._reach(self._ledger.now)
        self._rang = False
        if (due_at := self._engine.due_at) is not None and due_at <= now:
            self._engine.handle([TimeCame(now)])
        plan = self._engine.decide(now, self._budget)
        if not plan.decisions and not plan.probes and not wanted:
            self._lanes.add_effects(self._engine.take_effects())
            return False
        try:
            first = await self._commit(plan) if plan.recorded or wanted else 0
        except LedgerRefused as refusal:
            await self._commit_by_root(plan, refusal)
            return True
        self._engine.commit(plan, first)
        self._hand_over(plan)
        return True

    def _hand_over(self, plan: Plan) -> None:
        self._lanes.add_effects(self._engine.take_effects())
        self._lanes.add_probes(plan.probes)
        self._lanes.add_notices(notices(plan))

    async def _commit_by_root(self, plan: Plan, refusal: LedgerRefused) -> None:
        """The ledger refuses a plan: commit it root by root, and freeze the root that it refuses."""
        parts = self._engine.split(plan)
        if not parts:
            raise refusal
        for root, part in parts:
            try:
                first = await self._commit(part)
            except LedgerRefused as error:
                log.critical("%s is frozen, the ledger refuses it: %s", root or "work without a queue", error)
                self._observer.ledger_refused()
                self._engine.freeze(root)
                self._thaw_later(root)
            else:
                self._engine.commit_part(part, first)
                self._hand_over(part)

    def _thaw_later(self, root: str) -> None:
        """Load the ledger again soon; if that does not help, less and less often."""
        delay = self._thaw_in[root] = min(self._thaw_in.get(root, _FIRST_THAW / 2) * 2, _LAST_THAW)

        def due() -> None:
            self._thaw_due.add(root)
            self._wake.set()

        asyncio.get_running_loop().call_later(delay, due)

    async def _thaw(self) -> None:
        snapshot = await self._reach(self._ledger.load)
        for root in sorted(self._thaw_due):
            self._engine.thaw(root, snapshot)
        self._thaw_due.clear()

    async def _commit(self, plan: Plan) -> int:
        """Store the plan, however long the ledger is unavailable; nothing else is decided meanwhile."""
        self._batch += 1
        self._confirm = False
        batch = f"{self._epoch}-{self._batch}"
        done, self._acknowledged = self._acknowledged, []
        started = asyncio.get_running_loop().time()
        try:
            first = await self._reach(lambda: self._ledger.commit(plan, done, epoch=self._epoch, batch=batch))
        except LedgerRefused:
            self._acknowledged = done + self._acknowledged
            raise
        self._committed_at = asyncio.get_running_loop().time()
        seconds = self._committed_at - started
        last = first + len(plan.recorded) - 1
        self._observer.committed(plan, seconds=seconds, sequence=last)
        return first

    async def _commit_acknowledged(self) -> None:
        """At the end: otherwise the next leader would send again what was done since the last commit."""
        self._drain()
        if self._acknowledged:
            now = await self._reach(self._ledger.now)
            await self._commit(Plan(version=0, cycle=0, now=now))

    async def _reach(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call until the ledger answers; meanwhile nothing is admitted, and running work goes on.

        Raises _Stopped when asked to stop meanwhile: the next leader finds out what was stored, and sends
        again what was not acknowledged.
        """
        delay = _FIRST_RETRY
        while True:
            try:
                return await call()
            except LedgerUnavailable as error:
                self._observer.ledger_unavailable()
                log.warning("ledger unavailable, admitting nothing: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stopping.wait()
                raise _Stopped
            delay = min(delay * 2, _LAST_RETRY)

    async def _ask_to_confirm(self) -> None:
        """Commit at least every `confirm_seconds`, even if nothing happened."""
        while True:
            await asyncio.sleep(self._confirm_seconds)
            self._confirm = True
            self._wake.set()

    async def _publish(self) -> None:
        """Write the status of changed queues, each at most every `status_seconds`."""
        late_locals: dict[LocalQueueName, LocalQueueReport] = {}
        late_queues: dict[str, ClusterQueueReport] = {}
        while True:
            local_queues, cluster_queues, gone = self._engine.take_reports()
            self._observer.reported(local_queues, cluster_queues, gone)
            if (capacity := self._engine.take_capacity()) is not None:
                self._observer.capacity(capacity)
            late_locals |= {report.name: report for report in local_queues}
            late_queues |= {report.name: report for report in cluster_queues}
            await self._write(late_locals, self._cluster.publish_local_queue)
            await self._write(late_queues, self._cluster.publish_cluster_queue)
            await asyncio.sleep(self._status_seconds)

    async def _write(self, late: dict[Name, Report], publish: Callable[[Report], Awaitable[None]]) -> None:
        """Write the status of queues that are due. A refused one comes last the next time."""
        refused = 0
        for name in list(late):
            try:
                await publish(late[name])
            except ClusterUnavailable as error:
                log.warning("queue status not written, will be again: %s", error)
                late[name] = late.pop(name)
                refused += 1
                if refused == _MOST_UNWRITTEN:
                    return
            else:
                del late[name]
