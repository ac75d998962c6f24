"""`queuectl statement`: tables, CSV, FOCUS; what close and correct refuse before they ask the ledger."""

from __future__ import annotations

import csv
import io
import json

import pytest

from queuectl.cli.rest import Server
from queuectl.ports.reader import BookedOn, UsageSumOf
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
        held(1500 * HOUR, "ada", "cpu"),
    ]


def test_a_month_is_shown_with_costs_shares_and_what_has_no_rate(run: Run, server: str) -> None:
    result = run("statement", "show", "2026-01", "--server", server)
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines() if line]
    first = "2026-01 (Open), from 2025-12-31 18:15:00 +0000 to 2026-01-31 18:15:00 +0000, in EUR"
    assert lines == [
        first.split(),
        ["USER", "COST", "SHARE"],
        ["ada", "225.00", "74.7%"],
        ["bob", "76.25", "25.3%"],
        ["total", "301.25", "100.0%"],
        ["Without", "a", "rate:", "a100/cpu"],
    ]
    result = run("statement", "show", "2026-01", "--by", "user,resource", "--server", server)
    assert ["ada", "cpu", "1.50", "0.00", "0.0%"] in [line.split() for line in result.stdout.splitlines()]
    assert ["bob", GPU, "30.50", "76.25", "25.3%"] in [line.split() for line in result.stdout.splitlines()]


def test_months_are_listed(run: Run, server: str) -> None:
    result = run("statement", "list", "--server", server)
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["MONTH", "STATUS", "TOTAL", "CURRENCY", "CLOSED"],
        ["2026-01", "Open", *"---"],
    ]
    assert json.loads(run("statement", "list", "-o", "json", "--server", server).stdout)["items"][0]["zone"]


def test_csv_has_the_total_in_parts_and_no_formulas(run: Run, server: str) -> None:
    result = run("statement", "show", "2026-01", "--by", "user,project", "-o", "csv", "--server", server)
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [(row["user"], row["project"], row["currency"], row["cost"], row["exact"]) for row in rows] == [
        ("ada", "'=cmd()", "EUR", "225.00", "225.000000"),
        ("bob", "'=cmd()", "EUR", "76.25", "76.250000"),
    ]


def test_no_cell_of_focus_is_a_formula_and_negative_numbers_stay(
    run: Run, server: str, readings: CannedReadings, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ("=cmd()", "+1+cmd()", "-1+cmd()", "@cmd", "\tcmd", "-", "-0.250000", "-3", "plain", None)
    rows = [{"BilledCost": "-1.5", "ChargeDescription": one} for one in texts]
    monkeypatch.setattr(Server, "get", lambda *_: {"items": rows})
    result = run("statement", "show", "2026-01", "-o", "focus", "--server", server)
    found = list(csv.DictReader(io.StringIO(result.stdout)))
    assert {row["BilledCost"] for row in found} == {"-1.5"}
    assert [row["ChargeDescription"] for row in found] == [
        *("'=cmd()", "'+1+cmd()", "'-1+cmd()", "'@cmd", "'\tcmd", "'-", "-0.250000", "-3", "plain", "")
    ]


def test_focus_is_csv_with_its_columns(run: Run, server: str, readings: CannedReadings) -> None:
    result = run("statement", "show", "2026-01", "-o", "focus", "--server", server)
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [(row["BilledCost"], row["ConsumedQuantity"], row["ConsumedUnit"]) for row in rows] == [
        ("225.000000", "90.000000000", "GPU-Hours"),
        ("76.250000", "30.500000000", "GPU-Hours"),
    ]
    readings.booked = []
    assert run("statement", "show", "2026-01", "-o", "focus", "--server", server).stdout == ""


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["show", "2026-13"], "'2026-13' is not a month such as 2026-11"),
        (["show", "2026-01", "--by", "who"], "nothing was booked on 'who'"),
        (["close", "November"], "'November' is not a month such as 2026-11"),
        (["correct", "2026-01"], "Missing option '--reason'"),
        (["correct", "2026-01", "--reason", "two\nlines"], "--reason: one line of 1 to 200 characters"),
        (["correct", "2026-01", "--reason", " "], "--reason: one line of 1 to 200 characters"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, server: str, words: list[str], problem: str) -> None:
    result = run("statement", *words, "--server", server)
    assert (result.exit_code, problem in result.stderr) == (2, True), result.stderr
