"""delete: preconditions, finalizers, dependents, namespaces."""

from __future__ import annotations

import pytest

from tests.integration.kube_api.client import MERGE, Client, Json, configmap, eventually, job, owned_by, pod

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def gone(api: Client, path: str) -> bool:
    status, _ = await api.call("GET", path)
    return status == 404


async def test_a_deletion_names_what_it_deleted(api: Client) -> None:
    created = await api.create(api.configmaps, configmap("a"))
    status, answer = await api.call("DELETE", f"{api.configmaps}/a")
    assert (status, answer["kind"], answer["status"]) == (200, "Status", "Success")
    assert answer["details"]["uid"] == created["metadata"]["uid"]
    again = await api.refused("DELETE", f"{api.configmaps}/a")
    assert again["code"] == 404


@pytest.mark.parametrize("preconditions", [{"uid": "another"}, {"resourceVersion": "1"}])
async def test_a_deletion_may_name_what_it_expects(api: Client, preconditions: Json) -> None:
    created = await api.create(api.configmaps, configmap("a"))
    path = f"{api.configmaps}/a"
    answer = await api.refused("DELETE", path, {"preconditions": preconditions})
    assert (answer["code"], answer["reason"]) == (409, "Conflict")
    wanted = {name: created["metadata"][name] for name in preconditions}
    status, _ = await api.call("DELETE", path, {"preconditions": wanted})
    assert status == 200
    assert await gone(api, path)


async def test_a_deletion_whose_options_say_dry_run_deletes_nothing(api: Client) -> None:
    await api.create(api.configmaps, configmap("a"))
    path = f"{api.configmaps}/a"
    status, _ = await api.call("DELETE", path, {"propagationPolicy": "Background", "dryRun": ["All"]})
    assert status == 200
    assert "deletionTimestamp" not in (await api.get(path))["metadata"]


async def test_finalizers_keep_an_object_until_the_last_is_removed(api: Client) -> None:
    await api.create(api.configmaps, configmap("a", finalizers=["example.com/hold"]))
    path = f"{api.configmaps}/a"
    status, answer = await api.call("DELETE", path)
    assert status == 200
    terminating = await api.get(path)
    assert terminating["metadata"]["deletionTimestamp"]
    more = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    answer = await api.refused("PATCH", path, more, media=MERGE)
    assert answer["code"] == 422
    patched = await api.patch(path, {"metadata": {"deletionTimestamp": None}, "data": {"still": "editable"}})
    assert patched["metadata"]["deletionTimestamp"] == terminating["metadata"]["deletionTimestamp"]
    await api.patch(path, {"metadata": {"finalizers": None}})
    assert await gone(api, path)


async def test_dependents_are_deleted_in_the_background(api: Client) -> None:
    owner = await api.create(api.configmaps, configmap("owner"))
    await api.create(api.configmaps, configmap("dependent", ownerReferences=owned_by(owner)))
    await api.call("DELETE", f"{api.configmaps}/owner", {"propagationPolicy": "Background"})
    await eventually(lambda: gone(api, f"{api.configmaps}/dependent"), "the dependent to go")


async def test_a_dependent_with_another_owner_stays(api: Client) -> None:
    owners = [await api.create(api.configmaps, configmap(name)) for name in ("one", "two")]
    references = [reference for owner in owners for reference in owned_by(owner)]
    await api.create(api.configmaps, configmap("dependent", ownerReferences=references))
    await api.create(api.configmaps, configmap("witness", ownerReferences=owned_by(owners[0])))
    await api.call("DELETE", f"{api.configmaps}/one")
    await eventually(lambda: gone(api, f"{api.configmaps}/witness"), "the witness to go")
    assert not await gone(api, f"{api.configmaps}/dependent")


async def test_the_pods_of_a_deleted_job_are_kept_unless_a_propagation_policy_is_given(api: Client) -> None:
    for name, policy in (("kept", ""), ("taken", "Background")):
        owner = await api.create(api.jobs, job(name))
        await api.create(api.pods, pod(f"{name}-pod", ownerReferences=owned_by(owner)))
        options = {"propagationPolicy": policy} if policy else {}
        await api.call("DELETE", f"{api.jobs}/{name}", options)
    await eventually(lambda: gone(api, f"{api.jobs}/kept"), "the job to go")
    await eventually(lambda: gone(api, f"{api.pods}/taken-pod"), "the pod to go with its job")
    orphan = await api.get(f"{api.pods}/kept-pod")
    assert "ownerReferences" not in orphan["metadata"]


async def test_a_pod_on_a_node_ends_gracefully_and_one_without_at_once(api: Client) -> None:
    for name in ("placed", "loose"):
        await api.create(api.pods, pod(name))
    target = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "placed"}, "target": target}
    await api.create(f"{api.pods}/placed/binding", binding)
    bound = await api.get(f"{api.pods}/placed")
    assert bound["spec"]["nodeName"] == "node-1"
    again = await api.refused("POST", f"{api.pods}/placed/binding", binding)
    assert again["code"] == 409
    for name in ("placed", "loose"):
        await api.call("DELETE", f"{api.pods}/{name}")
    assert await gone(api, f"{api.pods}/loose")
    terminating = await api.get(f"{api.pods}/placed")
    assert terminating["metadata"]["deletionGracePeriodSeconds"] == 30
    await api.call("DELETE", f"{api.pods}/placed", {"gracePeriodSeconds": 0})
    assert await gone(api, f"{api.pods}/placed")


async def test_a_namespace_is_deleted_with_its_contents_and_accepts_nothing_new(api: Client) -> None:
    await api.create(api.configmaps, configmap("held", finalizers=["example.com/hold"]))
    await api.create(api.configmaps, configmap("free"))
    path = f"/api/v1/namespaces/{api.namespace}"
    status, answer = await api.call("DELETE", path)
    assert (status, answer["kind"], answer["status"]["phase"]) == (200, "Namespace", "Terminating")
    refused = await api.refused("POST", api.configmaps, configmap("late"))
    assert (refused["code"], refused["reason"]) == (403, "Forbidden")
    await eventually(lambda: gone(api, f"{api.configmaps}/free"), "the contents to go")
    assert not await gone(api, path)
    await api.patch(f"{api.configmaps}/held", {"metadata": {"finalizers": None}})
    await eventually(lambda: gone(api, path), "the namespace to go")


async def test_an_object_created_without_its_owner_is_collected(api: Client) -> None:
    owner = await api.create(api.configmaps, configmap("owner"))
    await api.call("DELETE", f"{api.configmaps}/owner")
    await api.create(api.configmaps, configmap("late", ownerReferences=owned_by(owner)))
    await eventually(lambda: gone(api, f"{api.configmaps}/late"), "the orphan to go")
