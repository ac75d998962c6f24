"""The registry of kinds that every command works with."""

from __future__ import annotations

from queuectl.kinds.builtin import BUILT_IN
from queuectl.kinds.registry import KindRegistry


def job_kinds() -> KindRegistry:
    """The built-in kinds."""
    return BUILT_IN
