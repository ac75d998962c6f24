"""Server-side apply: who owns which field."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.integration.kube_api.client import Client, Json, configmap, job, pytorchjob

pytestmark = pytest.mark.asyncio(loop_scope="session")
APPLY = "application/apply-patch+yaml"


async def apply(api: Client, path: str, body: Json, manager: str = "one", **query: Any) -> tuple[int, Json]:
    name = body["metadata"]["name"]
    return await api.call("PATCH", f"{path}/{name}", body, media=APPLY, fieldManager=manager, **query)


def deployment(replicas: int | None, *images: tuple[str, str], **labels: str) -> Json:
    containers = [{"name": name, "image": image} for name, image in images]
    template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": containers}}
    spec: Json = {"selector": {"matchLabels": {"app": "d"}}, "template": template}
    spec |= {} if replicas is None else {"replicas": replicas}
    head = {"apiVersion": "apps/v1", "kind": "Deployment"}
    return {**head, "metadata": {"name": "d", "labels": labels}, "spec": spec}


async def test_an_apply_creates_then_changes_then_leaves_alone(api: Client) -> None:
    status, made = await apply(api, api.configmaps, configmap("a", {"k": "1"}))
    assert (status, made["data"]) == (201, {"k": "1"})
    status, changed = await apply(api, api.configmaps, configmap("a", {"k": "2"}))
    assert (status, changed["data"]) == (200, {"k": "2"})
    status, same = await apply(api, api.configmaps, configmap("a", {"k": "2"}))
    assert (status, same["metadata"]["resourceVersion"]) == (200, changed["metadata"]["resourceVersion"])


async def test_a_field_that_its_manager_no_longer_applies_is_removed(api: Client) -> None:
    path = f"/apis/apps/v1/namespaces/{api.namespace}/deployments"
    await apply(api, path, deployment(0, ("a", "x:1"), ("b", "y:1"), team="red", tier="low"))
    await apply(api, path, deployment(None, ("b", "y:1"), tier="low"), manager="two")
    status, after = await apply(api, path, deployment(0, ("a", "x:2"), team="red"))
    assert (status, after["spec"]["replicas"]) == (200, 0)
    # The other manager has applied these too.
    assert after["metadata"]["labels"] == {"team": "red", "tier": "low"}
    containers = after["spec"]["template"]["spec"]["containers"]
    assert {c["name"]: c["image"] for c in containers} == {"a": "x:2", "b": "y:1"}
    _, after = await apply(api, path, deployment(None, ("a", "x:2")), manager="two")
    assert after["metadata"]["labels"] == {"team": "red"}
    assert [c["name"] for c in after["spec"]["template"]["spec"]["containers"]] == ["a"]


async def test_fields_that_nothing_applied_stay(api: Client) -> None:
    await api.create(api.configmaps, configmap("a", {"mine": "1"}))
    status, after = await apply(api, api.configmaps, configmap("a", {"applied": "2"}))
    assert (status, after["data"]) == (200, {"mine": "1", "applied": "2"})
    _, after = await apply(api, api.configmaps, configmap("a"))
    assert after["data"] == {"mine": "1"}


async def test_a_field_of_another_manager_is_a_conflict_unless_forced(api: Client) -> None:
    await apply(api, api.jobs, job("a", parallelism=1))
    conflict = await api.refused(
        "PATCH", f"{api.jobs}/a", job("a", parallelism=2), media=APPLY, fieldManager="two"
    )
    assert (conflict["code"], conflict["reason"]) == (409, "Conflict")
    assert conflict["message"] == 'Apply failed with 1 conflict: conflict with "one": .spec.parallelism'
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".spec.parallelism"}
    assert conflict["details"]["causes"] == [cause]
    status, taken = await apply(api, api.jobs, job("a", parallelism=2), manager="two", force="true")
    assert (status, taken["spec"]["parallelism"]) == (200, 2)
    # The field has changed its owner: the first manager conflicts now, the second does not.
    status, _ = await apply(api, api.jobs, job("a", parallelism=3))
    assert status == 409
    status, _ = await apply(api, api.jobs, job("a", parallelism=3), manager="two")
    assert status == 200


async def test_the_same_value_is_owned_by_both(api: Client) -> None:
    for manager in ("one", "two"):
        status, after = await apply(api, api.configmaps, configmap("a", {"k": "1"}), manager=manager)
        assert status in (200, 201)
    entries = {e["manager"]: e["fieldsV1"] for e in after["metadata"]["managedFields"]}
    assert entries == {name: {"f:data": {"f:k": {}}} for name in ("one", "two")}


async def test_a_custom_object_is_applied_too(api: Client, pytorch: None) -> None:
    status, made = await apply(api, api.pytorchjobs, pytorchjob("a"))
    assert (status, made["spec"]["runPolicy"]["suspend"]) == (201, True)
    body = pytorchjob("a")
    body["spec"]["runPolicy"] = {"suspend": False}
    status, after = await apply(api, api.pytorchjobs, body)
    assert (status, after["spec"]["runPolicy"]["suspend"]) == (200, False)


@pytest.mark.parametrize(
    ("body", "query", "code"),
    [
        (configmap("a"), {}, 422),
        (b"a: [", {"fieldManager": "one"}, 400),
        (b"[]", {"fieldManager": "one"}, 400),
        (configmap("a", managedFields=[{"manager": "x"}]), {"fieldManager": "one"}, 400),
        (configmap("b"), {"fieldManager": "one"}, 400),
    ],
    ids=["no manager", "no YAML", "no object", "managed fields", "another name"],
)
async def test_a_request_that_is_no_apply_is_refused(api: Client, body: Any, query: Json, code: int) -> None:
    await apply(api, api.configmaps, configmap("a"))
    sent = body if isinstance(body, bytes) else orjson.dumps(body)
    assert (await api.refused("PATCH", f"{api.configmaps}/a", sent, media=APPLY, **query))["code"] == code
