"""`queuectl api`: REST over the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from queuectl.answers.what_if.engines import TriedWhatIfs
from queuectl.api.authorization import Reviewer
from queuectl.api.http import RestObserver
from queuectl.api.server import serve
from queuectl.api.view import Sight, View
from queuectl.app.forecasts import Forecaster
from queuectl.app.kinds import RecordedKinds
from queuectl.app.process import collect_all, collect_young, stop_on_signals
from queuectl.changes.callers import KubeChanges, changes_to
from queuectl.core.model.policy import SchedulingConfiguration
from queuectl.kinds.policy import parse_policy
from queuectl.kube.connections import open_session
from queuectl.kube.errors import BadKubeconfig, Forbidden, NotFound
from queuectl.kube.reviews import KubeReviews, NoReviews
from queuectl.kube.session import Session, cluster_id
from queuectl.ledger.admin import schema
from queuectl.ledger.device_use import LedgerDeviceUse
from queuectl.ledger.history.state_at import LedgerPast
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.read.budgets import LedgerBudgetReadings
from queuectl.ledger.read.queries import LedgerReadings, clusters
from queuectl.ledger.read.statements import LedgerStatements
from queuectl.metrics.exposition import RestMetrics
from queuectl.metrics.exposition import serve as serve_metrics
from queuectl.ports.ledger import is_observed, observed_twin
from queuectl.ports.rates import RateCard
from queuectl.settings import ApiSettings, ConfigurationError, Settings
from queuectl.settings.accounting import AccountingSettings
from queuectl.settings.scheduling import SchedulingSettings

if TYPE_CHECKING:
    from queuectl.certificates.tls_context import Serving

log = logging.getLogger(__name__)

_WAIT_FOR_CLUSTER = 2.0
_SWITCH_SECONDS: Final = 0.001
"""How long a what-if, which runs in a thread, goes on while a request waits."""
_WITHOUT_IDENTITY: Final = (
    "\n  It starts only if the cluster identifies callers. With api.identity: local all users of this "
    "machine, and no others, may read everything"
)


async def run_api(settings: Settings, kubeconfig: Path | None, context: str | None) -> None:
    """Serve REST until SIGTERM or SIGINT: for the configured cluster, else for the only one in the ledger.

    Raises ConfigurationError, SchemaMismatch, LedgerUnavailable, ClusterUnavailable, OSError (port in use).
    """
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(_serve(settings, kubeconfig, context))
        stop_on_signals(serving.cancel)


async def _serve(settings: Settings, kubeconfig: Path | None, context: str | None) -> None:
    wanted, url = settings.api, settings.database_url
    async with (
        _session(wanted, kubeconfig, context) as session,
        _tls(wanted, session) as tls,
        connection_pool(url, read_only=True) as pool,
        contextlib.AsyncExitStack() as stack,
        asyncio.TaskGroup() as tasks,
    ):
        await schema.check(url)
        views: list[View] = []
        metrics = RestMetrics(age=lambda: sight.age_seconds if (sight := _sight(views)) else None)
        if session is not None:
            session.answered = metrics.kubernetes_answered
        if tls is not None:
            metrics.observe_certificate(not_after=lambda: tls.not_after, problem=lambda: tls.problem)
        reviewer = await _reviewer(wanted, session, metrics)
        if wanted.probes is not None:
            tasks.create_task(serve_metrics(metrics, wanted.probes, lambda: _unready(views)))
        cluster = await _cluster(url, wanted, session)
        if is_observed(cluster):
            log.warning("%s was only observed: REST shows decisions of which none was carried out", cluster)
        readings = LedgerReadings(pool, cluster)
        recorded = RecordedKinds()
        views.append(view := _view(readings, cluster, recorded))
        forecaster = Forecaster(LedgerPast(pool, cluster, scheduling), scheduling)
        tasks.create_task(forecaster.run())
        tasks.create_task(collect_all())
        changes = await stack.enter_async_context(_changes(wanted, kubeconfig, context, recorded, metrics))
        await serve(
            readings,
            kinds=recorded,
            address=(wanted.listen.host, wanted.listen.port),
            cursor_key=settings.cursor_key,
            refresh_seconds=wanted.refresh_seconds,
            started=_started,
            reviewer=reviewer,
            tls=tls.context if tls is not None else None,
            observer=metrics,
            view=view,
            configure=scheduling,
            what_ifs=TriedWhatIfs(),
            forecasts=forecaster,
            changes=changes,
            statements=LedgerStatements(pool, cluster),
            card_of=rate_card,
            device_use=LedgerDeviceUse(pool, cluster),
            budgets=LedgerBudgetReadings(pool, cluster),
            links=wanted.links,
        )


def _view(readings: LedgerReadings, cluster: str, recorded: RecordedKinds) -> View:
    def configure(spec: str) -> SchedulingConfiguration:
        recorded.take(spec)
        return scheduling(spec)

    return View(readings, parse_policy, observed=is_observed(cluster), configure=configure)


def scheduling(spec: str) -> SchedulingConfiguration:
    """Section `scheduling` of a configuration as the ledger has it. Raises ValueError."""
    return SchedulingSettings.model_validate(json.loads(spec)["scheduling"]).configuration()


def rate_card(spec: str) -> RateCard | None:
    """The rates in a configuration as the ledger has it; None: there are none. Raises ValueError."""
    return AccountingSettings.model_validate(json.loads(spec).get("accounting", {})).card()


def _started(base: str) -> None:
    collect_young()
    sys.setswitchinterval(_SWITCH_SECONDS)
    log.info("REST at %s", base)


@contextlib.asynccontextmanager
async def _session(
    wanted: ApiSettings, kubeconfig: Path | None, context: str | None
) -> AsyncIterator[Session | None]:
    """To the cluster that identifies callers; None if neither that nor a certificate needs the cluster."""
    kept = wanted.tls is not None and (wanted.tls.secret or wanted.tls.config_map)
    if wanted.identity == "local" and not kept and wanted.changes == "none":
        yield None
        return
    try:
        session = await open_session(kubeconfig, context)
    except BadKubeconfig as error:
        hint = _WITHOUT_IDENTITY if wanted.identity == "kubernetes" else ""
        raise ConfigurationError(f"REST can't connect to the cluster: {error}{hint}") from None
    try:
        yield session
    finally:
        await session.close()


@contextlib.asynccontextmanager
async def _changes(
    wanted: ApiSettings,
    kubeconfig: Path | None,
    context: str | None,
    kinds: RecordedKinds,
    metrics: RestMetrics,
) -> AsyncIterator[KubeChanges | None]:
    """None: callers change nothing."""
    if wanted.changes == "none":
        yield None
        return
    as_itself = wanted.changes == "local"
    if as_itself:
        log.warning("api.changes is local: every client that reaches %s can change workloads", wanted.listen)
    answered = metrics.kubernetes_answered
    async with changes_to(kubeconfig, context, kinds, as_itself=as_itself, answered=answered) as changes:
        yield changes


@contextlib.asynccontextmanager
async def _tls(wanted: ApiSettings, session: Session | None) -> AsyncIterator[Serving | None]:
    if wanted.tls is None:
        yield None
        return
    from queuectl.certificates.tls_context import serving_tls

    async with serving_tls(wanted.tls, session) as serving:
        yield serving


async def _reviewer(wanted: ApiSettings, session: Session | None, observer: RestObserver) -> Reviewer | None:
    """None: all users of this machine may read everything. Raises ConfigurationError without reviews."""
    if wanted.identity == "local":
        log.warning("api.identity is local: every client that reaches %s can read everything", wanted.listen)
        return None
    assert session is not None
    reviews = KubeReviews(session)
    try:
        await reviews.check()
        own = await reviews.own_audiences() if wanted.cluster_tokens else ()
    except NoReviews as error:
        raise ConfigurationError(
            f"REST can't identify callers by the cluster: {error}\n  It needs to create tokenreviews "
            "and subjectaccessreviews (ClusterRole queuectl-api) on an API server that has them"
            f"{_WITHOUT_IDENTITY}"
        ) from None
    audiences = tuple(dict.fromkeys((*wanted.audiences, *own)))
    return Reviewer(reviews, audiences, time.monotonic, wanted.identity_seconds, observer)


async def _cluster(url: str, wanted: ApiSettings, session: Session | None) -> str:
    """The cluster to serve. Raises ConfigurationError if it is not the one that identifies callers."""
    asked = None
    if (wanted.identity == "kubernetes" or wanted.changes != "none") and session is not None:
        # If it may be read: rights in one cluster must not give access to the ledger of another, and changes
        # must not go to another cluster.
        with contextlib.suppress(Forbidden, NotFound):
            asked = await cluster_id(session)
    served = wanted.cluster or asked or await _only_cluster(url)
    if asked is not None and served not in (asked, observed_twin(asked)):
        raise ConfigurationError(
            f"api.cluster is {served}, but the kubeconfig's cluster, which identifies callers, is {asked}"
        )
    return served


async def _only_cluster(url: str) -> str:
    async with connection_pool(url, read_only=True) as pool:
        while not (known := await clusters(pool)):
            log.info("no controller has used this ledger yet: waiting for one")
            await asyncio.sleep(_WAIT_FOR_CLUSTER)
    return the_one(known)


def the_one(known: Sequence[str]) -> str:
    """The only cluster of a ledger that has some. Raises ConfigurationError if there are several."""
    # An observed cluster is served only if there is no other, never instead of a controlled one.
    found = [one for one in known if not is_observed(one)] or known
    if len(found) > 1:
        raise ConfigurationError(
            f"the ledger holds {len(found)} clusters ({', '.join(found)}): "
            "name one as api.cluster in --config"
        )
    return found[0]


def _sight(views: list[View]) -> Sight | None:
    """Probes of the view, once its cluster is known."""
    return views[0].sight() if views else None


def _unready(views: list[View]) -> str | None:
    return None if _sight(views) is not None else "the ledger was not read yet"
