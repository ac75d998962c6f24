"""`queuectl sandbox`: starts the sandbox with or without a screen."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from queuectl.ledger.admin import schema
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.read.queries import LedgerReadings
from queuectl.sandbox.run import SandboxOptions, SandboxParts, run
from queuectl.screen.terminal import can_show

if TYPE_CHECKING:
    from queuectl.screen.poller import Ask


async def run_sandbox(options: SandboxOptions, client: Callable[[str], Ask] | None = None) -> int:
    """Serve until Ctrl-C or SIGTERM. Returns the exit code. `client`: of the REST server at a URL, for the
    screen; None: there is no screen."""

    async def migrated(url: str) -> None:
        await schema.migrate(url)

    screen = partial(_show, client) if client is not None and can_show() else None
    parts = SandboxParts(now=_now, migrate=migrated, readings=_readings_of, screen=screen)
    return await run(options, parts)


def _now() -> datetime:
    """The clock of this machine, for players."""
    return datetime.fromtimestamp(time.time_ns() / 1e9, UTC)


@contextlib.asynccontextmanager
async def _readings_of(url: str, cluster: str) -> AsyncIterator[LedgerReadings]:
    async with connection_pool(url, read_only=True) as pool:
        yield LedgerReadings(pool, cluster)


async def _show(client: Callable[[str], Ask], url: str, folder: Path, lines: Sequence[str]) -> None:
    """The screen, imported on a thread, so that the sandbox's API server goes on meanwhile."""
    live = await asyncio.to_thread(import_module, "queuectl.screen.live")
    notes = ("Try in another terminal", *(f"  {line}" for line in lines))
    texts = live.ScreenTexts(place=_short(folder), notes=notes, leave="stop")
    await live.Screen(client(url), server=url, clock=_local_now, texts=texts).run()


def _short(folder: Path) -> str:
    """With ~ for the user's home."""
    try:
        return f"~/{folder.relative_to(Path.home())}"
    except (RuntimeError, ValueError):  # no home is known; it is elsewhere
        return str(folder)


def _local_now() -> datetime:
    return _now().astimezone()
