"""`queuectl usage`: tables, CSV, times."""

from __future__ import annotations

import csv
import io
import json

import pytest

from queuectl.core.model.device_use import IDLE_OF
from queuectl.ports.reader import BookedOn, CapacitySum, UsageSumOf
from tests.unit.api.canned import GPU, CannedReadings
from tests.unit.cli.conftest import Run

HOUR = 3_600_000_000


@pytest.fixture(autouse=True)
def _usage(readings: CannedReadings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")

    def held(amount: int, user: str, resource: str = GPU) -> UsageSumOf:
        booked = BookedOn("default", "main", None, user, None, {"project": "=cmd()"})
        return UsageSumOf(booked, "team-a", "a100", resource, amount)

    readings.booked = [
        held(90 * HOUR, "ada"),
        held(30 * HOUR + HOUR // 2, "bob"),
        held(12 * HOUR, "ada", f"{IDLE_OF}{GPU}"),
        held(1500 * HOUR, "ada", "cpu"),
        held(3 * HOUR << 30, "ada", "memory"),
    ]
    readings.had = [CapacitySum("a100", GPU, *(hours * HOUR for hours in (200, 10, 4, 120, 76, 0)))]


def test_a_table_has_the_hours_and_the_share_of_each_user_and_what_was_free(run: Run, server: str) -> None:
    result = run("usage", "--month", "2026-11", "--zone", "UTC", "--server", server)
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines() if line]
    assert result.stdout.startswith(
        "From 2026-11-01 00:00:00 +0000 to 2026-12-01 00:00:00 +0000, in resource-hours"
    )
    assert ["USER", "RESOURCE", "USED", "SHARE", "IDLE"] in lines
    assert ["ada", GPU, "90.00", "74.7%", "12.00"] in lines
    assert ["bob", GPU, "30.50", "25.3%", "-"] in lines
    assert ["ada", "cpu", "1.50", "100.0%", "-"] in lines
    assert ["ada", "memory", "3.00Gi", "100.0%", "-"] in lines
    assert ["a100", GPU, "120.50", "76.00", "4.00", "10.00", "210.00"] in lines
    assert ["a100", "cpu", "1.50", *["<none>"] * 4] in lines or ["a100", "cpu", "1.50", *["-"] * 4] in lines


def test_csv_has_units_and_no_formulas(run: Run, server: str) -> None:
    result = run("usage", "--by", "user,project", "--since", "7d", "-o", "csv", "--server", server)
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [(row["user"], row["project"], row["unit"], row["amount"], row["idle"]) for row in rows] == [
        ("ada", "'=cmd()", "core-hours", "1.500000", "0.000000"),
        ("ada", "'=cmd()", "GiB-hours", "3.000000", "0.000000"),
        ("ada", "'=cmd()", "device-hours", "90.000000", "12.000000"),
        ("bob", "'=cmd()", "device-hours", "30.500000", "0.000000"),
    ]


def test_json_is_the_document_of_rest(run: Run, server: str) -> None:
    result = run("usage", "-o", "json", "--server", server)
    assert json.loads(result.stdout)["by"] == ["user"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--month", "2026-11", "--since", "1d"], "--month goes without --since and --until"),
        (["--until", "1d"], "--until goes with --since"),
        (["--by", "who"], "nothing was booked on 'who'"),
        (["--month", "November"], "month such as 2026-11"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, server: str, words: list[str], told: str) -> None:
    result = run("usage", *words, "--server", server)
    assert (result.exit_code, told in result.stderr) == (2, True), result.stderr
