"""What limits an admission, as one interface, and a journal of changes that are tried on it.

The quota tree (`core/quota/tree.py`) is the first implementation; room on nodes and topology can be others.
Admission cycles, preemption searches and claims use this interface only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from queuectl.core.quota.tree import Cells, QuotaNode
from queuectl.core.reasons import Reason


class AdmissionLimit(Protocol):
    """Counts what admitted workloads use, and decides whether more fits.

    `node` is the node of the ClusterQueue that is charged. `cells` are pairs of a cell number and an amount
    in base units.
    """

    def fits(self, node: QuotaNode, cells: Cells) -> bool:
        """Return whether all of `cells` is available at `node` now."""

    def add(self, node: QuotaNode, cells: Iterable[tuple[int, int]]) -> None:
        """Charge `cells` to `node`, whether they fit or not."""

    def remove(self, node: QuotaNode, cells: Iterable[tuple[int, int]]) -> None:
        """Undo `add`, exactly."""

    def explain(self, node: QuotaNode, cell: int, amount: int) -> Reason:
        """Return why `amount` of `cell` is not available at `node`, with the limit that binds."""


Change = tuple[QuotaNode, Iterable[tuple[int, int]], bool]
"""Node, cells, and whether they were added."""


class UsageJournal:
    """An `AdmissionLimit` whose changes are recorded, so that they can be undone and redone (C5)."""

    def __init__(self, limit: AdmissionLimit) -> None:
        self._limit = limit
        self._changes: list[Change] = []

    @property
    def changed(self) -> Iterable[QuotaNode]:
        """The ClusterQueues that changes were made at."""
        return (node for node, _, _ in self._changes)

    def fits(self, node: QuotaNode, cells: Cells) -> bool:
        return self._limit.fits(node, cells)

    def explain(self, node: QuotaNode, cell: int, amount: int) -> Reason:
        return self._limit.explain(node, cell, amount)

    def add(self, node: QuotaNode, cells: Iterable[tuple[int, int]]) -> None:
        self._limit.add(node, cells)
        self._changes.append((node, cells, True))

    def remove(self, node: QuotaNode, cells: Iterable[tuple[int, int]]) -> None:
        self._limit.remove(node, cells)
        self._changes.append((node, cells, False))

    def mark(self) -> int:
        """Return a position in the journal for `undo`."""
        return len(self._changes)

    def undo(self, mark: int = 0) -> list[Change]:
        """Undo the changes since `mark`. Return them in the order in which they were made, for `redo`."""
        undone = self._changes[mark:]
        del self._changes[mark:]
        for node, cells, added in reversed(undone):
            if added:
                self._limit.remove(node, cells)
            else:
                self._limit.add(node, cells)
        return undone

    def redo(self, changes: Iterable[Change]) -> None:
        """Make `changes` again."""
        for node, cells, added in changes:
            if added:
                self.add(node, cells)
            else:
                self.remove(node, cells)
