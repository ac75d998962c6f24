"""The shortest schedule that still fails: steps are left out as long as there is a violation."""

from __future__ import annotations

from dataclasses import replace

from tests.world.schedule import Schedule
from tests.world.world import Outcome, play_schedule

_MOST_TRIES = 150


def shrunk(outcome: Outcome) -> Outcome:
    """Return the outcome of a part of a failed schedule that fails alike: no smaller part of it does."""
    kind, tries = _kind(outcome.violations), 0
    size = max(1, len(outcome.schedule.steps) // 2)
    while tries < _MOST_TRIES:
        for begin in range(0, len(outcome.schedule.steps), size):
            tries += 1
            smaller = play_schedule(_without(outcome.schedule, begin, begin + size))
            if smaller.violations and _kind(smaller.violations) == kind:
                outcome = smaller
                break
        else:
            if size == 1:
                break
            size //= 2
    return outcome


def _without(schedule: Schedule, begin: int, end: int) -> Schedule:
    return replace(
        schedule,
        steps=(*schedule.steps[:begin], *schedule.steps[end:]),
        kept=(*schedule.kept[:begin], *schedule.kept[end:]),
    )


def _kind(violations: list[str]) -> str:
    """The first words of the first violation, without names and numbers."""
    words = violations[0].split()
    return " ".join(word for word in words if word.isalpha())[:40]
