"""`queuectl eta`."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime

import pytest

from queuectl.api.forecast_routes import FORECAST_SECONDS
from queuectl.cli import rest
from queuectl.cli.options import Options
from queuectl.core.decisions import Verdict
from queuectl.core.model.workload import Phase, WorkloadId
from queuectl.ports.reader import StartForecast
from tests.unit.api.canned import CannedReadings, decision, workload
from tests.unit.cli.conftest import Run


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


def test_eta_prints_the_interval_and_how_often_such_intervals_held(run: Run, server: str) -> None:
    result = run("eta", "job/waits", "-n", "default", "--server", server)
    assert result.exit_code == 0, result.output
    assert "pending in ClusterQueue team-a, 19 draws" in result.stdout
    assert "median" in result.stdout
    assert "2h05m" in result.stdout
    assert "after 6h22m" in result.stdout
    assert "held 37 of 45 times (82%)" in result.stdout


def test_eta_tells_when_what_does_not_wait_started_and_ended(
    run: Run, server: str, readings: CannedReadings
) -> None:
    runs, over = workload("runs", 20, phase=Phase.ADMITTED, gpus=1), workload("over", 21)
    readings.commit(runs, over)
    readings.end(over)
    retired = replace(decision(8, over, Verdict.RETIRED), payload={"outcome": "Succeeded"})
    readings.rows += [decision(7, over, Verdict.ADMITTED), retired]
    readings.sequence = 8
    for name, says in (
        ("runs", "Admitted, started at 2026-01-05 10:20:00 +0000"),
        ("over", "Succeeded, started at 2026-01-05 10:00:07 +0000, ended at 2026-01-05 10:00:08 +0000"),
    ):
        result = run("eta", f"job/{name}", "-n", "default", "--server", server)
        assert result.exit_code == 0, result.output
        assert result.stdout.strip() == f"Job default/{name}: {says}"


def test_eta_says_why_a_start_is_unknown(
    run: Run, server: str, readings: CannedReadings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start_of(workload: WorkloadId, now: datetime) -> StartForecast:
        return StartForecast(now, 1, "the history is shorter than a day")

    monkeypatch.setattr(readings, "start_of", start_of)
    result = run("eta", "job/waits", "-n", "default", "--server", server)
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == (
        "Job default/waits: Pending, start unknown: the history is shorter than a day"
    )


def test_eta_waits_longer_than_the_server_takes(
    run: Run, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[float] = []

    def connect(options: Options, *, namespace: str | None, timeout: float) -> rest.Server:
        taken.append(timeout)
        return genuine(options, namespace=namespace, timeout=timeout)

    genuine = rest.connect
    monkeypatch.setattr(rest, "connect", connect)
    assert run("eta", "job/waits", "-n", "default", "--server", server).exit_code == 0
    assert taken[0] > FORECAST_SECONDS


def test_eta_has_the_numbers_of_rest_as_json(run: Run, server: str) -> None:
    result = run("eta", "job/waits", "-n", "default", "--server", server, "-o", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["lowSeconds"], found["medianSeconds"], found["highSeconds"]) == (2463, 7512, None)
