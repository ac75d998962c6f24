"""Annotations that say what a workload waits for: what is read, and how what is wrong is named."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from queuectl.core.model.reasons import Code
from queuectl.core.model.start_conditions import AfterOutcome, AfterWorkload, StartConditions
from queuectl.core.model.workload import Workload
from queuectl.kinds.workloads import observe
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.job_objects import job

AFTER, BEGIN, MOST = (f"queuectl.dev/{name}" for name in ("after", "begin", "max-running"))
LABELS = {"queuectl.dev/queue-name": "main", "queuectl.dev/array": "sweep"}


def read(annotations: dict[str, object], labels: dict[str, str] = LABELS) -> Workload:
    obj = job()
    obj["metadata"] |= {"labels": labels, "annotations": annotations}
    event = observe(JOB_KINDS["Job"], obj, owners=JOB_KINDS)
    assert event is not None
    return event.workload


def test_conditions_are_read_with_the_names_of_kinds_as_queuectl_has_them() -> None:
    annotations: dict[str, object] = {
        AFTER: "job/prepare, any:jobsets/load,failed:Job/prepare",
        BEGIN: "2030-01-01T02:00:00+02:00",
        MOST: "5",
    }
    found = read(annotations)
    assert found.problem is None
    assert found.start == StartConditions(
        after=(
            AfterWorkload(AfterOutcome.OK, "Job", "prepare"),
            AfterWorkload(AfterOutcome.ANY, "JobSet", "load"),
            AfterWorkload(AfterOutcome.FAILED, "Job", "prepare"),
        ),
        begin_at=datetime(2030, 1, 1, tzinfo=UTC),
        max_running=5,
        array="sweep",
    )


def test_without_annotations_there_is_none() -> None:
    assert read({"mine": "x"}).start is None


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        (AFTER, "", "'' is not [OUTCOME:]KIND/NAME"),
        (AFTER, "prepare", "'prepare' is not [OUTCOME:]KIND/NAME"),
        (AFTER, "job/Prepare", "is not [OUTCOME:]KIND/NAME"),
        (AFTER, "other-ns/job/x", "is not [OUTCOME:]KIND/NAME"),
        (AFTER, "soon:job/x", "the outcome is none of ok, any, failed"),
        (AFTER, "pot/x", "the kind is none of Job"),
        (AFTER, ",".join(f"job/x{n}" for n in range(17)), "it names 17 workloads, at most 16 are allowed"),
        (AFTER, "job/x," * 2000, "is not a text of at most 8192 characters"),
        (AFTER, 5, "5 is not a text"),
        (BEGIN, "tomorrow", "'tomorrow' is not a time"),
        (BEGIN, "2030-01-01", "'2030-01-01' is not a time"),
        (MOST, "0", "'0' is not a whole number, 1 to 1000"),
        (MOST, "1001", "'1001' is not a whole number, 1 to 1000"),
        (MOST, "-1", "'-1' is not a whole number, 1 to 1000"),
    ],
)
def test_what_cannot_be_read_is_misconfigured(key: str, value: object, told: str) -> None:
    found = read({key: value})
    assert found.start is None
    assert found.problem is not None
    assert found.problem.code is Code.MISCONFIGURED
    assert f"metadata.annotations[{key}]" in (found.problem.detail or "")
    assert told in (found.problem.detail or "")


def test_a_limit_without_an_array_is_misconfigured() -> None:
    found = read({MOST: "5"}, {"queuectl.dev/queue-name": "main"})
    assert found.problem is not None
    assert "the label queuectl.dev/array names none" in (found.problem.detail or "")
