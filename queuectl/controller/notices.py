"""Kubernetes Events for users of kubectl: which decisions are worth one, and when (R4).

The ledger has every decision; an Event is a copy that expires within the hour, so it is sent after the commit
and dropped after three tries. Under contention the limit that binds moves all the time: an Event for each
change would be more than a user reads. A new leader knows nothing of what was said before, and says what
changes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from queuectl.core.decisions import Admit, Amend, Evict, Keep, Plan, Retire
from queuectl.core.feature import Alarm
from queuectl.core.model.reasons import Reason, redacted
from queuectl.core.model.workload import Assignment, ObjectRef, WorkloadId
from queuectl.ports.cluster import Notice

PATIENCE: Final = 5.0
"""Seconds that a workload waits before an Event says why."""
PAUSE: Final = 60.0
"""Least seconds from one reason of a workload that an Event says to the next."""

Told = tuple[WorkloadId, Notice]


@dataclass(slots=True)
class _Waiting:
    """A pending workload with its newest reason."""

    ref: ObjectRef
    reason: Reason
    at: datetime
    said: Hashable = None
    """Key of the reason that an Event said last."""


class Notices:
    """Chooses Events. Starts and stops are said at once; reasons of waiting workloads wait for their turn.

    A first reason is said if the workload still waits after `patience` seconds, later ones at most every
    PAUSE seconds, and the newest one always, unless the workload starts or ends before. Namespaces take
    turns where more are due than may be said. Workloads that change nothing cost nothing. `now` is in
    seconds, of any clock that does not run back.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._waiting: dict[WorkloadId, _Waiting] = {}
        self._fresh: dict[WorkloadId, float] = {}
        """When the reason of a workload is due; in order of time, as is the next."""
        self._quiet: dict[WorkloadId, float] = {}
        """Until when to say nothing of a workload, because a reason was said shortly before."""
        self._due: dict[str, dict[WorkloadId, None]] = {}
        """By namespace, what is due; the namespace that had its turn last comes last."""

    def __len__(self) -> int:
        """Return the number of workloads of which anything is kept."""
        return len(self._waiting.keys() | self._fresh.keys() | self._quiet.keys()) + len(self._due)

    def of(self, plan: Plan, now: float) -> Iterator[Told]:
        """Yield what is said at once of a committed plan, in its order; remember the new reasons in it."""
        for decision in plan.decisions:
            match decision:
                case Keep(workload, ref, reason, recorded) if recorded:
                    self._wait(workload, _Waiting(ref, reason, plan.now), now)
                case Admit(attempt, ref, detail):
                    self._leave(attempt.workload)
                    text = _flavors(attempt.assignment)
                    text += f"; charged as debt: {detail}" if attempt.debt else ""
                    yield (
                        attempt.workload,
                        Notice(ref, "Admitted", text, key=f"{attempt.number}", at=plan.now),
                    )
                case Amend(workload, ref, attempt, reason=Reason() as reason):
                    key = f"{attempt} {reason.detail}"
                    notice = Notice(ref, reason.code, _told(ref, reason), warning=True, key=key, at=plan.now)
                    yield workload, notice
                case Evict(workload, ref, attempt, reason):
                    self._leave(workload)
                    notice = Notice(
                        ref, "Evicted", _told(ref, reason), warning=True, key=f"{attempt}", at=plan.now
                    )
                    yield workload, notice
                case Retire(workload):
                    self._leave(workload)
                    self._quiet.pop(workload, None)
                case _:
                    pass

    def due(self, now: float, most: int) -> Iterator[Told]:
        """Yield the reasons whose turn it is, `most` at most: the rest is due at the next call."""
        self._find_due(now)
        while most > 0 and self._due:
            namespace = next(iter(self._due))
            line = self._due.pop(namespace)
            workload = next(iter(line))
            del line[workload]
            if line:
                self._due[namespace] = line
            one = self._waiting[workload]
            if one.said == one.reason.key:
                continue  # it is back to what was said
            one.said = one.reason.key
            self._quiet[workload] = now + PAUSE
            most -= 1
            yield (
                workload,
                Notice(one.ref, "Pending", _told(one.ref, one.reason), key=one.at.isoformat(), at=one.at),
            )

    def _find_due(self, now: float) -> None:
        for line in (self._quiet, self._fresh):
            while line:
                workload, when = next(iter(line.items()))
                if when > now:
                    break
                del line[workload]
                if (one := self._waiting.get(workload)) is not None:
                    self._due.setdefault(one.ref.namespace, {})[workload] = None

    def _wait(self, workload: WorkloadId, newest: _Waiting, now: float) -> None:
        if (known := self._waiting.get(workload)) is not None:
            newest.said = known.said
        self._waiting[workload] = newest
        due = workload in self._due.get(newest.ref.namespace, ())
        if not due and workload not in self._fresh and workload not in self._quiet:
            self._fresh[workload] = now + self._patience

    def _leave(self, workload: WorkloadId) -> None:
        """It does not wait any more. That a reason was said shortly before still counts if it waits again."""
        self._fresh.pop(workload, None)
        one = self._waiting.pop(workload, None)
        line = self._due.get(one.ref.namespace, {}) if one is not None else {}
        if workload in line:
            del line[workload]
            if not line and one is not None:
                del self._due[one.ref.namespace]


def warning(alarm: Alarm) -> Told:
    """Return the Event of an alarm."""
    key = alarm.key or f"{alarm.attempt}"
    return alarm.workload, Notice(alarm.ref, alarm.reason, alarm.message, warning=True, key=key)


def _told(ref: ObjectRef, reason: Reason) -> str:
    """The reason for readers of its namespace: it may name a workload of another one."""
    return redacted(reason, (ref.namespace,)).message


def _flavors(assignment: Assignment) -> str:
    parts = []
    for pod_set in assignment.pod_sets:
        chosen = ", ".join(f"{resource}={flavor}" for resource, flavor in pod_set.flavors)
        parts.append(f"{pod_set.name} x{pod_set.count} {chosen}".strip())
    return f"ClusterQueue {assignment.cluster_queue}: {'; '.join(parts)}"
