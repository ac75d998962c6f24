"""A namespace with a LocalQueue named default: all work in it queues, whatever its labels."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from queuectl.kube.errors import ApiError
from queuectl.sandbox.players.api import Client
from tests.acceptance.gate.site import (
    IN_FORCE_SECONDS,
    KINDS,
    MANIFESTS,
    NAMESPACE,
    QUEUE,
    SUBMITTER,
    Json,
    Kind,
    Site,
)
from tests.acceptance.gate.test_owners import owned
from tests.acceptance.gate.test_ways import WAITING, name_of, tried
from tests.integration.sandbox.polling import eventually

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("kind", KINDS, ids=str),
]
_QUEUES = f"/apis/queuectl.dev/v1beta1/namespaces/{NAMESPACE}/localqueues"
_COMPONENT = MANIFESTS / "default-queue"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def defaulting(site: Site) -> AsyncIterator[Site]:
    """With the component, as far as the API server serves it, and a LocalQueue named default."""
    what = ["-k", str(_COMPONENT)] if site.mutating else ["-f", str(_COMPONENT / "required.yaml")]
    code, output = await site.kubectl("apply", *what)
    assert code == 0, output
    queue: Json = {
        "apiVersion": "queuectl.dev/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": "default"},
        "spec": {"clusterQueue": "research"},
    }
    await site.admin.request("POST", _QUEUES, queue)
    try:
        await eventually(partial(_in_force, site), "manifests/default-queue", IN_FORCE_SECONDS)
        yield site
    finally:
        await site.admin.request("DELETE", f"{_QUEUES}/default")
        await site.kubectl("delete", *what)


async def _in_force(site: Site) -> bool:
    for kind in KINDS:
        try:
            made = await site.tenant.request(
                "POST", kind.path(), kind.body("probe", queue=None), query={"dryRun": "All"}
            )
        except ApiError as error:
            if site.mutating or "queuectl-default-queue" not in str(error):
                return False
        else:
            if not site.mutating or made["metadata"].get("labels") != {QUEUE: "default"}:
                return False
    return True


_CRON = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "0-0-0-0", "controller": True}
on_mutating = pytest.mark.parametrize("site", ["mutating"], ids=["site=mutating"], indirect=True)


@on_mutating
@pytest.mark.parametrize("owners", [[], [_CRON]], ids=["no owner", "a CronJob"])
async def test_work_without_a_label_gets_that_of_the_default_queue_and_is_suspended(
    defaulting: Site, kind: Kind, owners: list[Json]
) -> None:
    body = kind.body("unlabelled", suspend=False, queue=None)
    body["metadata"] |= {"ownerReferences": owners, "labels": {"team": "x"}}
    made = await defaulting.tenant.request("POST", kind.path(), body, query={"dryRun": "All"})
    assert kind.suspended(made)
    assert made["metadata"]["labels"] == {"team": "x", QUEUE: "default"}
    assert made["metadata"]["annotations"] == {SUBMITTER: "tenant"}


@on_mutating
async def test_another_queue_stays_the_one_that_its_user_chose(defaulting: Site, kind: Kind) -> None:
    made = await defaulting.create(kind, "labelled", queue="main")
    assert made["metadata"]["labels"] == {QUEUE: "main"}


async def test_an_empty_label_is_no_way_out_of_the_default_queue(defaulting: Site, kind: Kind) -> None:
    for suspend in (True, False):
        refusal = await tried(defaulting.create(kind, "sneaks", suspend=suspend, queue=""))
        assert "its queue label is empty" in refusal or f"set {'.'.join(kind.suspend)} to true" in refusal
    await defaulting.create(kind, "emptied-by-default", queue="default")
    for queue in ("", None):
        patch: Json = {"metadata": {"labels": {QUEUE: queue}}}
        refusal = await tried(defaulting.merge(defaulting.tenant, kind, "emptied-by-default", patch))
        assert kind.policy in refusal


@pytest.mark.parametrize("suspend", [True, False])
async def test_no_right_takes_new_work_out_of_the_default_queue(
    defaulting: Site, kind: Kind, suspend: bool
) -> None:
    name = f"by-admin-{suspend}".lower()
    body = kind.body(name, suspend=suspend, queue=None)
    create = defaulting.admin.request("POST", kind.path(), body)
    assert ("queuectl-default-queue" in await tried(create)) is not defaulting.mutating
    if defaulting.mutating:
        made = await defaulting.get(kind, name)
        assert (made["metadata"]["labels"], kind.suspended(made)) == ({QUEUE: "default"}, True)
        await defaulting.admin.request("DELETE", kind.path(name))


@on_mutating
@pytest.mark.parametrize("way", WAITING)
async def test_no_request_of_a_tenant_takes_work_out_of_the_default_queue(
    defaulting: Site, kind: Kind, way: str
) -> None:
    name = name_of("defaulted", way)
    before = kind.facts(await defaulting.create(kind, name, suspend=False, queue=None))
    await tried(WAITING[way](defaulting, kind, name))
    assert kind.facts(await defaulting.get(kind, name)) == before
    assert (before["queue"], before["suspended"]) == ("default", True)


@on_mutating
async def test_a_child_gets_the_label_and_is_not_suspended(
    defaulting: Site, operator: Client, kind: Kind
) -> None:
    body = owned(kind, "of-an-owner", "jobset.x-k8s.io/v1alpha2", "JobSet")
    del body["metadata"]["labels"]
    made = await operator.request("POST", kind.path(), body, query={"dryRun": "All"})
    assert not kind.suspended(made)
    assert made["metadata"]["labels"] == {QUEUE: "default"}
    forged = await defaulting.tenant.request("POST", kind.path(), body, query={"dryRun": "All"})
    assert kind.suspended(forged)


@pytest.mark.parametrize("namespace", ["team-b", "kube-system"])
async def test_other_namespaces_are_as_before(defaulting: Site, kind: Kind, namespace: str) -> None:
    body = kind.body("elsewhere", suspend=False, queue=None)
    body["metadata"]["namespace"] = namespace
    path = kind.path().replace(NAMESPACE, namespace)
    made = await defaulting.admin.request("POST", path, body, query={"dryRun": "All"})
    assert not kind.suspended(made)
    assert "labels" not in made["metadata"] or QUEUE not in made["metadata"]["labels"]


@pytest.mark.parametrize("suspend", [True, False])
async def test_without_mutating_policies_work_without_a_label_is_refused_with_the_label_named(
    defaulting: Site, operator: Client, kind: Kind, suspend: bool
) -> None:
    if defaulting.mutating:
        return
    body = kind.body("unlabelled", suspend=suspend, queue=None)
    with pytest.raises(ApiError, match=f"all work of this namespace queues: set the label {QUEUE}"):
        await defaulting.tenant.request("POST", kind.path(), body)
    child = owned(kind, "of-an-owner", "jobset.x-k8s.io/v1alpha2", "JobSet")
    del child["metadata"]["labels"]
    await operator.request("POST", kind.path(), child, query={"dryRun": "All"})
