"""Each built-in kind on sample objects: podsets, charges, patches, and what its status says."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest

from queuectl.core.events import WorkloadObserved
from queuectl.core.model import Outcome
from queuectl.core.reasons import Code
from queuectl.kinds import patches
from queuectl.kinds.jobs import QUEUE_LABEL, JobKind
from queuectl.kinds.workloads import observe
from queuectl.kinds.written import WORKLOAD_LABEL
from tests.job_kinds import JOB_KINDS
from tests.kinds.job_objects import UID
from tests.kinds.kind_objects import SUSPENDED, sample
from tests.kube.sites import SPOT, effect

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
}
ORDER = {
    "TFJob": ("chief", "master", "ps", "worker", "evaluator"),
    "MPIJob": ("launcher", "worker"),
    "MPIJob.v1.kubeflow.org": ("launcher", "worker"),
    "JAXJob": ("worker",),
    "Job": ("main",),
    "JobSet": ("driver", "workers"),
}
ROWS = pytest.mark.parametrize("row", JOB_KINDS.rows, ids=lambda row: row.name)
REPLICATED = pytest.mark.parametrize(
    "row", [row for row in JOB_KINDS if row.group == "kubeflow.org"], ids=lambda row: row.name
)


def observed(row: JobKind, obj: dict[str, Any]) -> WorkloadObserved:
    event = observe(row, obj)
    assert event is not None
    return event


def test_every_kind_of_the_registry_has_a_sample() -> None:
    assert set(SIZES) == {row.name for row in JOB_KINDS}


@ROWS
def test_the_podsets_of_an_object_are_charged_in_their_order(row: JobKind) -> None:
    workload = observed(row, sample(row, **SIZES[row.name])).workload
    assert (workload.problem, workload.ref.kind) == (None, row.name)
    found = {pod_set.name: pod_set.count for pod_set in workload.pod_sets}
    assert found == {name.lower(): size for name, size in SIZES[row.name].items()}
    assert tuple(found) == ORDER.get(row.name, ("master", "worker"))
    assert all(dict(pod_set.requests) == {GPU: 2} for pod_set in workload.pod_sets)


@ROWS
def test_a_start_sets_only_what_it_may_and_a_stop_suspends_again(row: JobKind) -> None:
    obj = sample(row, **SIZES[row.name])
    started_by = effect(obj, row.name)
    started = _applied(obj, patches.start(row, started_by))
    assert not row.suspended(started)
    for place, pod_set in enumerate(started_by.workload.pod_sets):
        template = _at(started, row.template(pod_set.name, place))
        assert template["spec"]["nodeSelector"] == dict(SPOT.node_labels)
        assert template["metadata"]["labels"] == {QUEUE_LABEL: "main", WORKLOAD_LABEL: UID}
    running = observed(row, started).observation
    assert running.admission is not None
    assert not running.suspended
    stop = patches.next_stop(row, started_by, started)
    assert stop is not None
    assert row.suspended(_applied(started, stop.body))


@ROWS
def test_what_its_controller_said_before_a_stop_is_asked_again(row: JobKind) -> None:
    obj = sample(row, **SIZES[row.name]) | {"status": {"conditions": [SUSPENDED]}}
    started_by = effect(obj, row.name)
    asked = patches.next_stop(row, started_by, obj)
    assert asked is not None
    assert asked.subresource == "status"
    assert _applied(obj, asked.body)["status"]["conditions"][0]["status"] == "Unknown"


@ROWS
@pytest.mark.parametrize("succeeds", [True, False])
def test_the_end_of_an_object_is_in_its_conditions(row: JobKind, succeeds: bool) -> None:
    good = {"batch": "Complete", "jobset.x-k8s.io": "Completed"}.get(row.group, "Succeeded")
    ended = {"type": good if succeeds else "Failed", "status": "True"}
    obj = sample(row, **SIZES[row.name])
    status = row.status({**obj, "status": {"conditions": [SUSPENDED | {"status": "False"}, ended]}})
    assert status.finished is (Outcome.SUCCEEDED if succeeds else Outcome.FAILED)
    # Only batch/v1 guarantees that no pod is alive then.
    assert status.quiet is (True if row.name == "Job" else None)
    assert row.status({**obj, "status": {"conditions": [ended | {"status": "False"}]}}).finished is None


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
    assert JOB_KINDS[name].pod_selector("train", UID) == selector


def _applied(obj: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    done: dict[str, Any] = jsonpatch.JsonPatch(patch).apply(obj)
    return done


def _at(obj: Any, path: tuple[str | int, ...]) -> dict[str, Any]:
    """The object at `path`; one that is missing is created."""
    for key in path:
        obj = obj.setdefault(key, {}) if isinstance(obj, dict) else obj[key]
    assert isinstance(obj, dict)
    return obj
