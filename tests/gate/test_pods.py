"""Pods of a started workload: their requests do not grow past the charge, and their labels stay."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from queuectl.sandbox.players.api import MERGE_PATCH, ApiError
from tests.gate.site import NAMESPACE, QUEUE, Json, Site
from tests.rights import grant
from tests.sandbox.polling import eventually

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


def pod(name: str, labels: Json) -> Json:
    def container(called: str) -> Json:
        amounts = {"cpu": "1", "memory": "1Gi"}
        return {"name": called, "image": "i", "resources": {"requests": amounts, "limits": {"memory": "2Gi"}}}

    spec = {
        "restartPolicy": "Never",
        "containers": [container("train"), container("log")],
        "initContainers": [{**container("proxy"), "restartPolicy": "Always"}],
    }
    return {"metadata": {"name": name, "namespace": NAMESPACE, "labels": labels}, "spec": spec}


def resized(container: str = "train", kind: str = "containers", **requests: str) -> Json:
    return {"spec": {kind: [{"name": container, "resources": {"requests": requests}}]}}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pods(site: Site) -> AsyncIterator[Site]:
    """The tenant has all rights on pods; a labelled pod and one without labels."""
    rule = {"apiGroups": [""], "resources": ["pods", "pods/resize"], "verbs": ["*"]}
    await grant(site.admin, "tenant", "pods", rule, namespace=NAMESPACE)
    await site.admin.request("POST", PODS, pod("ours", LABELS))
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


async def test_a_user_with_the_bypass_right_may_resize(pods: Site) -> None:
    await pods.admin.request(
        "PATCH",
        f"{PODS}/ours/resize?dryRun=All",
        resized(cpu="2"),
        content_type="application/strategic-merge-patch+json",
    )


@pytest.mark.parametrize("labels", WITHOUT, ids=str)
async def test_a_tenant_does_not_change_the_labels_of_a_pod(pods: Site, labels: Json) -> None:
    assert "written by queuectl alone" in await refused(pods, "ours", {"metadata": {"labels": labels}})


async def test_all_other_metadata_of_a_labelled_pod_may_change(pods: Site) -> None:
    patch = {"metadata": {"labels": {"app": "y"}, "annotations": {"a": "b"}, "finalizers": ["example.com/x"]}}
    assert await refused(pods, "ours?dryRun=All", patch) == ""
