"""TLS of a server: the source of its certificate, and where its authority is published."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime

from queuectl.certificates.serving import Publish, Serving
from queuectl.certificates.sources import CertificateSource, FromFiles, SelfMade
from queuectl.kube.secrets import BundleConfigMap, SecretVault
from queuectl.kube.session import Session
from queuectl.settings import TlsSettings


@contextlib.asynccontextmanager
async def serving_tls(
    settings: TlsSettings,
    session: Session | None = None,
    *,
    publish: Sequence[Publish] = (),
    now: Callable[[], datetime] | None = None,
) -> AsyncIterator[Serving]:
    """`.context` is for the listening socket; it stays up to date while the block lasts.

    `session` may be None only if the certificate comes from files and no ConfigMap is named. `publish`:
    further objects in which to publish the authority. Raises CertificateError if there is no valid
    certificate, and ClusterUnavailable.
    """
    now = now or _now
    known = list(publish)
    if settings.config_map is not None:
        known.insert(0, BundleConfigMap(_needed(session), *_split(settings.config_map)).publish)
    serving = Serving(_source(settings, session, now), now=now, publish=known)
    await serving.start()
    async with asyncio.TaskGroup() as tasks:
        renewing = tasks.create_task(serving.run(settings.check_seconds))
        try:
            yield serving
        finally:
            renewing.cancel()


def _source(settings: TlsSettings, session: Session | None, now: Callable[[], datetime]) -> CertificateSource:
    if settings.cert_file is not None and settings.key_file is not None:
        return FromFiles(settings.cert_file, settings.key_file, settings.ca_file)
    assert settings.secret is not None
    vault = SecretVault(_needed(session), *_split(settings.secret))
    return SelfMade(vault, where=vault.where, server_names=settings.names, now=now)


def _needed(session: Session | None) -> Session:
    if session is None:
        raise ValueError("certificates in the cluster need a session")
    return session


def _split(place: str) -> tuple[str, str]:
    namespace, _, name = place.partition("/")
    return namespace, name


def _now() -> datetime:
    """The clock of this machine: certificates are checked by the clocks of machines, not by the ledger's."""
    return datetime.fromtimestamp(time.time_ns() / 1e9, UTC)
