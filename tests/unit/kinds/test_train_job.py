"""TrainJob on sample objects: its pods are those of its JobSet, and it is steered by an entry of its own."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.core.model.events import WorkloadObserved
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import WorkloadOutcome
from queuectl.kinds import patches
from queuectl.kinds.reserved_keys import POD_LABELS
from queuectl.kinds.train_job import MANAGER
from queuectl.kinds.workloads import observe
from tests.integration.kube.sites import SPOT, effect
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.computed_objects import its_job_set, merged, train_job
from tests.unit.kinds.json_patches import applied

TRAIN = JOB_KINDS["TrainJob"]
OTHERS: dict[str, Any] = {"manager": "example.com/other", "trainingRuntimeSpec": {}}


def seen(obj: dict[str, Any], child: dict[str, Any] | None) -> WorkloadObserved:
    event = observe(TRAIN, obj, child=child)
    assert event is not None
    return event


def test_it_waits_for_its_job_set() -> None:
    workload = seen(train_job(), None).workload
    assert workload.pod_sets == ()
    assert workload.problem is not None
    assert workload.problem.code is Code.PENDING_EVALUATION
    assert "Trainer has not made its JobSet yet" in workload.problem.message


def test_its_pods_are_those_of_its_job_set() -> None:
    workload = seen(train_job(), its_job_set(nodes=4)).workload
    assert workload.problem is None
    (node,) = workload.pod_sets
    assert (node.name, node.count, dict(node.requests)) == ("node", 4, {"nvidia.com/gpu": 2})


@pytest.mark.parametrize("others", [[], [OTHERS]], ids=["alone", "beside another's"])
def test_a_start_adds_an_entry_of_its_own(others: list[dict[str, Any]]) -> None:
    obj = train_job(*others)
    started = applied(obj, patches.start(TRAIN, effect(obj, "TrainJob", child=its_job_set())))
    assert started["spec"]["suspend"] is False
    *before, ours = started["spec"]["runtimePatches"]
    assert before == others
    assert ours["manager"] == MANAGER
    (job,) = ours["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert job["name"] == "node"
    pods = job["template"]["spec"]["template"]
    assert set(pods["metadata"]["labels"]) == set(POD_LABELS)
    assert pods["spec"]["nodeSelector"] == dict(SPOT.node_labels)
    assert [one["key"] for one in pods["spec"]["tolerations"]] == ["spot"]


def test_the_users_own_fields_are_the_same_before_every_start() -> None:
    own = {"key": "gpu", "operator": "Exists"}
    obj, made = train_job(OTHERS), its_job_set(nodeSelector={"disk": "ssd"}, tolerations=[own])
    for generation in (1, 2, 3):
        obj["metadata"]["generation"] = generation
        before = effect(obj, "TrainJob", child=made)
        (node,) = before.workload.pod_sets
        assert (node.node_selector, [one.key for one in node.tolerations]) == ((("disk", "ssd"),), ["gpu"])
        obj = applied(obj, patches.start(TRAIN, before))
        assert [one["manager"] for one in obj["spec"]["runtimePatches"]] == ["example.com/other", MANAGER]
        obj["spec"]["suspend"] = True
        made = merged(obj, made)
        selector = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["nodeSelector"]
        assert selector == {"disk": "ssd"} | dict(SPOT.node_labels)


def test_where_its_controller_refuses_one_patch_two_start_it() -> None:
    obj = train_job()
    start = effect(obj, "TrainJob", child=its_job_set())
    steered = applied(obj, patches.start(TRAIN, start)[:-1])
    assert steered["spec"]["suspend"] is True
    steered["metadata"]["generation"] = 2
    assert applied(steered, patches.resume(TRAIN, start, 2))["spec"]["suspend"] is False


@pytest.mark.parametrize(
    ("told", "ready", "reclaimable", "pods", "quiet"),
    [
        ({}, None, (), None, None),
        ({"ready": 0, "succeeded": 0, "active": 1}, False, (), 0, False),
        ({"ready": 1, "succeeded": 0, "active": 1}, True, (), 4, False),
        ({"ready": 0, "succeeded": 1, "active": 0}, True, (("node", 4),), 0, None),
    ],
)
def test_progress_is_that_of_its_job_set(
    told: dict[str, int],
    ready: bool | None,
    reclaimable: tuple[Any, ...],
    pods: int | None,
    quiet: bool | None,
) -> None:
    made = its_job_set()
    if told:
        made["status"] = {"replicatedJobsStatus": [{"name": "node", **told}]}
    found = seen(train_job(suspend=False), made).observation
    assert (found.ready, found.reclaimable, found.pods_ready, found.quiet) == (
        ready,
        reclaimable,
        pods,
        quiet,
    )


@pytest.mark.parametrize(
    ("condition", "outcome"), [("Complete", WorkloadOutcome.SUCCEEDED), ("Failed", WorkloadOutcome.FAILED)]
)
def test_its_end_is_in_its_own_conditions(condition: str, outcome: WorkloadOutcome) -> None:
    obj = train_job() | {"status": {"conditions": [{"type": condition, "status": "True"}]}}
    assert TRAIN.outcome(obj) is outcome


def test_an_entry_that_is_malformed_is_named() -> None:
    strange = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": 7}}}}
    problem = seen(train_job(strange), its_job_set()).workload.problem
    assert problem is not None
    assert "7 is not a list" in str(problem.detail)
