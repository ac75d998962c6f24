"""The TLS context of a server, with certificates that are replaced while it serves, and their sources.

A source is mounted files, or certificates of an own authority.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from queuectl import files
from queuectl.certificates.material import CertificateError, Material, check
from queuectl.certificates.renewal import Kept, Lifetimes, renewed
from queuectl.kube.secrets import BundleConfigMap, SecretVault
from queuectl.kube.session import Session
from queuectl.ports.cluster import ClusterUnavailable
from queuectl.settings import TlsSettings

log = logging.getLogger(__name__)

Publish = Callable[[str], Awaitable[None]]
"""Publish these authorities (PEM) where clients read them. Raises ClusterUnavailable."""


class Serving:
    """The last good certificate stays in use until there is a better one: no connection is refused for it."""

    def __init__(
        self,
        source: FromFiles | SelfMade,
        *,
        now: Callable[[], datetime],
        publish: Sequence[Publish] = (),
        min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
    ) -> None:
        self._source = source
        self._min_version = min_version
        self._now = now
        self._publish = publish
        self._shown: Material | None = None
        self._not_after: datetime | None = None
        self._current: ssl.SSLContext | None = None
        self.problem: str | None = None
        """The problem at the last check; None: there is none."""
        self.context = _context(min_version)
        """For the listening socket. Each handshake uses the newest certificate; open connections go on."""
        self.context.sni_callback = self._choose

    @property
    def not_after(self) -> datetime:
        """When the certificate in use expires."""
        assert self._not_after is not None
        return self._not_after

    @property
    def bundle(self) -> str | None:
        """PEM of the authorities that clients must trust; None: they are configured elsewhere."""
        bundle = self._shown.bundle if self._shown else None
        return bundle.decode("ascii") if bundle is not None else None

    async def start(self) -> None:
        """The first check. Raises CertificateError without a valid certificate; ClusterUnavailable."""
        await self._look()
        await self._tell()

    async def run(self, check_seconds: float) -> None:
        """Check again at each interval, until cancelled."""
        while True:
            await asyncio.sleep(check_seconds)
            await self.refresh()

    async def refresh(self) -> None:
        """One check, after which `problem` is up to date."""
        try:
            await self._look()
            await self._tell()
        except (CertificateError, ClusterUnavailable, OSError) as error:
            if str(error) != self.problem:
                log.error("certificate: %s. The one before stays in use", error)
            self.problem = str(error)
        else:
            if self.problem is not None:
                log.info("certificate: the problem is solved")
            self.problem = None

    async def _look(self) -> None:
        found = await self._source.fetch()
        not_after = check(found, self._now())
        if self._shown is None or (found.chain, found.key) != (self._shown.chain, self._shown.key):
            context = _context(self._min_version)
            _load(context, found)
            if self._current is None:
                _load(self.context, found)
            self._current, self._not_after = context, not_after
            log.info("using a certificate that is valid until %s", not_after)
        self._shown = found

    async def _tell(self) -> None:
        bundle = self.bundle
        if bundle is not None:
            for publish in self._publish:
                await publish(bundle)

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
        # Loading a new pair into a context in use can fail after half of it.
        if self._current is not None:
            connection.context = self._current


def _context(min_version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = min_version
    return context


def _load(context: ssl.SSLContext, material: Material) -> None:
    """The library reads files only: this one is readable by its owner only, and deleted afterwards."""
    descriptor, path = tempfile.mkstemp(prefix="queuectl-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(material.key.rstrip() + b"\n" + material.chain)
        # Without this function, OpenSSL would prompt for a passphrase on the terminal.
        context.load_cert_chain(path, password="")
    except ssl.SSLError as error:
        raise CertificateError(f"{material.names[0]}: TLS cannot use it: {error.reason or error}") from None
    finally:
        os.unlink(path)


_VERSIONS: Final = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}
MAX_FILE_BYTES: Final = 1 << 20
_TRIES: Final = 8
"""Attempts to write while other replicas write too."""

_FIELDS: Final = {
    "authorities": "ca.crt",
    "authority_key": "ca.key",
    "chain": "tls.crt",
    "key": "tls.key",
}
"""Names in the Secret, by field of Kept."""


class FromFiles:
    """Mounted files, read again at each check."""

    def __init__(self, chain: Path, key: Path, bundle: Path | None) -> None:
        self._chain = chain
        self._key = key
        self._bundle = bundle

    async def fetch(self) -> Material:
        return Material(
            chain=_read(self._chain),
            key=_read(self._key),
            bundle=_read(self._bundle) if self._bundle else None,
            names=(str(self._chain), str(self._key), str(self._bundle)),
        )


def _read(path: Path) -> bytes:
    try:
        return files.read(path, MAX_FILE_BYTES)
    except files.BadFile as error:
        raise CertificateError(str(error)) from None


class SelfMade:
    """Made if missing and renewed when due, by the first replica that checks."""

    def __init__(
        self,
        vault: SecretVault,
        *,
        server_names: Sequence[str],
        now: Callable[[], datetime],
        lifetimes: Lifetimes | None = None,
    ) -> None:
        self._vault = vault
        self._where = vault.where
        self._server_names = tuple(server_names)
        self._now = now
        self._lifetimes = lifetimes

    async def fetch(self) -> Material:
        for _ in range(_TRIES):
            texts, version = await self._vault.read()
            kept = Kept(**{field: texts.get(name, b"") for field, name in _FIELDS.items()})
            wanted = renewed(kept, self._now(), self._server_names, self._lifetimes)
            if wanted == kept or await self._vault.write(_texts(wanted), version):
                return self._material(wanted)
        raise CertificateError(f"{self._where}: other clients keep changing it: nothing can be stored")

    def _material(self, kept: Kept) -> Material:
        names = (f"{self._where} tls.crt", f"{self._where} tls.key", f"{self._where} ca.crt")
        return Material(chain=kept.chain, key=kept.key, bundle=kept.authorities, names=names)


def _texts(kept: Kept) -> dict[str, bytes]:
    return {name: getattr(kept, field) for field, name in _FIELDS.items()}


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
    source, min_version = _source(settings, session, now), _VERSIONS[settings.min_version]
    serving = Serving(source, now=now, publish=known, min_version=min_version)
    await serving.start()
    async with asyncio.TaskGroup() as tasks:
        renewing = tasks.create_task(serving.run(settings.check_seconds))
        try:
            yield serving
        finally:
            renewing.cancel()


def _source(
    settings: TlsSettings, session: Session | None, now: Callable[[], datetime]
) -> FromFiles | SelfMade:
    if settings.cert_file is not None and settings.key_file is not None:
        return FromFiles(settings.cert_file, settings.key_file, settings.ca_file)
    assert settings.secret is not None
    vault = SecretVault(_needed(session), *_split(settings.secret))
    return SelfMade(vault, server_names=settings.names, now=now)


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
