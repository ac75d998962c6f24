"""The connection for callers has nothing of the identity of a kubeconfig but the address and its CA."""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64encode
from pathlib import Path

import trustme

from queuectl.kube import account


async def test_the_client_certificate_of_the_server_is_not_presented_for_a_caller(tmp_path: Path) -> None:
    authority = trustme.CA()
    server, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("queuectl-api@example.com")
    seen: list[object] = []

    async def told(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("peercert"))
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = ssl.CERT_OPTIONAL
    authority.configure_trust(context)
    server.configure_cert(context)
    listening = await asyncio.start_server(told, "127.0.0.1", 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]
    identity = await account.from_kubeconfig(str(written(tmp_path, port, authority, client)), None)
    async with asyncio.timeout(20), listening:
        for each in (identity.tls, identity.trust()):
            assert each is not None
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=each)
            await reader.read()
            writer.close()
    own, callers = seen
    assert own
    assert not callers


def written(folder: Path, port: int, authority: trustme.CA, client: trustme.LeafCert) -> Path:
    def data(blob: bytes) -> str:
        return b64encode(blob).decode()

    user = {
        "client-certificate-data": data(client.cert_chain_pems[0].bytes()),
        "client-key-data": data(client.private_key_pem.bytes()),
    }
    there = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority-data": data(authority.cert_pem.bytes()),
    }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": there}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return path
