"""Which capacities are stored as history (docs/decisions/0026-facts-for-readers.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from queuectl.core.model.capacity import FlavorCapacity

LEAST_SECONDS: Final = 60.0
"""Between two rows of one flavor, however often it changes."""
MOST_SECONDS: Final = 24 * 3600.0
"""After this time there is another row, also of a flavor that does not change: old months are dropped."""


class PastCapacities:
    """Pure: the caller says what time it is, in seconds."""

    def __init__(self) -> None:
        self._stored: dict[str, tuple[float, FlavorCapacity]] = {}
        """The last row of each flavor, with its time."""

    def due(self, now: float, capacities: Iterable[FlavorCapacity]) -> list[FlavorCapacity]:
        """Return those to store now, of all flavors that there are. Each call counts as if they were stored.

        A change is due at once, or as soon as LEAST_SECONDS have passed since the last row: the last of many
        changes is never left out.
        """
        there = {one.flavor: one for one in capacities}
        self._stored = {flavor: row for flavor, row in self._stored.items() if flavor in there}
        found = list(self._due(now, there.values()))
        self._stored |= {one.flavor: (now, one) for one in found}
        return found

    def _due(self, now: float, there: Iterable[FlavorCapacity]) -> Iterator[FlavorCapacity]:
        for one in there:
            at, stored = self._stored.get(one.flavor, (float("-inf"), None))
            if now - at >= (LEAST_SECONDS if one != stored else MOST_SECONDS):
                yield one
