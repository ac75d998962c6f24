"""Garbage collection in a process that answers requests: no answer waits for a look at all objects."""

from __future__ import annotations

import asyncio
import gc
from typing import Final

YOUNG: Final = 2_000
"""Objects after which the new ones are collected, in some milliseconds. Engines of what-ifs, which are most
of them, are freed without the collector."""
ALL_SECONDS: Final = 300.0
"""How often all objects are collected: with 50,000 pending workloads no request is answered for 0.2 s."""
_NEVER: Final = 2**31 - 1


def collect_young() -> None:
    """From now on collect new objects only. Those that are there already are never looked at: they stay."""
    gc.freeze()
    gc.set_threshold(YOUNG, _NEVER, _NEVER)


async def collect_all(every: float = ALL_SECONDS) -> None:
    """Collect all objects every so many seconds, until cancelled."""
    while True:
        await asyncio.sleep(every)
        gc.collect()
