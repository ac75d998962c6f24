"""Gang scheduling by Kubernetes itself changes neither how many pods are charged nor when they are ready."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.kinds.workloads import observe
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.job_objects import job

GROUPED = {"schedulingGroup": {"podGroupName": "train"}}


@pytest.mark.parametrize(
    ("spec", "pod"),
    [
        ({"scheduling": {"policy": {"gang": {"minCount": 1}}}}, {}),
        ({}, GROUPED),
    ],
    ids=["minCount of the Job", "group of the pods"],
)
def test_all_pods_of_a_gang_are_charged(spec: dict[str, Any], pod: dict[str, Any]) -> None:
    event = observe(JOB_KINDS["Job"], job(parallelism=100, completions=100, pod=pod, **spec))
    assert event is not None
    assert event.workload.problem is None
    assert [one.count for one in event.workload.pod_sets] == [100]


@pytest.mark.parametrize(("ready", "all_ready"), [(0, False), (99, False), (100, True)])
def test_a_gang_that_is_not_scheduled_is_not_ready(ready: int, all_ready: bool) -> None:
    """Until its PodGroup is scheduled no pod of it runs, so none is ready."""
    obj = job(parallelism=100, completions=100, pod=GROUPED, suspend=False)
    obj["status"] = {"active": 100, "ready": ready}
    event = observe(JOB_KINDS["Job"], obj)
    assert event is not None
    assert event.observation.ready is all_ready
