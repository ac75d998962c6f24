"""JobSet: groups of Jobs, whose status counts Jobs."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.kinds.json_fields import MAX_COUNT, Json
from queuectl.kinds.podsets import Templates
from queuectl.kinds.workloads import observe
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.kind_objects import job_set

JOB_SET = JOB_KINDS["JobSet"]


def counts(obj: Json) -> dict[str, int] | str:
    """Pods by podset, or the problem."""
    event = observe(JOB_SET, obj)
    assert event is not None
    workload = event.workload
    if workload.problem is not None:
        return str(workload.problem.detail)
    return {one.name: one.count for one in workload.pod_sets}


def with_status(obj: dict[str, Any], **groups: dict[str, Any]) -> dict[str, Any]:
    told = [{"name": name, **status} for name, status in groups.items()]
    return obj | {"status": {"replicatedJobsStatus": told}}


def test_a_group_is_charged_for_the_pods_of_all_its_jobs() -> None:
    assert counts(job_set(("driver", 1, 1), ("workers", 3, 4))) == {"driver": 1, "workers": 12}


@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        ({}, 1),
        ({"parallelism": 4}, 4),
        ({"parallelism": 4, "completions": 2}, 2),
        ({"parallelism": 2, "completions": 8}, 2),
        ({"completions": 8}, 1),
    ],
)
def test_a_job_of_a_group_has_as_many_pods_at_once_as_a_job_of_its_own(
    spec: dict[str, int], pods: int
) -> None:
    obj = job_set(("workers", 3, 1))
    job = obj["spec"]["replicatedJobs"][0]["template"]["spec"]
    obj["spec"]["replicatedJobs"][0]["template"]["spec"] = {"template": job["template"], **spec}
    assert counts(obj) == {"workers": 3 * pods}


def test_a_group_without_a_number_of_jobs_has_one() -> None:
    obj = job_set(("workers", 3, 2))
    del obj["spec"]["replicatedJobs"][0]["replicas"]
    assert counts(obj) == {"workers": 2}


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        (job_set(), "spec.replicatedJobs: no podsets"),
        (
            job_set(("workers", MAX_COUNT, 2)),
            "spec.replicatedJobs[0].replicas: 2147483647 x 2 are more than",
        ),
        (job_set(("workers", -1, 2)), "spec.replicatedJobs[0].replicas: -1 is outside 0 to"),
    ],
)
def test_groups_that_cannot_be_charged_are_a_problem_that_names_the_field(obj: Json, problem: str) -> None:
    assert str(counts(obj)).startswith(problem)


def test_groups_with_one_name_are_a_problem() -> None:
    assert "two podsets have the name workers" in str(counts(job_set(("workers", 1, 1), ("workers", 1, 1))))


@pytest.mark.parametrize(
    ("driver", "workers", "ready", "pods"),
    [
        ({"ready": 1}, {"ready": 3}, True, 13),
        ({"ready": 0, "succeeded": 1}, {"ready": 3}, True, 12),
        ({"ready": 1}, {"ready": 2, "active": 3}, False, 9),
        ({"ready": 1}, {}, False, 1),
        ({"ready": "all"}, {"ready": 3}, None, None),
    ],
)
def test_a_job_set_is_ready_when_the_jobs_of_all_groups_are(
    driver: dict[str, Any], workers: dict[str, Any], ready: bool | None, pods: int | None
) -> None:
    obj = with_status(job_set(("driver", 1, 1), ("workers", 3, 4)), driver=driver, workers=workers)
    found = JOB_SET.status(obj)
    assert (found.ready, found.pods_ready) == (ready, pods)


@pytest.mark.parametrize("status", [{}, {"replicatedJobsStatus": []}, {"replicatedJobsStatus": "none"}])
def test_a_status_without_groups_says_nothing(status: dict[str, Any]) -> None:
    found = JOB_SET.status(job_set(("workers", 3, 4)) | {"status": status})
    assert (found.ready, found.pods_ready, found.reclaimable) == (None, None, ())


@pytest.mark.parametrize(
    ("policy", "over"),
    [
        (None, (("workers", 8),)),
        ({}, (("workers", 8),)),
        ({"maxRestarts": 0}, (("workers", 8),)),
        ({"maxRestarts": 1}, ()),
        ({"rules": [{"name": "r", "action": "RestartJobSetAndIgnoreMaxRestarts"}]}, ()),
    ],
)
def test_the_pods_of_succeeded_jobs_are_over_unless_a_restart_would_make_them_again(
    policy: dict[str, Any] | None, over: tuple[tuple[str, int], ...]
) -> None:
    obj = job_set(("driver", 1, 1), ("workers", 3, 4), failurePolicy=policy)
    found = JOB_SET.status(with_status(obj, driver={"ready": 1}, workers={"ready": 1, "succeeded": 2}))
    assert found.reclaimable == over


def test_the_template_of_a_group_is_found_by_its_place() -> None:
    path = ("spec", "replicatedJobs", 1, "template", "spec", "template")
    assert isinstance(JOB_SET.podsets, Templates)
    assert JOB_SET.podsets.template("workers", 1) == path


def in_two_steps(status: str = "Complete", **spec: Any) -> dict[str, Any]:
    """One pod prepares; two workers of two pods each start after it."""
    obj = job_set(("first", 1, 1), ("workers", 2, 2))
    obj["spec"]["suspend"] = False
    obj["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "first", "status": status}]
    obj["spec"] |= spec
    return obj


def readiness(obj: Json) -> tuple[bool | None, int]:
    """Whether the pods that may run are ready, and how many its own order holds back."""
    event = observe(JOB_SET, obj)
    assert event is not None
    return event.observation.ready, event.observation.held_back


@pytest.mark.parametrize(
    ("status", "first", "workers", "expected"),
    [
        ("Complete", {"active": 1}, {}, (False, 4)),
        ("Complete", {"active": 1, "ready": 1}, {}, (True, 4)),
        ("Complete", {"succeeded": 1}, {}, (False, 0)),
        ("Complete", {"succeeded": 1}, {"active": 2, "ready": 1}, (False, 0)),
        ("Complete", {"succeeded": 1}, {"active": 2, "ready": 2}, (True, 0)),
        ("Ready", {"active": 1}, {}, (False, 4)),
        ("Ready", {"active": 1, "ready": 1}, {}, (False, 0)),
        ("Ready", {"active": 1, "ready": 1}, {"active": 2, "ready": 2}, (True, 0)),
        ("Ready", {"active": 1}, {"active": 2, "ready": 2}, (False, 0)),
    ],
)
def test_jobs_that_wait_for_others_of_their_job_set_are_not_unready(
    status: str, first: Json, workers: Json, expected: tuple[bool, int]
) -> None:
    obj = with_status(in_two_steps(status), first=dict(first), workers=dict(workers))
    assert readiness(obj) == expected


def test_jobs_that_start_in_order_are_not_unready_before_their_turn() -> None:
    obj = job_set(("first", 1, 1), ("second", 1, 2), ("third", 1, 3))
    obj["spec"] |= {"suspend": False, "startupPolicy": {"startupPolicyOrder": "InOrder"}}
    ready = {"active": 1, "ready": 1}
    assert readiness(with_status(obj, first={"active": 1}, second={}, third={})) == (False, 5)
    assert readiness(with_status(obj, first=ready, second={}, third={})) == (False, 3)
    assert readiness(with_status(obj, first=ready, second=ready, third={})) == (False, 0)
    assert readiness(with_status(obj, first=ready, second=ready, third=ready)) == (True, 0)


def test_jobs_that_wait_for_others_are_charged_from_the_start() -> None:
    assert counts(in_two_steps()) == {"first": 1, "workers": 4}


def test_pods_that_a_restart_makes_again_are_not_expected_on_nodes_while_they_have_ended() -> None:
    obj = with_status(in_two_steps(failurePolicy={"maxRestarts": 1}), first={"succeeded": 1}, workers={})
    event = observe(JOB_SET, obj)
    assert event is not None
    assert (event.observation.reclaimable, event.observation.not_bound) == ((), 1)
