"""The places in the queue that pods leave to those that are created in their stead (O9).

A controller knows them of the pods that it has seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import replace
from datetime import datetime
from time import monotonic
from typing import Final, NamedTuple

from queuectl.core.model.events import WorkloadObserved
from queuectl.core.model.workload import WorkloadId

SECONDS: Final = 60.0
"""How long a place is kept after the pod that left it is gone."""


class _Place(NamedTuple):
    maker: Hashable
    since: datetime
    waits: bool
    """It leaves its place if it is deleted."""
    left: bool
    """Others may take its place, or have."""


class PodPlaces:
    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._of: dict[WorkloadId, _Place] = {}
        self._free: dict[Hashable, dict[WorkloadId, datetime]] = {}
        """By what makes them, the places of those that have left theirs."""
        self._gone: deque[tuple[float, Hashable, WorkloadId]] = deque()
        """Until when such a place is kept."""

    def placed(self, seen: WorkloadObserved, maker: Hashable | None, *, stopped: bool) -> WorkloadObserved:
        """In its place. `maker`: what creates another one in its stead, None: nothing; `stopped`: for what
        lets it keep its place."""
        if maker is None:
            return seen
        workload, created = seen.workload.id, seen.workload.created_at
        known = self._of.get(workload)
        since = known.since if known is not None else self._taken(maker, created)
        waits, left = seen.observation.suspended, known is not None and known.left
        if stopped and not left:
            self._free.setdefault(maker, {})[workload] = since
        self._of[workload] = _Place(maker, since, waits, left or stopped)
        return replace(seen, ordered_from=since) if since < created else seen

    def forget(self, workload: WorkloadId) -> None:
        """It is gone."""
        known = self._of.pop(workload, None)
        if known is None:
            return
        if known.waits and not known.left:
            self._free.setdefault(known.maker, {})[workload] = known.since
        if workload in self._free.get(known.maker, ()):
            self._gone.append((self._clock() + SECONDS, known.maker, workload))

    def _taken(self, maker: Hashable, created: datetime) -> datetime:
        while self._gone and self._gone[0][0] <= self._clock():
            self._drop(*self._gone.popleft()[1:])
        free = self._free.get(maker)
        if free is None:
            return created
        since, oldest = min((when, workload) for workload, when in free.items())
        self._drop(maker, oldest)
        return min(since, created)

    def _drop(self, maker: Hashable, workload: WorkloadId) -> None:
        free = self._free.get(maker, {})
        free.pop(workload, None)
        if not free:
            self._free.pop(maker, None)
