"""`queuectl sandbox`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from queuectl.ledger import schema
from queuectl.ledger.engine import database
from queuectl.ledger.queries import LedgerReadings
from queuectl.sandbox.run import Options, Parts, run


async def run_sandbox(options: Options) -> int:
    """Serve until Ctrl-C or SIGTERM. Returns the exit code."""

    async def migrated(url: str) -> None:
        await schema.migrate(url)

    parts = Parts(now=_now, migrate=migrated, readings=_readings_of)
    return await run(options, parts)


def _now() -> datetime:
    """For players, who live in the time of this machine."""
    return datetime.fromtimestamp(time.time_ns() / 1e9, UTC)


@contextlib.asynccontextmanager
async def _readings_of(url: str, cluster: str) -> AsyncIterator[LedgerReadings]:
    async with database(url, read_only=True) as engine:
        yield LedgerReadings(engine, cluster)
