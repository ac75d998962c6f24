"""RayJob and RayCluster: what KubeRay makes of them, and what it says of them."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import WorkloadOutcome
from queuectl.kinds.json_fields import Json
from queuectl.kinds.workloads import observe
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.job_objects import UID, container
from tests.unit.kinds.kind_objects import sample

RAY_JOB, RAY_CLUSTER = JOB_KINDS["RayJob"], JOB_KINDS["RayCluster"]
MI = 1 << 20


def sized(obj: Any, *path: str | int) -> None:
    """Let the pods of a template request cpu and memory too."""
    for key in path:
        obj = obj[key]
    obj["template"]["spec"]["containers"] = [
        container({"nvidia.com/gpu": "2", "cpu": "100m", "memory": "1Gi"})
    ]


def ray_job(**spec: Any) -> dict[str, Any]:
    obj = sample(RAY_JOB, workers=3)
    sized(obj, "spec", "rayClusterSpec", "workerGroupSpecs", 0)
    obj["spec"] |= spec
    return obj


def with_group(**fields: Any) -> dict[str, Any]:
    obj = sample(RAY_CLUSTER, workers=3)
    obj["spec"]["workerGroupSpecs"][0] |= fields
    return obj


def charged(obj: Json) -> dict[str, tuple[int, dict[str, int]]]:
    """Pods and requests of each, by podset."""
    event = observe(JOB_KINDS[obj["kind"]], obj)
    assert event is not None
    assert event.workload.problem is None
    return {one.name: (one.count, dict(one.requests)) for one in event.workload.pod_sets}


HEAD = (1, {"nvidia.com/gpu": 2})
WORKERS = (3, {"nvidia.com/gpu": 2, "cpu": 200, "memory": 1024 * MI})
SUBMITTER = {"spec": {"containers": [container({"cpu": "1"})]}}


@pytest.mark.parametrize(
    ("spec", "podsets"),
    [
        ({"submissionMode": "HTTPMode"}, {"head": HEAD, "workers": WORKERS}),
        (
            {"submissionMode": None},
            {"head": HEAD, "workers": WORKERS, "default-submitter": (1, {"cpu": 500, "memory": 200 * MI})},
        ),
        (
            {"submissionMode": "K8sJobMode", "submitterPodTemplate": SUBMITTER},
            {"head": HEAD, "workers": WORKERS, "submitter": (1, {"cpu": 1000})},
        ),
        (
            {"submissionMode": "HTTPMode", "submitterPodTemplate": SUBMITTER},
            {"head": HEAD, "workers": WORKERS},
        ),
        (
            {"submissionMode": "SidecarMode"},
            {"head": (1, {"nvidia.com/gpu": 2, "cpu": 500, "memory": 200 * MI}), "workers": WORKERS},
        ),
    ],
    ids=["by HTTP", "by a Job", "by a Job with a template", "an unused template", "from the head"],
)
def test_a_ray_job_is_charged_for_the_submitter_that_its_mode_makes(
    spec: dict[str, Any], podsets: dict[str, Any]
) -> None:
    assert charged(ray_job(**spec)) == podsets


@pytest.mark.parametrize(
    ("fields", "pods"),
    [
        ({"replicas": 3, "numOfHosts": 4}, 12),
        ({"replicas": 0, "minReplicas": 2}, 2),
        ({"replicas": 9, "maxReplicas": 4}, 4),
        ({"replicas": None, "minReplicas": 1}, 1),
    ],
)
def test_a_worker_group_is_charged_for_the_pods_that_its_bounds_allow(
    fields: dict[str, int | None], pods: int
) -> None:
    assert charged(with_group(**fields))["workers"][0] == pods


def test_a_cluster_may_have_a_head_alone() -> None:
    assert charged(sample(RAY_CLUSTER)) == {"head": HEAD}


def test_an_init_container_of_the_user_that_needs_more_is_charged() -> None:
    obj = with_group()
    spec = obj["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    spec["initContainers"] = [container({"cpu": "4"})]
    assert charged(obj)["workers"][1]["cpu"] == 4000


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        (ray_job(submissionMode="InteractiveMode"), "spec.submissionMode: InteractiveMode"),
        (ray_job(clusterSelector={"ray.io/cluster": "c"}), "spec.clusterSelector: a RayJob on an existing"),
        (ray_job(shutdownAfterJobFinishes=False), "spec.shutdownAfterJobFinishes: false"),
        (
            ray_job(rayClusterSpec={**ray_job()["spec"]["rayClusterSpec"], "enableInTreeAutoscaling": True}),
            "spec.rayClusterSpec.enableInTreeAutoscaling: true",
        ),
        (with_group(numOfHosts=0), "spec.workerGroupSpecs.numOfHosts: below 1"),
        (with_group(labels={"queuectl.dev/workload": "other"}), "spec.labels: labels of a group that begin"),
        (with_group(groupName="head"), "spec.workerGroupSpecs: two podsets have the name head"),
        (
            ray_job(rayClusterSpec={"headGroupSpec": {"template": {"spec": {"initContainers": 7}}}}),
            "spec.rayClusterSpec.headGroupSpec.template.spec.initContainers: 7 is not a list",
        ),
    ],
)
def test_what_cannot_be_queued_names_the_field(obj: Json, problem: str) -> None:
    event = observe(JOB_KINDS[obj["kind"]], obj)
    assert event is not None
    reason = event.workload.problem
    assert reason is not None
    assert (reason.code, str(reason.detail).startswith(problem)) == (Code.MISCONFIGURED, True), reason.detail


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ({"jobDeploymentStatus": "Running", "jobStatus": "SUCCEEDED"}, None),
        ({"jobDeploymentStatus": "Retrying", "jobStatus": "FAILED"}, None),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, WorkloadOutcome.SUCCEEDED),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}, WorkloadOutcome.FAILED),
        ({"jobDeploymentStatus": "Failed", "jobStatus": "FAILED"}, WorkloadOutcome.FAILED),
        ({"jobDeploymentStatus": "ValidationFailed"}, WorkloadOutcome.FAILED),
    ],
)
def test_a_ray_job_ends_when_its_deployment_does(
    status: dict[str, Any], outcome: WorkloadOutcome | None
) -> None:
    obj = ray_job() | {"status": {**status, "endTime": "2030-01-01T09:30:00Z"}}
    assert RAY_JOB.outcome(obj) is outcome
    assert (RAY_JOB.run_times(obj)[1] is not None) is (outcome is not None)
    # KubeRay deletes the RayCluster in the background: its pods end later.
    assert RAY_JOB.status(obj).quiet is None


def test_a_ray_cluster_never_ends() -> None:
    done = [{"type": name, "status": "True"} for name in ("Complete", "Failed", "Succeeded")]
    assert RAY_CLUSTER.outcome(sample(RAY_CLUSTER) | {"status": {"conditions": done}}) is None


def test_a_cluster_is_ready_when_its_state_says_so_and_counts_its_pods() -> None:
    told = {
        "state": "ready",
        "readyWorkerReplicas": 3,
        "conditions": [{"type": "HeadPodReady", "status": "True"}],
    }
    for found in (
        RAY_CLUSTER.status(sample(RAY_CLUSTER) | {"status": told}),
        RAY_JOB.status(ray_job() | {"status": {"rayClusterStatus": told}}),
    ):
        assert (found.ready, found.pods_ready) == (True, 4)
    assert RAY_JOB.status(ray_job()).ready is None


def test_pods_of_a_ray_job_are_found_without_the_name_of_its_cluster() -> None:
    named = ray_job() | {"status": {"rayClusterName": "train-x2b7k"}}
    assert list(RAY_JOB.pod_selectors(named, "train", UID)) == [
        f"queuectl.dev/workload={UID}",
        "ray.io/cluster=train-x2b7k",
        "ray.io/cluster",
        "batch.kubernetes.io/job-name=train",
    ]
    assert "ray.io/cluster" in RAY_JOB.pod_selectors(None, "train", UID)


COLLECTED = {
    "default": ({}, {"cpu": 50, "memory": 64 * MI}),
    "own": (
        {"resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}},
        {"cpu": 1000, "memory": 1024 * MI},
    ),
    "none": ({"resources": {}}, {}),
}


@pytest.mark.parametrize("kind", ["RayJob", "RayCluster", "RayService"])
@pytest.mark.parametrize(("options", "more"), COLLECTED.values(), ids=COLLECTED)
def test_the_collector_of_a_history_server_is_charged_in_head_and_workers(
    kind: str, options: Json, more: dict[str, int]
) -> None:
    obj = sample(JOB_KINDS[kind], workers=3)
    spec = obj["spec"]
    cluster = spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        group["template"]["spec"]["containers"] = [container({"cpu": "2", "memory": "2Gi"})]
    without = charged(obj)
    cluster["historyServerOptions"] = {"collectorOptions": options}
    found = charged(obj)
    for name in ("head", "workers"):
        count, requests = without[name]
        assert found[name] == (count, {key: value + more.get(key, 0) for key, value in requests.items()})
    assert {name: pods for name, pods in found.items() if "submitter" in name} == {
        name: pods for name, pods in without.items() if "submitter" in name
    }


@pytest.mark.parametrize("options", [1, [], "yes", {"resources": 1}])
def test_malformed_options_of_a_collector_are_named(options: object) -> None:
    obj = sample(RAY_CLUSTER, workers=1)
    obj["spec"]["historyServerOptions"] = {"collectorOptions": options}
    event = observe(RAY_CLUSTER, obj)
    assert event is not None
    assert event.workload.problem is not None
    assert "spec.historyServerOptions.collectorOptions" in str(event.workload.problem.detail)
