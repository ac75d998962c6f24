"""`queuectl controller`: lead, decide, act."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from queuectl.app import kueue
from queuectl.app.connecting import open_session, session_to
from queuectl.app.signals import stop_on_signals
from queuectl.controller.loop import Controller
from queuectl.core.engine import Engine
from queuectl.core.events import ConfigurationObserved, Event
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.errors import NotFound
from queuectl.kube.lease import KubeLease
from queuectl.kube.reflector import Reflectors, reflectors
from queuectl.kube.session import Session, cluster_id
from queuectl.kube.sources import sources
from queuectl.ledger import schema
from queuectl.ledger.partitions import drop_history, ensure_partitions
from queuectl.ledger.pool import Pool, connection_pool
from queuectl.ledger.postgres import PostgresLedger
from queuectl.ledger.queries import installation
from queuectl.ledger.verify import Verifier
from queuectl.metrics.counting import Counting
from queuectl.metrics.endpoint import serve as serve_metrics
from queuectl.metrics.registry import Metrics
from queuectl.metrics.sampled import Sampled
from queuectl.ports import (
    Cluster,
    ClusterUnavailable,
    ForeignLedger,
    Lease,
    Ledger,
    LedgerRefused,
    LedgerUnavailable,
    LedgerUnfit,
    SchemaMismatch,
)
from queuectl.settings import ConfigurationError, Settings

Found = TypeVar("Found")
log = logging.getLogger(__name__)

_LAG_EVERY = 0.5
_FIRST_WAIT, _LAST_WAIT = 0.5, 10.0
"""Seconds between two tries at a start."""

Work = Callable[[], Coroutine[Any, Any, None]]
"""Something that goes on beside the controller."""


Emit = Callable[[Iterable[Event]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What a controller works with: the cluster itself, or its twin of an observer."""

    key: str
    """Of its rows in the ledger."""
    ledger: Ledger
    cluster: Cluster
    told_by: Callable[[Emit], Emit]
    """Given where the controller takes events in: where the reflectors hand them over."""
    lease: Lease
    beside: tuple[Work, ...] = ()
    """What goes on while it leads."""


class Course:
    """How far a start has come: what /readyz says, and what a signal has to stop."""

    def __init__(self) -> None:
        self.waits_for = "starting"
        self.controller: Controller | None = None
        self.reflecting: Reflectors | None = None
        self.stands_by = False
        """Another leads, as the lease says: all is well, and it may be ours in a moment."""

    def unready(self) -> str | None:
        """Why it is not ready; None: it is."""
        controller, reflecting = self.controller, self.reflecting
        if controller is None or reflecting is None:
            return self.waits_for
        if controller.ready or self.stands_by:
            return None
        silent = sorted(name for name, age in reflecting.ages().items() if age is None)
        return f"not read yet: {', '.join(silent)}" if silent else "the ledger was not read yet"


async def run_controller(settings: Settings, kubeconfig: Path | None, context: str | None) -> None:
    """Lead until SIGTERM or SIGINT. Raises ConfigurationError, SchemaMismatch, LostLeadership, OSError."""

    async def take_seat(pool: Pool, session: Session, cluster: str, metrics: Metrics) -> Seat:
        lease: Lease = Alone()
        if settings.controller.lease is not None:
            ledger = await installation(pool)
            lease = _lease(settings.controller.lease, ledger, kubeconfig, context, metrics)
        await kueue.check(settings, session)
        watching = settings.compatibility.kueue_labels
        return Seat(
            key=cluster,
            ledger=PostgresLedger(pool, cluster, settings=settings.scheduling.rules()),
            cluster=KubeCluster(session, honoured=kueue.honoured(settings)),
            told_by=lambda emit: emit,
            lease=lease,
            beside=(lambda: kueue.watch(session),) if watching else (),
        )

    await run(settings, kubeconfig, context, take_seat)


async def run(
    settings: Settings,
    kubeconfig: Path | None,
    context: str | None,
    take_seat: Callable[[Pool, Session, str, Metrics], Awaitable[Seat]],
) -> None:
    """Lead on a seat until SIGTERM or SIGINT; a ledger or an API server that is away is waited for."""
    metrics, course = Metrics(), Course()

    async def work() -> None:
        url = settings.database_url
        await _patiently(course, "the ledger", lambda: _checked(url))
        async with session_to(kubeconfig, context) as session, connection_pool(url) as pool:
            session.answered = metrics.kubernetes_answered
            cluster = await _patiently(course, "the API server", lambda: cluster_id(session))
            seat = await _patiently(
                course, "ledger and API server", lambda: take_seat(pool, session, cluster, metrics)
            )
            await _sit(settings, seat, session, pool, metrics, course)

    async with asyncio.TaskGroup() as tasks:
        beside = [
            tasks.create_task(_measure_lag(metrics)),
            tasks.create_task(_serve_metrics(settings, metrics, course)),
        ]
        leading = tasks.create_task(work())

        def stop() -> None:
            controller = course.controller
            if controller is not None and controller.leads:
                controller.stop()
            else:
                leading.cancel()  # there is nothing to finish

        stop_on_signals(stop)
        await asyncio.wait([leading])
        for task in beside:
            task.cancel()


async def _sit(
    settings: Settings, seat: Seat, session: Session, pool: Pool, metrics: Metrics, course: Course
) -> None:
    watched = sources(kueue.honoured(settings))
    core = Engine(frozenset(source.name for source in watched), settings.scheduling.rules())
    controller = Controller(
        ledger=seat.ledger,
        cluster=seat.cluster,
        engine=core,
        observer=Counting(metrics),
        holder=_holder(),
        budget=settings.controller.budget,
        workers=settings.controller.effects,
        status_seconds=settings.controller.status_seconds,
    )
    controller.emit([ConfigurationObserved(json.dumps(settings.public(), sort_keys=True))])
    reflecting = reflectors(session, seat.told_by(controller.emit), watched=watched)
    course.controller, course.reflecting = controller, reflecting
    metrics.observe(
        Sampled(
            leads=lambda: controller.leads,
            lease_age=seat.lease.age if isinstance(seat.lease, KubeLease) else None,
            silence=reflecting.ages,
            standing=core.standing,
            unsettled=controller.unsettled,
        )
    )

    async def upkeep() -> None:
        await _keep_up(settings, pool, seat.key, metrics)

    course.stands_by = True
    try:
        await seat.lease.acquire()
    except ForeignLedger as error:
        raise ConfigurationError(f"database.url: {error}") from error
    course.stands_by = False
    await _lead(seat.lease, controller, reflecting.run, upkeep, *seat.beside)


async def _checked(url: str) -> None:
    """Raises LedgerUnavailable, SchemaMismatch, and ConfigurationError where no ledger can be kept there."""
    try:
        await schema.check(url, writing=True)
    except LedgerUnfit as error:
        raise ConfigurationError(f"database.url: {error}") from error


async def _patiently(course: Course, what: str, call: Callable[[], Awaitable[Found]]) -> Found:
    """Repeat a call until what it asks is there; nothing else can be done before."""
    delay = _FIRST_WAIT
    while True:
        course.waits_for = f"waiting for {what}"
        try:
            return await call()
        except (LedgerUnavailable, ClusterUnavailable, NotFound) as error:
            course.waits_for = f"waiting for {what}: {error}"
            log.warning("waiting for %s, nothing is decided before: %s", what, error)
        await asyncio.sleep(delay)
        delay = min(delay * 2, _LAST_WAIT)


async def _keep_up(settings: Settings, pool: Pool, cluster: str, metrics: Metrics) -> None:
    """Every minute: partitions ahead of time, and the ledger held against its own history."""
    verifier = Verifier(pool, cluster)
    while True:
        await asyncio.sleep(settings.controller.verify_seconds)
        await _attempted("partitions not made ahead", ensure_partitions(pool))
        if settings.database.keep_months is not None:
            dropping = drop_history(pool, settings.database.keep_months)
            await _attempted("old history not dropped", dropping)
        findings = await _attempted("ledger not verified", verifier.run())
        if findings is None:
            continue
        metrics.ledger_findings([finding.code for finding in findings])
        for finding in findings:
            log.error("the ledger does not agree with its history: %s", finding)


async def _attempted(otherwise: str, work: Awaitable[Found]) -> Found | None:
    """What the ledger refuses here is for people to mend: nothing that runs or waits hangs on it."""
    try:
        return await work
    except (LedgerUnavailable, LedgerRefused, SchemaMismatch) as error:
        log.warning("%s: %s", otherwise, error)
        return None


async def _lead(lease: Lease, controller: Controller, *beside: Work) -> None:
    """From now, when the lease is ours, until the controller has stopped."""

    async def heed() -> None:
        await lease.lost()
        log.error("the lease is lost: stopping")
        controller.stop()

    try:
        async with asyncio.TaskGroup() as tasks:
            leading = tasks.create_task(controller.run(), name="controller")
            others = [tasks.create_task(work()) for work in (heed, *beside)]
            await asyncio.wait([leading])
            for task in others:
                task.cancel()
    finally:
        await lease.release()


class Alone:
    """The Lease of a controller that has no rivals: the epoch in the ledger is all there is."""

    async def acquire(self) -> None:
        return

    async def lost(self) -> None:
        await asyncio.Event().wait()

    async def release(self) -> None:
        return


def _lease(
    name: str, ledger: str, kubeconfig: Path | None, context: str | None, metrics: Metrics
) -> KubeLease:
    namespace, _, name = name.partition("/")

    async def connect() -> Session:
        session = await open_session(kubeconfig, context)
        session.answered = metrics.kubernetes_answered
        return session

    return KubeLease(connect, namespace=namespace, name=name, holder=_holder(), ledger=ledger)


async def _measure_lag(metrics: Metrics) -> None:
    loop = asyncio.get_running_loop()
    while True:
        before = loop.time()
        await asyncio.sleep(_LAG_EVERY)
        metrics.loop_lag(max(0.0, loop.time() - before - _LAG_EVERY))


async def _serve_metrics(settings: Settings, metrics: Metrics, course: Course) -> None:
    await serve_metrics(
        metrics,
        host=settings.controller.listen.host,
        port=settings.controller.listen.port,
        healthy=lambda: None,
        ready=course.unready,
        started=lambda url: log.info("metrics and probes at %s", url),
    )


def _holder() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"
