"""Evicted workloads whose pods do not end: they hold their quota, and that is said (L27)."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime, timedelta
from typing import NamedTuple

from queuectl.core.entries import Entry
from queuectl.core.model.workload import ObjectRef, Phase, WorkloadId


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


class SlowStops:
    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._known: dict[WorkloadId, int] = {}
        """Workloads that are late, with the attempt."""
        self._fresh: dict[WorkloadId, None] = {}

    def __len__(self) -> int:
        return len(self._known)

    def due_at(self, entry: Entry) -> datetime | None:
        """Return when its eviction is late; None: it is not being evicted."""
        if entry.phase is not Phase.EVICTING or entry.evicted_at is None:
            return None
        return entry.evicted_at + timedelta(seconds=self._seconds)

    @property
    def late(self) -> Set[WorkloadId]:
        """Those that are late: nothing waits for the end of their pods any more (C14)."""
        return self._known.keys()

    def note(self, entry: Entry, now: datetime) -> bool:
        """`entry` changed, or its time has come. Return whether it became late."""
        due = self.due_at(entry)
        if due is None or due > now or entry.attempt is None:
            self.forget(entry.id)
        elif self._known.get(entry.id) != entry.attempt.number:
            self._known[entry.id] = entry.attempt.number
            self._fresh[entry.id] = None
            return True
        return False

    def forget(self, workload: WorkloadId) -> None:
        self._known.pop(workload, None)
        self._fresh.pop(workload, None)

    def take_fresh(self) -> list[WorkloadId]:
        """Return those that became late since the last call."""
        fresh, self._fresh = list(self._fresh), {}
        return fresh

    def described(self, entry: Entry, pods: tuple[str, ...]) -> SlowStop:
        assert entry.attempt is not None
        assert entry.evicted_at is not None
        return SlowStop(entry.id, entry.ref, entry.attempt.number, entry.evicted_at, self._seconds, pods)
