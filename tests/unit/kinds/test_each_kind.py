"""Each built-in kind on sample objects: podsets, charges, patches, and what its status says."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.core.model.events import WorkloadObserved
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import WorkloadOutcome
from queuectl.kinds import patches
from queuectl.kinds.jobs import QUEUE_LABEL, JobKind
from queuectl.kinds.podsets import Templates
from queuectl.kinds.reserved_keys import CLUSTER_QUEUE_LABEL, FLAVOR_LABEL, PODSET_LABEL, WORKLOAD_LABEL
from queuectl.kinds.workloads import observe
from tests.integration.kube.sites import SPOT, effect
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.job_objects import UID
from tests.unit.kinds.json_patches import applied, with_its_stop
from tests.unit.kinds.kind_objects import SUSPENDED, sample, seen_suspended

GPU = "nvidia.com/gpu"
SIZES: dict[str, dict[str, int]] = {
    "Job": {"main": 3},
    "PyTorchJob": {"Worker": 3, "Master": 1},
    "TFJob": {"Evaluator": 1, "Worker": 4, "PS": 2, "Master": 1, "Chief": 1},
    "XGBoostJob": {"Worker": 2, "Master": 1},
    "PaddleJob": {"Worker": 2, "Master": 1},
    "JAXJob": {"Worker": 4},
    "MPIJob": {"Worker": 2, "Launcher": 1},
    "MPIJob.v1.kubeflow.org": {"Worker": 2, "Launcher": 1},
    "JobSet": {"driver": 1, "workers": 4},
    "RayJob": {"head": 1, "workers": 3},
    "RayCluster": {"head": 1, "workers": 3},
    "RayService": {"head": 1, "workers": 3},
}
ORDER = {
    "TFJob": ("chief", "master", "ps", "worker", "evaluator"),
    "MPIJob": ("launcher", "worker"),
    "MPIJob.v1.kubeflow.org": ("launcher", "worker"),
    "JAXJob": ("worker",),
    "Job": ("main",),
    "JobSet": ("driver", "workers"),
    "RayJob": ("head", "workers"),
    "RayCluster": ("head", "workers"),
    "RayService": ("head", "workers"),
}
TEMPLATES = [row for row in JOB_KINDS if isinstance(row.podsets, Templates)]
"""Others are tested each for itself."""
ROWS = pytest.mark.parametrize("row", TEMPLATES, ids=lambda row: row.name)
BY_CONDITION = pytest.mark.parametrize(
    "row", [row for row in TEMPLATES if row.group != "ray.io"], ids=lambda row: row.name
)
REPLICATED = pytest.mark.parametrize(
    "row", [row for row in JOB_KINDS if row.group == "kubeflow.org"], ids=lambda row: row.name
)


def observed(row: JobKind, obj: dict[str, Any]) -> WorkloadObserved:
    event = observe(row, obj)
    assert event is not None
    return event


def test_every_kind_of_the_registry_has_a_sample() -> None:
    assert set(SIZES) == {row.name for row in TEMPLATES}


@ROWS
def test_no_shape_of_a_status_raises(row: JobKind) -> None:
    """A definition that a broken operator installed may let it pass."""
    obj = sample(row, **SIZES[row.name])
    fields = ("conditions", "active", "ready", "replicaStatuses", "replicatedJobsStatus", "rayClusterStatus")
    for shape in (True, "x", 7, [], [True], {"x": True}, {"x": [7]}):
        nested = [{name: shape} for name in (*fields, "activeServiceStatus")]
        for status in (shape, *nested, *({"activeServiceStatus": one} for one in nested)):
            observed(row, obj | {"status": status})


@ROWS
def test_the_podsets_of_an_object_are_charged_in_their_order(row: JobKind) -> None:
    workload = observed(row, sample(row, **SIZES[row.name])).workload
    assert (workload.problem, workload.ref.kind) == (None, row.name)
    found = {pod_set.name: pod_set.count for pod_set in workload.pod_sets}
    assert found == {name.lower(): size for name, size in SIZES[row.name].items()}
    assert tuple(found) == ORDER.get(row.name, ("master", "worker"))
    assert all(dict(pod_set.requests)[GPU] == 2 for pod_set in workload.pod_sets)


@ROWS
def test_a_start_sets_only_what_it_may_and_a_stop_suspends_again(row: JobKind) -> None:
    obj = sample(row, **SIZES[row.name])
    started_by = effect(obj, row.name)
    started = applied(obj, patches.start(row, started_by))
    assert not row.suspended(started)
    assert isinstance(row.podsets, Templates)
    for place, pod_set in enumerate(started_by.workload.pod_sets):
        template = _at(started, row.podsets.template(pod_set.name, place) or ())
        assert template["spec"]["nodeSelector"] == dict(SPOT.node_labels)
        assert template["metadata"]["labels"] == {
            QUEUE_LABEL: "main",
            WORKLOAD_LABEL: UID,
            CLUSTER_QUEUE_LABEL: started_by.attempt.assignment.cluster_queue,
            PODSET_LABEL: pod_set.name,
            FLAVOR_LABEL: SPOT.name,
        }
    running = observed(row, started).observation
    assert running.admission is not None
    assert not running.suspended
    stop = patches.next_stop(row, started_by, started)
    assert stop is not None
    assert row.suspended(applied(started, stop.body))


@ROWS
def test_what_its_controller_said_before_a_stop_is_asked_again(row: JobKind) -> None:
    obj = sample(row, **SIZES[row.name]) | {"status": seen_suspended(row)}
    assert row.says_suspended(obj)
    started_by = effect(obj, row.name)
    obj = with_its_stop(row, started_by, obj)
    asked = patches.next_stop(row, started_by, obj)
    if not row.seen.asked:
        assert asked is None
        return
    assert asked is not None
    assert asked.subresource == "status"
    assert not row.says_suspended(applied(obj, asked.body))


@BY_CONDITION
@pytest.mark.parametrize("succeeds", [True, False])
def test_the_end_of_an_object_is_in_its_conditions(row: JobKind, succeeds: bool) -> None:
    good = {"batch": "Complete", "jobset.x-k8s.io": "Completed"}.get(row.group, "Succeeded")
    said = {"reason": "Over", "message": "a pod failed"}
    ended = {"type": good if succeeds else "Failed", "status": "True", **said}
    obj = sample(row, **SIZES[row.name])
    over = {**obj, "status": {"conditions": [SUSPENDED | {"status": "False"}, ended]}}
    assert row.outcome(over) is (WorkloadOutcome.SUCCEEDED if succeeds else WorkloadOutcome.FAILED)
    assert row.failure(over) == (None if succeeds else "Over: a pod failed")
    # Only batch/v1 guarantees that no pod is alive then.
    assert row.status(over).quiet is (True if row.name == "Job" else None)
    assert row.outcome({**obj, "status": {"conditions": [ended | {"status": "False"}]}}) is None


@ROWS
def test_an_object_that_another_controller_runs_is_not_queued(row: JobKind) -> None:
    path, usual = row.managed_by
    obj = sample(row, **SIZES[row.name])
    holder = _at(obj, path[:-1])
    holder[path[-1]] = usual[0]
    assert observed(row, obj).workload.problem is None
    holder[path[-1]] = "example.com/other"
    problem = observed(row, obj).workload.problem
    assert problem is not None
    assert (problem.code, str(path[-1]) in str(problem.detail)) == (Code.MISCONFIGURED, True)


@REPLICATED
def test_a_replica_type_that_its_operator_does_not_know_is_named(row: JobKind) -> None:
    problem = observed(row, sample(row, worker=1)).workload.problem
    assert problem is not None
    assert "replica type 'worker', known are " in str(problem.detail)


@REPLICATED
@pytest.mark.parametrize(("missing", "ready"), [(0, True), (1, False)])
def test_replicas_are_ready_when_as_many_run_as_are_wanted(row: JobKind, missing: int, ready: bool) -> None:
    sizes = SIZES[row.name]
    told = {name: {"active": size} for name, size in sizes.items()}
    told["Worker"]["active"] -= missing
    found = row.status(sample(row, **sizes) | {"status": {"replicaStatuses": told}})
    assert (found.ready, found.pods_ready) == (ready, sum(sizes.values()) - missing)
    assert found.reclaimable == ()


@REPLICATED
def test_the_priority_class_of_the_run_policy_holds_for_all_its_pods(row: JobKind) -> None:
    obj = sample(row, **SIZES[row.name])
    obj["spec"]["runPolicy"]["schedulingPolicy"] = {"priorityClass": "high"}
    assert {one.priority_class for one in observed(row, obj).workload.pod_sets} == {"high"}


@pytest.mark.parametrize(
    ("name", "selector"),
    [
        ("Job", f"batch.kubernetes.io/controller-uid={UID}"),
        ("JobSet", f"jobset.sigs.k8s.io/jobset-uid={UID}"),
        *(
            (row.name, "training.kubeflow.org/job-name=train")
            for row in JOB_KINDS
            if row.group == "kubeflow.org"
        ),
    ],
)
def test_the_pods_of_an_object_are_found_by_the_label_of_its_operator(name: str, selector: str) -> None:
    """And by that of their start, which users cannot take off."""
    found = list(JOB_KINDS[name].pod_selectors(None, "train", UID))
    assert (found[0], found[-1]) == (selector, f"queuectl.dev/workload={UID}")


def _at(obj: Any, path: tuple[str | int, ...]) -> dict[str, Any]:
    """The object at `path`; one that is missing is created."""
    for key in path:
        obj = obj.setdefault(key, {}) if isinstance(obj, dict) else obj[key]
    assert isinstance(obj, dict)
    return obj


@pytest.mark.parametrize(
    ("kind", "sizes", "own", "charged"),
    [
        pytest.param(
            "PyTorchJob",
            {"Master": 1, "Worker": 2},
            {"cpu": "10m", "memory": "1Mi"},
            {"master": {"cpu": 10, "memory": 2**20}, "worker": {"cpu": 50, "memory": 10 * 2**20}},
            id="a worker waits for the master in an init container",
        ),
        pytest.param(
            "PyTorchJob",
            {"Worker": 2},
            {"cpu": "10m"},
            {"worker": {"cpu": 10}},
            id="without a master there is nothing to wait for",
        ),
        pytest.param(
            "PyTorchJob",
            {"Master": 1, "Worker": 2},
            {GPU: "1"},
            {"master": {GPU: 1}, "worker": {GPU: 1}},
            id="what no container of the user requests is not charged",
        ),
        pytest.param(
            "MPIJob.v1.kubeflow.org",
            {"Launcher": 1, "Worker": 2},
            {"cpu": "2", "memory": "1Mi"},
            {
                "launcher": {"cpu": 2000, "memory": 512 * 2**20},
                "worker": {"cpu": 2000, "memory": 2**20},
            },
            id="kubectl is delivered to the launcher",
        ),
        pytest.param(
            "MPIJob",
            {"Launcher": 1},
            {"memory": "1Mi"},
            {"launcher": {"memory": 2**20}},
            id="the MPI operator adds no container",
        ),
    ],
)
def test_an_init_container_that_the_operator_adds_is_charged(
    kind: str, sizes: dict[str, int], own: dict[str, str], charged: dict[str, dict[str, int]]
) -> None:
    row = JOB_KINDS[kind]
    obj = sample(row, **sizes)
    (specs,) = (value for key, value in obj["spec"].items() if key.endswith("ReplicaSpecs"))
    for replica in specs.values():
        replica["template"]["spec"]["containers"] = [{"name": "c", "resources": {"requests": own}}]
    workload = observed(row, obj).workload
    assert {one.name: dict(one.requests) for one in workload.pod_sets} == charged
