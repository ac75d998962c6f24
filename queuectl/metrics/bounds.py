"""Bounds on the number of series: queues and rows above the bound are summed as `other`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

OTHER: Final = "other"
MOST_QUEUES: Final = 1_000
"""ClusterQueues with series of their own."""
MOST_ROWS: Final = 10_000
"""Series of one family."""

Row = tuple[tuple[str, ...], float]
"""Label values and the value of the series."""


class BoundedNames:
    """The names that have series of their own: the first ones seen, as long as they exist."""

    def __init__(self, most: int = MOST_QUEUES) -> None:
        self._most = most
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        if name in self._known or len(self._known) < self._most:
            self._known.add(name)
            return name
        return OTHER

    def forget(self, name: str) -> bool:
        """It was deleted: another name may take its place. Returns whether it had series of its own."""
        if name not in self._known:
            return False
        self._known.discard(name)
        return True


def summed(rows: Iterable[Row], most: int = MOST_ROWS) -> list[Row]:
    """Sums rows with equal labels; from `most` rows on, the rest is one row with every label `other`."""
    found: dict[tuple[str, ...], float] = {}
    for labels, value in rows:
        found[labels] = found.get(labels, 0.0) + value
    ordered = sorted(found.items())
    kept, rest = ordered[:most], list(islice(ordered, most, None))
    if rest:
        kept.append(((OTHER,) * len(rest[0][0]), sum(value for _, value in rest)))
    return kept
