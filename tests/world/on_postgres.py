"""Schedules whose calls of the ledger are repeated on a real Postgres: `python -m tests.world --postgres`.

Each call must have the same outcome there, and both ledgers must end alike. What fails between a replica and
the ledger's twin never reached the twin, so it is not repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import fields
from typing import Final, cast

from queuectl.core.model.workload import ForReaders
from queuectl.ledger.admin.schema import migrate
from queuectl.ledger.admin.verify import verify
from queuectl.ledger.pool import create_pool
from queuectl.ledger.read.queries import LedgerReadings
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.ports.ledger import LedgerRefused, LostLeadership
from queuectl.sandbox.postgres import EmbeddedPostgres
from tests.integration.ledger.places import reachable_folder
from tests.world.database import TAKE_EPOCH, RecordedLedger
from tests.world.replica import SETTINGS
from tests.world.schedule import schedule
from tests.world.world import Outcome, World

_BY_ITS_CLOCK: Final = frozenset({"epoch", "committed_at", "read_at"})
"""What readers see of the clock of the database, which is not virtual."""


def played_on_postgres(seeds: Iterable[int]) -> Iterator[Outcome]:
    """Play each; what is different on Postgres is a violation, too."""
    with asyncio.Runner() as runner, reachable_folder() as folder:
        stack = AsyncExitStack()
        server = EmbeddedPostgres(folder / "pg", settings={"fsync": "off"})
        runner.run(stack.enter_async_context(server))
        try:
            runner.run(migrate(server.url))
            for seed in seeds:
                world = World(schedule(seed))
                outcome = world.run()
                outcome.violations += runner.run(_repeated(server.url, f"seed-{seed}", world.memory))
                yield outcome
        finally:
            runner.run(stack.aclose())


async def _repeated(url: str, cluster: str, twin: RecordedLedger) -> list[str]:
    """Repeat the calls of a schedule that has ended; return what is different."""
    pool = create_pool(url)
    found: list[str] = []
    ledgers: dict[int, tuple[PostgresLedger, int]] = {}
    try:
        for call in twin.calls:
            if call.what == TAKE_EPOCH:  # a process of its own
                ledger = PostgresLedger(pool, cluster, settings=SETTINGS.configuration())
                ledgers[call.epoch] = ledger, cast(int, await call.repeat(ledger, 0))
                continue
            if call.epoch not in ledgers:
                continue  # the ledger has lost it
            ledger, epoch = ledgers[call.epoch]
            outcome = await _outcome(call.repeat(ledger, epoch))
            if outcome != call.outcome:
                found.append(f"{call.what}: {call.outcome} in the twin, {outcome} in Postgres")
        there, here = [await one.since(0) for one in (LedgerReadings(pool, cluster), twin)]
        for name in sorted({one.name for one in fields(here)} - _BY_ITS_CLOCK):
            values = [_in_order(getattr(one, name)) for one in (here, there)]
            if values[0] != values[1]:
                found.append(f"{name}: {values[0]} in the twin, {values[1]} in Postgres")
    finally:
        await pool.dispose()
    return [*found, *(str(finding) for finding in await verify(url, cluster))]


def _in_order(value: object) -> object:
    """What readers are told has no order."""
    if isinstance(value, ForReaders):
        return [_in_order(part) for part in value]
    return sorted(value, key=repr) if isinstance(value, tuple) else value


async def _outcome(call: Awaitable[object]) -> object:
    try:
        return await call
    except (LedgerRefused, LostLeadership) as error:
        return type(error).__name__
