"""Waiting for a condition: poll it, with a deadline and a name for the error."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Final

FIRST: Final = 0.02
LONGEST: Final = 0.25
"""Seconds between two looks; they grow, because many conditions are requests to a server with work to do."""


async def eventually(condition: Callable[[], object], what: str, seconds: float = 20) -> None:
    """Return once the condition (plain or async) is truthy; fail with `what` after the deadline."""
    pause = FIRST
    try:
        async with asyncio.timeout(seconds):
            while True:
                value = condition()
                if inspect.isawaitable(value):
                    value = await value
                if value:
                    return
                await asyncio.sleep(pause)
                pause = min(1.3 * pause, LONGEST)
    except TimeoutError:
        raise AssertionError(f"waited {seconds} s in vain for {what}") from None
