"""`queuectl share --past-usage`."""

from __future__ import annotations

import json

import pytest

from tests.unit.api.canned import CannedReadings
from tests.unit.api.past_usage import configured, fair_tree
from tests.unit.cli.conftest import Run


@pytest.fixture(autouse=True)
def _sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch)


@pytest.fixture
def readings() -> CannedReadings:
    return fair_tree()


def test_the_table_is_the_tree_in_order(run: Run, server: str) -> None:
    found = run("share", "--cohort", "a", "--past-usage", "--server", server)
    assert found.exit_code == 0, found.output
    first, _, *table = found.stdout.splitlines()
    assert first == "Past usage, with a half-life of 24h00m"
    assert [(len(line) - len(line.lstrip())) // 2 for line in table[1:4]] == [0, 1, 2]
    assert [line.split() for line in table] == [
        ["NAME", "KIND", "ORDER", "WEIGHT", "PAST", "USAGE", "PART"],
        ["a", "Cohort", "-", "40", "0.45", "100%"],
        ["b", "ClusterQueue", "1", "30", "0.2", "44%"],
        ["ns-b/main", "LocalQueue", "1", "1", "0.2", "100%"],
        ["u1", "User", "1", "1", "0.2", "100%"],
        ["c", "ClusterQueue", "2", "10", "0.25", "56%"],
        ["ns-c/main", "LocalQueue", "1", "1", "0.25", "100%"],
        ["u3", "User", "1", "1", "0", "0%"],
        ["u2", "User", "2", "1", "0.25", "100%"],
    ]


def test_json_is_the_document(run: Run, server: str) -> None:
    found = run("share", "c", "--past-usage", "-o", "json", "--server", server)
    assert found.exit_code == 0, found.output
    assert [one["name"] for one in json.loads(found.stdout)["items"]] == ["c", "main", "u3", "u2"]


@pytest.mark.parametrize("more", [("--since", "7d"), ("--as-of", "7d")])
def test_it_is_as_of_now(run: Run, server: str, more: tuple[str, ...]) -> None:
    found = run("share", "c", "--past-usage", *more, "--server", server)
    assert found.exit_code == 2
    assert "--past-usage is as of now" in found.output


def test_without_a_half_life_it_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.undo()
    found = run("share", "c", "--past-usage", "--server", request.getfixturevalue("server"))
    assert found.exit_code == 0, found.output
    assert found.stdout == "Past usage does not count: scheduling.admissionFairSharing is not configured\n"
