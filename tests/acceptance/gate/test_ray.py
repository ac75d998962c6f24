"""What the gate refuses of RayJobs and RayClusters, with KubeRay's own definitions."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from queuectl.kinds import patches
from queuectl.kinds.jobs import JobKind
from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.players.api import Client
from tests.acceptance.gate.kinds import Objects
from tests.acceptance.gate.site import Json, Site, look, put
from tests.integration.kube.sites import effect
from tests.job_kinds import JOB_KINDS

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("site", ["mutating"], ids=["site=mutating"], indirect=True),
]
JOBS, CLUSTERS, SERVICES = (JOB_KINDS[name] for name in ("RayJob", "RayCluster", "RayService"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"submissionMode": "InteractiveMode"}, "spec.submissionMode: InteractiveMode"),
        ({"clusterSelector": {"ray.io/cluster": "c"}}, "spec.clusterSelector: a RayJob on an existing"),
        ({"shutdownAfterJobFinishes": False}, "spec.shutdownAfterJobFinishes: false"),
        ({"shutdownAfterJobFinishes": None}, "spec.shutdownAfterJobFinishes: false"),
        (
            {"rayClusterSpec": {"enableInTreeAutoscaling": True}},
            "spec.rayClusterSpec.enableInTreeAutoscaling: true",
        ),
        (
            {"rayClusterSpec": {"headGroupSpec": {"labels": {"queuectl.dev/workload": "other"}}}},
            "spec.rayClusterSpec.labels: labels of a group",
        ),
    ],
)
async def test_a_ray_job_that_cannot_be_queued_is_refused_with_its_field(
    defined: Site, change: Json, words: str
) -> None:
    objects = Objects(defined, JOBS)
    body = _merged(objects.body("refused"), {"spec": change})
    with pytest.raises(ApiError, match=words):
        await defined.tenant.request("POST", objects.path(), body)
    # Nor by a later edit of one that waits.
    await defined.tenant.request("POST", objects.path(), objects.body("edited"))
    try:
        with pytest.raises(ApiError, match=words):
            await objects.merge("tenant", "edited", {"spec": change})
    finally:
        await defined.admin.request("DELETE", objects.path("edited"))


async def test_one_that_was_there_before_can_still_be_updated_but_not_made_worse(
    defined: Site, operator: Client
) -> None:
    objects = Objects(defined, CLUSTERS)
    body = _merged(objects.body("before"), {"spec": {"enableInTreeAutoscaling": True}})
    owner = {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "name": "owner",
        "uid": "0-0-0-0",
        "controller": True,
    }
    await operator.request("POST", objects.path(), _merged(body, {"metadata": {"ownerReferences": [owner]}}))
    await objects.merge("tenant", "before", {"metadata": {"finalizers": ["example.com/keeps"]}})
    change = {"enableInTreeAutoscaling": False, "headGroupSpec": {"labels": {"queuectl.dev/x": "y"}}}
    with pytest.raises(ApiError, match="labels of a group that begin with"):
        await objects.merge("tenant", "before", {"spec": change})


async def test_a_running_ray_job_keeps_its_groups_and_its_submitter(defined: Site) -> None:
    objects = Objects(defined, JOBS)
    started = await _started(objects, "groups")
    workers = started["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    group = "/spec/rayClusterSpec/workerGroupSpecs/-"
    for op, words in (
        ({"path": group, "value": workers}, "can't grow while it runs"),
        ({"path": group, "value": workers | {"groupName": "head"}}, "can't grow while it runs"),
        (
            {"path": "/spec/rayClusterSpec/workerGroupSpecs/0/numOfHosts", "value": 2},
            "can't grow while it runs",
        ),
        (
            {"path": "/spec/rayClusterSpec/workerGroupSpecs/0/minReplicas", "value": 9},
            "can't grow while it runs",
        ),
        (
            {"path": "/spec/submitterPodTemplate", "value": workers["template"]},
            "can't grow while it runs|number and size of its pods can't be changed",
        ),
        (
            {"path": "/spec/submissionMode", "value": "SidecarMode"},
            "number and size of its pods can't be changed",
        ),
    ):
        with pytest.raises(ApiError, match=words):
            await objects.patch("tenant", "groups", [{"op": "add", **op}])


async def test_the_controller_steers_all_podsets_of_a_ray_job(defined: Site) -> None:
    objects = Objects(defined, JOBS)
    submitter = objects.body("all")["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
    change = {"spec": {"submissionMode": "K8sJobMode", "submitterPodTemplate": submitter}}
    body = _merged(objects.body("all"), change)
    made = await defined.tenant.request("POST", objects.path(), body)
    found = await objects.patch("controller", "all", patches.start(JOBS, effect(made, "RayJob")))
    cluster = found["spec"]["rayClusterSpec"]
    templates = [
        cluster["headGroupSpec"]["template"],
        cluster["workerGroupSpecs"][0]["template"],
        found["spec"]["submitterPodTemplate"],
    ]
    for template in templates:
        assert template["spec"]["nodeSelector"]
        assert template["metadata"]["labels"]["queuectl.dev/workload"] == made["metadata"]["uid"]


async def test_a_ray_service_runs_with_the_cluster_that_it_was_started_with(defined: Site) -> None:
    objects = Objects(defined, SERVICES)
    await _started(objects, "serves")
    params = "/spec/rayClusterConfig/headGroupSpec/rayStartParams/num-cpus"
    with pytest.raises(ApiError, match="number and size of its pods can't be changed"):
        await objects.patch("tenant", "serves", [{"op": "add", "path": params, "value": "1"}])


@pytest.mark.parametrize("row", [JOBS, SERVICES], ids=lambda row: row.name)
async def test_kuberay_writes_a_running_object_in_its_own_words(
    defined: Site, operator: Client, row: JobKind
) -> None:
    """With its finalizer, which may be later than the start, it writes all that it has read.

    What it writes was seen with KubeRay 1.6.2.
    """
    objects = Objects(defined, row)
    at = row.suspend[:-1] if row is SERVICES else ("spec", "rayClusterSpec")
    body = objects.body("own-words")
    container = look(body, (*at, "headGroupSpec", "template", "spec", "containers", 0))
    container["resources"] = {"requests": {"cpu": "0.1"}}
    look(body, (*at, "workerGroupSpecs", 0, "template", "spec"))["initContainers"] = []
    made = await defined.tenant.request("POST", objects.path(), body)
    started = await objects.patch("controller", "own-words", patches.start(row, effect(made, row.name)))

    def written(**more: object) -> Json:
        found: Json = copy.deepcopy(started)
        found["metadata"]["finalizers"] = ["ray.io/finalizer"]
        cluster = look(found, at)
        cluster["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"] = {
            "requests": {"cpu": "100m"}
        }
        cluster["workerGroupSpecs"][0]["scaleStrategy"] = {}
        del cluster["workerGroupSpecs"][0]["template"]["spec"]["initContainers"]
        cluster["workerGroupSpecs"][0].update(more)
        return found

    path = objects.path("own-words")
    with pytest.raises(ApiError, match="can't be changed while it runs"):
        await defined.tenant.request("PUT", path, written())
    with pytest.raises(ApiError, match="can't grow while it runs"):
        await operator.request("PUT", path, written(replicas=9))
    stopped = written()
    put(stopped, row.suspend, True)
    with pytest.raises(ApiError, match="it runs, and"):
        await operator.request("PUT", path, stopped)
    found = await operator.request("PUT", path, written())
    assert found["metadata"]["finalizers"]
    assert found["spec"] == written()["spec"]
    await defined.admin.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)


async def test_a_ray_service_that_gives_up_while_it_waits_is_refused(defined: Site) -> None:
    objects = Objects(defined, SERVICES)
    body = _merged(
        objects.body("hasty"), {"metadata": {"annotations": {"ray.io/initializing-timeout": "5m"}}}
    )
    with pytest.raises(ApiError, match="the time that it waits in the queue counts"):
        await defined.tenant.request("POST", objects.path(), body)


async def _started(objects: Objects, name: str) -> Json:
    made = await objects.create(name)
    return await objects.patch("controller", name, patches.start(objects.row, effect(made, objects.row.name)))


def _merged(obj: Any, change: Any) -> Any:
    """A merge patch of `obj`."""
    if not isinstance(change, dict):
        return change
    held = obj if isinstance(obj, dict) else {}
    merged = {**held, **{key: _merged(held.get(key), value) for key, value in change.items()}}
    return {key: value for key, value in merged.items() if value is not None}
