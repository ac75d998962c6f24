"""Figures of the controller that are sampled at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from queuectl.core.feature import Number
from queuectl.core.reports import ClusterReport
from queuectl.ports.cluster import KindState


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Each is called on the controller's event loop and must not block."""

    leads: Callable[[], bool]
    lease_age: Callable[[], float | None] | None
    """Seconds since this process last wrote the lease, None if another holds it; None itself: no lease."""
    silence: Callable[[], Mapping[str, float | None]]
    """Seconds since the last message of the API server, by kind; None: never."""
    kinds: Callable[[], Mapping[str, KindState]]
    """Kinds of jobs, by name."""
    cluster_report: Callable[[], ClusterReport]
    numbers: Callable[[], Iterable[Number]]
    """Of features of the engine."""
    unsettled: Callable[[], tuple[int, float]]
    """How many committed Kubernetes writes are not finished, and the age of the oldest in seconds."""
