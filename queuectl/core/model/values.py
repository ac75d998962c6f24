"""Immutable value classes. Only the type checker enforces the immutability.

At run time they are plain slotted dataclasses. A frozen dataclass sets each field by a separate call, so its
construction costs three times as much, and an admission constructs about twenty values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    from dataclasses import dataclass

    def value(*, frozen, **options):
        assert frozen
        return dataclass(unsafe_hash=True, **options)


__all__ = ["value"]
