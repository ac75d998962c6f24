"""`queuectl controller --observe`: decide and record, and leave the cluster alone."""

from __future__ import annotations

import logging
from pathlib import Path

from queuectl.app import leading
from queuectl.controller.mirror import Emit, Mirror, MirroredLedger
from queuectl.kube.session import Session
from queuectl.ledger.pool import Pool
from queuectl.ledger.postgres import PostgresLedger
from queuectl.ledger.queries import LedgerReadings
from queuectl.metrics.registry import Metrics
from queuectl.ports import observed_twin
from queuectl.settings import Settings

log = logging.getLogger(__name__)


async def run_observer(settings: Settings, kubeconfig: Path | None, context: str | None) -> None:
    """Observe until SIGTERM or SIGINT. Raises what `run_controller` does."""
    if settings.controller.lease is not None:
        log.info("controller.lease is left to controllers that act: of observers the last one started counts")

    async def take_seat(pool: Pool, session: Session, cluster: str, _: Metrics) -> leading.Seat:
        twin = observed_twin(cluster)
        mirror = Mirror(session.server_time, LedgerReadings(pool, twin).recorded)

        def told_by(emit: Emit) -> Emit:
            mirror.show_to(emit)
            return mirror.see

        ledger = PostgresLedger(pool, twin, beside=mirror.reality, settings=settings.scheduling.rules())
        return leading.Seat(
            key=twin,
            ledger=MirroredLedger(ledger, mirror),
            cluster=mirror,
            told_by=told_by,
            lease=leading.Alone(),
            beside=(mirror.settle_doubts,),
        )

    await leading.run(settings, kubeconfig, context, take_seat)
