"""What is not told but asked, at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from queuectl.core.reports import ClusterReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Each is called on the controller's event loop and must not block."""

    leads: Callable[[], bool]
    lease_age: Callable[[], float | None] | None
    """Seconds since our last good write of the lease, None while it is not ours; None itself: no lease."""
    silence: Callable[[], Mapping[str, float | None]]
    """Seconds since the API server was last heard, by kind; None: never."""
    standing: Callable[[], ClusterReport]
    unsettled: Callable[[], tuple[int, float]]
    """How many committed Kubernetes writes are not done, and for how many seconds the oldest."""
