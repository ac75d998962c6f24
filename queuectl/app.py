"""The only module that knows concrete classes: each command's parts, put together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from queuectl.controller.loop import Controller
from queuectl.core.engine import Engine
from queuectl.core.events import ConfigurationObserved
from queuectl.kube.census import admitted
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.lease import KubeLease
from queuectl.kube.reflector import Reflectors, reflectors
from queuectl.kube.session import Session, cluster_id
from queuectl.kube.sources import sources
from queuectl.ledger import rebuild as rebuilding
from queuectl.ledger import schema
from queuectl.ledger import verify as verifying
from queuectl.ledger.engine import database
from queuectl.ledger.partitions import drop_history, ensure_partitions
from queuectl.ledger.postgres import PostgresLedger
from queuectl.ledger.queries import LedgerReadings, clusters
from queuectl.metrics.counting import Counting
from queuectl.metrics.endpoint import serve as serve_metrics
from queuectl.metrics.registry import Metrics
from queuectl.ports import Lease, LedgerUnavailable
from queuectl.settings import ConfigurationError, Settings

if TYPE_CHECKING:
    from queuectl.sandbox.run import Options

log = logging.getLogger(__name__)

_LAG_EVERY = 0.5
_WAIT_FOR_CLUSTER = 2.0


# --- controller ---------------------------------------------------------------------------------------


async def run_controller(settings: Settings, kubeconfig: Path | None, context: str | None) -> None:
    """Lead until SIGTERM or SIGINT. Raises SchemaMismatch, LostLeadership, OSError (port in use)."""
    url = settings.database_url
    await schema.check(url, writing=True)
    async with _session(kubeconfig, context) as session, database(url) as engine:
        cluster = await cluster_id(session)
        metrics = Metrics()
        controller = Controller(
            ledger=PostgresLedger(engine, cluster),
            cluster=KubeCluster(session),
            engine=Engine(frozenset(source.name for source in sources())),
            observer=Counting(metrics),
            holder=_holder(),
            budget=settings.controller.budget,
            workers=settings.controller.effects,
            status_seconds=settings.controller.status_seconds,
        )
        controller.emit([ConfigurationObserved(json.dumps(settings.public(), sort_keys=True))])
        reflecting = reflectors(session, controller.emit)
        metrics.observe_reflectors(reflecting.ages)

        async def upkeep() -> None:
            """Every minute: partitions ahead of time, and the ledger held against its own history."""
            verifier = verifying.Verifier(engine, cluster)
            while True:
                await asyncio.sleep(settings.controller.verify_seconds)
                try:
                    await ensure_partitions(engine)
                    if settings.database.keep_months is not None:
                        await drop_history(engine, settings.database.keep_months)
                    findings = await verifier.run()
                except LedgerUnavailable as error:
                    log.warning("ledger not verified: %s", error)
                    continue
                metrics.ledger_findings(len(findings))
                for finding in findings:
                    log.error("the ledger does not agree with its history: %s", finding)

        lease = _lease(settings, kubeconfig, context)
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(_measure_lag(metrics)),
                tasks.create_task(_serve_metrics(settings, metrics, controller, reflecting)),
            ]
            leading = tasks.create_task(_lead(lease, controller, reflecting.run, upkeep))
            # While it stands by there is nothing to finish.
            _stop_on_signals(lambda: controller.stop() if controller.leads else leading.cancel())
            await asyncio.wait([leading])
            for task in beside:
                task.cancel()


async def _lead(lease: Lease, controller: Controller, *beside: Callable[[], Awaitable[None]]) -> None:
    """From the moment the lease is ours until the controller has stopped."""

    async def heed() -> None:
        await lease.lost()
        log.error("the lease is lost: stopping")
        controller.stop()

    async def run(work: Callable[[], Awaitable[None]]) -> None:
        await work()

    await lease.acquire()
    try:
        async with asyncio.TaskGroup() as tasks:
            leading = tasks.create_task(controller.run(), name="controller")
            others = [tasks.create_task(run(work)) for work in (heed, *beside)]
            await asyncio.wait([leading])
            for task in others:
                task.cancel()
    finally:
        await lease.release()


class _Alone:
    """The Lease of a controller that has no rivals: the epoch in the ledger is all there is."""

    async def acquire(self) -> None:
        return

    async def lost(self) -> None:
        await asyncio.Event().wait()

    async def release(self) -> None:
        return


def _lease(settings: Settings, kubeconfig: Path | None, context: str | None) -> Lease:
    name = settings.controller.lease
    if name is None:
        return _Alone()
    namespace, _, name = name.partition("/")
    return KubeLease(
        lambda: _open_session(kubeconfig, context), namespace=namespace, name=name, holder=_holder()
    )


async def _open_session(kubeconfig: Path | None, context: str | None) -> Session:
    """To the cluster of a kubeconfig; where none is named and we run in a pod, to its own."""
    in_pod = kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ
    path = str(kubeconfig) if kubeconfig else None
    return await (Session.in_cluster() if in_pod else Session.from_kubeconfig(path, context))


@contextlib.asynccontextmanager
async def _session(kubeconfig: Path | None, context: str | None) -> AsyncIterator[Session]:
    session = await _open_session(kubeconfig, context)
    try:
        yield session
    finally:
        await session.close()


def _stop_on_signals(stop: Callable[[], object]) -> None:
    """The first asks to finish what is under way, the second ends at once."""
    loop = asyncio.get_running_loop()
    asked = False

    def handle() -> None:
        nonlocal asked
        if asked:
            os._exit(130)
        asked = True
        log.info("stopping")
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle)


async def _measure_lag(metrics: Metrics) -> None:
    loop = asyncio.get_running_loop()
    while True:
        before = loop.time()
        await asyncio.sleep(_LAG_EVERY)
        metrics.loop_lag(max(0.0, loop.time() - before - _LAG_EVERY))


async def _serve_metrics(
    settings: Settings, metrics: Metrics, controller: Controller, reflecting: Reflectors
) -> None:
    def ready() -> str | None:
        if controller.ready:
            return None
        if not controller.leads:
            return "standing by: another controller leads"
        silent = sorted(name for name, age in reflecting.ages().items() if age is None)
        return f"not read yet: {', '.join(silent)}" if silent else "the ledger was not read yet"

    await serve_metrics(
        metrics,
        host=settings.controller.listen.host,
        port=settings.controller.listen.port,
        healthy=lambda: None,
        ready=ready,
        started=lambda url: log.info("metrics and probes at %s", url),
    )


# --- reading and upkeep -----------------------------------------------------------------------------------


async def run_api(settings: Settings, kubeconfig: Path | None, context: str | None) -> None:
    """Serve REST until SIGTERM or SIGINT: of the kubeconfig's cluster, else of the only one in the ledger."""
    # Only here: a controller has no use for it, and starts faster without.
    from queuectl.api.server import serve

    url = settings.database_url
    await schema.check(url)
    cluster = await _cluster(url, kubeconfig, context)
    async with _readings(url, cluster) as readings, asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(
            serve(
                readings,
                host=settings.api.listen.host,
                port=settings.api.listen.port,
                cursor_key=settings.cursor_key,
                refresh_seconds=settings.api.refresh_seconds,
                started=lambda base: log.info("REST at %s", base),
            )
        )
        _stop_on_signals(serving.cancel)


async def _cluster(url: str, kubeconfig: Path | None, context: str | None) -> str:
    if kubeconfig is not None:
        async with _session(kubeconfig, context) as session:
            return await cluster_id(session)
    async with database(url, read_only=True) as engine:
        while not (known := await clusters(engine)):
            log.info("no controller has used this ledger yet: waiting for one")
            await asyncio.sleep(_WAIT_FOR_CLUSTER)
    if len(known) > 1:
        raise ConfigurationError(
            f"the ledger holds {len(known)} clusters ({', '.join(known)}): say which with --kubeconfig"
        )
    return known[0]


@contextlib.asynccontextmanager
async def _readings(url: str, cluster: str) -> AsyncIterator[LedgerReadings]:
    async with database(url, read_only=True) as engine:
        yield LedgerReadings(engine, cluster)


async def migrate(settings: Settings) -> None:
    """Bring the ledger's tables to this version."""
    await schema.migrate(settings.database_url)


async def verify(settings: Settings) -> Sequence[object]:
    """Differences between the ledger and its own history, of all clusters in it."""
    await schema.check(settings.database_url)
    return await verifying.verify(settings.database_url, None)


async def rebuild(settings: Settings, kubeconfig: Path | None, context: str | None) -> int:
    """Make the open holds of a lost ledger again from what runs; returns how many. Stops nothing."""
    url = settings.database_url
    await schema.check(url, writing=True)
    async with _session(kubeconfig, context) as session:
        found = [
            rebuilding.Found(seen.workload, seen.observation, admission.assignment.cluster_queue, 0)
            for seen in await admitted(session)
            if (admission := seen.observation.admission) is not None
        ]
        return await rebuilding.rebuild(url, await cluster_id(session), found)


async def run_sandbox(options: Options) -> int:
    """Serve until Ctrl-C or SIGTERM. Returns the exit code."""
    # Only here: its extra dependencies are not there where only a controller is installed.
    from queuectl.sandbox.run import Parts, run

    async def migrated(url: str) -> None:
        await schema.migrate(url)

    parts = Parts(now=_now, migrate=migrated, readings=_readings)
    return await run(options, parts)


def _now() -> datetime:
    """For players, who live in the time of this machine."""
    return datetime.fromtimestamp(time.time_ns() / 1e9, UTC)


def _holder() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"
