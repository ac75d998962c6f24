"""Jobs: defaults, what may change when, generation, status, events."""

from __future__ import annotations

import pytest

from tests.integration.kube_api.client import JSON_PATCH, MERGE, Client, Json, eventually, job

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_job_is_completed_with_defaults(api: Client) -> None:
    body = job("a")
    del body["spec"]["suspend"]
    body["metadata"]["labels"] = {"mine": "yes"}
    created = await api.create(api.jobs, body, dryRun="All")
    uid, spec = created["metadata"]["uid"], created["spec"]
    expected = {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "manualSelector": False,
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}},
    }
    assert {name: spec.get(name) for name in expected} == expected
    assert spec["template"]["metadata"]["labels"] == {
        "job-name": "a",
        "controller-uid": uid,
        "batch.kubernetes.io/job-name": "a",
        "batch.kubernetes.io/controller-uid": uid,
    }
    pod = spec["template"]["spec"]
    assert (pod["dnsPolicy"], pod["schedulerName"]) == ("ClusterFirst", "default-scheduler")
    assert pod["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert created["metadata"]["labels"] == {"mine": "yes"}
    assert created["metadata"]["generation"] == 1
    assert created["status"] == {}


async def test_with_parallelism_alone_completions_stay_open(api: Client) -> None:
    spec = (await api.create(api.jobs, job("a", parallelism=3)))["spec"]
    assert spec["parallelism"] == 3
    assert "completions" not in spec


async def test_a_job_without_labels_gets_those_of_its_template(api: Client) -> None:
    created = await api.create(api.jobs, job("a"))
    found = await api.get(f"{api.jobs}/a")
    assert found["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "a"
    assert created["spec"]["template"]["metadata"]["labels"]["job-name"] == "a"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"restartPolicy": "Always"}, "spec.template.spec.restartPolicy"),
        ({"restartPolicy": None}, "spec.template.spec.restartPolicy"),
        ({"containers": []}, "spec.template.spec.containers"),
        ({"containers": [{"image": "x"}]}, "spec.template.spec.containers[0].name"),
        ({"containers": [{"name": "x"}]}, "spec.template.spec.containers[0].image"),
    ],
)
async def test_a_bad_pod_template_is_refused_with_its_field(api: Client, change: Json, field: str) -> None:
    body = job("a")
    body["spec"]["template"]["spec"].update(change)
    answer = await api.refused("POST", api.jobs, body)
    assert (answer["code"], answer["reason"]) == (422, "Invalid")
    assert field in [cause["field"] for cause in answer["details"]["causes"]]


async def test_a_negative_parallelism_is_refused(api: Client) -> None:
    answer = await api.refused("POST", api.jobs, job("a", parallelism=-1))
    assert "spec.parallelism" in [cause["field"] for cause in answer["details"]["causes"]]


@pytest.mark.parametrize(
    "spec",
    [{"parallelism": "two"}, {"suspend": "yes"}, {"template": 1}, {"template": {"spec": {"containers": {}}}}],
)
async def test_a_field_of_another_type_is_a_bad_request(api: Client, spec: Json) -> None:
    answer = await api.refused("POST", api.jobs, job("a", **spec))
    assert (answer["code"], answer["reason"]) == (400, "BadRequest")


async def test_a_null_counts_as_an_absent_field(api: Client) -> None:
    body = job("a", selector=None, parallelism=None)
    body["spec"]["template"]["metadata"] = {"labels": None}
    created = await api.create(api.jobs, body)
    assert created["spec"]["parallelism"] == 1
    assert created["spec"]["template"]["metadata"]["labels"]["job-name"] == "a"


async def test_only_the_spec_changes_the_generation(api: Client) -> None:
    await api.create(api.jobs, job("a"))
    path = f"{api.jobs}/a"
    marked = await api.patch(path, {"metadata": {"annotations": {"a": "1"}, "labels": {"b": "2"}}})
    assert marked["metadata"]["generation"] == 1
    reported = await api.patch(f"{path}/status", {"status": {"ready": 0}})
    assert reported["metadata"]["generation"] == 1
    changed = await api.patch(path, {"spec": {"parallelism": 2}})
    assert changed["metadata"]["generation"] == 2
    same = await api.patch(path, {"spec": {"parallelism": 2}})
    assert same["metadata"]["generation"] == 2


async def test_status_and_spec_are_written_separately(api: Client) -> None:
    await api.create(api.jobs, job("a"))
    path = f"{api.jobs}/a"
    both = {"spec": {"parallelism": 5}, "status": {"failed": 3}}
    first = await api.patch(path, both)
    assert (first["spec"]["parallelism"], first["status"].get("failed")) == (5, None)
    both["spec"]["parallelism"] = 7
    second = await api.patch(f"{path}/status", both)
    assert (second["spec"]["parallelism"], second["status"]["failed"]) == (5, 3)


async def test_a_suspended_job_may_get_scheduling_fields_and_start_in_one_patch(api: Client) -> None:
    created = await api.create(api.jobs, job("a"))
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": created["metadata"]["uid"]},
        {"op": "test", "path": "/metadata/generation", "value": 1},
        {"op": "add", "path": "/spec/template/spec/nodeSelector", "value": {"gpu": "a100"}},
        {"op": "add", "path": "/spec/template/spec/tolerations", "value": [{"operator": "Exists"}]},
        {"op": "replace", "path": "/spec/suspend", "value": False},
    ]
    started = await api.patch(f"{api.jobs}/a", patch, JSON_PATCH)
    assert started["spec"]["suspend"] is False
    assert started["spec"]["template"]["spec"]["nodeSelector"] == {"gpu": "a100"}
    answer = await api.refused("PATCH", f"{api.jobs}/a", patch, media=JSON_PATCH)
    assert (answer["code"], answer["reason"]) == (422, "Invalid")


async def test_a_running_job_keeps_its_template(api: Client) -> None:
    await api.create(api.jobs, job("a", suspend=False))
    patch = {"spec": {"template": {"spec": {"nodeSelector": {"gpu": "a100"}}}}}
    answer = await api.refused("PATCH", f"{api.jobs}/a", patch, media=MERGE)
    assert (answer["code"], answer["reason"]) == (422, "Invalid")
    assert [cause["field"] for cause in answer["details"]["causes"]] == ["spec.template"]
    assert "field is immutable" in answer["message"]


async def test_a_suspended_job_may_change_requests_but_not_its_image(api: Client) -> None:
    await api.create(api.jobs, job("a"))
    path = f"{api.jobs}/a"
    resources = [
        {"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests/cpu", "value": "2"}
    ]
    patched = await api.patch(path, resources, JSON_PATCH)
    assert patched["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2"}
    image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "other"}]
    answer = await api.refused("PATCH", path, image, media=JSON_PATCH)
    assert (answer["code"], answer["reason"]) == (422, "Invalid")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("completions", 9),
        ("completionMode", "Indexed"),
        ("selector", {"matchLabels": {"other": "1"}}),
    ],
)
async def test_some_fields_of_a_job_are_immutable(api: Client, field: str, value: object) -> None:
    await api.create(api.jobs, job("a"))
    answer = await api.refused("PATCH", f"{api.jobs}/a", {"spec": {field: value}}, media=MERGE)
    assert (answer["code"], answer["reason"]) == (422, "Invalid")
    assert f"spec.{field}" in [cause["field"] for cause in answer["details"]["causes"]]


@pytest.mark.parametrize(("field", "value"), [("parallelism", 4), ("backoffLimit", 1), ("suspend", True)])
async def test_some_fields_of_a_running_job_may_change(api: Client, field: str, value: object) -> None:
    await api.create(api.jobs, job("a", suspend=False))
    patched = await api.patch(f"{api.jobs}/a", {"spec": {field: value}})
    assert patched["spec"][field] == value


async def test_pods_get_defaults_and_start_pending(api: Client) -> None:
    from tests.integration.kube_api.client import pod

    body = pod("a")
    body["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    created = await api.create(api.pods, body)
    assert created["status"]["phase"] == "Pending"
    assert created["spec"]["restartPolicy"] == "Always"
    assert created["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "1"}
    await api.patch(f"{api.pods}/a/status", {"status": {"phase": "Running"}})
    found = await api.get(api.pods, fieldSelector="status.phase=Running")
    assert [item["metadata"]["name"] for item in found["items"]] == ["a"]


async def test_an_event_is_one_object_in_both_of_its_groups(api: Client) -> None:
    created = await api.create(api.jobs, job("a"))
    about = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": api.namespace,
        "name": "a",
        "uid": created["metadata"]["uid"],
    }
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "a.1", "namespace": api.namespace},
        "regarding": about,
        "reason": "Pending",
        "note": "it waits",
        "type": "Normal",
        "action": "Queue",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "queuectl.dev/controller",
        "reportingInstance": "one",
    }
    new = f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events"
    core = f"/api/v1/namespaces/{api.namespace}/events"
    await api.create(new, event)

    async def listed() -> bool:
        selector = f"involvedObject.uid={about['uid']},involvedObject.name=a,reason=Pending"
        return bool((await api.get(core, fieldSelector=selector))["items"])

    await eventually(listed, "the event to be listed")
    seen = await api.get(f"{core}/a.1")
    assert (seen["involvedObject"]["uid"], seen["message"]) == (about["uid"], "it waits")
    assert seen["reportingComponent"] == "queuectl.dev/controller"
    assert (await api.get(f"{new}/a.1"))["note"] == "it waits"
    found = await api.get(new, fieldSelector="regarding.apiVersion=batch/v1,reason=Pending")
    assert [item["note"] for item in found["items"]] == ["it waits"]
