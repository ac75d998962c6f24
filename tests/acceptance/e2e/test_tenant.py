"""Twelve ways in which a tenant may try to bypass the queue, on a whole site: the ledger is unaffected.

tests/acceptance/gate shows the response to each; the tests here show that none of them has an effect.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from queuectl.kube.errors import ApiError
from queuectl.kube.session import JSON_PATCH, MERGE_PATCH
from queuectl.sandbox.players.api import Client
from queuectl.sandbox.tenancy import rights
from tests.acceptance.e2e.site import Json, eventually, job, pod_template, pytorchjob
from tests.acceptance.e2e.world import World
from tests.doubles.open_holds import open_holds

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("kind", ["Job", "PyTorchJob"]),
]

STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
SUSPEND = {"Job": ("spec", "suspend"), "PyTorchJob": ("spec", "runPolicy", "suspend")}
PODS = {
    "Job": ("spec", "parallelism"),
    "PyTorchJob": ("spec", "pytorchReplicaSpecs", "Worker", "replicas"),
}
ADMISSION = "queuectl.dev/reserved-admission"
LABEL = "queuectl.dev/queue-name"


def nested(path: tuple[str, ...], value: object) -> Json:
    for key in reversed(path):
        value = {key: value}
    assert isinstance(value, dict)
    return value


def body(kind: str, name: str, gpus: int, seconds: float) -> Json:
    template = pod_template(gpus, seconds)
    return job(name, template=template) if kind == "Job" else pytorchjob(name, workers=1, template=template)


@pytest_asyncio.fixture(loop_scope="session")
async def tenant(world: World) -> AsyncIterator[Client]:
    """A tenant with all rights on jobs in the namespace of the test."""
    for right in rights([world.namespace]):
        plural = f"{right['kind'].lower()}s"
        scope = f"/namespaces/{world.namespace}" if right["kind"] == "RoleBinding" else ""
        try:
            await world.api.request("POST", f"/apis/rbac.authorization.k8s.io/v1{scope}/{plural}", right)
        except ApiError as error:
            if error.status != 409:
                raise
    async with world.site.client("tenant") as client:

        async def may() -> bool:
            try:
                await client.request("GET", world.path("PyTorchJob"))
            except ApiError:
                return False
            return True

        await eventually("the tenant has its rights", may)
        yield client


def ways(world: World, kind: str, name: str, obj: Json) -> list[tuple[str, str, Json | list[Json], str]]:
    """Method, path, body and content type of each way to start a suspended job."""
    path, suspend, pointer = world.path(kind, name), SUSPEND[kind], "/" + "/".join(SUSPEND[kind])
    started = nested(suspend, False)
    whole = {**obj, "spec": {**obj["spec"], suspend[1]: started["spec"][suspend[1]]}}
    created = {**body(kind, "created-running", 16, 1)}
    created["spec"] = {**created["spec"], suspend[1]: started["spec"][suspend[1]]}
    applied = {**body(kind, name, 16, 1)}
    applied["spec"] = {**applied["spec"], suspend[1]: started["spec"][suspend[1]]}
    force = f"{path}?fieldManager=tenant&force=true"
    return [
        ("POST", world.path(kind), created, "application/json"),
        ("PUT", path, whole, "application/json"),
        ("PATCH", path, started, MERGE_PATCH),
        ("PATCH", path, nested(suspend, None), MERGE_PATCH),
        ("PATCH", path, [{"op": "replace", "path": pointer, "value": False}], JSON_PATCH),
        ("PATCH", path, [{"op": "remove", "path": pointer}], JSON_PATCH),
        ("PATCH", path, started, STRATEGIC_PATCH),
        ("PATCH", force, applied, APPLY_PATCH),
        ("PATCH", f"{path}/status", started, MERGE_PATCH),
        ("PATCH", path, {"metadata": {"labels": {LABEL: None}}}, MERGE_PATCH),
        ("PATCH", path, {"metadata": {"annotations": {ADMISSION: '{"attempt":9}'}}}, MERGE_PATCH),
    ]


async def remembered(world: World, kind: str, *names: str) -> Any:
    """All rows about these workloads, and every open hold."""
    histories = [
        (await world.site.rest(f"/workloads/{world.namespace}/{kind}/{name}/history"))["items"]
        for name in names
    ]
    listed = await world.site.rest(f"/workloads?namespace={world.namespace}")
    known = {item["uid"] for item in listed["items"] if item["name"] in names}
    holds = await open_holds(world.site.endpoints["postgres"])
    return histories, [hold for hold in holds if hold[0] in known]


async def test_no_request_of_a_tenant_has_an_effect_on_the_ledger(
    world: World, tenant: Client, kind: str
) -> None:
    await world.submit(body(kind, "runs", 2, 300))
    await world.started("runs", kind)
    await world.submit(body(kind, "waits", 16, 1))
    await world.reason_is("waits", "ExceedsMaxQuota", kind)
    before = await remembered(world, kind, "runs", "waits")
    answers: list[int] = []
    tried = ways(world, kind, "waits", await world.get("waits", kind))
    growth = nested(PODS[kind], 5)
    tried.append(("PATCH", world.path(kind, "runs"), growth, MERGE_PATCH))
    for method, path, sent, content_type in tried:
        try:
            await tenant.request(method, path, sent, content_type=content_type)
        except ApiError as error:
            answers.append(error.status)
    assert len(tried) == 12
    assert set(answers) <= {403, 404, 405, 415, 422}
    assert len(answers) >= 9
    # A job that is submitted afterwards and ends: by then the controller has observed all earlier requests.
    await world.submit(body(kind, "witness", 1, 1))
    await world.phase("witness", "Finished", kind)
    assert await remembered(world, kind, "runs", "waits") == before
    waits = await world.get("waits", kind)
    assert waits["metadata"]["labels"][LABEL] == "main"
    assert (await world.workload("waits", kind))["phase"] == "Pending"
    assert (await world.workload("runs", kind))["phase"] == "Admitted"
    assert (await world.site.queuectl("verify")).code == 0
