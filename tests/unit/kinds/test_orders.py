"""Kinds whose objects start parts of themselves after others: what waits for its turn is not late (L32)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from queuectl.kinds.jobs import Status
from queuectl.kinds.json_fields import Json
from queuectl.kinds.workloads import observe
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.computed_objects import (
    app_wrapper,
    component,
    its_job_set,
    spark_application,
    train_job,
)
from tests.unit.kinds.kind_objects import job_set, sample

PAGE = Path(__file__).parents[3] / "docs" / "kinds.md"
ORDERED = ("AppWrapper", "JobSet", "MPIJob", "RayJob", "SparkApplication")
"""TrainJob is read as its JobSet."""


def status(kind: str, obj: Json) -> Status:
    return JOB_KINDS[kind].status(obj)


def ray_job(state: str, **spec: Any) -> dict[str, Any]:
    obj = sample(JOB_KINDS["RayJob"], workers=3)
    obj["spec"] |= {"submissionMode": "K8sJobMode", **spec}
    return obj | {"status": {"rayClusterStatus": {"state": state}}}


def mpi_job(policy: str, launcher: Json, workers: Json) -> dict[str, Any]:
    obj = sample(JOB_KINDS["MPIJob"], Launcher=1, Worker=2)
    obj["spec"]["launcherCreationPolicy"] = policy
    return obj | {"status": {"replicaStatuses": {"Launcher": launcher, "Worker": workers}}}


def spark(state: str, **executors: str) -> dict[str, Any]:
    obj = spark_application()
    obj["spec"]["executor"]["instances"] = 3
    return obj | {"status": {"applicationState": {"state": state}, "executorState": executors}}


@pytest.mark.parametrize(
    ("kind", "obj", "ready", "held_back"),
    [
        pytest.param(
            "RayJob", ray_job(""), False, 1, id="the Job that submits is made for a ready RayCluster"
        ),
        pytest.param("RayJob", ray_job("ready"), True, 0, id="the RayCluster is ready"),
        pytest.param(
            "RayJob", ray_job("", submissionMode="SidecarMode"), False, 0, id="the head has the submitter"
        ),
        pytest.param("RayJob", ray_job("", submissionMode="HTTPMode"), False, 0, id="KubeRay submits"),
        pytest.param(
            "MPIJob", mpi_job("WaitForWorkersReady", {}, {"active": 1}), False, 1, id="a worker does not run"
        ),
        pytest.param(
            "MPIJob", mpi_job("WaitForWorkersReady", {}, {"active": 2}), False, 0, id="all workers run"
        ),
        pytest.param(
            "MPIJob",
            mpi_job("WaitForWorkersReady", {"active": 1}, {"active": 2}),
            True,
            0,
            id="the launcher runs",
        ),
        pytest.param("MPIJob", mpi_job("AtStartup", {}, {"active": 1}), False, 0, id="all at once"),
        pytest.param("SparkApplication", spark("SUBMITTED"), False, 3, id="the driver does not run"),
        pytest.param("SparkApplication", spark("RUNNING"), False, 0, id="the driver asks for executors"),
        pytest.param(
            "SparkApplication", spark("RUNNING", a="RUNNING", b="RUNNING", c="RUNNING"), True, 0, id="all run"
        ),
    ],
)
def test_pods_that_wait_for_others_are_held_back(kind: str, obj: Json, ready: bool, held_back: int) -> None:
    found = status(kind, obj)
    assert (found.ready, found.held_back) == (ready, held_back)


def test_a_train_job_has_the_order_of_its_job_set() -> None:
    made = its_job_set()
    (node,) = made["spec"]["replicatedJobs"]
    first = {**node, "name": "dataset-initializer", "template": {**node["template"]}}
    made["spec"]["replicatedJobs"] = [
        first,
        {**node, "dependsOn": [{"name": first["name"], "status": "Complete"}]},
    ]
    made["status"] = {"replicatedJobsStatus": [{"name": first["name"], "active": 1, "ready": 1}]}
    found = observe(JOB_KINDS["TrainJob"], train_job(), child=made)
    assert found is not None
    assert (found.observation.ready, found.observation.held_back) == (True, 4)


def wrapped(*parts: dict[str, Any], ready: str) -> dict[str, Any]:
    obj = app_wrapper(*(component(one["apiVersion"], one["kind"], one["spec"]) for one in parts))
    return obj | {"status": {"conditions": [{"type": "PodsReady", "status": ready}]}}


def in_order() -> dict[str, Any]:
    obj = job_set(("first", 1, 1), ("second", 1, 1))
    obj["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    return obj


@pytest.mark.parametrize(
    ("parts", "says", "ready"),
    [
        ([job_set(("all", 2, 1))], "False", False),
        ([in_order()], "False", None),
        ([job_set(("all", 2, 1)), in_order()], "False", None),
        ([in_order()], "True", True),
    ],
)
def test_an_app_wrapper_does_not_say_which_pods_the_order_of_a_component_holds_back(
    parts: list[dict[str, Any]], says: str, ready: bool | None
) -> None:
    assert status("AppWrapper", wrapped(*parts, ready=says)).ready is ready


@pytest.mark.parametrize("components", [None, 1, [None], [{"template": 1}], [{"template": {"kind": ["x"]}}]])
def test_an_app_wrapper_with_malformed_components_has_no_order(components: object) -> None:
    obj = app_wrapper() | {"spec": {"components": components}}
    obj["status"] = {"conditions": [{"type": "PodsReady", "status": "False"}]}
    assert status("AppWrapper", obj).ready is False


def test_the_documentation_has_each_kind_with_an_order_of_its_own() -> None:
    found = {row.name for row in JOB_KINDS if row.ordered is not None}
    text = PAGE.read_text()
    section = text.partition("## An order of its own")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("- **")]
    assert found == set(ORDERED)
    for kind in ("AppWrapper", "JobSet", "MPIJob", "RayJob", "SparkApplication", "TrainJob"):
        assert any(kind in row for row in rows), kind
