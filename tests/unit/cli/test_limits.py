"""`queuectl limits`: what subjects use of UsageLimits."""

from __future__ import annotations

import json

import pytest

from tests.builders import GPU
from tests.unit.api.canned import CannedReadings
from tests.unit.api.test_usage_limits import with_limits
from tests.unit.cli.conftest import Run


@pytest.fixture(autouse=True)
def _limits(readings: CannedReadings) -> None:
    with_limits(readings)


def test_a_table_has_what_is_used_and_which_limit_binds(run: Run, server: str) -> None:
    lines = run("limits", "--server", server).stdout.splitlines()
    titles = ["LIMIT", "TARGET", "SUBJECT", "RESOURCE", "USED", "MOST", "LEFT", "WAITING", "BINDS"]
    assert lines[0].split() == titles
    rows = [line.split() for line in lines[1:]]
    assert ["users", "ClusterQueue/team-a", "alice", GPU, "6", "6", "0", "1", "yes"] in rows
    assert ["users-in-cohort", "Cohort/all", "alice", GPU, "6", "16", "10", "0", "-"] in rows
    assert ["h100", "ClusterQueue/team-a", "bob", GPU, "of", "h100", "0", "1", "1", "0", "yes"] in rows
    assert ["whole", "Cohort/all", "(all)", GPU, "7", "7", "0", "0", "yes"] in rows


def test_json_is_the_answer_of_rest(run: Run, server: str) -> None:
    found = json.loads(run("limits", "--submitter", "alice", "-o", "json", "--server", server).stdout)
    assert {one["usageLimit"] for one in found["items"]} == {"h100", "users", "users-in-cohort", "whole"}


def test_no_limits_are_said_so(run: Run, server: str) -> None:
    result = run("limits", "--submitter", "nobody", "--server", server)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no limits found" in result.stderr
