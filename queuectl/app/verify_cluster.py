"""`queuectl verify --cluster`: the ledger against the objects of its cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from queuectl.app.kinds import job_kinds
from queuectl.app.kueue import honoured
from queuectl.kube.census import labelled
from queuectl.kube.connections import session_to
from queuectl.kube.session import Session, cluster_id
from queuectl.ledger.admin.cluster_comparison import differences
from queuectl.ledger.history.replay import LedgerFinding
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.settings import Settings

_TIMES: Final = 3
_PAUSE: Final = 3.0
"""Seconds between two comparisons: objects and ledger change while they are read."""


async def compare(
    settings: Settings, kubeconfig: Path | None, context: str | None
) -> Sequence[LedgerFinding]:
    """Return the differences that several comparisons find, each; none if ledger and objects agree.

    Raises LedgerUnavailable, ClusterUnavailable.
    """
    async with session_to(kubeconfig, context) as session:
        return await compared(settings, session)


async def compared(settings: Settings, session: Session, pause: float = _PAUSE) -> Sequence[LedgerFinding]:
    """As `compare`, with `pause` seconds between two comparisons."""
    kinds = job_kinds(settings).registry
    found: list[LedgerFinding] = []
    async with connection_pool(settings.database_url) as pool:
        ledger = PostgresLedger(pool, await cluster_id(session))
        for time in range(_TIMES):
            if time:
                await asyncio.sleep(pause)
            stored = await ledger.load()
            objects = await labelled(session, kinds, honoured(settings), kinds)
            now = differences(stored, objects)
            found = [one for one in now if not time or one in found]
            if not found:
                break
    return found
