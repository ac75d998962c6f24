"""Custom resources, with the real definition of PyTorchJob and a small one of the tests."""

from __future__ import annotations

import itertools

import pytest

from tests.integration.kube_api.client import (
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    TABLE,
    Client,
    Json,
    eventually,
    pytorchjob,
)
from tests.integration.kube_api.conftest import DEFINITIONS

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("pytorch")]


async def test_unknown_fields_are_pruned_or_refused_on_demand(api: Client) -> None:
    body = pytorchjob("a", unknown="field")
    body["spec"]["runPolicy"]["strange"] = 1
    created = await api.create(api.pytorchjobs, body)
    assert "unknown" not in created["spec"]
    assert created["spec"]["runPolicy"] == {"suspend": True}
    body["metadata"]["name"] = "b"
    answer = await api.refused("POST", api.pytorchjobs, body, fieldValidation="Strict")
    assert (answer["code"], answer["reason"]) == (400, "BadRequest")
    assert 'unknown field "spec.unknown"' in answer["message"]
    assert 'unknown field "spec.runPolicy.strange"' in answer["message"]


async def test_defaults_of_the_schema_are_filled_in(api: Client) -> None:
    body = pytorchjob("a")
    container = body["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    container["ports"] = [{"containerPort": 1234}]
    created = await api.create(api.pytorchjobs, body)
    found = created["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    assert found["ports"] == [{"containerPort": 1234, "protocol": "TCP"}]
    assert found["resources"]["limits"] == {"nvidia.com/gpu": 1}


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"runPolicy": {"suspend": "yes"}}, "spec.runPolicy.suspend"),
        ({"pytorchReplicaSpecs": None}, "spec.pytorchReplicaSpecs"),
        (
            {"pytorchReplicaSpecs": {"Master": {"replicas": "two"}}},
            "spec.pytorchReplicaSpecs.Master.replicas",
        ),
        ({"nprocPerNode": 3}, "spec.nprocPerNode"),
        ({"runPolicy": 7}, "spec.runPolicy"),
    ],
)
async def test_what_the_schema_forbids_is_refused_with_its_field(
    api: Client, patch: Json, field: str
) -> None:
    body = pytorchjob("a", **patch)
    if patch.get("pytorchReplicaSpecs", 1) is None:
        del body["spec"]["pytorchReplicaSpecs"]
    answer = await api.refused("POST", api.pytorchjobs, body)
    assert (answer["code"], answer["reason"]) == (422, "Invalid")
    assert field in [cause["field"] for cause in answer["details"]["causes"]]


async def test_neither_status_nor_annotations_change_the_generation(api: Client) -> None:
    created = await api.create(api.pytorchjobs, {**pytorchjob("a"), "status": {"startTime": None}})
    assert created["metadata"]["generation"] == 1
    assert "status" not in created
    path = f"{api.pytorchjobs}/a"
    marked = await api.patch(path, {"metadata": {"annotations": {"a": "1"}}})
    condition = {"type": "Created", "status": "True", "reason": "r", "message": "m"}
    status = {"conditions": [condition], "replicaStatuses": {}}
    reported = await api.patch(f"{path}/status", {"status": status})
    assert (marked["metadata"]["generation"], reported["metadata"]["generation"]) == (1, 1)
    assert reported["status"]["conditions"] == [condition]
    changed = await api.patch(path, {"spec": {"runPolicy": {"suspend": False}}, "status": {"conditions": []}})
    assert changed["metadata"]["generation"] == 2
    assert changed["status"]["conditions"] == [condition]


async def test_through_status_nothing_else_of_a_custom_resource_changes(api: Client) -> None:
    await api.create(api.pytorchjobs, pytorchjob("a"))
    body = {
        "metadata": {"annotations": {"a": "1"}},
        "spec": {"runPolicy": {"suspend": False}},
        "status": {"conditions": [], "replicaStatuses": {}},
    }
    written = await api.patch(f"{api.pytorchjobs}/a/status", body)
    assert "annotations" not in written["metadata"]
    assert written["spec"]["runPolicy"] == {"suspend": True}


async def test_an_update_of_a_custom_resource_must_have_its_resource_version(api: Client) -> None:
    created = await api.create(api.pytorchjobs, pytorchjob("a"))
    path = f"{api.pytorchjobs}/a"
    answer = await api.refused("PUT", path, pytorchjob("a"))
    assert answer["code"] == 422
    assert "metadata.resourceVersion" in answer["message"]
    status, same = await api.call("PUT", path, created)
    assert (status, same) == (200, created)


async def test_a_custom_resource_accepts_no_strategic_patch(api: Client) -> None:
    await api.create(api.pytorchjobs, pytorchjob("a"))
    path = f"{api.pytorchjobs}/a"
    answer = await api.refused("PATCH", path, {"spec": {}}, media=STRATEGIC)
    assert (answer["code"], answer["reason"]) == (415, "UnsupportedMediaType")
    patch = [{"op": "add", "path": "/spec/runPolicy/suspend", "value": False}]
    assert (await api.patch(path, patch, JSON_PATCH))["spec"]["runPolicy"]["suspend"] is False
    answer = await api.refused("PATCH", path, {"spec": {"runPolicy": {"suspend": "no"}}}, media=MERGE)
    assert answer["code"] == 422


async def test_a_table_shows_the_columns_of_the_definition(api: Client) -> None:
    await api.create(api.pytorchjobs, pytorchjob("a"))
    conditions = [
        {"type": kind, "status": "True", "reason": "", "message": ""} for kind in ("Created", "Running")
    ]
    status = {"status": {"conditions": conditions, "replicaStatuses": {}}}
    await api.patch(f"{api.pytorchjobs}/a/status", status)
    _, table = await api.call("GET", api.pytorchjobs, headers={"Accept": TABLE})
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "State", "Age"]
    assert table["rows"][0]["cells"][:2] == ["a", "Running"]


def definition(plural: str) -> Json:
    spec: Json = {
        "type": "object",
        "properties": {
            "mode": {"type": "string", "enum": ["Fast", "Safe"], "default": "Safe"},
            "count": {"type": "integer", "minimum": 1, "maximum": 3},
            "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 4},
            "items": {
                "type": "array",
                "maxItems": 2,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
            },
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "kind": plural.title(), "shortNames": []}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"mode": "Slow"}, "spec.mode", "FieldValueNotSupported"),
        ({"count": 0}, "spec.count", "FieldValueInvalid"),
        ({"count": 4}, "spec.count", "FieldValueInvalid"),
        ({"count": 1.5}, "spec.count", "FieldValueTypeInvalid"),
        ({"name": "A"}, "spec.name", "FieldValueInvalid"),
        ({"name": "abcde"}, "spec.name", "FieldValueTooLong"),
        ({"items": [{}]}, "spec.items[0].name", "FieldValueRequired"),
        ({"items": [{"name": "a"}] * 2}, "spec.items[1]", "FieldValueDuplicate"),
        ({"items": [{"name": n} for n in "abc"]}, "spec.items", "FieldValueTooMany"),
        (None, "spec", "FieldValueRequired"),
    ],
)
async def test_the_keywords_of_a_schema_are_enforced(
    api: Client, spec: Json | None, field: str, reason: str
) -> None:
    path = await _defined(api, "widgets")
    body: Json = {"apiVersion": "example.com/v1", "kind": "Widgets", "metadata": {"name": "a"}}
    answer = await api.refused("POST", path, {**body, "spec": spec} if spec is not None else body)
    found = [(cause["field"], cause["reason"]) for cause in answer["details"]["causes"]]
    assert (field, reason) in found


async def test_what_a_write_leaves_as_it_was_is_not_validated_again(api: Client) -> None:
    path = await _defined(api, "parts")
    body: Json = {"apiVersion": "example.com/v1", "kind": "Parts", "metadata": {"name": "a"}}
    await api.create(path, {**body, "spec": {"count": 3}})
    most = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/count/maximum"
    await api.patch(f"{DEFINITIONS}/parts.example.com", [{"op": "add", "path": most, "value": 1}], JSON_PATCH)

    counts = itertools.count(2)  # the same value again is a write that changes nothing

    async def strict() -> bool:
        status, _ = await api.call("PATCH", f"{path}/a", {"spec": {"count": next(counts)}}, media=MERGE)
        return status == 422

    await eventually(strict, "the new schema to be in force")
    assert (await api.patch(f"{path}/a", {"spec": {"name": "abc"}}))["spec"]["name"] == "abc"
    answer = await api.refused("PATCH", f"{path}/a", {"spec": {"count": True}}, media=MERGE)
    assert "spec.count" in [cause["field"] for cause in answer["details"]["causes"]]


async def test_defaults_are_set_and_free_form_objects_are_kept(api: Client) -> None:
    path = await _defined(api, "widgets")
    body: Json = {"apiVersion": "example.com/v1", "kind": "Widgets", "metadata": {"name": "a"}}
    created = await api.create(path, {**body, "spec": {"free": {"any": [1, {"thing": None}]}, "name": None}})
    assert created["spec"] == {"mode": "Safe", "free": {"any": [1, {"thing": None}]}}


async def test_a_definition_is_named_after_what_it_defines(api: Client) -> None:
    body = definition("others")
    body["metadata"]["name"] = "others.example.org"
    answer = await api.refused("POST", DEFINITIONS, body)
    assert (answer["code"], answer["reason"]) == (422, "Invalid")
    assert "metadata.name" in [cause["field"] for cause in answer["details"]["causes"]]
    del body["spec"]["names"]["kind"]
    answer = await api.refused("POST", DEFINITIONS, body)
    assert "spec.names.kind" in [cause["field"] for cause in answer["details"]["causes"]]


async def test_the_objects_of_a_deleted_definition_are_deleted(api: Client) -> None:
    path = await _defined(api, "gadgets")
    body = {"apiVersion": "example.com/v1", "kind": "Gadgets", "metadata": {"name": "a"}, "spec": {}}
    await api.create(path, body)
    await api.call("DELETE", f"{DEFINITIONS}/gadgets.example.com")

    async def unknown() -> bool:
        status, _ = await api.call("GET", path)
        return status == 404

    await eventually(unknown, "the kind to be served no more")
    path = await _defined(api, "gadgets")
    assert (await api.get(path))["items"] == []


async def _defined(api: Client, plural: str) -> str:
    path = f"/apis/example.com/v1/namespaces/{api.namespace}/{plural}"

    async def served() -> bool:
        await api.call("POST", DEFINITIONS, definition(plural))
        status, _ = await api.call("GET", path)
        return status == 200

    await eventually(served, f"{plural} to be served")
    return path
