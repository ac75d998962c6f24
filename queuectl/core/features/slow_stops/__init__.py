"""Evicted workloads whose pods do not end: they hold their quota, and that is said (L27)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from datetime import datetime, timedelta
from typing import ClassVar, NamedTuple

from queuectl.core.decisions import Decision, Evict
from queuectl.core.entries import Entry
from queuectl.core.feature import Feature, Number
from queuectl.core.model.workload import Attempt, LedgerSnapshot, ObjectRef, Phase, WorkloadId


class SlowStop(NamedTuple):
    """An eviction that has not ended in time."""

    workload: WorkloadId
    ref: ObjectRef
    attempt: int
    since: datetime
    """When it was evicted."""
    seconds: int
    """The time that it had."""
    pods: tuple[str, ...]
    """The first of its bound pods, each with its node."""

    @property
    def message(self) -> str:
        """What is to be known of it, as one sentence for users."""
        named = f": {', '.join(self.pods)}" if self.pods else ""
        return (
            f"was evicted, and {self.seconds} s later not all of its pods have ended{named}; "
            "its quota is not released before that, unless an admin releases it by force"
        )


class SlowStops(Feature):
    decisions: ClassVar = frozenset({Evict})

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._evicting: set[WorkloadId] = set()
        self._late: dict[WorkloadId, None] = {}
        self._fresh: dict[WorkloadId, Entry] = {}
        """Those of `_late` that no driver has been told of."""

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

    def take_late(self, pods: Callable[[WorkloadId], tuple[str, ...]]) -> list[SlowStop]:
        """Return the evictions that became late since the last call. `pods`: names of the bound pods."""
        fresh, self._fresh = self._fresh, {}
        return [
            SlowStop(
                entry.id, entry.ref, entry.attempt.number, entry.evicted_at, self._seconds, pods(entry.id)
            )
            for entry in fresh.values()
            if entry.attempt is not None and entry.evicted_at is not None
        ]
