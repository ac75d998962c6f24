"""REST as it is deployed, on a real API server, with a workload in each of two namespaces."""

from __future__ import annotations

import asyncio
import itertools
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from queuectl.core.decisions import Enqueue, Plan
from queuectl.core.model.workload import ObjectRef, PodSet, Workload, WorkloadId
from queuectl.ledger.admin.schema import migrate
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.sandbox.control_plane import ControlPlane, find_assets
from queuectl.sandbox.install import Installer, read_kustomization
from queuectl.sandbox.players.api import Client
from queuectl.sandbox.postgres import EmbeddedPostgres
from queuectl.sandbox.processes import ChildProcess, spawn
from queuectl.shipped import shipped
from tests.acceptance.e2e.site import Json, Run, eventually
from tests.integration.ledger.places import reachable_folder

SYSTEM, TEAMS = "queuectl-system", ("team-a", "team-b")
OWN = "https://kubernetes.default.svc"
"""The audience of the cluster itself."""
HOLDS = 2.0
"""Seconds that a review is cached here: with the 30 of a deployment the tests would take minutes."""
_numbers = itertools.count(1)
ROLES = "/apis/rbac.authorization.k8s.io/v1"


@dataclass
class Ground:
    """A cluster with what REST needs there, and its ledger; the tests start REST."""

    folder: Path
    api: Client
    """As admin."""
    config: Path
    """A kubeconfig, in which REST gets a token of its own."""
    database: str

    async def account(self, name: str, namespace: str) -> None:
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        await self.api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", body)

    async def viewer(self, name: str, namespace: str) -> None:
        """A service account that may view its namespace, by the cluster's own role."""
        await self.account(name, namespace)
        await self.bind(name, namespace, "view")

    async def bind(self, name: str, namespace: str, role: str, kind: str = "ClusterRole") -> None:
        """Give a service account a role in its namespace."""
        body = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{name}-{role}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
        await self.api.request("POST", f"{ROLES}/namespaces/{namespace}/rolebindings", body)

    async def token(self, name: str, namespace: str, *audiences: str) -> str:
        spec = {"audiences": list(audiences or ["queuectl"]), "expirationSeconds": 3600}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return str((await self.api.request("POST", path, body))["status"]["token"])

    def kubeconfig(self, token: str) -> Path:
        """A kubeconfig with this token."""
        config = yaml.safe_load(self.config.read_text())
        config["users"] = [{"name": "admin", "user": {"token": token}}]
        config["contexts"] = config["contexts"][:1]
        path = self.folder / "kubeconfig-of-rest"
        path.write_text(yaml.safe_dump(config))
        return path

    def command(self, kubeconfig: Path, **settings: Any) -> list[str]:
        config = self.folder / "rest.yaml"
        config.write_text(yaml.safe_dump({"api": {"listen": "127.0.0.1:0", **settings}}))
        flags = ["--config", str(config), "--kubeconfig", str(kubeconfig)]
        return [sys.executable, "-m", "queuectl", "api", *flags, "--database-url", self.database]

    async def run(self, kubeconfig: Path, **settings: Any) -> Run:
        """Run it where its start must fail."""
        process = await asyncio.create_subprocess_exec(
            *self.command(kubeconfig, **settings),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("KUBE")},
        )
        async with asyncio.timeout(60):
            out, err = await process.communicate()
        assert process.returncode is not None
        return Run(process.returncode, out.decode(), err.decode())


@dataclass
class Place(Ground):
    """With a workload in each of two namespaces."""

    plane: ControlPlane
    postgres: EmbeddedPostgres


@dataclass
class Server:
    """A running `queuectl api`."""

    url: str
    trust: ssl.SSLContext
    child: ChildProcess
    log: Path

    async def ask(self, path: str, token: str | None = None, **headers: str) -> tuple[int, Json]:
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        timeout = aiohttp.ClientTimeout(total=30)
        async with (
            aiohttp.ClientSession(self.url, timeout=timeout, trust_env=False) as session,
            session.get(path, headers=headers, ssl=self.trust) as answer,
        ):
            return answer.status, await answer.json(content_type=None)

    async def change(self, path: str, token: str, **body: Any) -> tuple[int, Json]:
        """As the web page sends it."""
        headers = {"Authorization": f"Bearer {token}", "Queuectl-Request": "change"}
        timeout = aiohttp.ClientTimeout(total=30)
        async with (
            aiohttp.ClientSession(self.url, timeout=timeout, trust_env=False) as session,
            session.post(path, json=body, headers=headers, ssl=self.trust) as answer,
        ):
            return answer.status, await answer.json(content_type=None)

    async def status(self, path: str, token: str | None = None) -> int:
        return (await self.ask(path, token))[0]


@asynccontextmanager
async def placed(kind: type[ControlPlane] = ControlPlane) -> AsyncIterator[Place]:
    assets = find_assets()
    if assets is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: the real kube-apiserver tier is skipped")
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(reachable_folder())
        postgres = EmbeddedPostgres(folder / "postgres", settings={"fsync": "off"})
        await stack.enter_async_context(postgres)
        plane = await stack.enter_async_context(kind(folder / "plane", assets, fsync=False))
        api = await stack.enter_async_context(Client(plane.url, plane.ssl_context(), plane.tokens["admin"]))
        config = folder / "kubeconfig"
        plane.write_kubeconfig(config)
        found = Place(folder, api, config, postgres.url, plane, postgres)
        await _furnish(found)
        yield found


def empty_certificate() -> list[Json]:
    """What REST writes its certificate to."""
    return list(yaml.safe_load_all((shipped("manifests") / "api" / "certificate.yaml").read_text()))


async def _furnish(place: Place) -> None:
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (SYSTEM, *TEAMS)
    ]
    rights = read_kustomization(shipped("manifests") / "rbac")
    await Installer(place.api).apply([*namespaces, *empty_certificate(), *rights])
    for name, team in zip(("alice", "bob"), TEAMS, strict=True):
        await place.viewer(name, team)
    await migrate(place.postgres.url)
    kube_system = await place.api.request("GET", "/api/v1/namespaces/kube-system")
    async with connection_pool(place.postgres.url) as pool:
        ledger = PostgresLedger(pool, kube_system["metadata"]["uid"])
        epoch = await ledger.take_epoch("test")
        decisions = tuple(_queued(team, number) for number, team in enumerate(TEAMS, start=1))
        plan = Plan(version=1, cycle=1, now=await ledger.now(), decisions=decisions)
        await ledger.commit(plan, (), epoch=epoch, batch="first")


def _queued(team: str, number: int) -> Enqueue:
    workload = Workload(
        id=WorkloadId(f"uid-{team}"),
        ref=ObjectRef(team, "Job", f"train-{team}", f"uid-{team}"),
        queue="main",
        created_at=datetime(2026, 1, 5, tzinfo=UTC),
        pod_sets=(PodSet(name="main", count=1, requests=(("cpu", 1000),)),),
    )
    return Enqueue(workload, None, 0, number)


async def started(
    place: Ground, *, host: str = "127.0.0.1", names: tuple[str, ...] = (), **settings: Any
) -> AsyncIterator[Server]:
    """REST on `host`, with a certificate for it and for `names`."""
    kubeconfig = place.kubeconfig(await place.token("queuectl-api", SYSTEM, OWN))
    tls = {
        "secret": f"{SYSTEM}/queuectl-api-tls",
        "configMap": f"{SYSTEM}/queuectl-api-ca",
        "names": [host, *names],
    }
    log = place.folder / f"rest-{next(_numbers)}.log"
    argv = place.command(kubeconfig, tls=tls, identitySeconds=HOLDS, listen=f"{host}:0", **settings)
    child = await spawn(argv, name="queuectl api", log=log)
    try:

        async def serves() -> str | None:
            assert child.returncode is None, log.read_text()
            lines = [line for line in log.read_text().splitlines() if "REST at " in line]
            return lines[-1].partition("REST at ")[2] if lines else None

        url = await eventually("REST serves", serves)
        bundle = await place.api.request("GET", f"/api/v1/namespaces/{SYSTEM}/configmaps/queuectl-api-ca")
        trust = ssl.create_default_context(cadata=bundle["data"]["ca.crt"])
        found = Server(url, trust, child, log)

        async def ready() -> bool:
            return await found.status("/readyz") == 200

        await eventually("REST is ready", ready)
        yield found
    finally:
        await child.stop(10)
