"""`queuectl idle`: the table and the line about the last check."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from queuectl.ports.idle import DeviceUse, RecordedUse, UseFinding, UseVerdict
from tests.unit.api.canned import CannedReadings, workload
from tests.unit.cli.conftest import Run

WHEN = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _use(readings: CannedReadings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    idle = UseFinding(UseVerdict.IDLE, 2, 2, 1.0, 0.0001, None)
    row = RecordedUse(workload("small", 1).id, 1, WHEN, None, idle, 5400)
    readings.device_use.found = DeviceUse(WHEN, None, [row])


def test_a_table_has_the_verdict_and_what_was_lost(run: Run, server: str) -> None:
    result = run("idle", "--server", server)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split()[-4:] == ["GPUS", "IDLE", "GPU-HOURS", "LOST"]
    assert lines[1].split()[:4] == ["default", "Job/small", "alice", "Idle"]
    assert lines[1].split()[-3:] == ["2", "2", "1.5"]
    assert lines[-1] == "checked 2026-01-02 00:00:00 +0000"


def test_wide_has_what_the_verdict_was_found_by(run: Run, server: str) -> None:
    lines = run("idle", "-o", "wide", "--server", server).stdout.splitlines()
    assert lines[1].split()[-4:] == ["team-a", "0.0001", "-", "100%"]


def test_as_json_it_is_the_document(run: Run, server: str) -> None:
    found = json.loads(run("idle", "-o", "json", "-n", "default", "--server", server).stdout)
    assert [one["name"] for one in found["items"]] == ["small"]
    found = json.loads(run("idle", "-o", "json", "-n", "other", "--server", server).stdout)
    assert found["items"] == []


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (DeviceUse(None, None, []), "no check yet"),
        (DeviceUse(WHEN, "Prometheus: HTTP 503", []), "Prometheus: HTTP 503"),
    ],
    ids=["none", "failed"],
)
def test_the_last_line_tells_what_is_wrong(
    run: Run, server: str, readings: CannedReadings, use: DeviceUse, words: str
) -> None:
    readings.device_use.found = use
    assert words in run("idle", "--server", server).stdout.splitlines()[-1]
