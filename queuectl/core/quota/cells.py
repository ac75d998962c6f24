"""Cells, numbered. A number is used again once no spec names the cell and nothing is held of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from typing import Final

from queuectl.core.model.resources import FlavorResource

FREE: Final = FlavorResource("", "")
"""Name of a number that is free."""


class CellNumbers:
    def __init__(self) -> None:
        self.numbers: dict[FlavorResource, int] = {}
        self.names: list[FlavorResource] = []
        """By number."""
        self.unnamed: set[int] = set()
        """Cells that no spec names."""
        self._specs: Counter[int] = Counter()
        """Number of specs that name a cell."""
        self._free: list[int] = []

    def add(self, name: FlavorResource) -> int:
        """Give a new cell a number: one that is free, or the next one."""
        if self._free:
            number = self._free.pop()
            self.names[number] = name
        else:
            number = len(self.names)
            self.names.append(name)
        self.numbers[name] = number
        self.unnamed.add(number)
        return number

    def change_spec(self, before: Set[int], after: Set[int]) -> None:
        """A spec that named the cells `before` names the cells `after`."""
        self._specs.update(after - before)
        self._specs.subtract(before - after)
        for cell in before ^ after:
            if self._specs[cell]:
                self.unnamed.discard(cell)
            else:
                del self._specs[cell]
                self.unnamed.add(cell)

    def forget(self, held: Set[int]) -> None:
        """Free the numbers of the cells that no spec names, but for those of `held`."""
        for cell in sorted(self.unnamed - held):
            del self.numbers[self.names[cell]]
            self.names[cell] = FREE
            self._free.append(cell)
        self.unnamed &= held
