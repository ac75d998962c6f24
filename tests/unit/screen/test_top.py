"""`queuectl top` in terminals and pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.screen.documents import busy, page, waiting
from tests.unit.screen.server import Site, serving
from tests.unit.screen.terminal import Terminal, terminal

pytestmark = pytest.mark.acceptance

ALTERNATE, NORMAL, CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


@pytest.fixture
def site() -> Site:
    return Site(busy())


@pytest.fixture
def url(site: Site) -> Iterator[str]:
    with serving(site) as found:
        yield found


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a pipe."""
    return subprocess.run(
        [sys.executable, "-m", "queuectl", "top", *arguments],
        capture_output=True,
        text=True,
        timeout=45,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
    )


def left_as_found(shown: Terminal, before: list[Any]) -> None:
    assert shown.settings() == before
    assert shown.output.rindex(NORMAL) > shown.output.rindex(ALTERNATE)
    assert shown.output.rindex(CURSOR) > shown.output.rindex(ALTERNATE)


def test_keys_move_filter_explain_pause_and_leave_the_terminal_as_it_was(site: Site, url: str) -> None:
    site.details["workloads/team-a/Job/ablation"] = {
        **waiting("ablation", 2),
        "line": 2,
        "holders": [],
        "help": "a smaller request",
        "sequence": 7,
        "ageSeconds": 0.1,
    }
    with terminal(["top", "--server", url, "--interval", "0.2"]) as shown:
        before = shown.settings()
        shown.until(lambda text: "team-a/job/ablation" in text and "help" in text, "the first frame")
        assert shown.settings() != before
        shown.send("?")
        shown.until(lambda text: "what holds the missing quota" in text, "help")
        shown.send("x")
        shown.until(lambda text: "what holds the missing quota" not in text and "quit" in text, "the tables")
        shown.send("\x1b[B\r")
        shown.until(lambda text: "a smaller request" in text, "the explanation of the second row")
        shown.send("\x1b")
        shown.until(lambda text: "a smaller request" not in text and "quit" in text, "the tables again")
        shown.send("/team-b\r")
        text = shown.until(lambda text: "Queues 1 of 2" in text and "quit" in text, "one queue")
        assert "job/ablation" not in text.split("Decisions")[0]
        shown.send("p")
        shown.until(lambda text: "PAUSED" in text, "the pause")
        shown.send("q")
        assert shown.ended() == 0
        left_as_found(shown, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(url: str, number: signal.Signals) -> None:
    with terminal(["top", "--server", url]) as shown:
        before = shown.settings()
        shown.until(lambda text: "team-a/job/ablation" in text, "the first frame")
        if number is signal.SIGINT:
            shown.send("\x03")
        else:
            shown.process.send_signal(number)
        assert shown.ended() == 0
        left_as_found(shown, before)


def test_it_follows_the_size_of_the_terminal(url: str) -> None:
    with terminal(["top", "--server", url], width=120, height=40) as shown:
        wide = shown.until(lambda text: "ablation" in text and "quit" in text, "the first frame")
        assert "BORROWED" in wide
        shown.resize(80, 24)
        narrow = shown.until(
            lambda text: "BORROWED" not in text and "ablation" in text and text.count("\n") == 23, "80 x 24"
        )
        assert max(map(len, narrow.splitlines())) <= 80


def test_a_silent_server_and_a_stale_one_are_shown_and_the_last_answer_stays(site: Site, url: str) -> None:
    with terminal(["top", "--server", url, "--interval", "0.2"]) as shown:
        shown.until(lambda text: "ablation" in text, "the first frame")
        site.silent = True
        text = shown.until(lambda text: "NO ANSWER" in text and "ablation" in text, "that it is silent")
        site.answers = replace(site.answers, queues={**site.answers.queues, "stale": True, "ageSeconds": 70})
        site.silent = False
        shown.until(lambda text: "STALE: ledger not reachable" in text and "1m1" in text, "that it is stale")
        site.answers = replace(busy(), queues=page([{"name": 3}]))
        shown.until(lambda text: "NO ANSWER" in text and "ablation" in text, "that it talks nonsense")
        site.answers = busy()
        text = shown.until(lambda text: "decision 7" in text and "ablation" in text, "all well again")
        assert "NO ANSWER" not in text
        assert shown.process.poll() is None


def test_without_colours_the_bars_still_tell(url: str) -> None:
    with terminal(["top", "--server", url], NO_COLOR="1") as shown:
        text = shown.until(lambda text: "ablation" in text and "quit" in text, "the first frame")
        assert "▒" in text
        assert "\x1b[32m" not in shown.output
        assert "\x1b[35m" not in shown.output


def test_ctrl_z_gives_the_terminal_back_and_going_on_brings_the_screen(url: str) -> None:
    with terminal(["top", "--server", url]) as shown:
        before = shown.settings()
        shown.until(lambda text: "ablation" in text, "the first frame")
        shown.send("\x1a")
        _, status = os.waitpid(shown.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        shown.until(lambda _: NORMAL in shown.output, "the normal screen")
        left_as_found(shown, before)
        shown.process.send_signal(signal.SIGCONT)
        shown.until(
            lambda _: shown.output.rindex(ALTERNATE) > shown.output.rindex(NORMAL), "the screen again"
        )
        shown.until(lambda text: "ablation" in text, "a frame")
        shown.send("q")
        assert shown.ended() == 0
        left_as_found(shown, before)


def test_in_a_pipe_once_is_one_frame_with_whole_reasons_and_no_colours(url: str) -> None:
    done = run("--server", url, "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "nominalQuota of ClusterQueue/team-a" in done.stdout
    assert done.stdout.count("Decisions") == 1
    one = run("--server", url, "--once", "--queue", "team-b")
    assert "team-a/job/ablation" not in one.stdout
    assert "Queues 1 of 2" in one.stdout


def test_once_as_json_is_one_document_of_what_rest_says(url: str) -> None:
    done = run("--server", url, "--once", "-o", "json", "--queue", "team-a")
    found = json.loads(done.stdout)
    assert [item["name"] for item in found["waiting"]] == ["ablation", "too-large"]
    assert found["waiting"][0]["reason"]["shortBy"] == 3
    assert [item["name"] for item in found["clusterQueues"]] == ["team-a"]
    assert found["stale"] is False
    assert len(found["decisions"]) == 7


def test_an_error_at_the_start_is_reported_in_full(site: Site, url: str) -> None:
    with terminal(["top", "--server", "http://127.0.0.1:1"]) as shown:
        assert shown.ended() == 2
        assert ALTERNATE not in shown.output
        assert "no answer from http://127.0.0.1:1" in shown.output
    site.answers = replace(busy(), queues=page([{"name": 3}]))
    done = run("--server", url, "--once")
    assert done.returncode == 2
    assert "not an answer of queuectl's REST server" in done.stderr
    site.silent = True
    assert run("--server", url, "--once", "-o", "json").returncode == 2
