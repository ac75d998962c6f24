"""`queuectl controller --observe`: decides and records, and writes nothing to the cluster."""

from __future__ import annotations

import logging
from pathlib import Path

from queuectl.app import controller as leading
from queuectl.app.kinds import job_kinds
from queuectl.kube.session import Session
from queuectl.ledger.pool import Pool
from queuectl.ledger.read.queries import LedgerReadings
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.metrics.registry import Metrics
from queuectl.ports.ledger import observed_twin
from queuectl.settings import Settings
from queuectl.shadow.cluster import Emit, Mirror, MirroredLedger

log = logging.getLogger(__name__)


async def run_observer(settings: Settings, kubeconfig: Path | None, context: str | None) -> None:
    """Observe until SIGTERM or SIGINT. Raises what `run_controller` does."""
    if settings.controller.lease is not None:
        log.info("controller.lease is not used by observers: the one started last replaces the others")

    async def make_parts(pool: Pool, session: Session, cluster: str, _: Metrics) -> leading.ControllerParts:
        twin = observed_twin(cluster)
        mirror = Mirror(session.server_time, LedgerReadings(pool, twin).recorded)

        def receiver(emit: Emit) -> Emit:
            mirror.show_to(emit)
            return mirror.see

        ledger = PostgresLedger(
            pool, twin, beside=mirror.reality, settings=settings.scheduling.configuration()
        )
        return leading.ControllerParts(
            key=twin,
            ledger=MirroredLedger(ledger, mirror),
            cluster=mirror,
            receiver=receiver,
            lease=leading.NoElection(),
            nodes=False,
            beside=(mirror.settle_doubts,),
        )

    await leading.run(settings, job_kinds(settings), kubeconfig, context, make_parts)
