"""An observed cluster, shown to the engine as if the gate were in force and all writes were done.

A Mirror has three sides: reflectors pass it the real state (`see`), it passes the engine the simulated state
(`_shown`), and the ledger's commits pass it the decisions. Nothing is ever sent to Kubernetes. Its limits are
in docs/operations.md (Observe).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from queuectl.core.decisions import (
    Admit,
    Amend,
    ChildToCheck,
    Decision,
    Enqueue,
    Evict,
    Keep,
    Plan,
    PodOwnerToRead,
    PodsToCount,
    Release,
    Retire,
    Shrink,
)
from queuectl.core.directory import GATE as GATE_CONFIG
from queuectl.core.inbox import Inbox
from queuectl.core.model.events import (
    ContextGone,
    ContextObserved,
    EffectSettled,
    Event,
    Listed,
    PodsCounted,
    Result,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.model.policy import Gate
from queuectl.core.model.start_conditions import NamedWorkload
from queuectl.core.model.workload import (
    NOTHING_FOR_READERS,
    AttemptState,
    Effect,
    EffectKey,
    ForReaders,
    LedgerSnapshot,
    ObjectRef,
    WorkloadId,
    WorkloadOutcome,
)
from queuectl.core.reports import ClusterQueueReport, LocalQueueReport
from queuectl.kinds.gate import GATE
from queuectl.ports.cluster import Notice
from queuectl.ports.ledger import Ledger, LedgerUnavailable

log = logging.getLogger(__name__)

Emit = Callable[[Iterable[Event]], None]
Settled = tuple[EffectSettled, WorkloadObserved | WorkloadGone | None]

_RETRY: Final = 2.0


@dataclass(slots=True)
class _Object:
    """One workload: its real state, and the state shown to the engine."""

    kind: str
    real: WorkloadObserved | None = None
    """As last read; None: it is in the ledger and was not read since."""
    gone: WorkloadGone | None = None
    runs: bool = False
    """As decided; before that, whether it ran when it was first read."""
    untried: bool = True
    """It had no attempt when it was first read."""
    decided: bool = False
    """A verdict on it is recorded. Before that its end is not shown: the engine would not decide on it."""
    over: bool = False
    """Its end is recorded, or was before the observation; the object may still exist."""
    doubtful: bool = False
    """It was over when it was first read: its end may be recorded, or may have been missed in a restart."""


class Mirror:
    """ports.cluster.Cluster in which every start and stop succeeds at once, without any effect.

    A workload is shown suspended until the engine admits it, running from then on, finished when it really
    finishes and gone when it is really gone. One that ran before the observation is shown running: charged as
    debt.
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        recorded: Callable[[Sequence[WorkloadId]], Awaitable[frozenset[WorkloadId]]],
    ) -> None:
        """`now` is the API server's clock; `recorded` returns those with decisions in the ledger."""
        self._now = now
        self._recorded = recorded
        self._objects: dict[WorkloadId, _Object] = {}
        self._since: datetime | None = None
        """Start of the observation of this cluster; None: the ledger was not read yet."""
        self._waiting = Inbox()
        self._emit: Emit = self._waiting.extend
        self._doubts = asyncio.Event()

    def show_to(self, emit: Emit) -> None:
        """Set the receiver of events, before the first `see`."""
        self._emit = emit

    # --- the real state

    def see(self, events: Iterable[Event]) -> None:
        """Take events of the reflectors, and show the simulated state."""
        if self._since is None:
            self._waiting.extend(events)
            return
        self._emit([shown for event in events for shown in self._mirrored(event, self._since)])

    def _mirrored(self, event: Event, since: datetime) -> Iterator[Event]:
        match event:
            case WorkloadObserved(workload) if workload.owner is not None:
                return  # its owner is shown
            case WorkloadObserved():
                found = self._objects.get(event.workload.id)
                if found is None or found.real is None:
                    found = self._first_sight(event, found, since)
                found.real, found.gone = event, None
                yield from self._shown(found)
            case WorkloadGone(workload):
                if (found := self._objects.get(workload)) is not None:
                    yield from self._left(workload, found, event)
            case Listed():
                yield from self._listed(event)
            case ContextObserved(value=Gate()):
                return  # the engine is shown a gate in force since the start of the observation
            case ContextGone() if event.kind is Gate:
                return
            case _:
                yield event

    def _first_sight(self, event: WorkloadObserved, known: _Object | None, since: datetime) -> _Object:
        workload, seen = event.workload, event.observation
        began = seen.started_at or workload.created_at
        found = known or _Object(workload.ref.kind)
        if found.untried:
            found.runs = not seen.suspended and began < since
        if known is None and seen.finished is not None:
            found.over = workload.created_at < since
            found.doubtful = not found.over
            if found.doubtful:
                self._doubts.set()
        self._objects[workload.id] = found
        return found

    def _left(self, workload: WorkloadId, found: _Object, event: WorkloadGone) -> Iterator[Event]:
        if found.over:
            del self._objects[workload]
            return
        found.gone = event
        found.decided |= found.real is None  # its end is all there is to show
        yield from self._shown(found)

    def _listed(self, event: Listed) -> Iterator[Event]:
        """To the engine, what a list lacks is gone: so add to it what is not shown as gone yet."""
        if event.workloads is None:
            yield event
            return
        kept = set(event.workloads)
        for workload, found in list(self._objects.items()):
            if found.kind != event.source or workload in event.workloads:
                continue
            if found.gone is None:
                list(self._left(workload, found, WorkloadGone(workload)))
            if not found.decided:
                kept.add(workload)
        yield Listed(event.source, frozenset(kept))

    # --- the simulated state

    def _shown(self, found: _Object) -> Iterator[WorkloadObserved | WorkloadGone]:
        if found.over or found.doubtful:
            return
        if found.gone is not None and found.decided:
            yield found.gone
        elif found.real is not None:
            workload, seen = found.real.workload, found.real.observation
            # Created suspended it is pending, as with the gate; suspended by its user later it is held.
            taken_off = seen.suspended and seen.finished is None and seen.generation > 1
            over = seen.finished if found.decided else None
            yield WorkloadObserved(
                replace(workload, hold=True) if taken_off else workload,
                replace(
                    seen,
                    suspended=not found.runs,
                    finished=over,
                    quiet=True if over else None,
                    admission=None,
                    bypass=("", ""),
                    ready=None if seen.suspended else seen.ready,
                    pods_ready=None if seen.suspended else seen.pods_ready,
                ),
            )

    async def start(self, effect: Effect) -> Settled:
        return self._settle(effect, runs=True)

    withdraw = start
    """None is denied."""

    async def stop(self, effect: Effect) -> Settled:
        return self._settle(effect, runs=False)

    def _settle(self, effect: Effect, *, runs: bool) -> Settled:
        found = self._objects.get(effect.key.workload)
        if found is None:
            return EffectSettled(effect.key, Result.GONE), WorkloadGone(effect.key.workload)
        found.runs = runs
        settled = EffectSettled(effect.key, Result.DONE, effect.observation.generation)
        return settled, next(self._shown(found), None)

    async def anything_alive(
        self,
        ref: ObjectRef,
        *,
        still: float = 0.0,
        unreachable: Set[str] = frozenset(),
    ) -> bool:
        """As decided: none of a workload that is stopped, over or gone."""
        return False

    async def count_fewer(self, count: PodsToCount, unreachable: Set[str] = frozenset()) -> list[Event]:
        """As decided: no more than asked for."""
        return [PodsCounted(count.workload, count.attempt, alive=False, at_most=count.at_most)]

    async def check(self, child: ChildToCheck | PodOwnerToRead) -> list[Event]:
        """No child is shown, and nothing is started: no label of a pod is of a start."""
        return []

    async def announce(self, notice: Notice) -> None:
        """No Event: the objects really run."""

    async def publish_local_queue(self, report: LocalQueueReport) -> None:
        """Not written: a status must show the real state."""

    async def publish_cluster_queue(self, report: ClusterQueueReport) -> None:
        """As above."""

    # --- decisions

    def prime(self, snapshot: LedgerSnapshot) -> None:
        """Start from the ledger's state. Later changes of it come from `committed`."""
        if self._since is not None:
            return
        known = [json.loads(spec)["installedAt"] for key, spec in snapshot.configs if key.kind == GATE_CONFIG]
        # Times of objects are whole seconds: what was created within the first second came after the start.
        self._since = datetime.fromisoformat(known[0]) if known else self._now().replace(microsecond=0)
        for stored in snapshot.workloads:
            attempt = stored.attempt
            self._objects[stored.id] = _Object(
                stored.ref.kind,
                runs=attempt is not None and attempt.state is not AttemptState.EVICTING,
                untried=not stored.attempts,
                decided=stored.reason is not None or stored.attempts > 0,
            )
        before, self._waiting = self._waiting, Inbox()
        self._emit([ContextObserved(Gate(GATE, self._since))])
        self.see(before.events())
        log.info("observing since %s: nothing is written to the cluster", self._since.isoformat())

    def committed(self, plan: Plan) -> None:
        """A plan is in the ledger."""
        for decision in plan.decisions:
            match decision:
                case Admit(attempt):
                    self._note(attempt.workload, runs=True if attempt.debt else None)
                case Keep(workload) | Evict(workload):
                    self._note(workload)
                case Release(workload):
                    self._note(workload, runs=False)
                case Retire(workload):
                    self._end(workload)
                case _:
                    pass

    def _note(self, workload: WorkloadId, *, runs: bool | None = None) -> None:
        found = self._objects.get(workload)
        if found is None:
            return
        if runs is not None:
            found.runs = runs
        if not found.decided:
            found.decided = True
            kept_back = found.gone is not None or (found.real and found.real.observation.finished)
            if kept_back:
                self._emit(list(self._shown(found)))

    def _end(self, workload: WorkloadId) -> None:
        found = self._objects.get(workload)
        if found is None:
            return
        if found.gone is not None or found.real is None:
            del self._objects[workload]
        else:
            found.over = True

    async def settle_doubts(self) -> None:
        """For ever: show workloads that were over when first read, if the ledger has no decisions on them."""
        while True:
            await self._doubts.wait()
            self._doubts.clear()
            doubtful = [workload for workload, found in self._objects.items() if found.doubtful]
            try:
                recorded = await self._recorded(doubtful)
            except LedgerUnavailable as error:
                log.warning("workloads that are over already have to wait for the ledger: %s", error)
                await asyncio.sleep(_RETRY)
                self._doubts.set()
                continue
            for workload in doubtful:
                found = self._objects[workload]
                found.doubtful, found.over = False, workload in recorded
                if found.over and found.gone is not None:
                    del self._objects[workload]
                else:
                    self._emit(list(self._shown(found)))

    # --- the real state stored with a decision

    def reality(self, decision: Decision) -> dict[str, Any] | None:
        """The real state of the decision's object, as JSON; None: the decision is not about a workload."""
        match decision:
            case Enqueue(workload):
                found = self._objects.get(workload.id)
            case Admit(attempt):
                found = self._objects.get(attempt.workload)
            case Keep(id) | Amend(id) | Shrink(id) | Evict(id) | Release(id) | Retire(id):
                found = self._objects.get(id)
            case _:
                return None
        if found is None or found.real is None:
            return {"state": "Gone"}
        real: dict[str, Any] = {"state": _state(found)}
        seen = found.real.observation
        if seen.started_at is not None:
            real["startedAt"] = seen.started_at.isoformat()
        if seen.ended_at is not None:
            real["endedAt"] = seen.ended_at.isoformat()
        if isinstance(decision, Enqueue):
            real["requests"] = _total(found.real)
        return real


class MirroredLedger:
    """ports.ledger.Ledger that passes the mirror what it loads and commits."""

    def __init__(self, inner: Ledger, mirror: Mirror) -> None:
        self._inner = inner
        self._mirror = mirror

    async def take_epoch(self, holder: str) -> int:
        return await self._inner.take_epoch(holder)

    async def load(self) -> LedgerSnapshot:
        snapshot = await self._inner.load()
        self._mirror.prime(snapshot)
        return snapshot

    async def now(self) -> datetime:
        return await self._inner.now()

    async def outcomes(
        self, names: Sequence[NamedWorkload]
    ) -> Sequence[tuple[NamedWorkload, WorkloadOutcome | None]]:
        return await self._inner.outcomes(names)

    async def commit(
        self,
        plan: Plan,
        acknowledged: Sequence[EffectKey],
        *,
        epoch: int,
        batch: str,
        for_readers: ForReaders = NOTHING_FOR_READERS,
    ) -> int:
        first = await self._inner.commit(
            plan, acknowledged, epoch=epoch, batch=batch, for_readers=for_readers
        )
        self._mirror.committed(plan)
        return first

    async def hand_over(self, epoch: int, read_up_to: Mapping[str, int]) -> None:
        """Nothing was written to the cluster."""


def _state(found: _Object) -> str:
    assert found.real is not None
    seen = found.real.observation
    if seen.finished is not None:
        return seen.finished.value
    if found.gone is not None:
        return "Gone"
    return "Suspended" if seen.suspended else "Running"


def _total(real: WorkloadObserved) -> dict[str, int]:
    """Total requests of all its pods, in base units by resource."""
    total: dict[str, int] = {}
    for pod_set in real.workload.pod_sets:
        for resource, amount in pod_set.requests:
            total[resource] = total.get(resource, 0) + amount * pod_set.count
    return total
