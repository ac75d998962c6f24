"""Policies that lower the priority of a workload (O8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

PRIORITY_CLASS: Final = "WorkloadPriorityClass"


class LoweredPriority(NamedTuple):
    """A policy has a workload ordered, admitted and preempted at the priority of a lower class (O8)."""

    policy: str
    """Such as `Budget/lab`; `WorkloadPriorityClass/NAME`: a limited class, given to what runs (X8)."""
    priority_class: str
    priority: int
    """Of that class when it was lowered: it lowers only."""
    attempt: int | None = None
    """For this attempt alone; None: until the policy ends it."""


Lowered = tuple[LoweredPriority, ...]
"""One for each kind of policy at most, sorted."""


def lowered_in(lowered: Lowered, attempt: int | None) -> Iterator[LoweredPriority]:
    """Yield what lowers the priority of a workload while `attempt` is open; None: while it waits."""
    return (one for one in lowered if one.attempt is None or one.attempt == attempt)


def counting_priority(own: int, lowered: Lowered, attempt: int | None) -> int:
    """Return the priority that counts for a workload whose class gives it `own`."""
    return min((own, *(one.priority for one in lowered_in(lowered, attempt))))


def lowered_by(lowered: Lowered, kind: str) -> LoweredPriority | None:
    """Return what a policy of this kind lowers to; None: none does."""
    return next((one for one in lowered if one.policy.startswith(f"{kind}/")), None)


def with_lowered(lowered: Lowered, kind: str, by: LoweredPriority | None) -> Lowered:
    """Return `lowered` with this as what policies of a kind lower to."""
    others = [one for one in lowered if not one.policy.startswith(f"{kind}/")]
    return tuple(sorted([*others, *([by] if by is not None else ())]))
