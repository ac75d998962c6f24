"""`queuectl budget`: the balance, and the rows that make it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from queuectl.core.model.budgets import HOUR, BudgetGrant, EntryKind
from queuectl.ports.budgets import BudgetRow, GrantRow
from tests.unit.api.canned import CannedReadings
from tests.unit.api.test_budgets import with_budgets
from tests.unit.cli.clusters import Cluster, kubeconfig
from tests.unit.cli.conftest import Run
from tests.unit.cli.servers import answering


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
    assert [line.split()[-4:] for line in rows[1:]] == [["1", "8.0", "0.0", "0.0"]] * 2


def test_show_is_what_is_run_without_a_command(run: Run, server: str) -> None:
    assert run("budget", "show", "users", "--server", server).stdout == (
        run("budget", "users", "--server", server).stdout
    )
    assert "refund" in run("budget", "--help").stdout


def test_json_is_the_answer_of_rest(run: Run, server: str) -> None:
    found = json.loads(run("budget", "users", "--why", "-o", "json", "--server", server).stdout)
    assert [one["sequence"] for one in found["rows"]] == [9, 7]


def test_why_needs_a_name(run: Run, server: str) -> None:
    result = run("budget", "--why", "--server", server)
    assert result.exit_code == 2
    assert "--why: needs the name of a Budget" in result.output


BUDGET = "/apis/queuectl.dev/v1beta1/budgets/users"
OLD = {"hours": 1, "at": "2026-11-01T00:00:00Z", "reason": "before"}


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    found.add(BUDGET, spec={"hours": 100, "grants": [OLD]}, metadata={"resourceVersion": "7"})
    return found


@pytest.fixture
def change(run: Run, cluster: Cluster, server: str, tmp_path: Path) -> Iterator[Run]:
    with answering(cluster.answer) as url:
        config = str(kubeconfig(tmp_path, url))
        yield lambda *words: run("budget", *words, "--kubeconfig", config, "--server", server)


def test_a_grant_is_one_patch_that_adds_to_what_was_read(change: Run, cluster: Cluster) -> None:
    words = ("--subject", "alice", "--at", "2026-12-01T00:00:00Z", "--reason", "a deadline")
    result = change("grant", "users", "12.5", *words)
    assert result.exit_code == 0, result.output
    new = {"hours": "12.5", "at": "2026-12-01T00:00:00Z", "subject": "alice", "reason": "a deadline"}
    metadata = {"uid": "uid-users", "resourceVersion": "7"}
    assert cluster.writes == [(BUDGET, {"metadata": metadata, "spec": {"grants": [OLD, new]}})]
    assert "grants 1 -> 2" in result.stdout
    assert "queuectl budget users --why" in result.stdout


def test_a_grant_without_the_right_is_refused_with_the_reason(change: Run, cluster: Cluster) -> None:
    words = (
        "ValidatingAdmissionPolicy 'queuectl-grants' denied request: spec.grants is changed by users that may"
    )
    cluster.refusals["PATCH", BUDGET] = (403, words)
    result = change("grant", "users", "5", "--reason", "x")
    assert result.exit_code == 1
    assert "spec.grants is changed by users that may" in result.output


@pytest.mark.parametrize(("asked", "hours"), [((), "2.500"), (("--hours", "1"), "1")])
def test_a_refund_gives_back_what_the_workload_has_used(
    change: Run, cluster: Cluster, readings: CannedReadings, asked: tuple[str, ...], hours: str
) -> None:
    used(readings)
    result = change("refund", "users", "default/Job/a", *asked, "--reason", "a broken disk")
    assert result.exit_code == 0, result.output
    ((_, patch),) = cluster.writes
    _, new = patch["spec"]["grants"]
    del new["at"]
    refund = {"hours": hours, "subject": "alice", "workload": "default/Job/a", "reason": "a broken disk"}
    assert new == refund


@pytest.mark.parametrize(
    "words", [("default/Job/a", "--hours", "3"), ("default/Job/b",), ("default/Job/a", "--hours", "0")]
)
def test_no_more_is_refunded_than_was_used(
    change: Run, cluster: Cluster, readings: CannedReadings, words: tuple[str, ...]
) -> None:
    used(readings)
    result = change("refund", "users", *words, "--reason", "x")
    assert result.exit_code == 1
    assert "hours of Budget/users that are not refunded" in result.output
    assert cluster.writes == []


def used(readings: CannedReadings) -> None:
    """Job a has used 4 hours, of which 1 was refunded at its end and a half by hand."""
    (row,) = (one for one in readings.budgets.rows if one.sequence == 7)
    for number, (kind, hours) in enumerate(((EntryKind.SETTLE, 4), (EntryKind.REFUND, -1))):
        entry = replace(row.entry, kind=kind, reserved=0, used=hours * HOUR)
        readings.budgets.rows.append(BudgetRow(row.sequence + number, entry, row.ref))
    grant = BudgetGrant(
        amount=HOUR // 2, at=row.entry.at, subject="alice", workload="default/Job/a", reason="x"
    )
    readings.budgets.grants = [GrantRow(9, row.entry.at, None, grant, grant.amount)]
