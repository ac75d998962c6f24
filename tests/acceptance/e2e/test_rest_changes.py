"""`fit` and `cancel` by REST on a whole site: the object is changed with the rights of a tenant's token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from queuectl.kube.errors import ApiError
from queuectl.sandbox.install import Installer
from tests.acceptance.e2e.rest_site import OWN, ROLES, Ground, Server, empty_certificate, started
from tests.acceptance.e2e.site import GPU, OLDER, Json, eventually, job, pod_template
from tests.acceptance.e2e.world import World

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.real_api_server]

READ_BY_REST = {"apiGroups": ["queuectl.dev"], "resources": ["workloads"], "verbs": ["get"]}
RIGHTS: dict[str, list[Json]] = {
    "owner": [
        READ_BY_REST,
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "patch", "delete"]},
    ],
    "reader": [READ_BY_REST, {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]}],
    "watcher": [READ_BY_REST],
}
"""Roles of service accounts in their own namespace: what each may do with its Jobs."""
UNKNOWN = "there is no such object, or you may not read it"


class Tenants(NamedTuple):
    """REST with changes by its callers, and tokens by TokenRequest."""

    rest: Server
    world: World
    tokens: dict[str, str]
    """By role; `stranger` is the owner of the Jobs of another namespace."""

    async def change(self, who: str, verb: str, name: str, **body: Any) -> tuple[int, Json]:
        return await self.rest.change(f"{self._path(name)}/{verb}", self.tokens[who], **body)

    async def workload(self, name: str, who: str = "reader") -> Json:
        status, found = await self.rest.ask(self._path(name), self.tokens[who])
        assert status == 200, found
        return found

    async def refused(self, verb: str, name: str, right: str, **body: Any) -> None:
        """Nothing happens to the Job by those that lack a right; `right`: the one that the change needs."""
        namespace = self.world.namespace
        for who, status, title, says in (
            ("reader", 403, "Forbidden", f"you may not {right} jobs.batch in namespace {namespace} "),
            ("watcher", 403, "Forbidden", f"you may not get jobs.batch in namespace {namespace} "),
            ("stranger", 404, "Not Found", UNKNOWN),
        ):
            answered, problem = await self.change(who, verb, name, **body)
            assert (answered, problem["status"], problem["title"]) == (status, status, title), (who, problem)
            assert problem["detail"].startswith(says), (who, problem)
        missing = await self.change("stranger", verb, "nothing", **body)
        assert missing == await self.change("stranger", verb, name, **body), "it tells what exists"

    def _path(self, name: str) -> str:
        return f"/api/v1/workloads/{self.world.namespace}/job/{name}"


@pytest_asyncio.fixture(loop_scope="session")
async def tenants(world: World, tmp_path: Path) -> AsyncIterator[Tenants]:
    site, other = world.site, f"{world.namespace}-other"
    await world.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": other}})
    await Installer(world.api).apply(empty_certificate())  # the sandbox has no REST in the cluster
    ground = Ground(tmp_path, world.api, site.kubeconfig, site.endpoints["postgres"])
    tokens = {who: await _tenant(ground, who, world.namespace, rules) for who, rules in RIGHTS.items()}
    tokens["stranger"] = await _tenant(ground, "stranger", other, RIGHTS["owner"])
    async for rest in started(ground, clusterTokens=True, changes="caller"):
        yield Tenants(rest, world, tokens)


async def _tenant(ground: Ground, name: str, namespace: str, rules: list[Json]) -> str:
    """Return the token of a new service account with a Role."""
    await ground.account(name, namespace)
    role = {"metadata": {"name": name}, "rules": rules}
    await ground.api.request("POST", f"{ROLES}/namespaces/{namespace}/roles", role)
    await ground.bind(name, namespace, name, "Role")
    return await ground.token(name, namespace, OWN)


def large(name: str, gpus: int) -> Json:
    return job(name, template=pod_template(gpus, 600))


async def waits(world: World, name: str, gpus: int) -> None:
    """Submit a Job that waits for GPUs, and whose controller has seen that it is suspended."""
    await world.submit(large(name, gpus))
    await world.reason(name)

    async def look() -> bool:
        conditions = (await world.get(name))["status"].get("conditions") or []
        return any((one["type"], one["status"]) == ("Suspended", "True") for one in conditions)

    await eventually(f"the status of {name} says that it is suspended", look)


def gpus_of(obj: Json) -> str:
    limits = obj["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    return str(limits[GPU])


@pytest.mark.every_version
async def test_a_tenant_makes_the_pods_of_a_waiting_job_smaller_and_it_keeps_its_place(
    tenants: Tenants,
) -> None:
    world = tenants.world
    await world.submit(large("holder", 8))
    await world.started("holder")
    await waits(world, "first", 7)
    await waits(world, "second", 6)
    await tenants.refused("fit", "first", "patch", gpus=4)
    assert gpus_of(await world.get("first")) == "7"
    status, told = await tenants.change("owner", "fit", "first", gpus=4, reason="fewer will do")
    if world.site.version == OLDER:
        assert (status, "from Kubernetes 1.36 on" in told["detail"]) == (422, True), told
        assert gpus_of(await world.get("first")) == "7"
        return
    assert (status, told["written"], told["before"], told["after"]) == (
        200,
        True,
        f"1 pod with 7 {GPU}",
        f"1 pod with 4 {GPU}",
    )
    changed = await world.get("first")
    assert gpus_of(changed) == "4"
    author = f"system:serviceaccount:{world.namespace}:owner"
    assert changed["metadata"]["annotations"]["queuectl.dev/reason"] == f"fit by {author}: fewer will do"
    assert f'fit job/{world.namespace}/first by ["{author}", ' in tenants.rest.log.read_text()

    async def requests() -> bool:
        return bool(((await tenants.workload("first"))["reason"] or {}).get("requested") == 4)

    await eventually("first waits with its new size", requests)
    assert [(await tenants.workload(name))["position"] for name in ("first", "second")] == [1, 2]
    await world.delete("holder")
    await world.started("first")
    assert (await world.used(world.namespace))["a100", GPU] == 4
    status, problem = await tenants.change("owner", "fit", "first", gpus=2)
    assert (status, "only a workload that waits" in problem["detail"]) == (409, True), problem
    assert (await world.reason("second"))["requested"] == 6


async def test_a_tenant_deletes_its_jobs_and_a_running_one_only_with_its_consent(tenants: Tenants) -> None:
    world = tenants.world
    await world.submit(large("runs", 6))
    await world.started("runs")
    await waits(world, "waits", 8)
    for name in ("runs", "waits"):
        await tenants.refused("cancel", name, "delete", evict=True)
    status, told = await tenants.change("owner", "cancel", "waits", dryRun=True)
    assert (status, told["written"], told["after"]) == (200, False, "deleted"), told
    status, problem = await tenants.change("owner", "cancel", "runs")
    assert (status, problem["title"]) == (409, "Conflict")
    assert "its pods end, and what it has not saved is lost" in problem["detail"]
    for name in ("runs", "waits"):
        assert "deletionTimestamp" not in (await world.get(name))["metadata"]

    status, told = await tenants.change("owner", "cancel", "waits")
    assert (status, told["written"], told["loss"]) == (200, True, None), told
    assert told["meaning"] == "It leaves its pending queue."
    await _gone(world, "waits")
    assert (await tenants.workload("runs"))["phase"] == "Admitted"
    status, told = await tenants.change("owner", "cancel", "runs", evict=True)
    assert (status, told["before"], told["after"]) == (200, "exists", "deleted"), told
    await _gone(world, "runs")
    await world.nothing_used(world.namespace)
    assert (await world.api.request("GET", f"/api/v1/namespaces/{world.namespace}/pods"))["items"] == []
    status, problem = await tenants.change("owner", "cancel", "runs", evict=True)
    assert (status, problem["detail"]) == (404, f"not found: Job {world.namespace}/runs")


async def _gone(world: World, name: str) -> None:
    async def look() -> bool:
        try:
            await world.get(name)
        except ApiError as error:
            return error.status == 404
        return False

    await eventually(f"{name} is deleted", look)
    await world.phase(name, "Deleted")
