"""How long a workload may run, over all its attempts (L13, G12)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final

from queuectl.core.decisions import Evict
from queuectl.core.directory import AffectedObjects
from queuectl.core.entries import Entry
from queuectl.core.feature import Feature, Kernel
from queuectl.core.features.run_time.limits import MAX_RUN, RunLimit, above_ceiling, run_limit
from queuectl.core.model.events import Event, PolicyObserved, WorkloadObserved
from queuectl.core.model.policy import ClusterQueue, LocalQueue, LocalQueueName, OnExceeded
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import Attempt, PastAttempts, Phase, Workload
from queuectl.core.queues.backoff import TO_REQUEUE

_LAST: Final = datetime.max.replace(tzinfo=UTC)


class RunTime(Feature):
    """Is active from the first queue or workload with a limit on."""

    events: ClassVar = frozenset({PolicyObserved, WorkloadObserved})
    workloads_with: ClassVar = "max_run_seconds"

    def __init__(self, kernel: Kernel) -> None:
        self._directory = kernel.directory

    def observe(self, event: Event, affected: AffectedObjects) -> None:
        match event:
            case WorkloadObserved(workload):
                self.active |= workload.max_run_seconds is not None
            case PolicyObserved(value=ClusterQueue() | LocalQueue() as queue):
                limits = queue.max_execution_time
                self.active |= limits.default is not None or limits.ceiling is not None
            case _:
                pass

    def _limit(self, entry: Entry) -> RunLimit | None:
        """Return the longest run time of a workload, by its label and its queues; None: no limit."""
        workload = entry.workload
        return None if workload is None else run_limit(workload, *self._queues(workload, entry.attempt))

    def _queues(
        self, workload: Workload, attempt: Attempt | None = None
    ) -> tuple[LocalQueue | None, ClusterQueue | None]:
        """Return its LocalQueue, and the ClusterQueue of its open attempt or of an admission now."""
        local = self._directory.local_queues.get(LocalQueueName(workload.ref.namespace, workload.queue))
        if attempt is not None:
            return local, self._directory.queues.get(attempt.assignment.cluster_queue)
        return local, self._directory.queues.get(local.cluster_queue) if local is not None else None

    def time_left(self, workload: Workload, past: PastAttempts) -> timedelta | None:
        """Return what is left of its run time (L13)."""
        limit = run_limit(workload, *self._queues(workload))
        return None if limit is None else timedelta(milliseconds=limit.seconds * 1000 - past.run_ms)

    # --- what waits

    def problem(self, workload: Workload, pods: object, cluster_queue: str) -> Reason | None:
        """Return why its label asks for more than its queues allow (G12)."""
        local = self._directory.local_queues.get(LocalQueueName(workload.ref.namespace, workload.queue))
        queue = self._directory.queues.get(cluster_queue)
        return above_ceiling(workload, local, queue) if local is not None and queue is not None else None

    def bars(self, entry: Entry) -> Reason | None:
        """Return the reason of a workload whose run time is used up (L19)."""
        limit = self._limit(entry)
        if limit is None or entry.past.run_ms < limit.seconds * 1000:
            return None
        remedy = "raise it" if limit.is_label else f"set label {MAX_RUN} as far as its queues allow more"
        used = f"the run time has reached the {limit.seconds} s of {limit.source}"
        return Reason(code=Code.DEACTIVATED, detail=f"{used}: {remedy}, or {TO_REQUEUE}")

    # --- what runs

    def step(self, entry: Entry, now: datetime) -> Evict | None:
        """Evict it once its run time is used up."""
        attempt, limit = entry.attempt, self._limit(entry)
        if attempt is None or limit is None or run_ends(entry.past, limit.seconds, attempt.admitted_at) > now:
            return None
        detail = f"{limit.source} allows {limit.seconds} s"
        reason = Reason(code=Code.MAXIMUM_EXECUTION_TIME_EXCEEDED, detail=detail)
        return Evict(entry.id, entry.ref, attempt.number, reason)

    def fails(self, entry: Entry) -> bool:
        """Return whether its run time is used up, and the nearest of its queues that says so fails it."""
        reason, workload = entry.reason, entry.workload
        if workload is None or reason is None or reason.code is not Code.MAXIMUM_EXECUTION_TIME_EXCEEDED:
            return False
        said = (
            queue.max_execution_time.on_exceeded for queue in self._queues(workload, entry.attempt) if queue
        )
        return next(filter(None, said), None) is OnExceeded.FAIL

    def next_time(self, entry: Entry, now: datetime) -> datetime | None:
        """Return when its run time is used up."""
        attempt, limit = entry.attempt, self._limit(entry)
        if attempt is None or limit is None or entry.phase is not Phase.ADMITTED:
            return None
        return run_ends(entry.past, limit.seconds, attempt.admitted_at)


def run_ends(past: PastAttempts, limit: int, admitted_at: datetime) -> datetime:
    """Return when the run time over all attempts reaches `limit` seconds; at most `_LAST`.

    `admitted_at` may be of an annotation that no controller wrote.
    """
    left = timedelta(milliseconds=limit * 1000 - past.run_ms)
    return admitted_at + left if left < _LAST - admitted_at else _LAST
