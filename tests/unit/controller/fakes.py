"""A cluster of Jobs in memory, and a ledger. Both can fail at any boundary."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from queuectl.core.decisions import Admit, ChildToCheck, Decision, Plan, PodOwnerToRead, PodsToCount
from queuectl.core.model.events import (
    EffectSettled,
    Event,
    Listed,
    OwnerRead,
    PodOwnerRead,
    PodsCounted,
    Result,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.model.start_conditions import NamedWorkload
from queuectl.core.model.workload import (
    NOTHING_FOR_READERS,
    AttemptState,
    Effect,
    EffectKey,
    ForReaders,
    LedgerSnapshot,
    ObjectRef,
    RecordedStop,
    Workload,
    WorkloadId,
    WorkloadOutcome,
)
from queuectl.core.reports import ClusterQueueReport, LocalQueueReport
from queuectl.kinds.stop_annotations import ENDS
from queuectl.ports.cluster import ClusterUnavailable, Notice, WriteDenied
from queuectl.ports.ledger import LedgerRefused, LedgerUnavailable, PlanFailed
from tests.builders import seen
from tests.doubles.ledger import MemoryLedger

PATIENCE = 0.01
"""Seconds for which a controller is waited for that says nothing."""


class Crash(BaseException):
    """Simulates kill -9: no later code runs, and no handler catches it."""


@dataclass
class Crashes:
    """Counts boundaries, and kills the controller at one of them."""

    at: int | None = None
    passed: list[str] = field(default_factory=list)

    def boundary(self, name: str) -> None:
        self.passed.append(name)
        if self.at is not None and len(self.passed) == self.at:
            raise Crash(name)


class CrashingLedger:
    """ports.ledger.Ledger on the ledger in memory, with a boundary before and after each write."""

    def __init__(self, inner: MemoryLedger, crashes: Crashes) -> None:
        self._inner = inner
        self._crashes = crashes
        self.unavailable = 0
        """Number of calls that are refused first."""
        self.refuses: str | None = None
        """ClusterQueue for which admissions are refused."""
        self.fails: Callable[[Decision], bool] = lambda decision: False
        """Whether a plan with this decision can't be stored, although the ledger answers."""
        self.fails_pods = False
        """Whether no commit with ready pods can be stored."""
        self.failed_pods = 0
        self.lost_acks = 0
        """Number of commits that are stored without an answer."""

    async def take_epoch(self, holder: str) -> int:
        self._crashes.boundary("before take_epoch")
        epoch = await self._inner.take_epoch(holder)
        self._crashes.boundary("after take_epoch")
        return epoch

    async def load(self) -> LedgerSnapshot:
        return await self._inner.load()

    async def hand_over(self, epoch: int, read_up_to: Mapping[str, int]) -> None:
        await self._inner.hand_over(epoch, read_up_to)

    async def outcomes(
        self, names: Sequence[NamedWorkload]
    ) -> Sequence[tuple[NamedWorkload, WorkloadOutcome | None]]:
        return await self._inner.outcomes(names)

    async def now(self):  # type: ignore[no-untyped-def]
        return await self._inner.now()

    async def commit(
        self,
        plan: Plan,
        acknowledged: Sequence[EffectKey],
        *,
        epoch: int,
        batch: str,
        for_readers: ForReaders = NOTHING_FOR_READERS,
    ) -> int:
        if self.unavailable:
            self.unavailable -= 1
            raise LedgerUnavailable("away")
        if for_readers.pods_ready and self.fails_pods:
            self.failed_pods += 1
            raise PlanFailed("not these", "P0001")
        for decision in plan.recorded:
            if isinstance(decision, Admit) and decision.attempt.assignment.cluster_queue == self.refuses:
                raise LedgerRefused(f"admissions to {self.refuses} are refused")
            if self.fails(decision):
                raise PlanFailed("I do not like it", "P0001")
        self._crashes.boundary("before commit")
        first = await self._inner.commit(
            plan, acknowledged, epoch=epoch, batch=batch, for_readers=for_readers
        )
        if self.lost_acks:
            self.lost_acks -= 1
            raise LedgerUnavailable("the answer was lost")
        self._crashes.boundary("after commit")
        return first


@dataclass
class Job:
    workload: Workload
    suspended: bool = True
    generation: int = 1
    finished: WorkloadOutcome | None = None
    attempt: int | None = None
    pods: int = 0
    starts: list[int] = field(default_factory=list)
    withdrawn: set[int] = field(default_factory=set)
    """Attempts of which a start is refused."""
    stops: int = 0
    ready: bool | None = None
    pods_ready: int | None = None
    over: WorkloadOutcome | None = None
    """The record of its last stop, until its next start, says that its run time limit ended it."""
    ended: int = 0
    """Number of its pods that have ended for good."""


class JobCluster:
    """ports.cluster.Cluster: Jobs that run from their start until `finish`."""

    def __init__(self, crashes: Crashes) -> None:
        self.jobs: dict[WorkloadId, Job] = {}
        self.notices: list[Notice] = []
        self.published: list[LocalQueueReport] = []
        self.emit: Callable[[Iterable[Event]], None] = lambda events: None
        self.unavailable = 0
        self.denies: str | None = None
        """Name of a workload for which the API server denies the start, and the record of a stop."""
        self.denials: int | None = None
        """How many starts are denied before one is accepted; None: all."""
        self.refuses_status_of = ""
        """LocalQueue of which status writes are refused."""
        self.mute, self.patience = False, PATIENCE
        """The controller of the Jobs does not say that it has seen a stop."""
        self.away_at: int | None = None
        """Number of counts after which the API server is unavailable once."""
        self.counted: asyncio.Event | None = None
        """Counts wait for it."""
        self.counts: list[float] = []
        """Of each count of pods, for how many seconds counts had said that it is alive."""
        self.unanswered = 0
        """Number of starts that get no answer at first; `arrive` lets them through."""
        self.late: list[Effect] = []
        self.defect = ""
        """Job with a start that triggers a bug."""
        self._crashes = crashes

    # --- changes by users and the cluster

    def submit(self, *workloads: Workload) -> None:
        for workload in workloads:
            self.jobs[workload.id] = Job(workload)
            self.emit([self.seen(workload.id)])

    def edit(self, workload: Workload) -> None:
        job = self.jobs[workload.id]
        job.workload, job.generation = workload, job.generation + 1
        self.emit([self.seen(workload.id)])

    def finish(self, name: str, outcome: WorkloadOutcome = WorkloadOutcome.SUCCEEDED) -> None:
        job = self.jobs[WorkloadId(f"uid-{name}")]
        assert not job.suspended
        job.finished, job.pods = outcome, 0
        self.emit([self.seen(job.workload.id)])

    def tell(self, name: str, **status: bool | int | None) -> None:
        """Change its status."""
        job = self.jobs[WorkloadId(f"uid-{name}")]
        for field_name, value in status.items():
            setattr(job, field_name, value)
        self.emit([self.seen(job.workload.id)])

    def label(self, workload: Workload) -> None:
        """Change its metadata as its user would."""
        self.jobs[workload.id].workload = workload
        self.emit([self.seen(workload.id)])

    def delete(self, name: str) -> None:
        job = self.jobs.pop(WorkloadId(f"uid-{name}"))
        self.emit([WorkloadGone(job.workload.id)])

    def running(self) -> list[str]:
        jobs = self.jobs.values()
        return sorted(j.workload.ref.name for j in jobs if not j.suspended and not j.finished)

    def seen(self, workload: WorkloadId) -> WorkloadObserved:
        job = self.jobs[workload]
        state = seen(
            suspended=job.suspended,
            finished=job.finished,
            generation=job.generation,
            ready=job.ready,
            reclaimable=(("main", job.ended),) if job.ended else (),
            stopped=RecordedStop(job.attempt, job.over) if job.attempt and job.suspended else None,
            pods_ready=job.pods_ready,
        )
        return WorkloadObserved(job.workload, state)

    def listed(self) -> list[Event]:
        return [*(self.seen(workload) for workload in self.jobs), Listed("Job", frozenset(self.jobs))]

    # --- ports.cluster.Cluster

    async def start(self, effect: Effect) -> tuple[EffectSettled, WorkloadObserved | WorkloadGone | None]:
        self._maybe_away()
        if self.denies == effect.workload.ref.name and self.denials != 0:
            self.denials = None if self.denials is None else self.denials - 1
            raise WriteDenied("policy x says no")
        if effect.workload.ref.name == self.defect:
            raise KeyError("a bug")
        if self.unanswered:
            self.unanswered -= 1
            self.late.append(effect)
            raise ClusterUnavailable("no answer in time")
        self._crashes.boundary("before start")
        job = self.jobs.get(effect.key.workload)
        if job is None:
            return EffectSettled(effect.key, Result.GONE), WorkloadGone(effect.key.workload)
        if job.attempt == effect.key.attempt and not job.suspended:
            return EffectSettled(effect.key, Result.DONE, job.generation), None
        if job.generation != effect.observation.generation or effect.key.attempt in job.withdrawn:
            return EffectSettled(effect.key, Result.REFUSED), self.seen(effect.key.workload)
        job.suspended, job.attempt, job.generation = False, effect.key.attempt, job.generation + 1
        job.pods, job.over = effect.attempt.assignment.pods, None
        job.starts.append(effect.key.attempt)
        self._crashes.boundary("after start")
        self.emit([self.seen(effect.key.workload)])
        return EffectSettled(effect.key, Result.DONE, job.generation), None

    async def withdraw(self, effect: Effect) -> tuple[EffectSettled, WorkloadObserved | WorkloadGone | None]:
        self._maybe_away()
        job = self.jobs.get(effect.key.workload)
        if job is None:
            return EffectSettled(effect.key, Result.GONE), WorkloadGone(effect.key.workload)
        job.withdrawn.add(effect.key.attempt)
        return EffectSettled(effect.key, Result.DENIED), self.seen(effect.key.workload)

    async def arrive(self) -> None:
        """Let the starts through that got no answer."""
        for effect in self.late:
            await self.start(effect)

    async def stop(self, effect: Effect) -> tuple[EffectSettled, WorkloadObserved | WorkloadGone | None]:
        self._maybe_away()
        self._crashes.boundary("before stop")
        job = self.jobs.get(effect.key.workload)
        if job is None:
            return EffectSettled(effect.key, Result.GONE), WorkloadGone(effect.key.workload)
        done = EffectSettled(effect.key, Result.DONE, job.generation)
        if self.denies == effect.workload.ref.name and job.suspended:
            raise WriteDenied("policy x says no", done)
        if not job.suspended:
            job.suspended, job.generation, job.pods = True, job.generation + 1, 0
            why = effect.eviction.reason.code if effect.eviction is not None else None
            job.over = ENDS.get(why) if why is not None else None
            job.stops += 1
        self._crashes.boundary("after stop")
        self.emit([self.seen(effect.key.workload)])
        return EffectSettled(effect.key, Result.DONE, job.generation), None

    async def anything_alive(
        self,
        ref: ObjectRef,
        *,
        still: float = 0.0,
        unreachable: Set[str] = frozenset(),
    ) -> bool:
        if len(self.counts) == self.away_at:
            self.away_at, self.unavailable = None, 1
        self._maybe_away()
        self.counts.append(still)
        if self.counted is not None:
            await self.counted.wait()
        job = self.jobs.get(WorkloadId(ref.uid))
        unseen = self.mute and still < self.patience
        return job is not None and (job.pods > 0 or unseen or (not job.suspended and not job.finished))

    async def count_fewer(self, count: PodsToCount, unreachable: Set[str] = frozenset()) -> list[Event]:
        self._maybe_away()
        job = self.jobs.get(count.workload)
        if job is not None and job.pods > (count.at_most or 0):
            return []
        return [PodsCounted(count.workload, count.attempt, alive=False, at_most=count.at_most)]

    async def check(self, child: ChildToCheck | PodOwnerToRead) -> list[Event]:
        """Its owner, by the reference that it has."""
        self._maybe_away()
        if isinstance(child, PodOwnerToRead):
            return [PodOwnerRead(child.workload, child.owner.uid, belongs=False)]
        owner = self.jobs[child.workload].workload.owner
        assert owner is not None
        there = WorkloadId(owner.uid) in self.jobs
        read = OwnerRead(
            child.workload, WorkloadId(owner.uid) if there else None, None if there else "is not there"
        )
        return [self.seen(child.workload), read]

    async def announce(self, notice: Notice) -> None:
        self.notices.append(notice)

    async def publish_local_queue(self, report: LocalQueueReport) -> None:
        if report.name.name == self.refuses_status_of:
            raise ClusterUnavailable("you may not")
        self.published.append(report)

    async def publish_cluster_queue(self, report: ClusterQueueReport) -> None:
        pass

    def _maybe_away(self) -> None:
        if self.unavailable:
            self.unavailable -= 1
            raise ClusterUnavailable("away")


def opened(snapshot: LedgerSnapshot) -> dict[str, AttemptState]:
    """Open attempts by the name of their workload."""
    return {w.ref.name: w.attempt.state for w in snapshot.workloads if w.attempt is not None}
