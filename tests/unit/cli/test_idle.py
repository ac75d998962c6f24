"""`queuectl idle`: the table and the line about the last check."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from queuectl.core.model.device_use import IdleNotice, UseFinding, UseVerdict
from queuectl.ports.idle import DeviceCheck
from tests.unit.api.canned import CannedReadings
from tests.unit.api.canned_use import judged
from tests.unit.cli.conftest import Run

WHEN = datetime(2026, 1, 2, tzinfo=UTC)
HOLD = WHEN + timedelta(hours=1)


@pytest.fixture(autouse=True)
def _use(readings: CannedReadings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    idle = UseFinding(UseVerdict.IDLE, 2, 2, 1.0, 0.0001, None)
    readings.commit(judged(readings.stored("small"), idle, WHEN, 5400))
    readings.device_use.found = DeviceCheck(WHEN, None)


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
    assert lines[1].split()[-7:] == ["-", "-", "-", "team-a", "0.0001", "-", "100%"]


@pytest.fixture
def _noticed(request: pytest.FixtureRequest, readings: CannedReadings) -> None:
    idle = UseFinding(UseVerdict.IDLE, 2, 2, 1.0)
    readings.commit(judged(readings.stored("small"), idle, WHEN, notice=request.param))


@pytest.mark.parametrize(
    ("_noticed", "words"),
    [
        (IdleNotice(policy="p", at=WHEN, hold_at=HOLD), "p 2026-01-02 00:00:00 +0000 2026-01-02 01:00:00"),
        (
            IdleNotice(policy="p", at=WHEN, hold_at=WHEN, dry_run=True, held_at=HOLD),
            "p (dry run) 2026-01-02 00:00:00 +0000 2026-01-02 01:00:00",
        ),
        (IdleNotice(policy="p", at=WHEN), "p 2026-01-02 00:00:00 +0000 -"),
    ],
    ids=["told", "dry run", "told alone"],
    indirect=["_noticed"],
)
def test_wide_has_the_policy_that_told_its_user(run: Run, _noticed: None, server: str, words: str) -> None:
    line = run("idle", "-o", "wide", "--server", server).stdout.splitlines()[1]
    assert words in " ".join(line.split())


def test_get_workloads_has_the_verdict_when_it_is_wide(run: Run, server: str) -> None:
    lines = run("get", "workloads", "-o", "wide", "--server", server).stdout.splitlines()
    assert "IDLE" in lines[0].split()
    (small,) = (line for line in lines if "job/small" in line)
    assert "Idle 2/2" in small


def test_no_verdicts_are_said_so(run: Run, server: str) -> None:
    result = run("idle", "--verdict", "Hang", "--server", server)
    assert result.stdout == "checked 2026-01-02 00:00:00 +0000\n"
    assert result.stderr == "no verdicts found\n"


def test_as_json_it_is_the_document(run: Run, server: str) -> None:
    found = json.loads(run("idle", "-o", "json", "-n", "default", "--server", server).stdout)
    assert [one["name"] for one in found["items"]] == ["small"]
    found = json.loads(run("idle", "-o", "json", "-n", "other", "--server", server).stdout)
    assert found["items"] == []


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (DeviceCheck(None, None), "no check yet: checks need idle.prometheus.url"),
        (DeviceCheck(WHEN, "Prometheus: HTTP 503"), "Prometheus: HTTP 503"),
    ],
    ids=["none", "failed"],
)
def test_the_last_line_tells_what_is_wrong(
    run: Run, server: str, readings: CannedReadings, use: DeviceCheck, words: str
) -> None:
    readings.device_use.found = use
    assert words in run("idle", "--server", server).stdout.splitlines()[-1]
