"""The tables of docs/threats.md: each row of bounds names its bound, its cost and a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from queuectl.api import http, limits, requests, usage_routes, what_if_routes
from queuectl.api import server as rest
from queuectl.kinds.pod_group import MAX_PODS
from queuectl.kinds.podsets import MAX_ENTRIES
from queuectl.kinds.requests import MAX_CONTAINERS, MAX_RESOURCES
from queuectl.kubernetes_yaml import MAX_NESTING
from queuectl.ports.reader import MOST_USAGE

ROOT = Path(__file__).parents[2]
SECTION = "## What each caller may choose, and its bound"
_TEST = re.compile(r"`(tests/[a-z_/]+\.py)::(test_[a-z0-9_]+)`")


def rows(begin: str = SECTION, end: str = "\n## ") -> list[list[str]]:
    """The cells of each row between two texts of the page."""
    text = (ROOT / "docs/threats.md").read_text().partition(begin)[2].partition(end)[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in found if row[0] not in ("input", "what", "---")]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_each_input_has_a_bound_a_cost_and_a_test(row: list[str]) -> None:
    assert len(row) == 5
    assert all(row)
    check_test(row[4])


def check_test(cell: str) -> None:
    found = _TEST.fullmatch(cell)
    assert found is not None, cell
    assert re.search(rf"def {found[2]}\(", (ROOT / found[1]).read_text()), cell


def test_each_row_of_what_no_policy_covers_names_a_test() -> None:
    uncovered = rows("What no policy of the gate covers", "**The gate counts")
    assert len(uncovered) > 10
    for row in uncovered:
        assert len(row) == 4, row[0]
        check_test(row[3])


def test_the_numbers_of_the_tables_are_those_of_the_code() -> None:
    bounds = {row[0]: row[1] for row in rows()}
    numbers = {
        "connections": rest.LISTENING.connections,
        "depth of a body": MAX_NESTING,
        "objects of a plan": what_if_routes.MAX_OBJECTS,
        "requests in work": limits.IN_WORK,
        "requests in work of all callers": limits.IN_WORK_IN_ALL,
        "requests that wait for changes (`wait`)": limits.WAITING,
        "WebSockets (`/tunnel`)": http.MOST_TUNNELS,
        "query parameters": requests.MAX_FIELDS,
        "`limit`": requests.MAX_LIMIT,
        "`by` of usage and statements": usage_routes.MOST_ITEMS,
        "bookings of the time of usage": MOST_USAGE,
        "`next` (cursor)": requests.MAX_CURSOR,
        "podsets of an object": MAX_ENTRIES,
        "pods of a group": MAX_PODS,
        "containers of a pod template": MAX_CONTAINERS,
        "resources, node selectors, tolerations of a pod template": MAX_RESOURCES,
    }
    for name, number in numbers.items():
        assert f"{number:,}" in bounds[name], name
