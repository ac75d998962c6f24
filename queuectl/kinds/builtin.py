"""The kinds that need no configuration. Only `app` reads this table: all else is handed a registry."""

from __future__ import annotations

from typing import Final

from queuectl.kinds.jobs import ROWS
from queuectl.kinds.registry import KindRegistry

BUILT_IN: Final = KindRegistry(ROWS)
