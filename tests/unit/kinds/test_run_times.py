"""Start and end of a run, from the object's status."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from queuectl.kinds.workloads import observe
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.job_objects import job

JOB = JOB_KINDS["Job"]
START, END = "2030-01-01T08:00:00Z", "2030-01-01T09:30:00Z"
BEGAN, ENDED = datetime(2030, 1, 1, 8, tzinfo=UTC), datetime(2030, 1, 1, 9, 30, tzinfo=UTC)


def _over(kind: str, status: str = "True") -> dict[str, Any]:
    return {"type": kind, "status": status, "lastTransitionTime": END}


@pytest.mark.parametrize(
    ("status", "times"),
    [
        ({}, (None, None)),
        ({"startTime": START}, (BEGAN, None)),
        ({"startTime": START, "conditions": [_over("Complete")], "completionTime": END}, (BEGAN, ENDED)),
        ({"startTime": START, "conditions": [_over("Failed")]}, (BEGAN, ENDED)),
        ({"startTime": START, "conditions": [_over("Suspended"), _over("Failed")]}, (BEGAN, ENDED)),
        ({"startTime": START, "conditions": [_over("Complete", "False")]}, (BEGAN, None)),
        ({"startTime": 7, "conditions": "many"}, (None, None)),
        ({"startTime": "soon", "conditions": [{"type": "Failed", "status": "True"}]}, (None, None)),
    ],
)
def test_times_are_those_of_the_status_and_an_invalid_one_is_none(
    status: dict[str, Any], times: tuple[datetime | None, datetime | None]
) -> None:
    assert JOB.run_times({"status": status}) == times


def test_an_observation_has_start_and_end() -> None:
    found = observe(JOB_KINDS["Job"], {**job(), "status": {"startTime": START}})
    assert found is not None
    assert (found.observation.started_at, found.observation.ended_at) == (BEGAN, None)
