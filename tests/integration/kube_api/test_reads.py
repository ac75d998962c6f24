"""get and list."""

from __future__ import annotations

import pytest

from tests.integration.kube_api.client import TABLE, Client, configmap, job, pod

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_list_is_sorted_and_has_its_resource_version(api: Client) -> None:
    for name in ("b", "a", "c"):
        last = await api.create(api.configmaps, configmap(name))
    found = await api.get(api.configmaps)
    assert [item["metadata"]["name"] for item in found["items"]] == ["a", "b", "c"]
    assert (found["kind"], found["apiVersion"]) == ("ConfigMapList", "v1")
    assert int(found["metadata"]["resourceVersion"]) >= int(last["metadata"]["resourceVersion"])


async def test_items_of_a_built_in_list_do_not_repeat_their_kind(api: Client) -> None:
    await api.create(api.configmaps, configmap("a"))
    (item,) = (await api.get(api.configmaps))["items"]
    assert "kind" not in item
    assert "apiVersion" not in item
    assert (await api.get(f"{api.configmaps}/a"))["kind"] == "ConfigMap"


async def test_items_of_a_custom_list_have_their_kind(api: Client, pytorch: None) -> None:
    from tests.integration.kube_api.client import pytorchjob

    await api.create(api.pytorchjobs, pytorchjob("a"))
    found = await api.get(api.pytorchjobs)
    assert found["kind"] == "PyTorchJobList"
    assert [item["kind"] for item in found["items"]] == ["PyTorchJob"]


async def test_all_pages_show_the_state_of_the_first_page(api: Client) -> None:
    for name in ("a", "b", "c", "d", "e"):
        await api.create(api.configmaps, configmap(name))
    first = await api.get(api.configmaps, limit=2)
    await api.call("DELETE", f"{api.configmaps}/d")
    await api.create(api.configmaps, configmap("f"))
    token = first["metadata"]["continue"]
    assert first["metadata"]["remainingItemCount"] == 3
    second = await api.get(api.configmaps, limit=2, **{"continue": token})
    third = await api.get(api.configmaps, limit=2, **{"continue": second["metadata"]["continue"]})
    pages = [[item["metadata"]["name"] for item in page["items"]] for page in (first, second, third)]
    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    assert not third["metadata"].get("continue")
    assert first["metadata"]["resourceVersion"] == third["metadata"]["resourceVersion"]


async def test_a_broken_continue_token_is_a_bad_request(api: Client) -> None:
    answer = await api.refused("GET", api.configmaps, **{"continue": "nonsense"})
    assert (answer["code"], answer["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=x", ["a", "b"]),
        ("app==x,tier=1", ["a"]),
        ("app!=x", ["c", "d"]),
        ("tier in (1,2)", ["a", "b"]),
        ("tier notin (1)", ["b", "c", "d"]),
        ("app", ["a", "b", "c"]),
        ("!app", ["d"]),
        ("app,tier notin (1,3),tier", ["b"]),
    ],
)
async def test_lists_are_filtered_by_label_selectors(api: Client, selector: str, names: list[str]) -> None:
    labels = {"a": {"app": "x", "tier": "1"}, "b": {"app": "x", "tier": "2"}, "c": {"app": "y"}, "d": {}}
    for name, values in labels.items():
        await api.create(api.configmaps, configmap(name, labels=values))
    found = await api.get(api.configmaps, labelSelector=selector)
    assert [item["metadata"]["name"] for item in found["items"]] == names


async def test_lists_are_filtered_by_name_and_by_a_field_of_the_kind(api: Client) -> None:
    for name in ("a", "b"):
        await api.create(api.configmaps, configmap(name))
    found = await api.get(api.configmaps, fieldSelector="metadata.name=b")
    assert [item["metadata"]["name"] for item in found["items"]] == ["b"]
    namespaces = await api.get(
        "/api/v1/namespaces", fieldSelector="status.phase=Active,metadata.name!=default"
    )
    names = [item["metadata"]["name"] for item in namespaces["items"]]
    assert "kube-system" in names
    assert "default" not in names


async def test_a_field_that_cannot_be_selected_is_named(api: Client) -> None:
    answer = await api.refused("GET", api.jobs, fieldSelector="spec.suspend=true")
    assert answer["code"] == 400
    assert "spec.suspend" in answer["message"]


async def test_a_missing_object_is_not_found(api: Client) -> None:
    answer = await api.refused("GET", f"{api.jobs}/absent")
    assert (answer["code"], answer["reason"]) == (404, "NotFound")
    assert answer["message"] == 'jobs.batch "absent" not found'
    assert answer["details"] == {"name": "absent", "group": "batch", "kind": "jobs"}


@pytest.mark.parametrize(
    "path", ["/apis/nobody.example/v1/things", "/api/v1/things", "/apis/batch/v1/things/x"]
)
async def test_an_unknown_resource_is_not_found(api: Client, path: str) -> None:
    status, _ = await api.call("GET", path)
    assert status == 404


async def test_all_namespaces_are_listed_together(api: Client) -> None:
    await api.create(api.configmaps, configmap("everywhere"))
    found = await api.get("/api/v1/configmaps", fieldSelector="metadata.name=everywhere")
    assert api.namespace in [item["metadata"]["namespace"] for item in found["items"]]


async def test_a_table_of_jobs_has_columns_and_metadata(api: Client) -> None:
    await api.create(api.jobs, job("a"))
    status, table = await api.call("GET", api.jobs, headers={"Accept": TABLE})
    assert (status, table["kind"]) == (200, "Table")
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names[:5] == ["Name", "Status", "Completions", "Duration", "Age"]
    (row,) = table["rows"]
    assert row["cells"][0] == "a"
    assert row["cells"][2] == "0/1"
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "a"


async def test_a_table_of_pods_shows_readiness_and_node(api: Client) -> None:
    await api.create(api.pods, pod("a"))
    _, table = await api.call("GET", api.pods, headers={"Accept": TABLE})
    names = [column["name"] for column in table["columnDefinitions"]]
    cells = dict(zip(names, table["rows"][0]["cells"], strict=True))
    shown = [cells[name] for name in ("Name", "Ready", "Status", "Node")]
    assert shown == ["a", "0/1", "Pending", "<none>"]


async def test_without_a_valid_token_every_request_is_unauthorized(api: Client) -> None:
    headers = {"Authorization": "Bearer wrong"}
    answer = await api.refused("GET", api.jobs, headers=headers)
    assert (answer["code"], answer["reason"]) == (401, "Unauthorized")


async def test_the_first_namespaces_keep_their_uid(api: Client) -> None:
    first, second = [await api.get("/api/v1/namespaces/kube-system") for _ in range(2)]
    assert first["metadata"]["uid"] == second["metadata"]["uid"]
    assert first["status"]["phase"] == "Active"
