"""Evicted workloads whose pods do not end: they hold their quota, and that is said (L27)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import datetime, timedelta
from typing import ClassVar, Protocol

from queuectl.core.decisions import Decision, Evict
from queuectl.core.entries import Entry
from queuectl.core.feature import Alarm, Feature, Number
from queuectl.core.model.workload import Attempt, LedgerSnapshot, Phase, WorkloadId


class PodNames(Protocol):
    def bound_pods(self, workload: WorkloadId) -> tuple[str, ...]:
        """Return the first pods of a workload that are bound, each with its node."""


class SlowStops(Feature):
    decisions: ClassVar = frozenset({Evict})

    def __init__(self, seconds: int, nodes: PodNames) -> None:
        """`seconds`: the time that evicted pods have to end."""
        self._seconds, self._nodes = seconds, nodes
        self._evicting: set[WorkloadId] = set()
        self._late: dict[WorkloadId, None] = {}
        self._fresh: dict[WorkloadId, Entry] = {}
        """Those of `_late` without an alarm yet."""

    @property
    def set_aside(self) -> Set[WorkloadId]:
        return self._late.keys()

    def restored(self, snapshot: LedgerSnapshot, entries: Mapping[WorkloadId, Entry]) -> None:
        self._evicting = {entry.id for entry in entries.values() if entry.phase is Phase.EVICTING}
        self.active = bool(self._evicting)

    def decided(self, decision: Decision, entry: Entry) -> None:
        self._evicting.add(entry.id)
        self.active = True

    def released(self, entry: Entry, attempt: Attempt, now: datetime) -> None:
        self._evicting.discard(entry.id)
        self._late.pop(entry.id, None)
        self._fresh.pop(entry.id, None)
        self.active = bool(self._evicting)

    def next_time(self, entry: Entry, now: datetime) -> datetime | None:
        """Return when its eviction is late."""
        if entry.id not in self._evicting or entry.evicted_at is None:
            return None
        return entry.evicted_at + timedelta(seconds=self._seconds)

    def gives_up(self, entry: Entry, now: datetime) -> bool:
        due = self.next_time(entry, now)
        if due is None or due > now or entry.id in self._late:
            return False
        self._late[entry.id] = None
        self._fresh[entry.id] = entry
        return True

    def numbers(self) -> tuple[Number, ...]:
        what = "Evicted workloads whose pods have not ended within scheduling.terminatingAlarmSeconds."
        return (Number("slow_stops", what, len(self._late)),)

    def take_alarms(self) -> Iterator[Alarm]:
        """Yield an alarm for each eviction that became late since the last call."""
        fresh, self._fresh = self._fresh, {}
        for entry in fresh.values():
            if entry.attempt is not None:
                message = self._message(self._nodes.bound_pods(entry.id))
                yield Alarm(entry.id, entry.ref, entry.attempt.number, "StillTerminating", message)

    def _message(self, pods: Sequence[str]) -> str:
        named = f": {', '.join(pods)}" if pods else ""
        return (
            f"was evicted, and {self._seconds} s later not all of its pods have ended{named}; "
            "its quota is not released before that, unless an admin releases it by force"
        )
