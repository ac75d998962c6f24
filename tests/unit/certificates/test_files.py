"""Mounted certificates (bad input 58): the old one is served until there is a good one."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

import pytest
from cryptography import x509

from queuectl.certificates.material import CertificateError
from queuectl.certificates.tls_context import FromFiles, Serving, serving_tls
from queuectl.settings import TlsSettings
from tests.unit.certificates.issuing import DAY, NOW, Mounted, issue, key_pem, new_key, pem


@dataclass
class Clock:
    at: datetime = NOW

    def __call__(self) -> datetime:
        return self.at


@dataclass
class Told:
    bundles: list[str] = field(default_factory=list)

    async def __call__(self, bundle: str) -> None:
        self.bundles.append(bundle)


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path)


def serving_of(mounted: Mounted, clock: Clock | None = None, told: Told | None = None) -> Serving:
    source = FromFiles(mounted.chain, mounted.key, mounted.bundle)
    return Serving(source, now=clock or Clock(), publish=[told] if told else [])


@asynccontextmanager
async def listening(serving: Serving) -> AsyncIterator[int]:
    """Echoes lines over TLS; yields the port."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=serving.context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def shown(port: int, *, server_name: str | None = "localhost") -> x509.Certificate:
    """What a caller is shown now."""
    trust = ssl.create_default_context()
    trust.check_hostname = False
    trust.verify_mode = ssl.CERT_NONE
    async with asyncio.timeout(30):
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trust, server_hostname=server_name or ""
        )
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
    return x509.load_der_x509_certificate(der)


def expired(mounted: Mounted) -> None:
    mounted.put(begins=NOW - 2 * DAY, ends=NOW - DAY)


def not_yet_valid(mounted: Mounted) -> None:
    mounted.put(begins=NOW + DAY)


def key_of_another(mounted: Mounted) -> None:
    mounted.key.write_bytes(key_pem(new_key()))


def weak(mounted: Mounted) -> None:
    mounted.put(key=new_key(bits=1024))


def authority_missing(mounted: Mounted) -> None:
    mounted.bundle.unlink()


def authority_of_another(mounted: Mounted) -> None:
    mounted.bundle.write_bytes(pem(issue("another", new_key(), authority=True)))


def certificate_missing(mounted: Mounted) -> None:
    mounted.chain.unlink()


def no_certificate(mounted: Mounted) -> None:
    mounted.chain.write_bytes(b"\x00 not PEM")


def half_a_certificate(mounted: Mounted) -> None:
    mounted.chain.write_bytes(mounted.chain.read_bytes()[:200])


def key_with_a_passphrase(mounted: Mounted) -> None:
    key = new_key()
    mounted.put(key=key)
    mounted.key.write_bytes(key_pem(key, b"secret"))


def endless(mounted: Mounted) -> None:
    mounted.chain.write_bytes(b"x" * (2 << 20))


BAD: dict[Callable[[Mounted], None], str] = {
    expired: "expired at 2026-11-20 10:00:00 UTC, 1 days ago",
    not_yet_valid: "not valid before 2026-11-22 10:00:00 UTC, in 1 days",
    key_of_another: "is not the key of the certificate",
    weak: "an RSA key of 1024 bits, at least 2048",
    authority_missing: "No such file",
    authority_of_another: "has signed it",
    certificate_missing: "No such file",
    no_certificate: "no readable certificate in PEM",
    half_a_certificate: "no readable certificate in PEM",
    key_with_a_passphrase: "no readable private key in PEM",
    endless: "larger than 1048576 bytes",
}
bad_inputs = pytest.mark.parametrize(
    ("spoil", "message"), BAD.items(), ids=lambda case: getattr(case, "__name__", "")
)


def mended(serving: Serving) -> bool:
    return serving.problem is None


@bad_inputs
async def test_a_start_without_anything_valid_is_refused_and_says_why(
    mounted: Mounted, spoil: Callable[[Mounted], None], message: str
) -> None:
    spoil(mounted)
    with pytest.raises(CertificateError, match=message):
        await serving_of(mounted).start()


@bad_inputs
async def test_the_old_one_is_served_until_it_is_replaced(
    mounted: Mounted, spoil: Callable[[Mounted], None], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()
    serving = serving_of(mounted, told=told)
    await serving.start()
    async with listening(serving) as port:
        before = await shown(port)
        spoil(mounted)
        with caplog.at_level(logging.ERROR):
            await serving.refresh()
            await serving.refresh()
        assert serving.problem is not None
        assert message in serving.problem
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert await shown(port) == before
        good = mounted.put()
        await serving.refresh()
        assert mended(serving)
        assert await shown(port) == good
        assert await shown(port, server_name=None) == good
    assert set(told.bundles) == {pem(mounted.authority).decode()}


async def test_an_open_connection_outlives_the_replacement(mounted: Mounted) -> None:
    serving = serving_of(mounted)
    await serving.start()
    trust = ssl.create_default_context(cadata=pem(mounted.authority).decode())
    trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    async with listening(serving) as port, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        mounted.put()
        await serving.refresh()
        writer.write(b"still here\n")
        assert await reader.readline() == b"still here\n"
        writer.close()
        await writer.wait_closed()


async def test_an_expired_certificate_without_replacement_is_a_problem_and_still_served(
    mounted: Mounted,
) -> None:
    clock = Clock()
    serving = serving_of(mounted, clock)
    await serving.start()
    clock.at = NOW + 31 * DAY
    await serving.refresh()
    assert serving.problem is not None
    assert "expired" in serving.problem
    assert serving.not_after == NOW + 30 * DAY
    async with listening(serving) as port:
        assert (await shown(port)).not_valid_after_utc == NOW + 30 * DAY


async def test_an_old_protocol_and_weak_ciphers_are_refused(mounted: Mounted) -> None:
    serving = serving_of(mounted)
    await serving.start()
    async with listening(serving) as port:
        for ciphers in ("NULL", "AES128-SHA"):
            caller = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            caller.check_hostname, caller.verify_mode = False, ssl.CERT_NONE
            caller.maximum_version = ssl.TLSVersion.TLSv1_2
            caller.set_ciphers(f"{ciphers}:@SECLEVEL=0")
            with pytest.raises((ssl.SSLError, ConnectionError)):
                async with asyncio.timeout(30):
                    await asyncio.open_connection("127.0.0.1", port, ssl=caller)
    assert serving.context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(("minimum", "served"), [("VersionTLS12", True), ("VersionTLS13", False)])
async def test_a_caller_with_tls_1_2_is_refused_where_the_configuration_asks_for_1_3(
    mounted: Mounted, minimum: Literal["VersionTLS12", "VersionTLS13"], served: bool
) -> None:
    settings = TlsSettings(cert_file=mounted.chain, key_file=mounted.key, min_version=minimum)
    old, new = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    async with serving_tls(settings, now=Clock()) as serving, listening(serving) as port:
        assert await _handshake(port, new) == "TLSv1.3"
        if served:
            assert await _handshake(port, old) == "TLSv1.2"
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await _handshake(port, old)


async def _handshake(port: int, version: ssl.TLSVersion) -> str:
    """Returns the version that a caller which knows this version alone speaks."""
    caller = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    caller.check_hostname, caller.verify_mode = False, ssl.CERT_NONE
    caller.minimum_version = caller.maximum_version = version
    async with asyncio.timeout(30):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=caller)
        spoken = writer.get_extra_info("ssl_object").version()
        writer.close()
        await writer.wait_closed()
    return str(spoken)
