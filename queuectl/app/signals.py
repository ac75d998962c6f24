"""Handling of Ctrl-C and SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable

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
