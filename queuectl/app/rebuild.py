"""`queuectl rebuild`: makes the open holds of a lost ledger again."""

from __future__ import annotations

from pathlib import Path

from queuectl.app.kinds import job_kinds
from queuectl.app.kueue import honoured
from queuectl.kube.census import admitted
from queuectl.kube.connections import session_to
from queuectl.kube.session import cluster_id
from queuectl.ledger.admin import rebuild as rebuilding
from queuectl.ledger.admin import schema
from queuectl.settings import Settings


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
