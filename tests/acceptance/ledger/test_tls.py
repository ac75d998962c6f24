"""`sslrootcert=system`: the server of the ledger is verified by the CAs of the system."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import pytest_asyncio
import trustme

from queuectl.ledger.admin.schema import migrate
from queuectl.ports.ledger import LedgerUnavailable
from queuectl.sandbox.postgres import USER, EmbeddedPostgres
from tests.integration.ledger.places import reachable_folder
from tests.integration.ledger.proxies import CommitProxy

AUTHORITY = trustme.CA()
REQUEST = bytes([0, 0, 0, 8, 4, 210, 22, 47])
"""What a client sends first if it wants TLS."""


@pytest_asyncio.fixture
async def url() -> AsyncIterator[str]:
    """A Postgres behind TLS: that of the tests has none itself."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert("localhost").configure_cert(context)
    with reachable_folder() as folder:
        async with EmbeddedPostgres(folder / "pg", settings={"fsync": "off"}) as postgres:
            sockets = Path(parse_qs(urlsplit(postgres.url).query)["host"][0])

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                assert await reader.readexactly(len(REQUEST)) == REQUEST
                writer.write(b"S")
                try:
                    await writer.start_tls(context)
                except OSError:  # the client refuses the certificate
                    writer.close()
                    return
                await CommitProxy().serve(reader, writer, sockets)

            async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
                port = server.sockets[0].getsockname()[1]
                yield f"postgresql://{USER}@localhost:{port}/{USER}?sslmode=verify-full&sslrootcert=system"


async def test_a_server_with_a_certificate_of_the_systems_cas_is_used(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    await migrate(url)


async def test_a_server_with_another_certificate_is_not_used(url: str) -> None:
    with pytest.raises(LedgerUnavailable, match="certificate verify failed"):
        await migrate(url)
