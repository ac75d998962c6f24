"""Drain events, decide, store the plan, commit it, submit its effects. One task owns the engine."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from queuectl.controller.commits import Commits, SteppedDown, Stopped
from queuectl.controller.effects import WORKERS, Lanes
from queuectl.controller.notices import PATIENCE, Notices, warning
from queuectl.controller.quarantine import SetAside
from queuectl.controller.reports import LoopObserver, Reports
from queuectl.core.decisions import Plan, Release, Retire, Verdict, smaller
from queuectl.core.engine import DEFAULT_BUDGET, Engine
from queuectl.core.inbox import Inbox
from queuectl.core.model.events import (
    EffectSettled,
    Event,
    PolicyGone,
    PolicyInvalid,
    PolicyObserved,
    Result,
    TimeCame,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.model.workload import ConfigKey, EffectKey, LedgerSnapshot, WorkloadId
from queuectl.core.transitions import IllegalTransition
from queuectl.kinds.policy import parse_policy
from queuectl.kinds.policy_amounts import BadPolicy
from queuectl.ports.cluster import Cluster
from queuectl.ports.ledger import Ledger, LedgerRefused, LedgerUnavailable, PlanFailed, SchemaMismatch

log = logging.getLogger(__name__)

_FOLLOW, _FOLLOW_SHARE = 5.0, 20.0
"""Of a controller that stands by, from one look at the ledger to the next: the least seconds, and how many
times as long as one takes."""
_TAKE = 1.0
"""Seconds between two times at which it takes what was read of the cluster."""
_LONGEST_SLEEP = 3600.0
"""Seconds until the ledger's clock is read again if nothing is due before: the two clocks may drift."""
_SAY_EVERY, _MOST_SAID = 1.0, 20
"""Seconds between two looks at which reasons are to be Events, and the most of them at a time: where
thousands of workloads begin to wait together, Events must cost the API server less than their starts."""
_MOST_READ = 1000
"""Names of workloads in one query about outcomes."""
_MOST_FAILURES = 64
"""Failures of parts of a plan after which it is decided again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    budget: int = DEFAULT_BUDGET
    """Workloads evaluated in one plan."""
    workers: int = WORKERS
    """Kubernetes writes under way at one time."""
    status_seconds: float = 5.0
    """Least time between two writes of one queue's status."""
    event_seconds: float = PATIENCE
    """How long a workload waits before an Event says why."""
    confirm_seconds: float = 10.0
    """Between two commits if there is nothing to decide, so that a deposed leader finds out."""
    step_down_seconds: float | None = None
    """How long the ledger may be unavailable before `run` returns, so that another controller leads; None:
    there is no other."""


DEFAULT_OPTIONS = LoopOptions()


class Controller:
    """Owns the engine. No other code may use it while `run` runs; events come in through `emit`."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        cluster: Cluster,
        engine: Engine,
        observer: LoopObserver,
        holder: str,
        options: LoopOptions = DEFAULT_OPTIONS,
        restored: Callable[[LedgerSnapshot, Set[WorkloadId]], None] | None = None,
    ) -> None:
        """`holder` names this process in the ledger. `restored` gets what the ledger has when it leads, and
        which of its workloads were not observed by then."""
        self._engine = engine
        self._observer = observer
        self._holder = holder
        self._options = options
        self._restored = restored
        self._known: LedgerSnapshot | None = None
        """The ledger as the engine has it, while it stands by."""
        self._specs_before: dict[ConfigKey, str] = {}
        """Of the ledger at the beginning, those of policy objects that were not observed yet."""
        self._notices = Notices(options.event_seconds)
        self.stepped_down = False
        """`run` has returned because the ledger was unavailable for too long."""
        self._tell = False
        """Store what readers are to be told."""
        self._inbox = Inbox(first=True)
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at: datetime | None = None
        """By the ledger's clock."""
        self._rang = False
        self._commits = Commits(ledger, observer, self._stopping, self._wake.set, options.step_down_seconds)
        self._aside = SetAside(engine, observer, self._wake.set)
        self._reports = Reports(engine, cluster, observer, options.status_seconds, self._ask_to_tell)
        self._lanes = Lanes(
            cluster,
            self.emit,
            observer.settled,
            workers=options.workers,
            unreachable=lambda: engine.features.nodes.unreachable,
        )

    @property
    def leads(self) -> bool:
        return self._commits.epoch > 0

    def unsettled(self) -> tuple[int, float]:
        """Number of committed Kubernetes writes that are not done, and age of the oldest in seconds."""
        return self._lanes.unsettled()

    @property
    def ready(self) -> bool:
        """Whether it leads and has read all sources once."""
        return self.leads and self._engine.synced

    def emit(self, events: Iterable[Event]) -> None:
        """Add events."""
        self._inbox.extend(events)
        self._wake.set()

    @property
    def unlisted(self) -> frozenset[str]:
        """Sources of which no list was taken."""
        return self._engine.unlisted

    async def stand_by(self) -> None:
        """Follow the ledger and what is read of the cluster, so that little is new when it leads. Until
        cancelled. Raises LostLeadership if the ledger lacks what it had."""
        time, due = asyncio.get_running_loop().time, 0.0
        while True:
            began = time()
            if began >= due:
                try:
                    snapshot = await self._commits.look()
                except (LedgerUnavailable, LedgerRefused, SchemaMismatch) as error:
                    log.warning("the ledger is not followed: %s", error)
                else:
                    self._follow(snapshot)
                due = time() + max(_FOLLOW, _FOLLOW_SHARE * (time() - began))
            if self._known is not None and self._inbox:
                self._drain()
            await asyncio.sleep(_TAKE)

    def _follow(self, snapshot: LedgerSnapshot) -> None:
        if self._known is None:
            self._engine.restore(snapshot)
            self._specs_before = dict(snapshot.configs)
        else:
            self._engine.follow(self._known, snapshot)
        self._known = snapshot
        if snapshot.now is not None:
            self._engine.handle([TimeCame(snapshot.now)])

    def list_again(self) -> None:
        """What was read so far may be out of date: nothing is decided before the next list of each source."""
        self._inbox.forget_lists()
        self._engine.list_again()

    async def hand_over(self, read_up_to: Mapping[str, int]) -> None:
        """`run` has returned: store up to which resourceVersion each kind was read, for the next leader."""
        if self.leads:
            await self._commits.hand_over(read_up_to)

    def stop(self) -> None:
        """Finish the commit under way, start nothing new, then let `run` return."""
        self._stopping.set()
        self._wake.set()

    async def run(self) -> None:
        """Lead until `stop`, or until it steps down.

        Raises LostLeadership when another process has taken over.
        """
        try:
            await self._lead()
        except SteppedDown:
            self._commits.epoch, self.stepped_down = 0, not self._stopping.is_set()
            log.error("ledger unavailable for %.0f s: stepping down", self._options.step_down_seconds)
        except Stopped:
            log.warning("stopped without the ledger: the next leader sends what is not acknowledged")

    async def _lead(self) -> None:
        snapshot = await self._commits.lead(self._holder)
        self._follow(snapshot)
        self._known = None
        self._drain()
        if self._restored is not None:
            self._restored(snapshot, self._engine.unobserved())
        log.info("leading with epoch %d from sequence %d", self._commits.epoch, snapshot.sequence)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._lanes.run(), name="effects")
            works = (self._reports.publish(), self._say(), self._ask_to_confirm())
            beside = [tasks.create_task(work) for work in works]
            away = None
            try:
                await self._decide_until_stopped()
            except Stopped as stopped:
                away = stopped
            for task in beside:
                task.cancel()
            self._lanes.stop()
        if away is not None:
            raise away
        self._drain()
        await self._commits.commit_acknowledged()

    async def _decide_until_stopped(self) -> None:
        while not self._stopping.is_set():
            await self._wake.wait()
            self._wake.clear()
            while not self._stopping.is_set():
                await self._commits.gather()
                self._drain()
                read = await self._read_outcomes()
                if self._aside.due:
                    self._aside.thaw(await self._commits.load() if self._aside.roots else None)
                if self._tell:
                    await self._tell_readers()
                if not (await self._decide_once() or self._inbox or read):
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
            wait = (due - await self._commits.now()).total_seconds()
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(min(max(wait, 0.0), _LONGEST_SLEEP), self._ring)

    def _ring(self) -> None:
        self._alarm_at, self._rang = None, True
        self._wake.set()

    def _drain(self) -> None:
        inbox, self._inbox = self._inbox, Inbox()
        events = inbox.events()
        acknowledged: list[EffectKey] = []
        for event in events:
            match event:
                case EffectSettled(result=Result.DONE | Result.GONE):
                    acknowledged.append(event.key)
                case WorkloadObserved(workload):
                    self._lanes.changed(workload.id)
                case WorkloadGone(id):
                    self._lanes.changed(id)
        self._commits.acknowledge(acknowledged)
        if events:
            self._engine.handle([*last_valid(events, self._specs_before), *events])

    async def _read_outcomes(self) -> bool:
        """Read how some workloads ended that others wait for. Return whether there were any.

        Tenants name them, and those that never were: decisions about others are made between two reads.
        """
        starts = self._engine.features.start_conditions
        names = starts.unread(_MOST_READ) if starts.active and self._engine.synced else []
        if names:
            self._engine.handle([await self._commits.outcomes(names)])
        return bool(names)

    def _ask_to_tell(self) -> None:
        self._tell = True
        self._wake.set()

    async def _decide_once(self) -> bool:
        """One plan, if there is anything to plan. Returns whether there was."""
        wanted = self._commits.due
        if not self._engine.due and not wanted and not self._rang:
            self._lanes.add_effects(self._engine.take_effects())
            return False
        now = await self._commits.now()
        self._rang = False
        if (due_at := self._engine.due_at) is not None and due_at <= now:
            self._engine.handle([TimeCame(now)])
        time = asyncio.get_running_loop().time
        began = time()
        try:
            plan = self._engine.decide(now, self._options.budget)
        except IllegalTransition as error:
            self._aside.add(error.workload, error)
            return True
        if plan.work:
            self._observer.evaluated(plan.work, seconds=time() - began)
        if not plan.decisions and not plan.probes and not plan.checks and not wanted:
            self._lanes.add_effects(self._engine.take_effects())
            return False
        try:
            first = await self._commits.commit(plan) if plan.recorded or wanted else 0
        except (LedgerRefused, PlanFailed) as error:
            await self._commit_in_parts(plan, error)
            return True
        self._engine.commit(plan, first)
        self._hand_over(plan)
        return True

    def _hand_over(self, plan: Plan) -> None:
        self._lanes.end_counts(d for d in plan.decisions if isinstance(d, Release | Retire))
        self._lanes.add_effects(self._engine.take_effects())
        self._lanes.add_probes(plan.probes)
        self._lanes.add_checks(plan.checks)
        self._lanes.add_notices(self._notices.of(plan, asyncio.get_running_loop().time()))
        self._aside.note_stored(plan)

    async def _commit_in_parts(self, plan: Plan, error: Exception) -> None:
        """Commit a plan that the ledger does not take tree by tree; what fails is divided to workloads."""
        parts = deque(self._engine.split(plan))
        if not parts and isinstance(error, LedgerRefused):
            raise error
        stored: set[Verdict] = set()
        failed: list[tuple[Plan, PlanFailed]] = []
        failures = 0
        while parts and failures < _MOST_FAILURES:
            root, part = parts.popleft()
            try:
                first = await self._commits.commit(part, tries=1)
            except LedgerRefused as refusal:
                self._aside.freeze(root, refusal)
            except PlanFailed as failure:
                failures += 1
                rest = [(root, one) for one in smaller(part)]
                # Widest first until any part is stored; then quickly down to the workloads that are not.
                parts = deque([*rest, *parts] if stored else [*parts, *rest])
                if not rest:
                    failed.append((part, failure))
            else:
                stored.update(decision.verdict for decision in part.recorded)
                self._engine.commit_part(part, first)
                self._hand_over(part)
        if failures or isinstance(error, PlanFailed):
            self._aside.judge(stored, failed)
            self._engine.reconsider()  # decisions that were left out may have had effects on others
            if self._aside.full or not failed:
                log.error("the ledger stores nothing of this kind, no workload is set aside: %s", error)
                await self._commits.back_off()

    async def _tell_readers(self) -> None:
        """Store facts for readers, without decisions: no decision waits for those that cannot be stored."""
        self._tell = False
        facts, time = self._reports.facts, asyncio.get_running_loop().time
        while (part := facts.take(begun := time())) is not None:
            now = await self._commits.now()
            try:
                await self._commits.commit(Plan(version=0, cycle=0, now=now), tries=1, for_readers=part.told)
            except (LedgerRefused, PlanFailed) as error:
                log.warning("facts for readers not stored, will be again: %s", error)
                facts.failed(part, begun, time(), self._commits.ended_at)
                return

    async def _ask_to_confirm(self) -> None:
        """Commit at least every `confirm_seconds`, even if nothing happened."""
        while True:
            await asyncio.sleep(self._options.confirm_seconds)
            self._commits.ask()

    async def _say(self) -> None:
        """Send the Events of waiting workloads whose turn it is."""
        while True:
            await asyncio.sleep(_SAY_EVERY)
            predicted = self._engine.features.nodes.take_predictions()
            self._observer.predicted(predicted.admissions, predicted.misses)
            self._lanes.add_notices(map(warning, self._engine.take_alarms()))
            self._lanes.add_notices(self._notices.due(asyncio.get_running_loop().time(), _MOST_SAID))


def last_valid(events: Iterable[Event], stored: dict[ConfigKey, str]) -> Iterator[PolicyObserved]:
    """Yield the specs that stay in force of objects that could be read before this process began (Q1).

    `stored`: specs of the ledger; those of objects that were observed are removed.
    """
    for event in events:
        match event:
            case PolicyObserved(key) | PolicyGone(key):
                stored.pop(key, None)
            case PolicyInvalid(key) if (spec := stored.pop(key, None)) is not None:
                with suppress(BadPolicy):  # another version has stored it, and this one cannot read it
                    yield PolicyObserved(key, parse_policy(key, spec), spec)
