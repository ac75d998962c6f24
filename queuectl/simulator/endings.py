"""How long the pods of evicted workloads take to end, from earlier evictions (A26). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from statistics import median
from typing import Final

from queuectl.readings import PastLife

USUAL_SECONDS: Final = 30.0
"""The default grace period of Kubernetes: where too few evictions are known."""
LEAST_ENDINGS: Final = 8
MOST_ENDINGS: Final = 99
"""The last ones count."""


def pods_end_seconds(lives: Iterable[PastLife]) -> float:
    """Return the median time from an eviction to the return of the quota."""
    known = (
        (run.ended_at, (run.ended_at - run.evicted_at).total_seconds())
        for life in lives
        for run in life.runs
        if run.evicted_at is not None and run.ended_at is not None
    )
    last = [seconds for _, seconds in nlargest(MOST_ENDINGS, known)]
    return median(last) if len(last) >= LEAST_ENDINGS else USUAL_SECONDS
