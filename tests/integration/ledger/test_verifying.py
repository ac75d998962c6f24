"""The process that compares the ledger with its own history beside a controller."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.app.verifier import comparisons
from queuectl.ledger.history.checkpoint import load
from queuectl.ledger.pool import reading
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.sandbox.postgres import EmbeddedPostgres
from tests.integration.ledger.plans import enqueue, plan

DEADLINE = 60


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{_main()}/children").read_text().split())


def _main() -> str:
    return Path("/proc/self").resolve().name


async def test_a_process_of_its_own_with_low_priority_finds_what_was_changed_and_ends_with_its_reader(
    server: EmbeddedPostgres, pool: AsyncEngine, cluster: str
) -> None:
    ledger = PostgresLedger(pool, cluster)
    epoch = await ledger.take_epoch("test")
    await ledger.commit(plan(enqueue("one"), now=await ledger.now()), [], epoch=epoch, batch="a")
    before = _children()
    async with asyncio.timeout(DEADLINE), aclosing(comparisons(server.url, cluster, 0.01, 1)) as found:
        assert await anext(found) == []
        [child] = _children() - before
        stat = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        assert int(stat[16]) == os.nice(0) + 10  # its niceness
        assert await anext(found) == []  # what came before it is done
        async with reading(pool) as connection:
            checkpoint = await load(connection, cluster)
        assert checkpoint is not None
        assert checkpoint.sequence == 1
        changed = "UPDATE queuectl.workload SET attempts = 3 WHERE cluster_id = :c"
        async with pool.begin() as connection:
            await connection.execute(text(changed), {"c": cluster})
        codes: set[str] = set()
        while not codes:
            codes = {one.code for one in await anext(found) or []}
        assert codes == {"Workload"}
    assert not Path(f"/proc/{child}").exists()
