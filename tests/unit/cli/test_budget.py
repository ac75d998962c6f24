"""`queuectl budget`: the balance, and the rows that make it."""

from __future__ import annotations

import json

import pytest

from tests.unit.api.canned import CannedReadings
from tests.unit.api.test_budgets import with_budgets
from tests.unit.cli.conftest import Run


@pytest.fixture(autouse=True)
def _budgets(readings: CannedReadings) -> None:
    with_budgets(readings)


def test_a_table_has_what_is_left(run: Run, server: str) -> None:
    lines = run("budget", "--server", server).stdout.splitlines()
    assert lines[0].split()[:7] == ["BUDGET", "SUBJECT", "RESOURCE", "HOURS", "USED", "RESERVED", "LEFT"]
    assert [line.split()[:7] for line in lines[1:]] == [
        ["users", "alice", "nvidia.com/gpu", "100.0", "5.0", "20.0", "75.0"],
        ["users", "bob", "nvidia.com/gpu", "100.0", "0.0", "8.0", "92.0"],
        ["whole", "(all)", "nvidia.com/gpu", "100.0", "0.0", "0.0", "100.0"],
    ]


def test_a_wide_table_says_what_is_done_with_what_is_not_covered(run: Run, server: str) -> None:
    header, *lines = run("budget", "-o", "wide", "--server", server).stdout.splitlines()
    column = header.index("ON EXHAUSTED")
    assert [line[column:].split()[0] for line in lines] == ["Wait"] * 3


def test_why_lists_the_rows(run: Run, server: str) -> None:
    result = run("budget", "users", "--why", "--server", server)
    assert result.exit_code == 0, result.output
    rows = result.stdout.partition("\n\n")[2].splitlines()
    assert rows[0].split()[:4] == ["TIME", "KIND", "SUBJECT", "WORKLOAD"]
    assert [line.split()[-3:] for line in rows[1:]] == [["1", "8.0", "0.0"]] * 2


def test_json_is_the_answer_of_rest(run: Run, server: str) -> None:
    found = json.loads(run("budget", "users", "--why", "-o", "json", "--server", server).stdout)
    assert [one["sequence"] for one in found["rows"]] == [9, 7]


def test_why_needs_a_name(run: Run, server: str) -> None:
    result = run("budget", "--why", "--server", server)
    assert result.exit_code == 2
    assert "--why: needs the name of a Budget" in result.output
