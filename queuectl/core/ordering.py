"""Who comes first (docs/scheduling.md, O1, O2 and O6)."""

from __future__ import annotations

from datetime import datetime

Place = tuple[int, int, int, str]
"""Sort key of a workload in a pending queue; the last part is the workload's identity."""


def queue_place(
    priority: int, created_at: datetime, arrival: int, workload: str, *, requeued_at: datetime | None = None
) -> Place:
    """The smallest is first: higher priority, then earlier creation, then earlier first sight.

    Kubernetes stamps creation in whole seconds, so first sight decides between workloads of the same second.
    `requeued_at`: counts as the creation where it is later (O6).
    """
    if requeued_at is not None:
        created_at = max(created_at, requeued_at)
    return (-priority, int(created_at.timestamp()), arrival, workload)
