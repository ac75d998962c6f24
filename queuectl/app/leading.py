"""`queuectl controller`: lead, decide, act."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from queuectl.app.connecting import open_session, session_to
from queuectl.app.signals import stop_on_signals
from queuectl.controller.loop import Controller
from queuectl.core.engine import Engine
from queuectl.core.events import ConfigurationObserved
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.lease import KubeLease
from queuectl.kube.reflector import Reflectors, reflectors
from queuectl.kube.session import Session, cluster_id
from queuectl.kube.sources import sources
from queuectl.ledger import schema
from queuectl.ledger.engine import database
from queuectl.ledger.partitions import drop_history, ensure_partitions
from queuectl.ledger.postgres import PostgresLedger
from queuectl.ledger.verify import Verifier
from queuectl.metrics.counting import Counting
from queuectl.metrics.endpoint import serve as serve_metrics
from queuectl.metrics.probes import Probes
from queuectl.metrics.registry import Metrics
from queuectl.ports import Lease, LedgerRefused, LedgerUnavailable, SchemaMismatch
from queuectl.settings import Settings

Found = TypeVar("Found")
log = logging.getLogger(__name__)

_LAG_EVERY = 0.5

Work = Callable[[], Coroutine[Any, Any, None]]
"""Something that goes on beside the controller."""


async def run_controller(settings: Settings, kubeconfig: Path | None, context: str | None) -> None:
    """Lead until SIGTERM or SIGINT. Raises SchemaMismatch, LostLeadership, OSError (port in use)."""
    url = settings.database_url
    await schema.check(url, writing=True)
    async with session_to(kubeconfig, context) as session, database(url) as engine:
        cluster = await cluster_id(session)
        metrics = Metrics()
        session.answered = metrics.kubernetes_answered
        core = Engine(frozenset(source.name for source in sources()))
        controller = Controller(
            ledger=PostgresLedger(engine, cluster),
            cluster=KubeCluster(session),
            engine=core,
            observer=Counting(metrics),
            holder=_holder(),
            budget=settings.controller.budget,
            workers=settings.controller.effects,
            status_seconds=settings.controller.status_seconds,
        )
        controller.emit([ConfigurationObserved(json.dumps(settings.public(), sort_keys=True))])
        reflecting = reflectors(session, controller.emit)
        lease = _lease(settings, kubeconfig, context, metrics)
        metrics.observe(
            Probes(
                leads=lambda: controller.leads,
                lease_age=lease.age if isinstance(lease, KubeLease) else None,
                silence=reflecting.ages,
                standing=core.standing,
                unsettled=controller.unsettled,
            )
        )

        async def upkeep() -> None:
            """Every minute: partitions ahead of time, and the ledger held against its own history."""
            verifier = Verifier(engine, cluster)
            while True:
                await asyncio.sleep(settings.controller.verify_seconds)
                await _attempted("partitions not made ahead", ensure_partitions(engine))
                if settings.database.keep_months is not None:
                    dropping = drop_history(engine, settings.database.keep_months)
                    await _attempted("old history not dropped", dropping)
                findings = await _attempted("ledger not verified", verifier.run())
                if findings is None:
                    continue
                metrics.ledger_findings([finding.code for finding in findings])
                for finding in findings:
                    log.error("the ledger does not agree with its history: %s", finding)

        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(_measure_lag(metrics)),
                tasks.create_task(_serve_metrics(settings, metrics, controller, reflecting)),
            ]
            leading = tasks.create_task(_lead(lease, controller, reflecting.run, upkeep))
            # While it stands by there is nothing to finish.
            stop_on_signals(lambda: controller.stop() if controller.leads else leading.cancel())
            await asyncio.wait([leading])
            for task in beside:
                task.cancel()


async def _attempted(otherwise: str, work: Awaitable[Found]) -> Found | None:
    """What the ledger refuses here is for people to mend: nothing that runs or waits hangs on it."""
    try:
        return await work
    except (LedgerUnavailable, LedgerRefused, SchemaMismatch) as error:
        log.warning("%s: %s", otherwise, error)
        return None


async def _lead(lease: Lease, controller: Controller, *beside: Work) -> None:
    """From the moment the lease is ours until the controller has stopped."""

    async def heed() -> None:
        await lease.lost()
        log.error("the lease is lost: stopping")
        controller.stop()

    await lease.acquire()
    try:
        async with asyncio.TaskGroup() as tasks:
            leading = tasks.create_task(controller.run(), name="controller")
            others = [tasks.create_task(work()) for work in (heed, *beside)]
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


def _lease(
    settings: Settings, kubeconfig: Path | None, context: str | None, metrics: Metrics
) -> KubeLease | _Alone:
    name = settings.controller.lease
    if name is None:
        return _Alone()
    namespace, _, name = name.partition("/")

    async def connect() -> Session:
        session = await open_session(kubeconfig, context)
        session.answered = metrics.kubernetes_answered
        return session

    return KubeLease(connect, namespace=namespace, name=name, holder=_holder())


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


def _holder() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"
