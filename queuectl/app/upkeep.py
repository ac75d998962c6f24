"""`queuectl migrate`, `verify`, `rebuild` and `report observe`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from queuectl.app.kinds import job_kinds
from queuectl.app.kueue import honoured
from queuectl.kube.census import admitted, labelled, topmost
from queuectl.kube.connections import session_to
from queuectl.kube.errors import ApiError, BadKubeconfig
from queuectl.kube.pod_groups import LedgerGroups
from queuectl.kube.session import Session, cluster_id
from queuectl.ledger.admin import rebuild as rebuilding
from queuectl.ledger.admin import schema
from queuectl.ledger.admin import verify as verifying
from queuectl.ledger.admin.cluster_comparison import differences
from queuectl.ledger.history.replay import LedgerFinding
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.ports.cluster import ClusterUnavailable
from queuectl.settings import Settings
from queuectl.shadow import report

log = logging.getLogger(__name__)

_TIMES: Final = 3
_PAUSE: Final = 3.0
"""Seconds between two comparisons: objects and ledger change while they are read."""


async def migrate(settings: Settings) -> None:
    """Migrate the ledger's schema to this version."""
    await schema.migrate(settings.database_url)


async def verify(settings: Settings, *, from_checkpoint: bool) -> Sequence[object]:
    """Differences between the ledger and its own history, of all clusters in it."""
    await schema.check(settings.database_url)
    return await verifying.verify(settings.database_url, from_checkpoint=from_checkpoint)


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
            groups = LedgerGroups()
            groups.restore(stored)
            objects = await labelled(session, kinds, honoured(settings), kinds, groups)
            now = differences(stored, objects)
            found = [one for one in now if not time or one in found]
            if not found:
                break
    return found


async def rebuild(settings: Settings, kubeconfig: Path | None, context: str | None) -> int:
    """Make open holds from running workloads; returns how many. Stops nothing."""
    url = settings.database_url
    await schema.check(url, writing=True)
    async with session_to(kubeconfig, context) as session:
        found = [
            rebuilding.Found(seen.workload, seen.observation, admission.assignment.cluster_queue, 0)
            for seen in await admitted(session, job_kinds(settings).registry, honoured(settings))
            if (admission := seen.observation.admission) is not None
        ]
        return await rebuilding.rebuild(url, await cluster_id(session), found)


async def observed(
    settings: Settings,
    kubeconfig: Path | None,
    context: str | None,
    *,
    cluster: str | None,
    since: report.Since,
    decisions: bool,
) -> dict[str, Any]:
    """The report of `shadow.report`, with what the observer does not look at if the cluster can be read."""
    objects = None
    try:
        async with session_to(kubeconfig, context) as session:
            objects = await cluster_id(session), await topmost(session, job_kinds(settings).registry)
    except (ApiError, BadKubeconfig, ClusterUnavailable, OSError) as error:
        log.warning("how many objects the observer does not look at is not known: %s", error)
    return await report.report(settings, objects, cluster=cluster, since=since, decisions=decisions)
