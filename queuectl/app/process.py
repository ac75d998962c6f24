"""A process that serves: its end by Ctrl-C and SIGTERM, and its garbage collection."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)


def stop_on_signals(stop: Callable[[], object]) -> None:
    """The first signal lets work under way finish, the second ends the process at once."""
    loop = asyncio.get_running_loop()
    asked = False

    def handle() -> None:
        nonlocal asked
        if asked:
            os._exit(130)
        asked = True
        log.info("stopping")
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle)


YOUNG: Final = 2_000
"""Objects after which the new ones are collected, in some milliseconds. Engines of what-ifs, which are most
of them, are freed without the collector."""
ALL_SECONDS: Final = 300.0
"""How often all objects are collected: with 50,000 pending workloads nothing else is done for 0.2 s."""
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
