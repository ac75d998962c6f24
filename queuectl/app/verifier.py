"""Compares the ledger with its own history beside a controller, in a process of its own with a low priority.

Before each comparison it rolls up the usage of the hours that are closed.
The replay of a long history takes minutes of CPU: on the controller's loop it would delay every decision. It
begins at the checkpoint that the child stores from time to time.
The child reads the cluster's id and the intervals as arguments, the database's URL from the environment, and
writes one line of JSON for each comparison: its findings, or null where the ledger did not answer. It ends
with its parent, whose pipe it reads.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import logging
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final

from queuectl.ledger.admin.verify import Verifier
from queuectl.ledger.history.checkpoint import INTERVAL
from queuectl.ledger.history.replay import LedgerFinding
from queuectl.ledger.history.usage_hours import roll_up
from queuectl.ledger.pool import UPKEEP, connection_pool
from queuectl.ports.ledger import LedgerRefused, LedgerUnavailable, SchemaMismatch
from queuectl.settings.component import DATABASE_URL_VARIABLE

log = logging.getLogger(__name__)

_NICENESS: Final = 10
_LINE: Final = 1 << 24
"""Bytes of the longest line: as many findings as are listed."""


async def comparisons(
    url: str, cluster: str, seconds: float, decisions: int = INTERVAL, zone: str = "UTC"
) -> AsyncGenerator[list[LedgerFinding] | None, None]:
    """Findings of one comparison after another, `seconds` apart; None: the ledger did not answer.

    A checkpoint is stored after this number of new decisions. Ends when the child does, which is not
    expected.
    """
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "queuectl.app.verifier", cluster, str(seconds), str(decisions), zone),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {DATABASE_URL_VARIABLE: url},
        limit=_LINE,
    )
    assert child.stdout is not None
    try:
        async for line in child.stdout:
            found = json.loads(line)
            yield None if found is None else [LedgerFinding(**one) for one in found]
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


def main(arguments: Sequence[str]) -> None:
    """The child."""
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    os.nice(_NICENESS)
    cluster, seconds, decisions, zone = arguments
    url = os.environ[DATABASE_URL_VARIABLE]
    asyncio.run(_compare(url, cluster, float(seconds), int(decisions), zone))


async def _compare(url: str, cluster: str, seconds: float, decisions: int, zone: str) -> None:
    async with connection_pool(url, statement_timeout=UPKEEP) as pool, asyncio.TaskGroup() as tasks:
        roll = functools.partial(roll_up, pool, cluster, zone)
        comparing = tasks.create_task(_repeat(Verifier(pool, cluster), roll, seconds, decisions))
        await asyncio.to_thread(sys.stdin.buffer.read)  # until the parent ends
        comparing.cancel()


async def _repeat(
    verifier: Verifier, roll: Callable[[], Awaitable[int]], seconds: float, decisions: int
) -> None:
    """`roll`: rolls up the usage of hours that are closed."""
    while True:
        await asyncio.sleep(seconds)
        found = None
        try:
            await roll()
        except (LedgerUnavailable, LedgerRefused, SchemaMismatch) as error:
            log.warning("usage not rolled up: %s", error)
        try:
            found = [dataclasses.asdict(one) for one in await verifier.run()]
            await verifier.store(decisions)
        except (LedgerUnavailable, LedgerRefused, SchemaMismatch) as error:
            log.warning("ledger not verified, or the checkpoint not stored: %s", error)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
