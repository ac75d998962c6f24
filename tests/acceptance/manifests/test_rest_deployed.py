"""REST as it is deployed: its own service account and certificate, and callers reviewed by the cluster."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from queuectl.ledger.admin.schema import migrate
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.sandbox.control_plane import write_kubeconfig
from queuectl.sandbox.postgres import EmbeddedPostgres
from queuectl.sandbox.processes import ChildProcess, spawn
from tests.acceptance.e2e.site import eventually
from tests.acceptance.manifests.applied import Applied
from tests.acceptance.manifests.rendered import MANIFESTS, NAMESPACE
from tests.integration.ledger.places import reachable_folder

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_rest_serves_with_the_rights_and_the_certificate_of_its_manifests(applied: Applied) -> None:
    async with asyncio.timeout(120), _rest(applied) as (rest, probes):
        bundle = await applied.kubectl(
            *("get", "configmap", "-n", NAMESPACE, "queuectl-api-ca", "-o", r"jsonpath={.data.ca\.crt}")
        )
        trust = ssl.create_default_context(cadata=bundle)
        await applied.kubectl("create", "serviceaccount", "reader", "-n", "default")
        await applied.kubectl(
            *("create", "rolebinding", "reader", "-n", "default", "--clusterrole=view"),
            "--serviceaccount=default:reader",
        )
        token = await applied.kubectl("create", "token", "reader", "-n", "default", "--audience=queuectl")
        another = await applied.kubectl("create", "token", "reader", "-n", "default")
        foreign = await applied.kubectl("create", "token", "reader", "-n", "default", "--audience=vault")
        workloads = f"{rest}/api/v1/workloads?namespace=default"

        async def sees() -> bool:
            # A controller of the cluster aggregates our role into the built-in ones.
            return (await _get(workloads, trust, token.strip()))[0] == 200

        await eventually("the reader sees the workloads of its namespace", sees)
        # As in a kubeconfig: for the API server itself.
        assert (await _get(workloads, trust, another.strip()))[0] == 200
        assert (await _get(workloads, trust, foreign.strip()))[0] == 401
        assert (await _get(workloads, trust, ""))[0] == 401
        code, metrics = await _get(f"{probes}/metrics", None, "")
        assert code == 200
        assert re.search(
            r"^queuectl_certificate_expiry_timestamp_seconds 1\.\d+e\+09$", metrics, re.MULTILINE
        )
        reviews = 'queuectl_kubernetes_requests_total{code="201",resource="tokenreviews",verb="create"}'
        assert reviews in metrics


async def _get(url: str, trust: ssl.SSLContext | None, token: str) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(url, ssl=trust if trust is not None else True) as answer,
    ):
        return answer.status, await answer.text()


@asynccontextmanager
async def _rest(applied: Applied) -> AsyncIterator[tuple[str, str]]:
    """URLs of REST and of its probes, with the shipped configuration except the ports."""
    kubeconfig = applied.plane.folder / "rest.kubeconfig"
    token = await applied.kubectl("create", "token", "queuectl-api", "-n", NAMESPACE)
    write_kubeconfig(
        kubeconfig, applied.plane.url, applied.plane.ca_file, {"rest": token.strip()}, current="rest"
    )
    with reachable_folder() as folder:
        async with EmbeddedPostgres(folder / "pg", settings={"fsync": "off"}) as postgres:
            cluster = await applied.kubectl("get", "ns", "kube-system", "-o", "jsonpath={.metadata.uid}")
            await migrate(postgres.url)
            async with connection_pool(postgres.url) as pool:
                # A controller must have led before REST can serve.
                await PostgresLedger(pool, cluster).take_epoch("test")
            child = await _spawned(postgres.url, kubeconfig, folder)
            try:
                log = folder / "api.log"
                rest = await _said(child, log, r"REST at (https://\S+)")
                yield rest, await _said(child, log, r"probes at (http://\S+)")
            finally:
                await child.stop(10)


async def _spawned(url: str, kubeconfig: Path, folder: Path) -> ChildProcess:
    text = (MANIFESTS / "api" / "config.yaml").read_text()
    config = folder / "config.yaml"
    config.write_text(re.sub(r'"0\.0\.0\.0:\d+"', '"127.0.0.1:0"', text))
    flags: list[Any] = ["--config", config, "--kubeconfig", kubeconfig]
    return await spawn(
        [sys.executable, "-m", "queuectl", "api", *map(str, flags)],
        name="api",
        log=folder / "api.log",
        env={**os.environ, "QUEUECTL_DATABASE_URL": url},
    )


async def _said(child: ChildProcess, log: Path, pattern: str) -> str:
    """The URL in the log."""

    async def look() -> str:
        assert child.returncode is None, log.read_text()
        found = re.search(pattern, log.read_text())
        return found[1].rstrip(",") if found else ""

    said: str = await eventually(pattern, look, 60)
    return said
