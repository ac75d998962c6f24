"""REST as it is deployed, on a real API server: its own service account, TLS, and callers by TokenRequest."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from queuectl.core.decisions import Enqueue, Plan
from queuectl.core.model import ObjectRef, PodSet, Workload, WorkloadId
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.postgres import PostgresLedger
from queuectl.ledger.schema import migrate
from queuectl.sandbox.client import Client
from queuectl.sandbox.control_plane import ControlPlane, find_assets
from queuectl.sandbox.install import Installer, read_kustomization
from queuectl.sandbox.players.api import ApiError
from queuectl.sandbox.postgres import EmbeddedPostgres
from queuectl.sandbox.processes import Child, spawn
from queuectl.shipped import shipped
from tests.e2e.plant import frozen
from tests.e2e.site import Json, Run, eventually
from tests.ledger.places import reachable_folder

pytestmark = pytest.mark.asyncio(loop_scope="module")

SYSTEM, TEAMS = "queuectl-system", ("team-a", "team-b")
OWN = "https://kubernetes.default.svc"
"""The audience of the cluster itself."""
HOLDS = 2.0
"""Seconds that a review is cached here: with the 30 of a deployment the tests would take minutes."""
REVOKED = 60.0
"""Seconds within which a revoked token must be refused."""
_numbers = itertools.count(1)
ROLES = "/apis/rbac.authorization.k8s.io/v1"


@dataclass
class Place:
    """A cluster and a ledger with a workload in each of two namespaces; the tests start REST."""

    folder: Path
    plane: ControlPlane
    postgres: EmbeddedPostgres
    api: Client

    async def account(self, name: str, namespace: str) -> None:
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        await self.api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", body)

    async def viewer(self, name: str, namespace: str) -> None:
        """A service account that may view its namespace, by the cluster's own role."""
        await self.account(name, namespace)
        body = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
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
        self.plane.write_kubeconfig(self.folder / "kubeconfig")
        config = yaml.safe_load((self.folder / "kubeconfig").read_text())
        config["users"] = [{"name": "admin", "user": {"token": token}}]
        config["contexts"] = config["contexts"][:1]
        path = self.folder / "kubeconfig-of-rest"
        path.write_text(yaml.safe_dump(config))
        return path

    def command(self, kubeconfig: Path, **settings: Any) -> list[str]:
        config = self.folder / "rest.yaml"
        config.write_text(yaml.safe_dump({"api": {"listen": "127.0.0.1:0", **settings}}))
        flags = ["--config", str(config), "--kubeconfig", str(kubeconfig)]
        return [sys.executable, "-m", "queuectl", "api", *flags, "--database-url", self.postgres.url]

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
class Server:
    """A running `queuectl api`."""

    url: str
    trust: ssl.SSLContext
    child: Child
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

    async def status(self, path: str, token: str | None = None) -> int:
        return (await self.ask(path, token))[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Place]:
    assets = find_assets()
    if assets is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: the real kube-apiserver tier is skipped")
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(reachable_folder())
        postgres = EmbeddedPostgres(folder / "postgres", settings={"fsync": "off"})
        await stack.enter_async_context(postgres)
        plane = await stack.enter_async_context(ControlPlane(folder / "plane", assets, fsync=False))
        api = await stack.enter_async_context(Client(plane.url, plane.ssl_context(), plane.tokens["admin"]))
        found = Place(folder, plane, postgres, api)
        await _furnish(found)
        yield found


async def _furnish(place: Place) -> None:
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (SYSTEM, *TEAMS)
    ]
    certificate = list(yaml.safe_load_all((shipped("manifests") / "api" / "certificate.yaml").read_text()))
    rights = read_kustomization(shipped("manifests") / "rbac")
    await Installer(place.api).apply([*namespaces, *certificate, *rights])
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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(place: Place) -> AsyncIterator[Server]:
    """REST as deployed: with its least privileges, and its own certificate in the cluster."""
    async for found in _started(place, audiences=["queuectl", OWN]):
        yield found


async def _started(place: Place, **settings: Any) -> AsyncIterator[Server]:
    kubeconfig = place.kubeconfig(await place.token("queuectl-api", SYSTEM, OWN))
    tls = {
        "secret": f"{SYSTEM}/queuectl-api-tls",
        "configMap": f"{SYSTEM}/queuectl-api-ca",
        "names": ["127.0.0.1"],
    }
    log = place.folder / f"rest-{next(_numbers)}.log"
    argv = place.command(kubeconfig, tls=tls, identitySeconds=HOLDS, **settings)
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


async def test_each_user_sees_the_namespaces_that_rbac_permits(place: Place, server: Server) -> None:
    alice, bob = await place.token("alice", "team-a"), await place.token("bob", "team-b")
    for token, own, other in ((alice, *TEAMS), (bob, *reversed(TEAMS))):
        status, found = await server.ask("/api/v1/workloads", token)
        assert (status, [item["namespace"] for item in found["items"]]) == (200, [own])
        assert await server.status(f"/api/v1/workloads/{own}/job/train-{own}", token) == 200
        foreign = await server.ask(f"/api/v1/workloads/{other}/job/train-{other}", token)
        assert foreign == await server.ask("/api/v1/workloads/nowhere/job/nobody", token)
        assert foreign[0] == 404
        assert await server.status("/api/v1/decisions?after=0", token) == 200
    status, found = await server.ask("/api/v1/workloads", place.plane.tokens["admin"])
    assert (status, len(found["items"])) == (200, 2)


async def test_48_a_token_for_another_audience_is_refused(place: Place, server: Server) -> None:
    wrong = await place.token("alice", "team-a", "vault")
    for token in (wrong, wrong[:-4] + "AAAA", "nonsense", None):
        status, problem = await server.ask("/api/v1/workloads", token)
        assert status == 401
        assert problem["audiences"] == ["queuectl", OWN]


async def test_the_clusters_own_audience_is_accepted_only_where_it_is_allowed(place: Place) -> None:
    own, ours = await place.token("alice", "team-a", OWN), await place.token("alice", "team-a")
    async for strict in _started(place):
        assert await strict.status("/api/v1/workloads", ours) == 200
        assert await strict.status("/api/v1/workloads", own) == 401
        assert await strict.status("/api/v1/workloads", place.plane.tokens["admin"]) == 401
        strict.child.send(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await strict.child.wait() == 0, strict.log.read_text()


async def test_48_two_authorization_headers_or_one_of_64_kib_are_refused(
    place: Place, server: Server
) -> None:
    token = await place.token("alice", "team-a")
    for lines, expected in (
        ([f"Authorization: Bearer {token}"] * 2, 400),
        ([f"Authorization: Bearer {'x' * 65_536}"], 431),
        ([f"Authorization: Bearer {token}"], 200),
    ):
        port = int(server.url.rpartition(":")[2])
        async with asyncio.timeout(30):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=server.trust, server_hostname="127.0.0.1"
            )
            head = ["GET /api/v1/workloads HTTP/1.1", "Host: x", "Connection: close", *lines, "", ""]
            writer.write("\r\n".join(head).encode())
            assert int((await reader.readline()).split()[1]) == expected
            writer.close()


async def test_a_revoked_token_is_refused(place: Place, server: Server, figures: list[str]) -> None:
    await place.viewer("carol", "team-a")
    token = await place.token("carol", "team-a")
    assert await server.status("/api/v1/workloads", token) == 200
    clock = asyncio.get_running_loop().time
    await place.api.request("DELETE", "/api/v1/namespaces/team-a/serviceaccounts/carol")
    begun = clock()

    async def refused() -> bool:
        return await server.status("/api/v1/workloads", token) == 401

    await eventually("the token of a deleted account is refused", refused, REVOKED - 30 + HOLDS, pause=0.2)
    figures.append(
        f"token refused {clock() - begun:.1f} s after its service account was deleted, answers of the "
        f"cluster held for {HOLDS:g} s (30 s as shipped)"
    )
    assert not await _ever(server, token)


async def _ever(server: Server, token: str) -> bool:
    """Is the token accepted once more?"""
    for _ in range(5):
        if await server.status("/api/v1/workloads", token) == 200:
            return True
        await asyncio.sleep(0.2)
    return False


async def test_a_right_that_is_revoked_no_longer_applies(place: Place, server: Server) -> None:
    await place.viewer("dave", "team-b")
    token, one = await place.token("dave", "team-b"), "/api/v1/workloads/team-b/job/train-team-b"

    async def answers(status: int) -> bool:
        return await server.status(one, token) == status

    await eventually("dave may read it", lambda: answers(200))
    await place.api.request("DELETE", f"{ROLES}/namespaces/team-b/rolebindings/dave")
    await eventually("dave may not read it any more", lambda: answers(404))


async def test_while_the_api_server_is_down_only_recently_reviewed_tokens_are_accepted(
    place: Place, server: Server
) -> None:
    alice, bob = await place.token("alice", "team-a"), await place.token("bob", "team-b")
    assert await server.status("/api/v1/workloads", alice) == 200
    pid = next(
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/comm")
        if path.read_text().strip() == "kube-apiserver"[:15]
        and str(place.folder) in (path.parent / "cmdline").read_text()
    )
    with frozen([pid]):
        # This token was never reviewed, and can't be reviewed now.
        assert await server.status("/api/v1/workloads", bob) == 503

        async def refused() -> bool:
            status = await server.status("/api/v1/workloads", alice)
            assert status in (200, 503)
            return status == 503

        await eventually("a remembered review expires in time", refused, 30)
        assert await server.status("/healthz") == 200

    async def answers() -> bool:
        return await server.status("/api/v1/workloads", alice) == 200

    await eventually("the problem is solved", answers)


async def test_without_identity_it_does_not_start(place: Place, tmp_path: Path) -> None:
    no_rights = place.kubeconfig(await place.token("alice", "team-a", OWN))
    for kubeconfig, told in (
        (tmp_path / "none", "can't connect to the cluster"),
        (no_rights, "tokenreviews"),
    ):
        found = await place.run(kubeconfig)
        assert found.code == 2, found.err
        assert told in found.err
        assert "Traceback" not in found.err


async def test_rest_may_only_review_access_and_write_its_certificate(place: Place, server: Server) -> None:
    """What a stolen token of REST allows."""
    token = await place.token("queuectl-api", SYSTEM, OWN)
    async with Client(place.plane.url, place.plane.ssl_context(), token) as stolen:
        for path in (
            "/api/v1/secrets",
            "/api/v1/pods",
            "/apis/batch/v1/jobs",
            "/api/v1/namespaces/kube-system",
        ):
            with pytest.raises(ApiError) as refused:
                await stolen.request("GET", path)
            assert refused.value.status == 403
    assert server.child.returncode is None
