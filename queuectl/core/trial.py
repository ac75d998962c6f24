"""Changes of the quota tree that are tried while a decision is made, and undone when it is (C5)."""

from __future__ import annotations

from collections.abc import Iterable

from queuectl.core.quota import Node, QuotaTree

Change = tuple[Node, Iterable[tuple[int, int]], bool]


class Trial:
    def __init__(self, tree: QuotaTree) -> None:
        self.tree = tree
        self._made: list[Change] = []

    def add(self, node: Node, cells: Iterable[tuple[int, int]]) -> None:
        self.tree.add(node, cells)
        self._made.append((node, cells, True))

    def remove(self, node: Node, cells: Iterable[tuple[int, int]]) -> None:
        self.tree.remove(node, cells)
        self._made.append((node, cells, False))

    def mark(self) -> int:
        return len(self._made)

    def undo(self, mark: int = 0) -> list[Change]:
        """Take back what was done since `mark`. Returns it, so that it can be done again."""
        undone = self._made[mark:]
        del self._made[mark:]
        for node, cells, added in reversed(undone):
            if added:
                self.tree.remove(node, cells)
            else:
                self.tree.add(node, cells)
        return undone

    def redo(self, changes: Iterable[Change]) -> None:
        for node, cells, added in changes:
            if added:
                self.add(node, cells)
            else:
                self.remove(node, cells)
