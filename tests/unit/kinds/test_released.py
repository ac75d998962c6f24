"""The reserved-release annotation, as it is written and read."""

from __future__ import annotations

import pytest

from queuectl.core.model.workload import ForcedRelease, WorkloadId
from queuectl.kinds import patches
from queuectl.kinds.reserved_keys import RELEASE_ANNOTATION
from queuectl.kinds.stop_annotations import MAX_RELEASE, forced_release, render_release
from tests.integration.kube.sites import effect
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.job_objects import job
from tests.unit.kinds.json_patches import applied

UID = WorkloadId("0b4e")


@pytest.mark.parametrize("by", ["ann", "system:serviceaccount:ops:night", "ann by proxy"])
@pytest.mark.parametrize("reason", ["node b7 is scrap", "by bob: no", "a: b"])
def test_what_is_written_is_read(by: str, reason: str) -> None:
    release = ForcedRelease(12, by, reason)
    assert forced_release(render_release(UID, release), UID) == release


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        "",
        "0b4e/1",
        "0b4e/1 by ann",
        "0b4e/0 by ann: why",
        "0b4e/-1 by ann: why",
        "0b4e/9999999999 by ann: why",
        "other/1 by ann: why",
        "/1 by ann: why",
        f"0b4e/1 by ann: {'x' * MAX_RELEASE}",
    ],
)
def test_what_is_malformed_or_of_another_workload_counts_for_nothing(text: object) -> None:
    assert forced_release(text, UID) is None


@pytest.mark.parametrize(("attempt", "stays"), [(1, False), (2, False), (None, True)])
def test_a_start_removes_a_mark_for_an_attempt_that_is_not_over(attempt: int | None, stays: bool) -> None:
    """So what names an attempt while it is open was written after its start."""
    obj = job()
    uid = WorkloadId(obj["metadata"]["uid"])
    text = render_release(uid, ForcedRelease(attempt, "ann", "scrap")) if attempt else "of another form"
    obj["metadata"]["annotations"] = {RELEASE_ANNOTATION: text}
    started = applied(obj, patches.start(JOB_KINDS["Job"], effect(obj, "Job", kinds=JOB_KINDS)))
    assert (RELEASE_ANNOTATION in started["metadata"]["annotations"]) is stays
