"""The registry of kinds that tests work with."""

from __future__ import annotations

from queuectl.kinds.builtin import BUILT_IN as JOB_KINDS

__all__ = ["JOB_KINDS"]
