"""How well a flavor serves a request, and which one is preferred (F3, F6, F7)."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from queuectl.core.model.policy import FlavorFungibility


class Mode(IntEnum):
    """How a flavor could satisfy a request, worst first (F3)."""

    NO_FIT = 0
    NO_CANDIDATES = 1  # only with the quota of other workloads, and none of them is a candidate
    PREEMPT = 2  # by preemption in its own ClusterQueue, and possibly in others
    RECLAIM = 3  # by preemption in other ClusterQueues only
    FIT = 4  # with available quota

    @property
    def preempts(self) -> bool:
        """Whether the quota of other workloads is needed."""
        return Mode.NO_FIT < self < Mode.FIT


class GranularMode(NamedTuple):
    """A mode and the borrow level of the request (Q9)."""

    mode: Mode
    level: int


def better(one: GranularMode, other: GranularMode, rules: FlavorFungibility) -> bool:
    """Return whether `one` is strictly preferred to `other` (F7)."""
    low = min(one.mode, other.mode)
    if low <= Mode.NO_CANDIDATES and one.mode != other.mode:
        return one.mode > other.mode
    if rules.preemption_over_borrowing:
        return (-one.level, one.mode) > (-other.level, other.mode)
    return (one.mode, -one.level) > (other.mode, -other.level)


def keeps_looking(chance: GranularMode, rules: FlavorFungibility) -> bool:
    """Return whether the next flavor is evaluated after one that offers `chance` (F6)."""
    return (
        chance.mode <= Mode.NO_CANDIDATES
        or (chance.mode.preempts and rules.try_next_before_preempting)
        or (chance.level > 0 and rules.try_next_before_borrowing)
    )
