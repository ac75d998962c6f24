"""How long the pods of evicted workloads take to end, from earlier evictions (A26). Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from heapq import nlargest
from statistics import median
from typing import Final

from queuectl.ports.reader import PastLife

USUAL_SECONDS: Final = 30.0
"""The default grace period of Kubernetes: where too few evictions are known."""
LEAST_ENDINGS: Final = 8
MOST_ENDINGS: Final = 99
"""The last ones count."""


class Endings:
    """The times from the last evictions to the return of their quota."""

    def __init__(self, lives: Iterable[PastLife]) -> None:
        known = (
            (run.ended_at, (run.ended_at - run.evicted_at).total_seconds())
            for life in lives
            for run in life.runs
            if run.evicted_at is not None and run.ended_at is not None
        )
        last = [seconds for _, seconds in nlargest(MOST_ENDINGS, known)]
        self._seconds = sorted(last) if len(last) >= LEAST_ENDINGS else [USUAL_SECONDS]
        self.usual: Final = median(self._seconds)

    def draw(self, part: float) -> float:
        """Return the time that a `part` from 0 to 1 of the evictions did not exceed."""
        return self._seconds[int(part * len(self._seconds))]

    def left(self, part: float, so_far: float) -> float:
        """Return the same of what is left where pods have been ending for so many seconds. Where no eviction
        took longer, half of such pods take as long again."""
        longer = self._seconds[bisect_right(self._seconds, so_far) :]
        return longer[int(part * len(longer))] - so_far if longer else so_far * part / (1.0 - part)
