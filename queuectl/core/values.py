"""Values: made once, never changed. The type checker sees to that alone.

At run time they are plain slotted dataclasses: a frozen one sets each field by a call of its own, which costs
three times as much to make, and each admission makes some twenty of them.
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
