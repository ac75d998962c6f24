"""REST as it is deployed, on a real API server: its own service account, TLS, and callers by TokenRequest."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from queuectl.kube.errors import ApiError
from queuectl.sandbox.players.api import Client
from tests.acceptance.e2e.plant import frozen
from tests.acceptance.e2e.rest_site import HOLDS, OWN, ROLES, SYSTEM, TEAMS, Place, Server, placed, started
from tests.acceptance.e2e.site import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

REVOKED = 60.0
"""Seconds within which a revoked token must be refused."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Place]:
    async with placed() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(place: Place) -> AsyncIterator[Server]:
    """REST as deployed: with its least privileges, and its own certificate in the cluster."""
    async for found in started(place, clusterTokens=True):
        yield found


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
    async for strict in started(place):
        assert await strict.status("/api/v1/workloads", ours) == 200
        assert await strict.status("/api/v1/workloads", own) == 401
        assert await strict.status("/api/v1/workloads", place.plane.tokens["admin"]) == 401
        strict.child.send(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await strict.child.wait() == 0, strict.log.read_text()


async def test_a_change_is_made_with_the_rights_of_its_caller_at_the_api_server(place: Place) -> None:
    (team, other), path = TEAMS, "/apis/batch/v1/namespaces/{0}/jobs"
    for each in TEAMS:
        await place.api.request("POST", path.format(each), job(f"train-{each}"))
    await place.bind("alice", team, "edit")
    alice, bob = await place.token("alice", team, OWN), await place.token("bob", other, OWN)
    hold = "/api/v1/workloads/{0}/job/train-{0}/hold"
    async for server in started(place, clusterTokens=True, changes="caller"):
        status, found = await server.change(hold.format(team), alice, dryRun=True)
        assert (status, found["after"], found["written"]) == (200, "true", False), found
        annotations = (await place.api.request("GET", f"{path.format(team)}/train-{team}"))["metadata"]
        assert "annotations" not in annotations
        for token, of, expected, says in (
            (bob, other, 403, "you may not patch jobs.batch in namespace team-b"),
            (await place.token("alice", team), team, 403, "does not accept this token"),
            (alice, other, 404, "no such object"),
        ):
            status, problem = await server.change(hold.format(of), token)
            assert (status, says in problem["detail"]) == (expected, True), problem
        status, found = await server.change(hold.format(team), alice, reason="node 7 is broken")
        assert (status, found["written"]) == (200, True), found
        kept = (await place.api.request("GET", f"{path.format(team)}/train-{team}"))["metadata"][
            "annotations"
        ]
        author = f"system:serviceaccount:{team}:alice"
        assert kept["queuectl.dev/hold"] == "true"
        assert kept["queuectl.dev/reason"] == f"hold by {author}: node 7 is broken"
        assert f"hold job/{team}/train-{team} by" in server.log.read_text()
        assert alice not in server.log.read_text()


def job(name: str) -> dict[str, Any]:
    pods = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}
    metadata = {"name": name, "labels": {"queuectl.dev/queue-name": "main"}}
    spec = {"suspend": True, "template": {"spec": pods}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


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
    await place.api.request("DELETE", f"{ROLES}/namespaces/team-b/rolebindings/dave-view")
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
