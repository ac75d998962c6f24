"""The task beside the controller that reads what GPUs do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final

from queuectl.core.model.events import DeviceUseFound
from queuectl.idle.check import Judged, Queries, check
from queuectl.idle.prometheus import Prometheus
from queuectl.idle.verdicts import UseRules
from queuectl.kube.session import Session
from queuectl.ledger.device_use import LedgerDeviceUse
from queuectl.ledger.pool import Pool
from queuectl.ports.idle import UseRecords
from queuectl.ports.ledger import LedgerRefused, LedgerUnavailable
from queuectl.settings.idle import IdleSettings

log = logging.getLogger(__name__)

_CHECKS: Final = 3
"""So many checks may fail before what the last one found says nothing any more."""

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
    judged = judged_by(settings)
    while True:
        try:
            told(await check(records, session, prometheus, judged))
        except (LedgerUnavailable, LedgerRefused) as error:
            log.warning("devices are not checked: %s", error)
        except Exception:
            # Nothing is decided by a check: what fails in one must not end the controller.
            log.exception("a check of devices failed")
        await asyncio.sleep(settings.check_seconds)


def judged_by(settings: IdleSettings) -> Judged:
    """The thresholds and exemptions of the configuration."""
    hang = settings.hang
    rules = UseRules(
        window_seconds=settings.window_seconds,
        sample_seconds=settings.sample_seconds,
        coverage=settings.coverage,
        idle_below=settings.idle_below,
        sparse_below=settings.sparse_below,
        hang_seconds=hang.window_seconds,
        hang_engine_above=hang.engine_above,
        hang_multiprocessors_below=hang.multiprocessors_below,
        hang_pipes_below=hang.pipes_below,
        hang_watts_below=hang.watts_below,
    )
    lasts = timedelta(seconds=_CHECKS * settings.check_seconds)
    selector = settings.prometheus.selector if settings.prometheus is not None else ""
    return Judged(settings.resources, frozenset(settings.exempt_classes), rules, lasts, selector)
