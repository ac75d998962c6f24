"""Pods of a started workload: their requests do not grow past the charge, and their labels stay."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.players.api import Client
from tests.acceptance.gate.site import NAMESPACE, QUEUE, STRATEGIC_PATCH, Json, Site
from tests.integration.sandbox.polling import eventually
from tests.rights import grant

pytestmark = pytest.mark.asyncio(loop_scope="session")

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
WORKLOAD = "queuectl.dev/workload"
LABELS = {QUEUE: "main", WORKLOAD: "uid-1", "app": "x"}
WITHOUT: tuple[Json, ...] = (
    {WORKLOAD: None},
    {QUEUE: None},
    {WORKLOAD: None, QUEUE: None},
    {WORKLOAD: "another"},
    {QUEUE: "richer"},
)


JOB: Json = {"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": "0-0-0-0", "controller": True}
DRIVER: Json = {**JOB, "apiVersion": "v1", "kind": "Pod"}


def pod(name: str, labels: Json, *owners: Json) -> Json:
    def container(called: str) -> Json:
        amounts = {"cpu": "1", "memory": "1Gi"}
        return {"name": called, "image": "i", "resources": {"requests": amounts, "limits": {"memory": "2Gi"}}}

    spec = {
        "restartPolicy": "Never",
        "containers": [container("train"), container("log")],
        "initContainers": [{**container("proxy"), "restartPolicy": "Always"}],
    }
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels, "ownerReferences": [*owners]}
    return {"metadata": metadata, "spec": spec}


def resized(container: str = "train", kind: str = "containers", **requests: str) -> Json:
    return {"spec": {kind: [{"name": container, "resources": {"requests": requests}}]}}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pods(site: Site) -> AsyncIterator[Site]:
    """The tenant has all rights on pods; a labelled pod and one without labels."""
    rule = {"apiGroups": [""], "resources": ["pods", "pods/resize"], "verbs": ["*"]}
    await grant(site.admin, "tenant", "pods", rule, namespace=NAMESPACE)
    await site.admin.request("POST", PODS, pod("ours", LABELS, JOB))
    await site.admin.request("POST", PODS, pod("free", {"app": "x"}))

    async def in_force() -> bool:
        unlabelled: Json = {"metadata": {"labels": {QUEUE: None}}}
        return "queuectl-pods" in await refused(site, "ours?dryRun=All", unlabelled)

    await eventually(in_force, "queuectl-pods", 60)
    yield site


async def refused(site: Site, path: str, patch: Json, *, strategic: bool = False) -> str:
    """The server's message; empty if it accepted."""
    content = "application/strategic-merge-patch+json" if strategic else MERGE_PATCH
    try:
        await site.tenant.request("PATCH", f"{PODS}/{path}", patch, content_type=content)
    except ApiError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        (resized(cpu="2"), "container train, cpu: 1 would become 2"),
        (resized(memory="1500Mi"), "container train, memory: 1Gi would become 1500Mi"),
        (resized("log", cpu="1001m"), "container log, cpu: 1 would become 1001m"),
        (resized("proxy", "initContainers", cpu="8"), "container proxy, cpu: 1 would become 8"),
    ],
)
async def test_no_request_of_a_labelled_pod_grows(pods: Site, patch: Json, words: str) -> None:
    message = await refused(pods, "ours/resize", patch, strategic=True)
    assert "queuectl-pods" in message
    assert words in message


async def test_a_request_of_a_labelled_pod_may_shrink(pods: Site) -> None:
    assert await refused(pods, "ours/resize?dryRun=All", resized(cpu="500m"), strategic=True) == ""
    assert await refused(pods, "ours/resize?dryRun=All", resized(cpu="1000m"), strategic=True) == ""


async def test_a_pod_without_the_label_may_grow(pods: Site) -> None:
    assert await refused(pods, "free/resize?dryRun=All", resized(cpu="2"), strategic=True) == ""


async def test_no_right_lets_a_request_of_a_labelled_pod_grow(pods: Site) -> None:
    grown = pods.admin.request(
        "PATCH", f"{PODS}/ours/resize?dryRun=All", resized(cpu="2"), content_type=STRATEGIC_PATCH
    )
    assert "container train, cpu: 1 would become 2" in await message(grown)


OWNERS: dict[str, tuple[Json, ...]] = {
    "no owner": (),
    "an owner that is not its controller": ({**JOB, "controller": False},),
    "a forged owner": (JOB,),
    "a forged owner that is a pod": (DRIVER,),
}


@pytest.mark.parametrize("owners", OWNERS)
async def test_a_tenant_creates_no_pod_that_counts_for_a_workload(pods: Site, owners: str) -> None:
    body = pod("forged", LABELS, *OWNERS[owners])
    create = pods.tenant.request("POST", f"{PODS}?dryRun=All", body)
    assert "says for which workload it is counted" in await message(create)


async def test_no_right_makes_a_pod_without_an_owner_count_for_a_workload(pods: Site) -> None:
    for owners in ("no owner", "an owner that is not its controller"):
        create = pods.admin.request("POST", f"{PODS}?dryRun=All", pod("forged", LABELS, *OWNERS[owners]))
        assert "queuectl-pods" in await message(create)


async def test_a_tenant_creates_pods_without_the_label(pods: Site) -> None:
    for labels in ({"app": "x"}, {QUEUE: "main"}):
        await pods.tenant.request("POST", f"{PODS}?dryRun=All", pod("plain", labels, JOB))


@pytest.mark.parametrize("admin", [False, True], ids=["tenant", "admin"])
async def test_no_right_adds_the_label_to_a_pod(pods: Site, admin: bool) -> None:
    patch: Json = {"metadata": {"labels": {WORKLOAD: "uid-1"}}}
    client = pods.admin if admin else pods.tenant
    change = client.request("PATCH", f"{PODS}/free?dryRun=All", patch, content_type=MERGE_PATCH)
    assert "written by queuectl alone" in await message(change)


async def test_a_controller_makes_labelled_pods_for_its_objects(pods: Site) -> None:
    """One that may create pods in all namespaces."""
    async with _account(pods, "default", "maker", namespace=None) as maker:
        await maker.request("POST", f"{PODS}?dryRun=All", pod("made", LABELS, JOB))
        assert "queuectl-pods" in await message(
            maker.request("POST", f"{PODS}?dryRun=All", pod("made", LABELS))
        )


async def test_a_pod_makes_labelled_pods_for_itself(pods: Site) -> None:
    """The driver of a SparkApplication makes its executors, with the service account of its namespace."""
    async with _account(pods, NAMESPACE, "driver", namespace=NAMESPACE) as driver:
        await driver.request("POST", f"{PODS}?dryRun=All", pod("executor", LABELS, DRIVER))
        for owners in ((), (JOB,)):
            create = driver.request("POST", f"{PODS}?dryRun=All", pod("executor", LABELS, *owners))
            assert "queuectl-pods" in await message(create)
    async with _account(pods, "default", "other", namespace=NAMESPACE) as other:
        create = other.request("POST", f"{PODS}?dryRun=All", pod("executor", LABELS, DRIVER))
        assert "queuectl-pods" in await message(create)


@asynccontextmanager
async def _account(site: Site, home: str, name: str, *, namespace: str | None) -> AsyncIterator[Client]:
    """A service account of namespace `home` that may create pods in a namespace; None: in all."""
    path = f"/api/v1/namespaces/{home}/serviceaccounts"
    await site.admin.request("POST", path, {"metadata": {"name": name}})
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
    await grant(
        site.admin, f"system:serviceaccount:{home}:{name}", f"pods-of-{name}", rule, namespace=namespace
    )
    body: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await site.admin.request("POST", f"{path}/{name}/token", body))["status"]["token"]
    try:
        async with Client(site.plane.url, site.plane.ssl_context(), token) as client:
            yield client
    finally:
        await site.admin.request("DELETE", f"{path}/{name}")


async def message(attempt: Awaitable[object]) -> str:
    """The server's message; empty if it accepted."""
    try:
        await attempt
    except ApiError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("labels", WITHOUT, ids=str)
async def test_a_tenant_does_not_change_the_labels_of_a_pod(pods: Site, labels: Json) -> None:
    assert "written by queuectl alone" in await refused(pods, "ours", {"metadata": {"labels": labels}})


async def test_all_other_metadata_of_a_labelled_pod_may_change(pods: Site) -> None:
    patch = {"metadata": {"labels": {"app": "y"}, "annotations": {"a": "b"}, "finalizers": ["example.com/x"]}}
    assert await refused(pods, "ours?dryRun=All", patch) == ""
