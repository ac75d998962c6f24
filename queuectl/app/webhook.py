"""`queuectl webhook`: suspends labelled work at its creation, on clusters without mutating policies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from queuectl.app.kinds import job_kinds
from queuectl.app.process import stop_on_signals
from queuectl.certificates.tls_context import Publish, Serving, serving_tls
from queuectl.kinds.jobs import KindRegistry
from queuectl.kube.connections import session_to
from queuectl.kube.secrets import WebhookConfiguration
from queuectl.kube.session import Session
from queuectl.metrics.exposition import WebhookMetrics, application
from queuectl.net.listener import ConnectionLimits, serving
from queuectl.settings import ConfigurationError, Settings, TlsSettings, WebhookSettings
from queuectl.webhook.server import ReviewLimits, reviews

log = logging.getLogger(__name__)


async def run_webhook(settings: Settings, kubeconfig: Path | None, context: str | None) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises ConfigurationError, CertificateError, ClusterUnavailable, OSError (port in use).
    """
    wanted = settings.webhook
    if wanted.tls is None:
        raise ConfigurationError(
            "webhook.tls is not set: API servers call webhooks over TLS only; set webhook.tls.secret and "
            "webhook.tls.names, or webhook.tls.certFile and webhook.tls.keyFile"
        )
    async with (
        _session(wanted, wanted.tls, kubeconfig, context) as session,
        serving_tls(wanted.tls, session, publish=_publish(wanted, session)) as tls,
    ):
        await _serve(wanted, tls, job_kinds(settings).registry)


async def _serve(wanted: WebhookSettings, tls: Serving, kinds: KindRegistry) -> None:
    metrics = WebhookMetrics(not_after=lambda: tls.not_after, problem=lambda: tls.problem)
    limits = ReviewLimits(connections=wanted.connections, work=wanted.work)
    async with (
        serving(
            reviews(kinds, limits, metrics),
            host=wanted.listen.host,
            port=wanted.listen.port,
            limits=limits,
            context=tls.context,
        ) as url,
        serving(
            application(metrics), host=wanted.probes.host, port=wanted.probes.port, limits=ConnectionLimits()
        ) as probed,
    ):
        log.info("webhook at %s, probes and metrics at %s", url, probed)
        stopping = asyncio.Event()
        stop_on_signals(stopping.set)
        await stopping.wait()


def _publish(wanted: WebhookSettings, session: Session | None) -> list[Publish]:
    if wanted.configuration is None or session is None:
        return []
    return [WebhookConfiguration(session, wanted.configuration).publish]


@asynccontextmanager
async def _session(
    wanted: WebhookSettings, tls: TlsSettings, kubeconfig: Path | None, context: str | None
) -> AsyncIterator[Session | None]:
    """None if the cluster is not read or written: certificates are mounted and published already."""
    if tls.secret is None and tls.config_map is None and wanted.configuration is None:
        yield None
        return
    async with session_to(kubeconfig, context) as session:
        yield session
