"""The event loop of server processes: libuv's takes less CPU for each message than that of asyncio."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import uvloop

log = logging.getLogger(__name__)

_CLOSED: Final = "the handler is closed"


def new_event_loop() -> asyncio.AbstractEventLoop:
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_handle)
    return loop


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # uvloop calls it a fatal error if bytes arrive for a TLS connection that this side has closed, such as
    # after a pause of the process: https://github.com/MagicStack/uvloop/issues/506. Nothing is lost by it.
    error = context.get("exception")
    if isinstance(error, RuntimeError) and str(error).endswith(_CLOSED):
        log.debug("bytes for a connection that is closed: %s", error)
        return
    loop.default_exception_handler(context)
