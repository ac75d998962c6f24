"""`queuectl controller`: leads, decides and writes to Kubernetes; with `--observe` it only decides."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from queuectl.app import idle, kueue
from queuectl.app.kinds import Kinds, job_kinds
from queuectl.app.process import collect_all, collect_young, stop_on_signals
from queuectl.app.verifier import comparisons
from queuectl.controller.loop import Controller, LoopOptions
from queuectl.core.engine import Engine
from queuectl.core.model.events import ConfigurationObserved, DeviceUseFound, Event
from queuectl.core.model.workload import LedgerSnapshot, WorkloadId
from queuectl.kinds.labels import QueueLabels
from queuectl.kinds.single_pod import POD
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.connections import open_session, session_to
from queuectl.kube.errors import NotFound
from queuectl.kube.lease import KubeLease
from queuectl.kube.pod_groups import LedgerGroups
from queuectl.kube.reflectors import LeaderState, Reflectors, reflectors
from queuectl.kube.revisions import FormerRevisions
from queuectl.kube.session import Session, cluster_id
from queuectl.kube.sources import sources
from queuectl.kube.statuses import QueueStatuses
from queuectl.ledger.admin import schema
from queuectl.ledger.admin.partitions import drop_history, ensure_partitions
from queuectl.ledger.pool import UPKEEP, Pool, connection_pool
from queuectl.ledger.read.queries import LedgerReadings, installation
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.metrics.collectors import Sampled
from queuectl.metrics.exposition import serve as serve_metrics
from queuectl.metrics.registry import Metrics
from queuectl.ports.cluster import Cluster, ClusterUnavailable, Lease
from queuectl.ports.ledger import (
    ForeignLedger,
    Ledger,
    LedgerRefused,
    LedgerUnavailable,
    LedgerUnfit,
    SchemaMismatch,
    observed_twin,
)
from queuectl.settings import ConfigurationError, Settings
from queuectl.shadow.cluster import Mirror, MirroredLedger

Found = TypeVar("Found")
log = logging.getLogger(__name__)

_LAG_EVERY = 0.5
_FIRST_WAIT, _LAST_WAIT = 0.5, 10.0
"""Seconds between two tries at a start."""
STEP_DOWN_SECONDS = 30.0
"""How long a leader with a Lease waits for the ledger before it hands the Lease on."""

Work = Callable[[], Coroutine[Any, Any, None]]
"""A task that runs beside the controller."""


Emit = Callable[[Iterable[Event]], None]


@functools.cache
def own_name() -> str:
    """Unlike that of every other process, also of one in another container with the same host name."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerParts:
    """Parts of a controller: for the real cluster, or for an observed one."""

    key: str
    """Cluster id of its rows in the ledger."""
    ledger: Ledger
    cluster: Cluster
    receiver: Callable[[Emit], Emit]
    """From the controller's receiver of events, makes the one for the reflectors."""
    lease: Lease
    holder: str = field(default_factory=own_name)
    """Names this process alone."""
    random: Random = field(default_factory=Random)
    """Spreads requests in time."""
    statuses: QueueStatuses | None = None
    """Those of queues; None: they are not written."""
    heard: set[str] = field(default_factory=set)
    """Kinds of which a controller was heard: of `KubeCluster`."""
    honoured: QueueLabels
    """What queues an object."""
    nodes: bool = True
    """Nodes limit admissions. Not where it observes: pods do not tell to which workload they belong."""
    beside: tuple[Work, ...] = ()
    """Tasks that run while it leads."""


class Startup:
    """Progress of a start: for /readyz, and to know what a signal has to stop."""

    def __init__(self) -> None:
        self.waits_for = "starting"
        self.controller: Controller | None = None
        self.reflecting: Reflectors | None = None
        self.stands_by = False
        """Another process holds the lease: this one takes over when that ends."""

    def begin(self) -> None:
        """Nothing was started yet, or all of it has stopped."""
        self.controller = self.reflecting = None

    def stop(self, leading: asyncio.Task[Any]) -> None:
        """Let the controller finish; where none leads there is nothing to finish."""
        if self.controller is not None and self.controller.leads:
            self.controller.stop()
        else:
            leading.cancel()

    def unready(self) -> str | None:
        """Why it is not ready; None: it is."""
        controller, reflecting = self.controller, self.reflecting
        if controller is None or reflecting is None:
            return self.waits_for
        if controller.ready:
            return None
        if unread := reflecting.unread(leads=not self.stands_by):
            return f"not read yet: {', '.join(unread)}"
        if self.stands_by and not reflecting.early & controller.unlisted:
            return None
        return "the ledger was not read yet"


async def run_controller(settings: Settings, kubeconfig: Path | None, context: str | None) -> None:
    """Lead until SIGTERM or SIGINT. Raises ConfigurationError, SchemaMismatch, LostLeadership, OSError."""
    kinds = job_kinds(settings)

    async def make_parts(pool: Pool, session: Session, cluster: str, metrics: Metrics) -> ControllerParts:
        lease: Lease = NoElection()
        if settings.controller.lease is not None:
            ledger = await installation(pool)
            lease = _lease(settings.controller.lease, ledger, kubeconfig, context, metrics)
        await kueue.check(settings, session)
        watching = settings.compatibility.kueue_labels
        beside: list[Work] = [lambda: kueue.watch(session)] if watching else []
        if POD in kinds.registry.rows:
            beside.append(FormerRevisions(session).run)
        statuses, heard = QueueStatuses(), set[str]()
        return ControllerParts(
            key=cluster,
            honoured=kueue.honoured(settings),
            statuses=statuses,
            heard=heard,
            ledger=PostgresLedger(pool, cluster, settings=settings.configuration()),
            cluster=KubeCluster(
                session,
                kinds.registry,
                honoured=kueue.honoured(settings),
                statuses=statuses,
                heard=heard,
            ),
            receiver=lambda emit: emit,
            lease=lease,
            beside=tuple(beside),
        )

    await run(settings, kinds, kubeconfig, context, make_parts)


async def run_observer(
    settings: Settings, kubeconfig: Path | None, context: str | None, default_queue: str | None = None
) -> None:
    """Observe until SIGTERM or SIGINT. Raises what `run_controller` does.

    `default_queue`: the LocalQueue of objects without a queue label; None: they are not looked at.
    """
    if settings.controller.lease is not None:
        log.info("controller.lease is not used by observers: the one started last replaces the others")

    async def make_parts(pool: Pool, session: Session, cluster: str, _: Metrics) -> ControllerParts:
        twin = observed_twin(cluster)
        mirror = Mirror(session.server_time, LedgerReadings(pool, twin).recorded)

        def receiver(emit: Emit) -> Emit:
            mirror.show_to(emit)
            return mirror.see

        ledger = PostgresLedger(pool, twin, beside=mirror.reality, settings=settings.configuration())
        return ControllerParts(
            key=twin,
            honoured=replace(kueue.honoured(settings), default=default_queue),
            ledger=MirroredLedger(ledger, mirror),
            cluster=mirror,
            receiver=receiver,
            lease=NoElection(),
            nodes=False,
            beside=(mirror.settle_doubts,),
        )

    await run(settings, job_kinds(settings), kubeconfig, context, make_parts)


async def run(
    settings: Settings,
    kinds: Kinds,
    kubeconfig: Path | None,
    context: str | None,
    make_parts: Callable[[Pool, Session, str, Metrics], Awaitable[ControllerParts]],
) -> None:
    """Lead until SIGTERM or SIGINT. Waits for a ledger or an API server that is unavailable.

    A leader that has stepped down starts anew: it does not ask for the Lease before it reaches the ledger.
    """
    metrics = Metrics(of_local_queues=settings.controller.local_queue_metrics)
    startup = Startup()

    async def turn() -> bool:
        url = settings.database_url
        await patiently(startup, "the ledger", lambda: _checked(url))
        async with session_to(kubeconfig, context) as session, connection_pool(url) as pool:
            session.answered = metrics.kubernetes_answered
            cluster = await patiently(startup, "the API server", lambda: cluster_id(session))
            parts = await patiently(
                startup, "ledger and API server", lambda: make_parts(pool, session, cluster, metrics)
            )

            async def upkeep() -> None:
                await _keep_up(settings, pool)

            async def verify() -> None:
                await _verify(settings, parts.key, metrics)

            def devices_used(found: Iterable[tuple[str, DeviceUseFound]]) -> None:
                found = list(found)
                metrics.devices_used((queue, event.finding) for queue, event in found)
                if startup.controller is not None:
                    startup.controller.emit(event for _, event in found)

            async def watch_devices() -> None:
                await idle.watch(settings.idle, pool, parts.key, session, devices_used)

            all_parts = replace(parts, beside=(*parts.beside, upkeep, verify, watch_devices))
            return await lead_once(settings, kinds, all_parts, session, metrics, startup)

    collect_young()
    async with asyncio.TaskGroup() as tasks:
        beside = [
            tasks.create_task(_measure_lag(metrics)),
            tasks.create_task(serve_metrics(metrics, settings.controller.listen, startup.unready)),
            tasks.create_task(collect_all()),
        ]
        leading = tasks.create_task(in_turns(turn, metrics, startup))
        stop_on_signals(lambda: startup.stop(leading))
        await asyncio.wait([leading])
        for task in beside:
            task.cancel()


async def in_turns(turn: Callable[[], Awaitable[bool]], metrics: Metrics, startup: Startup) -> None:
    """Lead again each time the controller has stepped down."""
    while await turn():
        log.warning("stepped down: waiting for the ledger, then for the lease")
        startup.begin()
        metrics.stepped_down()


async def lead_once(
    settings: Settings,
    kinds: Kinds,
    parts: ControllerParts,
    session: Session,
    metrics: Metrics,
    startup: Startup,
) -> bool:
    """Wait for the Lease, then lead. Returns whether the controller has stepped down.

    Raises LostLeadership, and ConfigurationError if the cluster is led from another ledger.
    """
    scheduling = settings.configuration()
    devices, groups = scheduling.resources.device_classes, LedgerGroups()
    watched = sources(
        kinds.registry,
        parts.honoured,
        devices=devices,
        nodes=parts.nodes,
        statuses=parts.statuses,
        heard=parts.heard,
        ledger=groups,
    )
    taken: asyncio.Future[LeaderState] = asyncio.get_running_loop().create_future()

    def restored(snapshot: LedgerSnapshot, unobserved: Set[WorkloadId]) -> None:
        groups.restore(snapshot)
        taken.set_result(LeaderState(dict(snapshot.read_up_to), unobserved))

    core = Engine(frozenset(source.name for source in watched), scheduling)
    controller = Controller(
        ledger=parts.ledger,
        cluster=parts.cluster,
        engine=core,
        observer=metrics,
        holder=parts.holder,
        options=_options(settings, parts),
        restored=restored,
    )
    controller.emit([ConfigurationObserved(json.dumps(settings.public(), sort_keys=True))])
    reflecting = reflectors(session, parts.receiver(controller.emit), watched, random=parts.random)
    startup.controller, startup.reflecting = controller, reflecting
    metrics.observe(_sampled(kinds, parts.lease, controller, reflecting, core))

    async with asyncio.TaskGroup() as tasks:
        # It reads cluster and ledger before it leads, so that a takeover has little that is new.
        before = [tasks.create_task(work) for work in (reflecting.run(), controller.stand_by())]
        startup.stands_by = True
        await _acquired(parts.lease)
        startup.stands_by = False
        for task in before:
            task.cancel()
        await asyncio.wait(before)
        controller.list_again()

        async def read() -> None:
            await reflecting.run(await taken)

        await lead(parts.lease, controller, reflecting.read_up_to, read, *parts.beside)
    return controller.stepped_down


def _sampled(
    kinds: Kinds, lease: Lease, controller: Controller, reflecting: Reflectors, core: Engine
) -> Sampled:
    nothing = Engine(frozenset())

    def leading() -> Engine:
        return core if controller.leads else nothing

    return Sampled(
        leads=lambda: controller.leads,
        lease_age=lease.age if isinstance(lease, KubeLease) else None,
        silence=reflecting.ages,
        kinds=lambda: {**kinds.malformed, **reflecting.kinds()},
        cluster_report=lambda: leading().cluster_report(),
        numbers=lambda: leading().numbers(),
        unsettled=controller.unsettled,
    )


async def _acquired(lease: Lease) -> None:
    try:
        await lease.acquire()
    except ForeignLedger as error:
        raise ConfigurationError(f"database.url: {error}") from error


def _options(settings: Settings, parts: ControllerParts) -> LoopOptions:
    return LoopOptions(
        budget=settings.controller.budget,
        workers=settings.controller.effects,
        status_seconds=settings.controller.status_seconds,
        event_seconds=settings.controller.event_seconds,
        step_down_seconds=None if isinstance(parts.lease, NoElection) else STEP_DOWN_SECONDS,
    )


async def _checked(url: str) -> None:
    """Raises LedgerUnavailable, SchemaMismatch, and ConfigurationError if the database is unfit."""
    try:
        await schema.check(url, writing=True)
    except LedgerUnfit as error:
        raise ConfigurationError(f"database.url: {error}") from error


async def patiently(startup: Startup, what: str, call: Callable[[], Awaitable[Found]]) -> Found:
    """Repeat a call until it succeeds; nothing else can be done before."""
    delay = _FIRST_WAIT
    while True:
        startup.waits_for = f"waiting for {what}"
        try:
            return await call()
        except (LedgerUnavailable, ClusterUnavailable, NotFound) as error:
            startup.waits_for = f"waiting for {what}: {error}"
            log.warning("waiting for %s, nothing is decided before: %s", what, error)
        await asyncio.sleep(delay)
        delay = min(delay * 2, _LAST_WAIT)


async def _keep_up(settings: Settings, pool: Pool) -> None:
    """Every minute: make partitions ahead of time, and drop the history that is no longer kept."""
    async with connection_pool(settings.database_url, statement_timeout=UPKEEP) as rolling:
        while True:
            await asyncio.sleep(settings.controller.verify_seconds)
            await _attempted("partitions not made ahead", ensure_partitions(pool))
            if settings.database.keep_months is not None:
                dropping = drop_history(pool, settings.database.keep_months, rolling)
                await _attempted("old history not dropped", dropping)


async def _verify(settings: Settings, cluster: str, metrics: Metrics) -> None:
    """Compare the ledger with its own history again and again, in a process of its own."""
    seconds = settings.controller.verify_seconds
    while True:
        async with contextlib.aclosing(
            comparisons(settings.database_url, cluster, seconds, zone=settings.accounting.zone)
        ) as found:
            async for findings in found:
                if findings is None:
                    continue
                metrics.ledger_findings([finding.code for finding in findings])
                for finding in findings:
                    log.error("the ledger does not agree with its history: %s", finding)
        log.error("the process that compares the ledger with its history ended: starting it again")
        await asyncio.sleep(seconds)


async def _attempted(otherwise: str, work: Awaitable[Found]) -> Found | None:
    """Log failures: users have to correct them, and decisions do not depend on this work."""
    try:
        return await work
    except (LedgerUnavailable, LedgerRefused, SchemaMismatch) as error:
        log.warning("%s: %s", otherwise, error)
        return None


async def lead(
    lease: Lease, controller: Controller, read_up_to: Callable[[], Mapping[str, int]], *beside: Work
) -> None:
    """The lease is ours: run until the controller has stopped. `read_up_to`: of what reads the cluster."""

    async def heed() -> None:
        await lease.lost()
        log.error("the lease is lost: stopping")
        controller.stop()

    try:
        async with asyncio.TaskGroup() as tasks:
            leading = tasks.create_task(controller.run(), name="controller")
            others = [tasks.create_task(work()) for work in (heed, *beside)]
            await asyncio.wait([leading])
            if not leading.cancelled() and leading.exception() is None:
                await controller.hand_over(read_up_to())
            for task in others:
                task.cancel()
    finally:
        await lease.release()


class NoElection:
    """The Lease of a single controller: without leader election, only by the epoch in the ledger."""

    async def acquire(self) -> None:
        return

    async def lost(self) -> None:
        await asyncio.Event().wait()

    async def release(self) -> None:
        return


def _lease(
    name: str, ledger: str, kubeconfig: Path | None, context: str | None, metrics: Metrics
) -> KubeLease:
    async def connect() -> Session:
        session = await open_session(kubeconfig, context)
        session.answered = metrics.kubernetes_answered
        return session

    return KubeLease(connect, name=name, holder=own_name(), ledger=ledger)


async def _measure_lag(metrics: Metrics) -> None:
    loop = asyncio.get_running_loop()
    while True:
        before = loop.time()
        await asyncio.sleep(_LAG_EVERY)
        metrics.loop_lag(max(0.0, loop.time() - before - _LAG_EVERY))
