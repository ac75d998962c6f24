"""Ways in which a tenant with all rights on jobs may try to bypass the gate: none succeeds."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import pytest

from queuectl.kube.errors import ApiError
from queuectl.kube.session import JSON_PATCH
from tests.acceptance.gate.site import (
    ADMISSION,
    APPLY_PATCH,
    KINDS,
    PYTORCH_JOB,
    QUEUE,
    STRATEGIC_PATCH,
    SUBMITTER,
    Json,
    Kind,
    Site,
    nested,
    pointer,
    put,
)

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("kind", KINDS, ids=str),
]

Way = Callable[[Site, Kind, str], Awaitable[object]]
HOLD = 'queuectl.dev/hold set to "true"'


async def _put(site: Site, kind: Kind, name: str) -> None:
    body = await site.get(kind, name)
    put(body, kind.suspend, False)
    await site.tenant.request("PUT", kind.path(name), body)


async def _merge(site: Site, kind: Kind, name: str) -> None:
    await site.merge(site.tenant, kind, name, nested(kind.suspend, False))


async def _null(site: Site, kind: Kind, name: str) -> None:
    await site.merge(site.tenant, kind, name, nested(kind.suspend, None))


async def _null_parent(site: Site, kind: Kind, name: str) -> None:
    parent = ("spec", "runPolicy") if kind is PYTORCH_JOB else kind.suspend
    await site.merge(site.tenant, kind, name, nested(parent, None))


async def _json_replace(site: Site, kind: Kind, name: str) -> None:
    patch: list[Json] = [{"op": "replace", "path": pointer(kind.suspend), "value": False}]
    await site.tenant.request("PATCH", kind.path(name), patch, content_type=JSON_PATCH)


async def _json_remove(site: Site, kind: Kind, name: str) -> None:
    patch: list[Json] = [{"op": "remove", "path": pointer(kind.suspend)}]
    await site.tenant.request("PATCH", kind.path(name), patch, content_type=JSON_PATCH)


async def _strategic(site: Site, kind: Kind, name: str) -> None:
    body = nested(kind.suspend, False)
    await site.tenant.request("PATCH", kind.path(name), body, content_type=STRATEGIC_PATCH)


async def _apply(site: Site, kind: Kind, name: str) -> None:
    body = kind.body(name, suspend=False)
    query = {"fieldManager": "tenant", "force": "true"}
    await site.tenant.request("PATCH", kind.path(name), body, query=query, content_type=APPLY_PATCH)


async def _status(site: Site, kind: Kind, name: str) -> None:
    await site.merge(site.tenant, kind, name, nested(kind.suspend, False), "status")


async def _label(site: Site, kind: Kind, name: str) -> None:
    await site.merge(site.tenant, kind, name, {"metadata": {"labels": {QUEUE: None}}})


async def _label_by_status(site: Site, kind: Kind, name: str) -> None:
    await site.merge(site.tenant, kind, name, {"metadata": {"labels": {QUEUE: None}}}, "status")


async def _forged(site: Site, kind: Kind, name: str) -> None:
    await site.merge(site.tenant, kind, name, {"metadata": {"annotations": {ADMISSION: '{"attempt":9}'}}})


async def _forged_by_status(site: Site, kind: Kind, name: str) -> None:
    patch: Json = {"metadata": {"annotations": {ADMISSION: '{"attempt":9}'}}}
    await site.merge(site.tenant, kind, name, patch, "status")


async def _forged_submitter(site: Site, kind: Kind, name: str) -> None:
    await site.merge(site.tenant, kind, name, {"metadata": {"annotations": {SUBMITTER: "somebody"}}})


WAITING: dict[str, Way] = {
    "PUT": _put,
    "merge patch": _merge,
    "null": _null,
    "null of the parent": _null_parent,
    "JSON replace": _json_replace,
    "JSON remove": _json_remove,
    "strategic patch": _strategic,
    "server-side apply": _apply,
    "status": _status,
    "label removal": _label,
    "label removal by status": _label_by_status,
    "forged annotation": _forged,
    "forged annotation by status": _forged_by_status,
    "forged submitter": _forged_submitter,
}
# A custom resource accepts no strategic patches, and its status subresource changes only the status.
NOT_BY_THE_GATE = {("Job", "status")} | {
    ("PyTorchJob", way)
    for way in ("strategic patch", "status", "label removal by status", "forged annotation by status")
}


@pytest.mark.parametrize("way", WAITING)
async def test_no_request_of_a_tenant_changes_a_pending_object(site: Site, kind: Kind, way: str) -> None:
    name = name_of("waits", way)
    before = kind.facts(await site.create(kind, name))
    refusal = await tried(WAITING[way](site, kind, name))
    assert kind.facts(await site.get(kind, name)) == before
    assert before["suspended"]
    if (kind.name, way) not in NOT_BY_THE_GATE:
        assert kind.policy in refusal


async def test_a_job_created_running_is_refused_or_suspended(site: Site, kind: Kind) -> None:
    refusal = await tried(site.create(kind, "created-running", suspend=False))
    if site.mutating:
        assert kind.suspended(await site.get(kind, "created-running"))
    else:
        path = ".".join(kind.suspend)
        assert f"set {path} to true: queuectl starts it when its queue has quota" in refusal


async def test_a_job_without_the_field_is_refused_or_suspended(site: Site, kind: Kind) -> None:
    body = kind.body("created-bare", suspend=None)
    if kind is PYTORCH_JOB:
        del body["spec"]["runPolicy"]
    refusal = await tried(site.tenant.request("POST", kind.path(), body))
    if site.mutating:
        assert kind.suspended(await site.get(kind, "created-bare"))
    else:
        assert f"set {'.'.join(kind.suspend)} to true" in refusal


async def test_a_tenant_cannot_create_a_job_with_an_admission_annotation(site: Site, kind: Kind) -> None:
    body = kind.body("created-forged")
    body["metadata"]["annotations"] = {ADMISSION: "{}"}
    assert "annotations queuectl.dev/reserved-*" in await tried(
        site.tenant.request("POST", kind.path(), body)
    )


async def test_the_submitter_annotation_is_always_the_sender(site: Site, kind: Kind) -> None:
    body = kind.body("somebody-s")
    body["metadata"]["annotations"] = {SUBMITTER: "somebody"}
    refusal = await tried(site.tenant.request("POST", kind.path(), body))
    if site.mutating:
        made = await site.get(kind, "somebody-s")
        assert made["metadata"]["annotations"][SUBMITTER] == "tenant"
    else:
        assert "annotations queuectl.dev/reserved-*" in refusal
        body = kind.body("tenant-s")
        body["metadata"]["annotations"] = {SUBMITTER: "tenant"}
        await site.tenant.request("POST", kind.path(), body)


async def test_the_submitter_is_the_user_that_adds_the_label(site: Site, kind: Kind) -> None:
    await site.create(kind, "own-name", queue=None)
    patch: Json = {"metadata": {"labels": {QUEUE: "main"}, "annotations": {SUBMITTER: "tenant"}}}
    assert await tried(site.merge(site.tenant, kind, "own-name", patch)) == ""


async def test_an_empty_queue_label_is_no_label_and_is_refused(site: Site, kind: Kind) -> None:
    empty: Json = {"metadata": {"labels": {QUEUE: ""}}}
    await site.create(kind, "emptied")
    await site.create(kind, "joins-empty", queue=None)
    for write in (
        site.create(kind, "empty", queue=""),
        site.merge(site.tenant, kind, "emptied", empty),
        site.merge(site.tenant, kind, "joins-empty", empty),
    ):
        assert "its queue label is empty" in await tried(write)


async def _grow(site: Site, kind: Kind, name: str) -> None:
    await site.merge(site.tenant, kind, name, nested(kind.pods, 4))


async def _other_pods(site: Site, kind: Kind, name: str) -> None:
    patch: list[Json] = [
        {
            "op": "add",
            "path": pointer((*kind.template, "containers", "0", "resources", "limits", "nvidia.com/gpu")),
            "value": "8",
        }
    ]
    await site.tenant.request("PATCH", kind.path(name), patch, content_type=JSON_PATCH)


async def _kill(site: Site, kind: Kind, name: str) -> None:
    await site.merge(site.tenant, kind, name, nested(kind.suspend, True))


async def _move(site: Site, kind: Kind, name: str) -> None:
    await site.merge(site.tenant, kind, name, {"metadata": {"labels": {QUEUE: "richer"}}})


async def _forget(site: Site, kind: Kind, name: str) -> None:
    await site.merge(site.tenant, kind, name, {"metadata": {"annotations": {ADMISSION: None}}})


RUNNING: dict[str, tuple[Way, str]] = {
    "growth": (_grow, "it can't grow while it runs"),
    "other pods": (_other_pods, "its pods can't be changed while it runs"),
    "suspension": (_kill, 'set the annotation queuectl.dev/hold to "true"'),
    "another queue": (_move, "can't be changed while it runs"),
    "label removal": (_label, "can't be taken away"),
    "forged annotation": (_forged, "annotations queuectl.dev/reserved-*"),
    "removed annotation": (_forget, "annotations queuectl.dev/reserved-*"),
}


@pytest.mark.parametrize("way", RUNNING)
async def test_a_running_object_keeps_what_it_was_charged_for(site: Site, kind: Kind, way: str) -> None:
    name = name_of("runs", way)
    before = kind.facts(await site.running(kind, name))
    attempt, words = RUNNING[way]
    refusal = await tried(attempt(site, kind, name))
    assert kind.facts(await site.get(kind, name)) == before
    assert not before["suspended"]
    # The API server itself refuses some of these changes of a Job.
    builtin = kind.name == "Job" and way == "other pods" and "field is immutable" in refusal
    assert builtin or (kind.policy in refusal and words in refusal)


async def test_an_added_replica_type_is_growth(site: Site, kind: Kind) -> None:
    if kind is not PYTORCH_JOB:
        return
    body = kind.body("one-type")
    worker = body["spec"]["pytorchReplicaSpecs"].pop("Worker")
    await site.tenant.request("POST", kind.path(), body)
    obj = await site.get(kind, "one-type")
    patch = _start_without_steering(kind, obj)
    await site.controller.request("PATCH", kind.path("one-type"), patch, content_type=JSON_PATCH)
    more = {"spec": {"pytorchReplicaSpecs": {"Worker": worker}}}
    assert "it can't grow" in await tried(site.merge(site.tenant, kind, "one-type", more))


async def test_a_running_object_may_shrink_and_change_what_is_not_charged(site: Site, kind: Kind) -> None:
    await site.running(kind, "shrinks")
    patch = nested(kind.pods, 1)
    patch["metadata"] = {"annotations": {"queuectl.dev/hold": "true", "team": "x"}, "labels": {"a": "b"}}
    await site.merge(site.tenant, kind, "shrinks", patch)


async def test_a_pending_object_may_change_its_queue_its_size_and_its_pods(site: Site, kind: Kind) -> None:
    await site.create(kind, "edits")
    patch = nested(kind.pods, 1)
    patch["metadata"] = {"labels": {QUEUE: "other"}}
    await site.merge(site.tenant, kind, "edits", patch)
    await site.tenant.request("DELETE", kind.path("edits"))


async def test_a_finished_object_may_be_applied_again(site: Site, kind: Kind) -> None:
    await site.running(kind, "finished")
    at = "2030-01-01T00:00:00Z"
    ended = {"status": "True", "reason": "Test", "message": "", "lastTransitionTime": at}
    status: Json = {"startTime": at, "completionTime": at}
    if kind is PYTORCH_JOB:
        status["conditions"] = [{"type": "Succeeded", **ended}]
        status["replicaStatuses"] = {}
    else:
        status["succeeded"] = 8
        ended |= {"lastProbeTime": at}
        status["conditions"] = [
            {"type": "SuccessCriteriaMet", **ended},
            {"type": "Complete", **ended},
        ]
    await site.merge(site.admin, kind, "finished", {"status": status}, "status")
    await site.merge(site.tenant, kind, "finished", nested(kind.suspend, True))


async def test_a_running_job_cannot_be_given_a_queue(site: Site, kind: Kind) -> None:
    await site.create(kind, "joins", suspend=False, queue=None)
    refusal = await tried(site.merge(site.tenant, kind, "joins", {"metadata": {"labels": {QUEUE: "main"}}}))
    assert "can't be changed while it runs" in refusal


async def test_an_object_without_the_label_is_not_managed(site: Site, kind: Kind) -> None:
    body = kind.body("free", suspend=False, queue=None)
    body["metadata"]["annotations"] = {ADMISSION: "anything"}
    made = await site.tenant.request("POST", kind.path(), body)
    assert not kind.suspended(made)
    assert SUBMITTER not in made["metadata"]["annotations"]
    await site.merge(site.tenant, kind, "free", nested(kind.suspend, True))
    await site.merge(site.tenant, kind, "free", nested(kind.suspend, False) | nested(kind.pods, 1))
    await site.tenant.request("DELETE", kind.path("free"))


async def test_replicas_do_not_grow_through_the_scale_subresource(site: Site, kind: Kind) -> None:
    if kind is not PYTORCH_JOB:
        return
    await site.running(kind, "scaled")
    grown = {"spec": {"replicas": 9}}
    assert "queuectl-scale" in await tried(site.merge(site.tenant, kind, "scaled", grown, "scale"))
    await site.merge(site.tenant, kind, "scaled", {"spec": {"replicas": 0}}, "scale")


def _start_without_steering(kind: Kind, obj: Json) -> list[Json]:
    annotation: Json = {"op": "add", "path": "/metadata/annotations", "value": {ADMISSION: "{}"}}
    if obj["metadata"].get("annotations"):
        annotation = {"op": "add", "path": pointer(("metadata", "annotations", ADMISSION)), "value": "{}"}
    return [annotation, {"op": "add", "path": pointer(kind.suspend), "value": False}]


def name_of(prefix: str, way: str) -> str:
    return f"{prefix}-{re.sub('[^a-z]+', '-', way.lower())}"


async def tried(attempt: Awaitable[object]) -> str:
    """The server's message if it refused; empty if it accepted."""
    try:
        await attempt
    except ApiError as error:
        if error.status not in (403, 415, 422):
            raise
        return str(error)
    return ""
