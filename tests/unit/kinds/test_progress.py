"""Ready and ended pods from a job's status, and the label that limits run time."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.core.model.reasons import Code
from queuectl.kinds.workloads import observe
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.job_objects import job, metadata, pytorch_job

JOB, PYTORCH = JOB_KINDS["Job"], JOB_KINDS["PyTorchJob"]
INDEXED = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "backoffLimitPerIndex": 0}
LABEL = "queuectl.dev/max-exec-time-seconds"


def running(status: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {**job(suspend=False, **spec), "status": status}


@pytest.mark.parametrize(
    ("spec", "status", "ready"),
    [
        ({"parallelism": 2}, {}, None),
        ({"parallelism": 2}, {"active": 2}, None),
        ({"parallelism": 2}, {"active": 2, "ready": "both"}, None),
        ({"parallelism": "many"}, {"active": 2, "ready": 2}, None),
        ({"parallelism": 2}, {"active": 2, "ready": 1}, False),
        ({"parallelism": 2}, {"active": 2, "ready": 2}, True),
        ({"parallelism": 2, "completions": 2}, {"active": 1, "ready": 1, "succeeded": 1}, True),
        ({"parallelism": 5, "completions": 2}, {"active": 2, "ready": 2}, True),
        ({"parallelism": 2, "completions": 9}, {"active": 2, "ready": 0, "succeeded": 2}, True),
        ({}, {"active": 1, "ready": 0}, False),
        ({"parallelism": 0}, {"ready": 0}, True),
        ({"parallelism": 2}, {"ready": 1, "uncountedTerminatedPods": {"succeeded": ["uid"]}}, True),
        ({"parallelism": 2}, {"ready": 1, "uncountedTerminatedPods": {"failed": ["uid"]}}, False),
        ({"parallelism": 2}, {"ready": 1, "uncountedTerminatedPods": "one"}, False),
    ],
)
def test_a_job_is_ready_when_its_status_counts_all_pods_as_ready_or_succeeded(
    spec: dict[str, Any], status: dict[str, Any], ready: bool | None
) -> None:
    assert JOB.status(running(status, **spec)).ready is ready


@pytest.mark.parametrize(
    ("spec", "status", "ended"),
    [
        ({"parallelism": 4, "completions": 4}, {"active": 4}, 0),
        ({"parallelism": 4, "completions": 4}, {"active": 3, "succeeded": 1}, 1),
        ({"parallelism": 4, "completions": 4}, {"succeeded": 4}, 4),
        ({"parallelism": 4, "completions": 9}, {"active": 4, "succeeded": 5}, 0),
        ({"parallelism": 4, "completions": 9}, {"active": 3, "succeeded": 6}, 1),
        # Without completions no pod is created again once one has succeeded.
        ({"parallelism": 4}, {"active": 2, "succeeded": 2}, 2),
        # A failed pod is created again, except with a backoff limit per index.
        ({"parallelism": 4, "completions": 4}, {"active": 3, "failed": 1}, 0),
        (INDEXED, {"active": 1, "failed": 3, "failedIndexes": "0,2-3"}, 3),
        ({"parallelism": 4, "completions": 4}, {"active": 1, "failedIndexes": "0,2-3"}, 0),
        (INDEXED, {"active": 1, "failedIndexes": "3-1,all"}, 0),
        (INDEXED, {"active": 2, "succeeded": 1, "completedIndexes": "1", "failedIndexes": "3"}, 2),
        # An old API server lists an index in both, and large ones remain when completions are reduced.
        (INDEXED, {"active": 2, "succeeded": 2, "completedIndexes": "0-1", "failedIndexes": "1"}, 2),
        (INDEXED, {"active": 1, "completedIndexes": "2-9", "failedIndexes": "5"}, 2),
        (INDEXED, {"completedIndexes": "0-" + "9" * 6}, 4),
        # Surplus and terminating pods are charged until they are gone.
        ({"parallelism": 2, "completions": 4}, {"active": 4, "succeeded": 0}, 0),
        ({"parallelism": 4, "completions": 4}, {"active": 1, "terminating": 2, "succeeded": 3}, 1),
        ({"parallelism": 4, "completions": 4}, {"succeeded": "three"}, 0),
        ({"parallelism": 4, "completions": 4}, {"succeeded": -3}, 0),
        ({"parallelism": 4, "completions": 4}, {"succeeded": 10**30}, 0),
    ],
)
def test_pods_of_a_job_are_over_when_it_will_not_create_them_again(
    spec: dict[str, Any], status: dict[str, Any], ended: int
) -> None:
    assert JOB.status(running(status, **spec)).reclaimable == ((("main", ended),) if ended else ())


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({}, None),
        ({"active": 2}, None),
        ({"active": 2, "ready": 0}, 0),
        ({"active": 2, "ready": 1, "succeeded": 1}, 1),
        ({"active": 2, "ready": -1}, None),
    ],
)
def test_the_status_of_a_job_says_how_many_pods_are_ready(status: dict[str, Any], ready: int | None) -> None:
    assert JOB.status(running(status, parallelism=4, completions=4)).pods_ready == ready


def test_a_suspended_job_requests_only_the_pods_that_it_will_still_create() -> None:
    obj = job(parallelism=4, completions=4) | {"status": {"succeeded": 3, "terminating": 2}}
    assert JOB.status(obj).reclaimable == (("main", 3),)


@pytest.mark.parametrize(
    ("status", "ready", "pods"),
    [
        ({}, None, None),
        ({"conditions": [{"type": "Running", "status": "True"}]}, True, None),
        ({"replicaStatuses": {"Master": {"active": 1}}}, None, 1),
        ({"replicaStatuses": {"Master": {"active": 1}, "Worker": {}}}, False, 1),
        ({"replicaStatuses": {"Master": {"active": 1}, "Worker": {"active": 2}}}, False, 3),
        ({"replicaStatuses": {"Master": {"active": 1}, "Worker": {"active": 2, "succeeded": 1}}}, True, 3),
        ({"replicaStatuses": {"Master": {"active": "one"}, "Worker": {"active": 3}}}, None, None),
        ({"replicaStatuses": "none"}, None, None),
    ],
)
def test_a_pytorchjob_is_ready_when_all_its_replicas_run(
    status: dict[str, Any], ready: bool | None, pods: int | None
) -> None:
    found = PYTORCH.status(pytorch_job(Master=None, Worker=3) | {"status": status})
    assert (found.ready, found.reclaimable, found.pods_ready) == (ready, (), pods)


def test_an_observation_has_the_ready_and_ended_pods_of_the_status() -> None:
    found = observe(JOB, running({"ready": 1, "succeeded": 1}, parallelism=2, completions=2))
    assert found is not None
    assert (found.observation.ready, found.observation.reclaimable) == (True, (("main", 1),))
    assert found.observation.pods_ready == 1


def labelled(value: object) -> dict[str, Any]:
    return job() | {"metadata": metadata(labels={"queuectl.dev/queue-name": "main", LABEL: value})}


@pytest.mark.parametrize(("value", "seconds"), [("1", 1), ("0060", 60), ("2147483647", 2147483647)])
def test_the_label_limits_run_time_in_seconds(value: str, seconds: int) -> None:
    found = observe(JOB, labelled(value))
    assert found is not None
    assert (found.workload.max_run_seconds, found.workload.problem) == (seconds, None)


@pytest.mark.parametrize("value", ["0", "-1", "", "1h", "1.5", "2147483648", "9" * 63, "\u0661", 60])
def test_a_label_that_is_no_number_of_seconds_is_misconfigured_with_label_value_and_limit(
    value: object,
) -> None:
    found = observe(JOB, labelled(value))
    assert found is not None
    problem = found.workload.problem
    assert found.workload.max_run_seconds is None
    assert problem is not None
    assert problem.code is Code.MISCONFIGURED
    assert LABEL in str(problem.detail)
    assert repr(value)[:20] in str(problem.detail)
    assert "1 to 2147483647" in str(problem.detail)
