"""Who comes first (docs/scheduling.md, O1 and O2)."""

from __future__ import annotations

from datetime import datetime

Order = tuple[int, int, int]
Place = tuple[int, int, int, str]
"""Order, and where that is the same the identity of the workload."""


def order(priority: int, created_at: datetime, arrival: int) -> Order:
    """Smaller goes first: higher priority, then earlier creation, then earlier first sight.

    Kubernetes stamps creation in whole seconds, so first sight decides between workloads of the same second.
    """
    return (-priority, int(created_at.timestamp()), arrival)
