"""The reserved-release annotation, as it is written and read."""

from __future__ import annotations

import pytest

from queuectl.core.model import ForcedRelease, WorkloadId
from queuectl.kinds.released import MAX_RELEASE, parse, render

UID = WorkloadId("0b4e")


@pytest.mark.parametrize("by", ["ann", "system:serviceaccount:ops:night", "ann by proxy"])
@pytest.mark.parametrize("reason", ["node b7 is scrap", "by bob: no", "a: b"])
def test_what_is_written_is_read(by: str, reason: str) -> None:
    release = ForcedRelease(12, by, reason)
    assert parse(render(UID, release), UID) == release


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
    assert parse(text, UID) is None
