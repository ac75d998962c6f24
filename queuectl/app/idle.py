"""The task beside the controller that reads what GPUs do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from queuectl.core.model.events import DeviceUseFound
from queuectl.idle.check import Queries, check
from queuectl.idle.prometheus import Prometheus
from queuectl.kube.session import Session
from queuectl.ledger.device_use import LedgerDeviceUse
from queuectl.ledger.pool import Pool
from queuectl.ports.idle import UseRecords
from queuectl.ports.ledger import LedgerRefused, LedgerUnavailable
from queuectl.settings.idle import IdleSettings

log = logging.getLogger(__name__)

Told = Callable[[Iterable[tuple[str, DeviceUseFound]]], None]
"""Is told of each attempt that holds devices: its ClusterQueue and its finding."""


async def watch(settings: IdleSettings, pool: Pool, cluster: str, session: Session, told: Told) -> None:
    """Check again and again. Returns at once where no Prometheus is configured."""
    source = settings.prometheus
    if source is None:
        return
    prometheus = Prometheus(source.url, token=source.token_file, ca=source.ca_file)
    await check_forever(settings, LedgerDeviceUse(pool, cluster), session, prometheus, told)


async def check_forever(
    settings: IdleSettings, records: UseRecords, session: Session, prometheus: Queries, told: Told
) -> None:
    while True:
        try:
            told(await check(records, session, prometheus, settings))
        except (LedgerUnavailable, LedgerRefused) as error:
            log.warning("devices are not checked: %s", error)
        except Exception:
            # Nothing is decided by a check: what fails in one must not end the controller.
            log.exception("a check of devices failed")
        await asyncio.sleep(settings.check_seconds)
