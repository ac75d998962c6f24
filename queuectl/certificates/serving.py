"""The TLS context of a server, kept up to date while it serves."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from queuectl.certificates.checking import CertificateError, Material, check
from queuectl.certificates.sources import Source
from queuectl.ports import ClusterUnavailable

log = logging.getLogger(__name__)

Publish = Callable[[str], Awaitable[None]]
"""Make these authorities (PEM) known where callers look them up. Raises ClusterUnavailable."""


class Serving:
    """What was shown last is shown on until something better is there: no connection is refused for it."""

    def __init__(
        self, source: Source, *, now: Callable[[], datetime], publish: Sequence[Publish] = ()
    ) -> None:
        self._source = source
        self._now = now
        self._publish = publish
        self._shown: Material | None = None
        self._not_after: datetime | None = None
        self._current: ssl.SSLContext | None = None
        self.problem: str | None = None
        """What is wrong since the last look; None: all is well."""
        self.context = _context()
        """For the listening socket. Each handshake shows what is newest then; open connections go on."""
        self.context.sni_callback = self._choose

    @property
    def not_after(self) -> datetime:
        """When what is shown expires."""
        assert self._not_after is not None
        return self._not_after

    @property
    def bundle(self) -> str | None:
        """PEM of the authorities that callers are to trust; None: that is not ours to say."""
        bundle = self._shown.bundle if self._shown else None
        return bundle.decode("ascii") if bundle is not None else None

    async def start(self) -> None:
        """The first look. Raises CertificateError if there is nothing valid to show; ClusterUnavailable."""
        await self._look()
        await self._tell()

    async def run(self, check_seconds: float) -> None:
        """Look again, for ever."""
        while True:
            await asyncio.sleep(check_seconds)
            await self.refresh()

    async def refresh(self) -> None:
        """One look, after which `problem` says what is wrong with what was found."""
        try:
            await self._look()
            await self._tell()
        except (CertificateError, ClusterUnavailable, OSError) as error:
            if str(error) != self.problem:
                log.error("certificate: %s. What was shown before is shown on", error)
            self.problem = str(error)
        else:
            if self.problem is not None:
                log.info("certificate: all is well again")
            self.problem = None

    async def _look(self) -> None:
        found = await self._source.fetch()
        not_after = check(found, self._now())
        if self._shown is None or (found.chain, found.key) != (self._shown.chain, self._shown.key):
            context = _context()
            _load(context, found)
            if self._current is None:
                _load(self.context, found)
            self._current, self._not_after = context, not_after
            log.info("showing a certificate that is valid until %s", not_after)
        self._shown = found

    async def _tell(self) -> None:
        bundle = self.bundle
        if bundle is not None:
            for publish in self._publish:
                await publish(bundle)

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
        # Loading a new pair into a context in use could leave it with half of it.
        if self._current is not None:
            connection.context = self._current


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load(context: ssl.SSLContext, material: Material) -> None:
    """The library takes files only: one that nobody else can read, gone when it was read."""
    descriptor, path = tempfile.mkstemp(prefix="queuectl-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(material.key.rstrip() + b"\n" + material.chain)
        # Without an answer for a passphrase it would ask for one on the terminal.
        context.load_cert_chain(path, password="")
    except ssl.SSLError as error:
        raise CertificateError(f"{material.names[0]}: TLS can't use it: {error.reason or error}") from None
    finally:
        os.unlink(path)
