"""The columns of tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    right: bool = False
    """Right-aligned, for numbers."""
    wide: bool = False
    """Shown with `-o wide` only."""
    drop: int = 0
    """Left out in a terminal that is too narrow: the highest number first; 0: never."""
