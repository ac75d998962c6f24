"""The process `queuectl webhook`: configuration file, mounted certificates, SIGTERM."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from cryptography import x509

from queuectl.app.webhook import run_webhook
from queuectl.sandbox.endpoints import choose_ports
from queuectl.settings import ConfigurationError, Settings, load
from queuectl.webhook.server import PATH
from tests.integration.sandbox.polling import eventually
from tests.unit.certificates.issuing import Mounted
from tests.unit.webhook.reviews import MAKERS, review

PATIENCE = 60
NOW = datetime.fromtimestamp(0, UTC) + timedelta(days=1)


def fresh(mounted: Mounted) -> x509.Certificate:
    """A certificate that is valid by the wall clock."""
    return mounted.put(begins=NOW, ends=NOW + timedelta(days=36_500))


def written(folder: Path, document: Any) -> Path:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@asynccontextmanager
async def running(config: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    log = (config.parent / "webhook.log").open("wb")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "queuectl", "webhook", "--config", str(config)), stdout=log, stderr=log
    )
    log.close()
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def shown(address: tuple[str, int], trust: ssl.SSLContext) -> x509.Certificate:
    _, writer = await asyncio.open_connection(*address, ssl=trust)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return x509.load_der_x509_certificate(der)


async def test_the_webhook_serves_the_mounted_certificate_uses_its_replacement_and_exits_with_0(
    tmp_path: Path,
) -> None:
    mounted = Mounted(tmp_path)
    first = fresh(mounted)
    port, probes = choose_ports([(0, 0), (0, 0)])
    tls = {"certFile": str(mounted.chain), "keyFile": str(mounted.key), "checkSeconds": 0.1}
    section = {"listen": f"127.0.0.1:{port}", "probes": f"127.0.0.1:{probes}", "tls": tls}
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    async with (
        asyncio.timeout(PATIENCE * 3),
        running(written(tmp_path, {"webhook": section})) as process,
        aiohttp.ClientSession(trust_env=False) as session,
    ):

        async def ready() -> bool:
            assert process.returncode is None, (tmp_path / "webhook.log").read_text()
            try:
                async with session.get(f"http://127.0.0.1:{probes}/readyz") as answer:
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        async def metric(name: str) -> float:
            async with session.get(f"http://127.0.0.1:{probes}/metrics") as answer:
                lines = (await answer.text()).splitlines()
            return next(float(line.split()[-1]) for line in lines if line.startswith(name))

        await eventually(ready, "the webhook is ready", PATIENCE)
        assert await shown(("127.0.0.1", port), trust) == first
        async with session.post(
            f"https://127.0.0.1:{port}{PATH}", json=review(MAKERS["Job"]("train")), ssl=trust
        ) as answer:
            assert json.loads(await answer.read())["response"]["allowed"] is True
        assert await metric('queuectl_webhook_reviews_total{result="changed"}') == 1
        mounted.key.write_bytes(b"half a ke")

        async def troubled() -> bool:
            return await metric("queuectl_certificate_problem") == 1

        await eventually(troubled, "the metric tells", PATIENCE)
        assert await shown(("127.0.0.1", port), trust) == first
        second = fresh(mounted)

        async def replaced() -> bool:
            return await shown(("127.0.0.1", port), trust) == second

        await eventually(replaced, "the new certificate is shown", PATIENCE)
        assert not await troubled()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0, (tmp_path / "webhook.log").read_text()


async def test_the_webhook_does_not_start_without_a_certificate_and_names_the_missing_file(
    tmp_path: Path,
) -> None:
    tls = {"certFile": "/nowhere/tls.crt", "keyFile": "/nowhere/tls.key"}
    config = written(tmp_path, {"webhook": {"tls": tls}})
    async with asyncio.timeout(PATIENCE), running(config) as process:
        assert await process.wait() == 2
    log = (tmp_path / "webhook.log").read_text()
    assert "/nowhere/tls.crt: No such file" in log
    assert "Traceback" not in log


async def test_the_webhook_does_not_start_without_tls_and_says_what_to_set() -> None:
    with pytest.raises(ConfigurationError, match=r"webhook\.tls is not set.*webhook\.tls\.secret"):
        await run_webhook(Settings(), None, None)


@pytest.mark.parametrize(
    ("tls", "message"),
    [
        ({}, "set either certFile and keyFile, or secret"),
        ({"certFile": "a"}, "set both certFile and keyFile"),
        ({"certFile": "a", "keyFile": "b", "secret": "n/s", "names": ["x"]}, "set either"),
        ({"secret": "n/s"}, "set names with secret only"),
        ({"certFile": "a", "keyFile": "b", "names": ["x"]}, "set names with secret only"),
        ({"secret": "n/s", "names": ["x"], "caFile": "c"}, "caFile is only for certFile"),
        ({"secret": "no-namespace", "names": ["x"]}, "webhook.tls.secret"),
        ({"secret": "n/s", "names": ["under_score"]}, "neither a DNS name nor an IP address"),
        ({"secret": "n/s", "names": ["x"], "checkSeconds": 0}, "webhook.tls.checkSeconds"),
        ({"secret": "n/s", "names": ["x"], "cipher": "NULL"}, "there is no such setting"),
    ],
)
def test_invalid_settings_are_reported_by_name(tmp_path: Path, tls: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        load(written(tmp_path, {"webhook": {"tls": tls}}), environ={})
    assert message in str(refusal.value)
    assert "webhook.tls" in str(refusal.value)
