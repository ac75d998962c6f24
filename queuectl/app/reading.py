"""`queuectl api`: REST over the ledger, and nothing else."""

from __future__ import annotations

import asyncio
import logging

from queuectl.api.server import serve
from queuectl.app.signals import stop_on_signals
from queuectl.ledger import schema
from queuectl.ledger.engine import database
from queuectl.ledger.queries import LedgerReadings, clusters
from queuectl.settings import ConfigurationError, Settings

log = logging.getLogger(__name__)

_WAIT_FOR_CLUSTER = 2.0


async def run_api(settings: Settings) -> None:
    """Serve REST until SIGTERM or SIGINT: of the cluster that is set, else of the only one in the ledger."""
    url = settings.database_url
    await schema.check(url)
    cluster = settings.api.cluster or await _only_cluster(url)
    async with database(url, read_only=True) as engine, asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(
            serve(
                LedgerReadings(engine, cluster),
                host=settings.api.listen.host,
                port=settings.api.listen.port,
                cursor_key=settings.cursor_key,
                refresh_seconds=settings.api.refresh_seconds,
                started=lambda base: log.info("REST at %s", base),
            )
        )
        stop_on_signals(serving.cancel)


async def _only_cluster(url: str) -> str:
    async with database(url, read_only=True) as engine:
        while not (known := await clusters(engine)):
            log.info("no controller has used this ledger yet: waiting for one")
            await asyncio.sleep(_WAIT_FOR_CLUSTER)
    if len(known) > 1:
        raise ConfigurationError(
            f"the ledger holds {len(known)} clusters ({', '.join(known)}): "
            "say which with api.cluster in --config"
        )
    return known[0]
