"""`queuectl notifier` and `queuectl notifications`: messages about decisions, and how they go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from queuectl.app.api import scheduling, the_one
from queuectl.app.forecasts import Forecaster
from queuectl.app.process import stop_on_signals
from queuectl.ledger.admin import schema
from queuectl.ledger.history.state_at import LedgerPast
from queuectl.ledger.pool import Pool, connection_pool
from queuectl.ledger.read.outbox import PostgresOutbox, PostgresToldStarts
from queuectl.ledger.read.queries import clusters
from queuectl.metrics.exposition import NotifierMetrics
from queuectl.metrics.exposition import serve as serve_metrics
from queuectl.notifications.delivery import Delivery, Sink
from queuectl.notifications.messages import trial
from queuectl.notifications.sinks import sinks
from queuectl.notifications.starts import StartWatch
from queuectl.ports.ledger import LedgerUnavailable, is_observed
from queuectl.ports.outbox import Cursor
from queuectl.settings import ConfigurationError, Settings

log = logging.getLogger(__name__)

_AGAIN: Final = 2.0
"""Seconds to the next try after the ledger was not available."""


class NoSuchSink(Exception):
    """No sink of the configuration has this name. `known`: those that there are."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(name)
        self.known = known


async def run_notifier(settings: Settings) -> None:
    """Send until SIGTERM or SIGINT; while another process sends, stand by.

    Raises ConfigurationError, SchemaMismatch, OSError (port in use).
    """
    found = sinks(settings.notifications)
    metrics = NotifierMetrics(sink.name for sink in found)
    async with asyncio.TaskGroup() as tasks:
        work = [
            tasks.create_task(serve_metrics(metrics, settings.notifier.listen)),
            tasks.create_task(_work(settings, found, metrics)),
        ]

        def stop() -> None:
            for task in work:
                task.cancel()

        stop_on_signals(stop)


async def _work(settings: Settings, found: Sequence[Sink], metrics: NotifierMetrics) -> None:
    url = settings.database_url
    async with connection_pool(url) as pool:
        while True:
            try:
                await schema.check(url, writing=True)
                cluster = await _cluster(settings, pool)
                await _send(pool, cluster, found, metrics)
            except* LedgerUnavailable as errors:
                log.warning("no ledger, again in %g s: %s", _AGAIN, errors.exceptions[0])
            await asyncio.sleep(_AGAIN)


async def _cluster(settings: Settings, pool: Pool) -> str:
    """Raises ConfigurationError, and LedgerUnavailable before any controller has used the ledger."""
    known = await clusters(pool)
    if not known:
        raise LedgerUnavailable("no controller has used this ledger yet")
    cluster = settings.api.cluster or the_one(known)
    if is_observed(cluster):
        raise ConfigurationError(
            f"api.cluster: {cluster} is only observed: none of its decisions was carried out, so none is told"
        )
    return cluster


async def _send(pool: Pool, cluster: str, found: Sequence[Sink], metrics: NotifierMetrics) -> None:
    """While this process has the lock; raises LedgerUnavailable, in a group, once it is lost."""
    outbox = PostgresOutbox(pool, cluster)
    log.info("waiting for the lock of the notifier of cluster %s", cluster)
    async with outbox.alone() as lock, asyncio.TaskGroup() as tasks:
        log.info("sending to %s", ", ".join(sink.name for sink in found))
        tasks.create_task(outbox.hold(lock))
        for sink in found:
            tasks.create_task(Delivery(cluster, sink, outbox, metrics).run())
        watched = [sink for sink in found if sink.selection.moved_more_than is not None]
        if watched:
            forecaster = Forecaster(LedgerPast(pool, cluster, scheduling), scheduling)
            known = PostgresToldStarts(pool, cluster)
            tasks.create_task(StartWatch(cluster, watched, known, forecaster, metrics).run())


async def status(settings: Settings) -> dict[str, Any]:
    """How each sink goes, as JSON values. Raises ConfigurationError, LedgerUnavailable, SchemaMismatch."""
    cluster, last, _, stored = await _state(settings)
    cursors = {one.sink: one for one in stored}
    kinds = {one.name: one.kind for one in settings.notifications}
    names = [*kinds, *sorted(cursors.keys() - kinds.keys())]
    rows = [_row(name, kinds.get(name), cursors.get(name), last) for name in names]
    return {"cluster": cluster, "sequence": last, "items": rows}


async def test(settings: Settings, name: str) -> None:
    """Send a message to one sink, from this process.

    Raises NoSuchSink, ConfigurationError, SinkFailed, LedgerUnavailable, SchemaMismatch.
    """
    named = tuple(one for one in settings.notifications if one.name == name)
    if not named:
        raise NoSuchSink(name, [one.name for one in settings.notifications])
    (sink,) = sinks(named)
    cluster, _, now, _ = await _state(settings)
    await sink.send(trial(cluster, name, now))


async def _state(settings: Settings) -> tuple[str, int, datetime, list[Cursor]]:
    url = settings.database_url
    await schema.check(url)
    async with connection_pool(url, read_only=True) as pool:
        cluster = await _cluster(settings, pool)
        return cluster, *await PostgresOutbox(pool, cluster).state()


def _row(name: str, kind: str | None, cursor: Cursor | None, last: int) -> dict[str, Any]:
    """`kind` None: it is not in the configuration. Without a cursor it was not told of anything yet."""
    if cursor is None:
        found: dict[str, Any] = dict.fromkeys(("sequence", "behind", "sentAt", "error", "nextTry"))
        return {"name": name, "kind": kind, **found, "sent": 0, "failures": 0}
    return {
        "name": name,
        "kind": kind,
        "sequence": cursor.sequence,
        "behind": max(0, last - cursor.sequence),
        "sentAt": _time(cursor.sent_at),
        "error": cursor.error,
        "nextTry": _time(cursor.next_try),
        "sent": cursor.sent,
        "failures": cursor.failures,
    }


def _time(when: datetime | None) -> str | None:
    return None if when is None else when.astimezone(UTC).isoformat().replace("+00:00", "Z")
