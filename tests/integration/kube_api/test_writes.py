"""create, update and patch."""

from __future__ import annotations

import pytest

from tests.integration.kube_api.client import JSON_PATCH, MERGE, STRATEGIC, Client, configmap, job, pod

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_server_sets_uid_creation_time_and_resource_version(api: Client) -> None:
    forged = configmap("a", uid="mine", creationTimestamp="2001-01-01T00:00:00Z")
    metadata = (await api.create(api.configmaps, forged))["metadata"]
    assert metadata["uid"] != "mine"
    assert not metadata["creationTimestamp"].startswith("2001")
    assert metadata["namespace"] == api.namespace
    assert int(metadata["resourceVersion"]) > 0


async def test_a_name_in_use_already_exists_and_a_recreated_object_has_a_new_uid(api: Client) -> None:
    first = await api.create(api.configmaps, configmap("a"))
    answer = await api.refused("POST", api.configmaps, configmap("a"))
    assert (answer["code"], answer["reason"]) == (409, "AlreadyExists")
    assert answer["message"] == 'configmaps "a" already exists'
    await api.call("DELETE", f"{api.configmaps}/a")
    again = await api.create(api.configmaps, configmap("a"))
    assert again["metadata"]["uid"] != first["metadata"]["uid"]


async def test_a_name_is_generated(api: Client) -> None:
    body = configmap("a")
    body["metadata"] = {"generateName": "some-"}
    names = {(await api.create(api.configmaps, body))["metadata"]["name"] for _ in range(2)}
    assert len(names) == 2
    assert all(name.startswith("some-") and len(name) == 10 for name in names)


@pytest.mark.parametrize(
    ("path", "body", "code", "reason"),
    [
        ("/api/v1/namespaces/absent/configmaps", configmap("a"), 404, "NotFound"),
        ("/api/v1/namespaces/default/configmaps", configmap("Not_a_name"), 422, "Invalid"),
        ("/api/v1/namespaces/default/configmaps", configmap(""), 422, "Invalid"),
        ("/api/v1/namespaces/default/configmaps", configmap("a", namespace="other"), 400, "BadRequest"),
        ("/api/v1/namespaces/default/configmaps", job("a"), 400, "BadRequest"),
        ("/api/v1/namespaces/default/configmaps", b"{", 400, "BadRequest"),
        ("/api/v1/configmaps", configmap("a"), 405, "MethodNotAllowed"),
    ],
)
async def test_invalid_creations_are_refused(
    api: Client, path: str, body: object, code: int, reason: str
) -> None:
    answer = await api.refused("POST", path, body)
    assert (answer["code"], answer["reason"]) == (code, reason)


async def test_an_unknown_media_type_is_refused(api: Client) -> None:
    answer = await api.refused("POST", api.configmaps, configmap("a"), media="text/plain")
    assert (answer["code"], answer["reason"]) == (415, "UnsupportedMediaType")
    answer = await api.refused("PATCH", f"{api.configmaps}/a", {}, media="application/json")
    assert (answer["code"], answer["reason"]) == (415, "UnsupportedMediaType")


async def test_a_dry_run_stores_nothing(api: Client) -> None:
    created = await api.create(api.configmaps, configmap("a"), dryRun="All")
    assert created["metadata"]["uid"]
    await api.refused("GET", f"{api.configmaps}/a")
    before = await api.create(api.configmaps, configmap("a"))
    patched = await api.patch(f"{api.configmaps}/a", {"data": {"k": "v"}}, dryRun="All")
    assert patched["data"] == {"k": "v"}
    assert await api.get(f"{api.configmaps}/a") == before


# --- update ---------------------------------------------------------------------------------------


async def test_an_update_of_an_older_state_is_a_conflict(api: Client) -> None:
    old = await api.create(api.configmaps, configmap("a"))
    path = f"{api.configmaps}/a"
    new = await api.patch(path, {"data": {"k": "1"}})
    answer = await api.refused("PUT", path, {**old, "data": {"k": "2"}})
    assert (answer["code"], answer["reason"]) == (409, "Conflict")
    assert "the object has been modified" in answer["message"]
    answer = await api.refused("PATCH", path, {"metadata": old["metadata"], "data": {"k": "2"}}, media=MERGE)
    assert (answer["code"], answer["reason"]) == (409, "Conflict")
    assert await api.get(path) == new


async def test_an_update_replaces_the_whole_object(api: Client) -> None:
    old = await api.create(api.configmaps, configmap("a", {"k": "1"}, labels={"l": "1"}))
    body = configmap("a", {"other": "2"})
    status, new = await api.call("PUT", f"{api.configmaps}/a", body)
    assert status == 200
    assert new["data"] == {"other": "2"}
    assert "labels" not in new["metadata"]
    assert new["metadata"]["uid"] == old["metadata"]["uid"]
    assert int(new["metadata"]["resourceVersion"]) > int(old["metadata"]["resourceVersion"])


async def test_an_update_that_changes_nothing_is_no_write(api: Client) -> None:
    path = f"{api.configmaps}/a"
    old = await api.create(api.configmaps, configmap("a", {"k": "1"}))
    status, same = await api.call("PUT", path, old)
    assert (status, same) == (200, old)
    for media, body in (
        (MERGE, {"data": {"k": "1"}}),
        (STRATEGIC, {"data": {"k": "1"}}),
        (JSON_PATCH, [{"op": "replace", "path": "/data/k", "value": "1"}]),
    ):
        assert await api.patch(path, body, media) == old


async def test_an_update_with_another_name_or_uid_is_refused(api: Client) -> None:
    path = f"{api.configmaps}/a"
    await api.create(api.configmaps, configmap("a"))
    answer = await api.refused("PUT", path, configmap("b"))
    assert (answer["code"], answer["reason"]) == (400, "BadRequest")
    answer = await api.refused("PUT", path, configmap("a", uid="6c4a2a53-47f0-4d4a-9a3c-9c1f1c0e2f00"))
    assert (answer["code"], answer["reason"]) == (409, "Conflict")
    answer = await api.refused("PUT", f"{api.configmaps}/absent", configmap("absent", uid="x"))
    assert answer["code"] in (404, 409)


async def test_an_update_of_a_lease_must_have_its_resource_version(api: Client) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases"
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": {}}
    created = await api.create(path, body)
    answer = await api.refused("PUT", f"{path}/a", body)
    assert answer["code"] == 422
    assert "metadata.resourceVersion" in answer["message"]
    status, renewed = await api.call("PUT", f"{path}/a", {**created, "spec": {"holderIdentity": "me"}})
    assert (status, renewed["spec"]) == (200, {"holderIdentity": "me"})


# --- patches --------------------------------------------------------------------------------------


async def test_a_merge_patch_sets_removes_and_replaces_lists(api: Client) -> None:
    body = job("a")
    body["metadata"]["annotations"] = {"keep": "1", "drop": "1"}
    await api.create(api.jobs, body)
    patched = await api.patch(
        f"{api.jobs}/a",
        {"metadata": {"annotations": {"drop": None, "new": "2"}}, "spec": {"backoffLimit": 2}},
    )
    assert patched["metadata"]["annotations"] == {"keep": "1", "new": "2"}
    assert patched["spec"]["backoffLimit"] == 2
    patched = await api.patch(f"{api.jobs}/a", {"metadata": {"annotations": None}})
    assert "annotations" not in patched["metadata"]


async def test_a_strategic_patch_merges_lists_by_their_key(api: Client) -> None:
    await api.create(api.jobs, job("a"))
    container = {"name": "main", "resources": {"requests": {"memory": "1Gi"}}}
    toleration = {"key": "gpu", "operator": "Exists"}
    body = {"spec": {"template": {"spec": {"containers": [container], "tolerations": [toleration]}}}}
    pod = (await api.patch(f"{api.jobs}/a", body, STRATEGIC))["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "registry/image:1"
    assert pod["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    other = {"key": "spot", "operator": "Exists"}
    body = {"spec": {"template": {"spec": {"tolerations": [other]}}}}
    pod = (await api.patch(f"{api.jobs}/a", body, STRATEGIC))["spec"]["template"]["spec"]
    assert pod["tolerations"] == [other]


async def test_a_strategic_patch_follows_its_directives(api: Client) -> None:
    body = configmap("a", {"one": "1", "two": "2"}, finalizers=["example.com/one", "example.com/two"])
    await api.create(api.configmaps, body)
    path = f"{api.configmaps}/a"
    patched = await api.patch(path, {"data": {"$patch": "replace", "three": "3"}}, STRATEGIC)
    assert patched["data"] == {"three": "3"}
    patched = await api.patch(path, {"metadata": {"finalizers": ["example.com/three"]}}, STRATEGIC)
    assert set(patched["metadata"]["finalizers"]) == {
        "example.com/one",
        "example.com/two",
        "example.com/three",
    }
    patched = await api.patch(path, {"data": {"$patch": "delete"}}, STRATEGIC)
    assert not patched.get("data")
    removal = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/one", "example.com/three"]}}
    patched = await api.patch(path, removal, STRATEGIC)
    assert patched["metadata"]["finalizers"] == ["example.com/two"]


async def test_a_json_patch_tests_before_it_changes(api: Client) -> None:
    created = await api.create(api.configmaps, configmap("a", {"k": "1"}))
    path = f"{api.configmaps}/a"
    good = [
        {"op": "test", "path": "/metadata/uid", "value": created["metadata"]["uid"]},
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/example.com~1a", "value": "2"},
        {"op": "remove", "path": "/data/k"},
    ]
    patched = await api.patch(path, good, JSON_PATCH)
    assert patched["metadata"]["annotations"] == {"example.com/a": "2"}
    assert not patched.get("data")
    bad = [
        {"op": "test", "path": "/metadata/uid", "value": "another"},
        {"op": "add", "path": "/data/never", "value": ""},
    ]
    answer = await api.refused("PATCH", path, bad, media=JSON_PATCH)
    assert (answer["code"], answer["reason"]) == (422, "Invalid")
    assert await api.get(path) == patched


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ([{"op": "remove", "path": "/data/absent"}], 422),
        ([{"op": "add", "path": "/absent/deeper", "value": "1"}], 422),
        ([{"op": "test", "path": "/data/absent", "value": "1"}], 422),
        ({"op": "remove"}, 400),
        (b"{", 400),
    ],
)
async def test_a_json_patch_that_does_not_apply_is_refused(api: Client, patch: object, code: int) -> None:
    await api.create(api.configmaps, configmap("a", {"k": "1"}))
    answer = await api.refused("PATCH", f"{api.configmaps}/a", patch, media=JSON_PATCH)
    assert answer["code"] == code


async def test_a_json_patch_tests_an_absent_field_as_null(api: Client) -> None:
    await api.create(api.configmaps, configmap("a", {"k": "1"}))
    path = f"{api.configmaps}/a"
    absent = [
        {"op": "test", "path": "/data/absent", "value": None},
        {"op": "add", "path": "/data/new", "value": "2"},
    ]
    assert (await api.patch(path, absent, JSON_PATCH))["data"] == {"k": "1", "new": "2"}
    there = [{"op": "test", "path": "/data/k", "value": None}, {"op": "remove", "path": "/data/k"}]
    assert (await api.refused("PATCH", path, there, media=JSON_PATCH))["code"] == 422


async def test_a_json_patch_may_replace_what_an_object_lacks(api: Client) -> None:
    await api.create(api.configmaps, configmap("a", {"k": "1"}))
    patch = [{"op": "replace", "path": "/data/absent", "value": "2"}]
    assert (await api.patch(f"{api.configmaps}/a", patch, JSON_PATCH))["data"] == {"k": "1", "absent": "2"}


async def test_a_patch_of_a_missing_object_is_not_found(api: Client) -> None:
    answer = await api.refused("PATCH", f"{api.configmaps}/absent", {"data": {}}, media=MERGE)
    assert (answer["code"], answer["reason"]) == (404, "NotFound")


async def test_a_patch_cannot_change_the_identity_of_an_object(api: Client) -> None:
    await api.create(api.configmaps, configmap("a"))
    path = f"{api.configmaps}/a"
    answer = await api.refused("PATCH", path, {"metadata": {"name": "b"}}, media=MERGE)
    assert answer["code"] in (400, 422)
    answer = await api.refused("PATCH", path, {"metadata": {"uid": "other"}}, media=MERGE)
    assert (answer["code"], answer["reason"]) == (422, "Invalid")
    created = {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}}
    patched = await api.patch(path, created)
    assert patched == await api.get(path)
    assert not patched["metadata"]["creationTimestamp"].startswith("2001")


async def test_a_pod_loses_scheduling_gates_and_gets_none(api: Client) -> None:
    body, path = pod("a"), f"{api.pods}/a"
    body["spec"]["schedulingGates"] = [{"name": "example.com/a"}, {"name": "example.com/b"}]
    await api.create(api.pods, body)
    left: list[dict[str, str]] = [{"name": "example.com/b"}]
    pods = await api.patch(path, {"spec": {"schedulingGates": left}})
    assert pods["spec"]["schedulingGates"] == left
    more = {"spec": {"schedulingGates": [*left, {"name": "example.com/a"}]}}
    answer = await api.refused("PATCH", path, more, media=MERGE)
    assert (answer["code"], answer["reason"]) == (422, "Invalid")
    causes = [(one["reason"], one["field"]) for one in answer["details"]["causes"]]
    assert ("FieldValueForbidden", "spec.schedulingGates[1].name") in causes
