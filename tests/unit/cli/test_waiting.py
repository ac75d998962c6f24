"""`wait`: what it waits for, and its exit code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.servers import Document, Script
from tests.unit.cli.test_listing import workload

PATH = "workloads/default/job/train"


def detail(phase: str, **more: Any) -> Document:
    return {**workload("train", phase=phase), "line": None, "sequence": 9, "end": None, **more}


def over(phase: str, outcome: str, attempts: int = 1) -> Document:
    return detail(phase, attempts=attempts, end={"outcome": outcome})


def steps(script: Script, *documents: Document | None) -> None:
    """The workload by one request after another; None: it is not there."""
    left = list(documents)

    def answer(query: Mapping[str, str]) -> tuple[int, Document]:
        found = left.pop(0) if len(left) > 1 else left[0]
        return (200, found) if found else (404, {"title": "Not Found", "detail": "no such object"})

    script.answers[PATH] = answer


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuectl.cli.waiting._POLL_SECONDS", 0.01)


def test_a_start_is_waited_for_with_what_it_waits_for(run: Run, script: Script, scripted: str) -> None:
    waits = detail("Pending", position=2, line=7, reason={"code": "WaitingForQuota"})
    steps(script, waits, waits, detail("Admitted", attempts=1))
    result = run("wait", "job/train", "-n", "default", "--for", "started", "--server", scripted)
    assert result.exit_code == 0, result.stderr
    assert "it is Pending, position 2 of 7: WaitingForQuota" in result.stderr
    assert result.stdout == "Job default/train: started, attempt 1\n"


@pytest.mark.parametrize(
    ("phase", "outcome", "code"),
    [
        ("Finished", "Succeeded", 0),
        ("Finished", "Failed", 1),
        ("Deleted", "Cancelled", 1),
        ("Deleted", "TimedOut", 1),
    ],
)
def test_the_exit_code_of_a_finished_workload_is_0_only_if_it_succeeded(
    run: Run, script: Script, scripted: str, phase: str, outcome: str, code: int
) -> None:
    steps(script, detail("Admitted", attempts=1), over(phase, outcome))
    result = run("wait", "job/train", "-n", "default", "--server", scripted, "-o", "json")
    assert result.exit_code == code, result.stderr
    assert json.loads(result.stdout)["outcome"] == outcome
    assert (f"Job default/train: {outcome}" in result.stderr) == (code == 1)


USED_UP = {"code": "Deactivated", "message": "Deactivated: it ran for 4 s of 4 s"}


def test_a_workload_whose_run_time_is_used_up_is_not_waited_for(
    run: Run, script: Script, scripted: str
) -> None:
    steps(script, detail("Admitted", attempts=1), detail("Pending", attempts=1, reason=USED_UP))
    result = run("wait", "job/train", "-n", "default", "--server", scripted)
    assert result.exit_code == 1
    assert "Job default/train: Deactivated: it ran for 4 s of 4 s" in result.stderr


@pytest.mark.parametrize(("attempts", "code"), [(1, 0), (0, 1)])
def test_a_workload_that_is_over_has_started_only_if_it_was_admitted(
    run: Run, script: Script, scripted: str, attempts: int, code: int
) -> None:
    steps(script, over("Deleted", "Cancelled", attempts))
    result = run("wait", "job/train", "-n", "default", "--for", "started", "--server", scripted)
    assert result.exit_code == code
    assert ("Cancelled, without a start" in result.stderr) == (code == 1)


def test_a_wait_that_times_out_exits_1_and_says_what_is_missing(
    run: Run, script: Script, scripted: str
) -> None:
    steps(script, detail("Pending", reason={"code": "OnHold"}))
    result = run("wait", "job/train", "-n", "default", "--timeout", "1s", "--server", scripted)
    assert result.exit_code == 1
    assert "not within 1 s: Job default/train is finished: it is Pending: OnHold\n" in result.stderr


def test_a_workload_that_was_created_a_moment_ago_is_waited_for(
    run: Run, script: Script, scripted: str
) -> None:
    steps(script, None, None, detail("Admitted", attempts=1))
    result = run("wait", "job/train", "-n", "default", "--for", "started", "--server", scripted)
    assert result.exit_code == 0, result.stderr


def test_a_workload_that_does_not_exist_exits_1(
    run: Run, script: Script, scripted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuectl.cli.waiting._NEW_SECONDS", 0.0)
    script.page("workloads", workload("trial"))
    result = run("wait", "job/train", "-n", "default", "--server", scripted)
    assert result.exit_code == 1
    assert "did you mean job/trial?" in result.stderr


def test_another_object_of_the_same_name_is_not_waited_for(run: Run, script: Script, scripted: str) -> None:
    steps(script, detail("Pending"), detail("Admitted", uid="another", attempts=1))
    result = run("wait", "job/train", "-n", "default", "--for", "started", "--server", scripted)
    assert result.exit_code == 1
    assert "another object has its name now" in result.stderr


@pytest.mark.parametrize("timeout", ["0s", "soon", "-1s", "5"])
def test_a_timeout_is_a_time(run: Run, timeout: str) -> None:
    result = run("wait", "job/train", "--timeout", timeout, "--server", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert "is not a time such as 90s, 15m, 2h or 7d" in result.stderr
