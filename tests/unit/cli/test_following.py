"""`history`, `events` and `get decisions`: decisions with time, reason and cause."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import IO, Any

import pytest
import yaml

from tests.unit.cli.conftest import Run
from tests.unit.cli.servers import DEADLINE_SECONDS, Document, Script, answering, ended_in_time

START = datetime(2026, 1, 5, 10, 0, tzinfo=UTC)
WHY = {"code": "Preempted", "message": "Preempted (InClusterQueue) by ml/Job/big", "by": "ml/Job/big"}


def decision(sequence: int, verdict: str, name: str = "train", **more: Any) -> Document:
    time = (START + timedelta(minutes=sequence)).isoformat().replace("+00:00", "Z")
    who = {"namespace": "default", "kind": "Job", "name": name, "uid": f"uid-{name}"}
    rest: Document = {"attempt": None, "reason": None, "details": {}, "cycle": 1, "epoch": 1}
    return {"sequence": sequence, "time": time, "verdict": verdict, **who, **rest, **more}


PODS = [{"name": "main", "count": 4, "requests": {}, "flavors": {"cpu": "a100", "nvidia.com/gpu": "a100"}}]
LIFE = [
    decision(1, "Queued", details={"queue": "main", "priority": 3, "submitter": "alice"}),
    decision(4, "Admitted", attempt=1, details={"podSets": PODS, "clusterQueue": "team-a", "debt": False}),
    decision(7, "Evicted", attempt=1, reason=WHY),
    decision(9, "Retired", attempt=2, details={"outcome": "Succeeded"}),
]
QUOTA = {
    **decision(
        2,
        "Configured",
        details={"kind": "ClusterQueue", "namespace": "", "name": "team-a", "spec": {}, "author": "bob"},
    ),
    **dict.fromkeys(("namespace", "kind", "name", "uid")),
}


class Ledger:
    """Decisions that `events` can request."""

    def __init__(self, script: Script, *rows: Document) -> None:
        self.rows = list(rows)
        self.epoch = 1
        self.page = 1000
        script.answers["decisions"] = self.answer

    @property
    def sequence(self) -> int:
        return int(self.rows[-1]["sequence"]) if self.rows else 0

    def answer(self, query: Mapping[str, str]) -> tuple[int, Document]:
        after = int(query.get("next") or query.get("after") or 0)
        epoch = int(query.get("epoch", self.epoch))
        if epoch < self.epoch:
            after = min(after, max(row["sequence"] for row in self.rows if row["epoch"] <= epoch))
        rows = [row for row in self.rows if row["sequence"] > after]
        limit = min(self.page, int(query["limit"]))
        items = rows[:limit]
        more = str(items[-1]["sequence"]) if len(rows) > limit else None
        last = {"sequence": self.sequence, "epoch": self.epoch, "ageSeconds": 0.0}
        return 200, {"items": items, "next": more, **last}


def test_history_shows_time_verdict_flavors_reason_and_cause(
    run: Run, script: Script, scripted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.say("workloads/default/job/train", {"sequence": 9})
    script.page("workloads/default/job/train/history", *LIFE)
    result = run("history", "job/train", "-n", "default", "--server", scripted)
    assert result.exit_code == 0, result.stderr
    head, *lines = result.stdout.splitlines()
    assert head.split() == ["SEQUENCE", "TIME", "DECISION", "ATTEMPT", "FLAVORS", "WHY", "BY"]
    assert [line.split()[4] for line in lines] == ["Queued", "Admitted", "Evicted", "Retired"]
    assert [line.split()[0] for line in lines] == ["1", "4", "7", "9"]
    assert "alice" in lines[0]
    assert "main 4 x a100" in lines[1]
    assert lines[2].endswith("Preempted (InClusterQueue) by ml/Job/big  ml/Job/big")
    assert "LocalQueue main, priority 3" in lines[0]
    assert "Succeeded" in lines[3]
    as_json = json.loads(run("history", "train", "--server", scripted, "-o", "json").stdout)
    assert as_json["items"] == LIFE


def test_decisions_are_listed_with_their_subject(run: Run, script: Script, scripted: str) -> None:
    Ledger(script, LIFE[0], QUOTA)
    result = run("get", "decisions", "--after", "0", "--server", scripted)
    lines = result.stdout.splitlines()[1:]
    assert [line.split()[5] for line in lines] == ["default/job/train", "clusterqueue/team-a"]
    assert [line.split()[-1] for line in lines] == ["alice", "bob"]
    assert script.asked[0] == ("decisions", {"after": "0", "limit": "1000"})


def test_events_without_follow_end_at_the_newest_decision(run: Run, script: Script, scripted: str) -> None:
    ledger = Ledger(script, *(decision(n, "Queued", f"job-{n}") for n in range(1, 60)))
    ledger.page = 7
    result = run("events", "--server", scripted)
    assert result.exit_code == 0, result.stderr
    assert [line.split("job-")[1] for line in result.stdout.splitlines()] == [str(n) for n in range(40, 60)]


@pytest.mark.parametrize(
    ("since", "first"),
    [("0", 1), ("57", 58), ("59", None), ("600s", 50), ("10m", 50), ("1d", 1), ("0s", None)],
)
def test_events_start_after_a_sequence_or_a_time(
    run: Run, script: Script, first: int | None, since: str
) -> None:
    Ledger(script, *(decision(n, "Queued", f"job-{n}") for n in range(1, 60)))

    async def at_the_hour(request: Any) -> Any:
        answer = await script.answer(request)
        answer.headers["Date"] = "Mon, 05 Jan 2026 11:00:00 GMT"
        return answer

    with answering(at_the_hour) as url:
        result = run("events", "--since", since, "--server", url, "-o", "json")
    assert result.exit_code == 0, result.stderr
    found = [json.loads(line)["sequence"] for line in result.stdout.splitlines()]
    assert found == ([] if first is None else list(range(first, 60)))
    assert len(script.asked) < 12


@pytest.mark.parametrize("since", ["yesterday", "-1", "1y", "9" * 30, "1.5h", "\u0661m"])
def test_an_invalid_since_is_a_usage_error(run: Run, since: str) -> None:
    result = run("events", "--since", since, "--server", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert "90s, 15m, 2h, 7d" in result.stderr


def test_events_of_one_queue_leave_out_the_others(run: Run, script: Script, scripted: str) -> None:
    Ledger(
        script,
        decision(1, "Pending", "before"),
        decision(2, "Queued", "mine", details={"queue": "main"}),
        decision(3, "Queued", "other", details={"queue": "side"}),
        decision(4, "Admitted", "mine", attempt=1),
        decision(5, "Admitted", "other", attempt=1),
        QUOTA,
        decision(7, "Queued", "mine", details={"queue": "side"}),
        decision(8, "Pending", "mine"),
    )
    script.page("workloads", {"uid": "uid-before"})
    result = run("events", "--since", "0", "--queue", "main", "-n", "default", "--server", scripted)
    assert [line.split("job/")[1].split()[0] for line in result.stdout.splitlines()] == [
        "before",
        "mine",
        "mine",
    ]
    assert all(query.get("namespace") == "default" for _, query in script.asked)


def test_each_event_is_one_yaml_document(run: Run, script: Script, scripted: str) -> None:
    Ledger(script, *LIFE)
    text = run("events", "--since", "0", "--server", scripted, "-o", "yaml").stdout
    assert list(yaml.safe_load_all(text)) == LIFE


def test_text_of_a_cluster_cannot_move_the_cursor_of_the_terminal(
    run: Run, script: Script, scripted: str
) -> None:
    evil = {"code": "Misconfigured", "message": "a\x1b[2J\r\nb", "by": None}
    Ledger(script, decision(1, "Pending", "x", reason=evil))
    text = run("events", "--since", "0", "--server", scripted).stdout
    assert "a\\x1b[2J\\r\\nb" in text
    assert text.count("\n") == 1


# --- following, in a separate process -----------------------------------------------------------------


@contextmanager
def follow(url: str, *flags: str, **streams: Any) -> Iterator[subprocess.Popen[str]]:
    program = [sys.executable, "-u", "-m", "queuectl", "events", "-f", "--server", url, *flags]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    with subprocess.Popen(program, text=True, **streams) as process, ended_in_time(process):
        yield process


def one_of(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def test_followed_events_are_printed_as_they_are_committed_and_an_interrupt_prints_nothing(
    script: Script, scripted: str
) -> None:
    ledger = Ledger(script, *LIFE[:2])
    with follow(scripted, "--since", "0", "-o", "json") as process:
        assert json.loads(one_of(process.stdout))["sequence"] == 1
        assert json.loads(one_of(process.stdout))["sequence"] == 4
        ledger.rows.append(LIFE[2])
        assert json.loads(one_of(process.stdout))["sequence"] == 7
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
        assert (process.returncode, out, err) == (0, "", "")
    assert script.asked[-1][1]["wait"] == "10"


def test_followed_events_continue_when_the_server_is_back(script: Script, scripted: str) -> None:
    ledger = Ledger(script, *LIFE[:2])
    with follow(scripted, "--since", "1", "-o", "json") as process:
        assert json.loads(one_of(process.stdout))["sequence"] == 4
        script.say("decisions", {"detail": "restarting"}, status=503)
        assert "retrying" in one_of(process.stderr)
        ledger.rows.append(LIFE[2])
        script.answers["decisions"] = ledger.answer
        assert json.loads(one_of(process.stdout))["sequence"] == 7
        assert "answers again" in one_of(process.stderr)
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_SECONDS) == 0


def test_a_replaced_ledger_is_followed_from_its_end(script: Script, scripted: str) -> None:
    ledger = Ledger(script, *LIFE)
    with follow(scripted, "--since", "7", "-o", "json") as process:
        assert json.loads(one_of(process.stdout))["sequence"] == 9
        ledger.rows[:] = [LIFE[0]]
        assert "was replaced" in one_of(process.stderr)
        ledger.rows.append(LIFE[1])
        assert json.loads(one_of(process.stdout))["sequence"] == 4
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_SECONDS) == 0


def test_a_restored_ledger_is_followed_from_the_first_decision_after_the_backup(
    script: Script, scripted: str
) -> None:
    ledger = Ledger(script, *LIFE)
    with follow(scripted, "--since", "7", "-o", "json") as process:
        assert json.loads(one_of(process.stdout))["sequence"] == 9
        later = [{**decision(n, "Pending", name="other"), "epoch": 2} for n in range(5, 12)]
        ledger.rows[2:], ledger.epoch = later, 2
        found = [json.loads(one_of(process.stdout)) for _ in later]
        assert [(one["sequence"], one["epoch"]) for one in found] == [(n, 2) for n in range(5, 12)]
        told = one_of(process.stderr)
        assert told.startswith("the ledger was restored from a backup: decisions 5 to 9 were lost")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_SECONDS) == 0


def test_a_closed_pipe_ends_the_command_without_a_message(script: Script, scripted: str) -> None:
    ledger = Ledger(script, *LIFE)
    reading, writing = os.pipe()
    with follow(scripted, "--since", "0", stdout=writing) as process:
        os.close(writing)
        assert os.read(reading, 1)
        os.close(reading)
        ledger.rows.append(decision(11, "Queued"))
        assert process.wait(DEADLINE_SECONDS) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_server_that_never_answered_is_an_error(run: Run) -> None:
    result = run("events", "-f", "--server", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert "no answer" in result.stderr
