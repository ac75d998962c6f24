"""Tables: amounts, ages, bars, colours."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from datetime import UTC, datetime

import pytest

from queuectl.cli import printing
from tests.builders import GPU
from tests.unit.cli.servers import DEADLINE_SECONDS, Script
from tests.unit.cli.test_following import decision
from tests.unit.cli.test_listing import cohort, quota, workload

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        ("memory", 64 << 30, "64Gi"),
        ("memory", (64 << 30) + 1, "64.0Gi"),
        ("memory", 1536 << 20, "1536Mi"),
        ("memory", 1_000_000_007, "953.7Mi"),
        ("memory", 1023, "1023"),
        ("memory", -(3 << 30), "-3Gi"),
        ("ephemeral-storage", (1 << 63) - 1, "8.0Ei"),
        ("cpu", 1500, "1500m"),
        ("cpu", 4000, "4"),
        ("nvidia.com/gpu", 123_456_789, "123456789"),
        (None, 3, "-"),
        ("cpu", None, "-"),
    ],
)
def test_amounts_are_short(resource: str | None, value: int | None, text: str) -> None:
    assert printing.amount(resource, value) == text


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Los_Angeles"])
def test_the_last_and_the_first_time_are_shown_in_each_zone(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert printing.local("9999-12-31T23:59:59.999999Z").startswith("9999-12-31 ")
        assert printing.local("0001-01-01T00:00:00Z").startswith("1-01-01 00:")
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("stamp", "text"),
    [
        ("2026-01-05T11:59:15Z", "45s"),
        ("2026-01-05T11:48:00Z", "12m"),
        ("2026-01-05T09:00:00Z", "3h"),
        ("2025-12-31T12:00:00Z", "5d"),
        ("2026-01-05T12:00:09Z", "0s"),
        (None, "-"),
    ],
)
def test_ages_are_those_of_kubectl(stamp: str | None, text: str) -> None:
    assert printing.ago(stamp, NOW) == text


@pytest.mark.parametrize(
    ("used", "whole", "full"),
    [(0, 8, 0), (1, 8000, 1), (4, 8, 5), (8, 8, 10), (9, 8, 10), (0, 0, 0), (1, 0, 10)],
)
def test_bars_are_filled_by_usage(used: int, whole: int, full: int) -> None:
    bar = printing.bar(used, whole)
    assert len(bar) == printing.BAR
    assert bar.count("█") + bar.count("#") == full


def in_a_terminal(url: str, *line: str, width: int = 120, **environment: str) -> str:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    inherited = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    with subprocess.Popen(
        [sys.executable, "-m", "queuectl", *(line or ("get", "cohorts")), "--server", url],
        stdout=follower,
        env={**inherited, "TERM": "xterm-256color", "PYTHONUTF8": "1", **environment},
    ) as process:
        os.close(follower)
        text = b""
        with contextlib.suppress(OSError):  # a terminal's file descriptor
            while part := os.read(leader, 4096):
                text += part
        os.close(leader)
        assert process.wait(DEADLINE_SECONDS) == 0
    return text.decode()


def test_a_terminal_has_bars_and_colours_unless_no_color_is_set(script: Script, scripted: str) -> None:
    script.page("cohorts", cohort("all", flavors=[quota(4, 8), quota(9, 8, "spot")]))
    coloured = in_a_terminal(scripted)
    assert "\x1b[32m█████░░░░░" in coloured
    assert "\x1b[31m██████████" in coloured
    plain = in_a_terminal(scripted, NO_COLOR="1")
    assert "█████░░░░░ 4/8 nvidia.com/gpu of a100" in plain
    assert "\x1b[3" not in plain
    assert "#####..... 4/8" in in_a_terminal(scripted, NO_COLOR="1", PYTHONUTF8="0", PYTHONIOENCODING="ascii")


def test_an_explanation_is_wrapped_with_an_indent(server: str) -> None:
    text = in_a_terminal(server, "explain", "job/waits", "-n", "default", width=60, NO_COLOR="1")
    lines = text.partition("History")[0].splitlines()
    assert max(map(len, lines[1:])) <= 60
    start = next(n for n, line in enumerate(lines) if line.startswith("Reason      WaitingForQuota: "))
    assert lines[start + 1].startswith(" " * 12)
    assert lines[start + 1][12] != " "


NAMES = ("fine-tuning-of-a-large-model-17", "train")
WAITS = {
    "code": "WaitingForQuota",
    "message": "WaitingForQuota: requests 6 nvidia.com/gpu in flavor a100, 2 available, short by 4 "
    "(bound by nominalQuota of ClusterQueue/team-a)",
}


def table_lines(text: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r", "").splitlines()


@pytest.mark.acceptance
@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("resource", ["workloads", "clusterqueues", "decisions"])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(
    script: Script, scripted: str, resource: str, width: int
) -> None:
    script.page("workloads", *(workload(name, reason=WAITS, position=n) for n, name in enumerate(NAMES, 1)))
    queue = {**cohort("team-a"), "cohort": "research", "queueingStrategy": "StrictFIFO", "stopPolicy": "None"}
    cells = [quota(4, 8), quota(64 << 30, 100 << 30, "a100", "memory")]
    missing = {"reason": "FlavorNotFound", "message": "ResourceFlavor not found: h100, spot-of-another-zone"}
    script.page("clusterqueues", {**queue, "flavors": cells, "active": False, "condition": missing})
    script.page("decisions", decision(7, "Evicted", NAMES[1], attempt=1, reason=WAITS))
    text = in_a_terminal(scripted, "get", resource, width=width)
    lines = table_lines(text)
    assert max(map(len, lines)) <= width
    whole = " ".join(lines).split()
    expected = {
        "workloads": {80: "Pending", 200: WAITS["message"]}.get(width, WAITS["code"]),
        "clusterqueues": missing["message"],
        "decisions": WAITS["message"],
    }
    assert all(word in whole for word in expected[resource].split())
    if resource == "workloads":
        assert all(f"job/{name}" in whole for name in NAMES)


def test_preemptions_fit_a_terminal_with_losses_below_an_hour_in_minutes(
    script: Script, scripted: str
) -> None:
    victim = {"node": "ClusterQueue/team-a", "before": 112, "after": None}
    item = {
        "time": "2026-01-05T10:00:00Z",
        **{"namespace": "team-a", "kind": "Job", "name": "sweep-1", "by": "team-c/Job/eval-nightly"},
        **{"attempt": 1, "clusterQueue": "team-a", "cause": "InCohortReclamation", "ranSeconds": 24},
        "lost": {"cpu": 4000 * 24, "memory": (16 << 30) * 7200, GPU: 48},
        "shares": {"victim": victim, "preemptor": {**victim, "node": None, "before": 0, "after": 56}},
    }
    script.page("preemptions", item)
    lines = table_lines(in_a_terminal(scripted, "preemptions", width=80))
    assert max(map(len, lines)) <= 80
    assert "0.8 gpu minutes" in "\n".join(lines)
    wide = "\n".join(table_lines(in_a_terminal(scripted, "preemptions", "-o", "wide", width=220)))
    assert all(text in wide for text in ("1.6 cpu minutes", "32.0Gi memory hours"))
    assert all(text in wide for text in ("team-a 11.2% > infinite", "not shown to you 0% > 5.6%"))


def test_a_narrow_terminal_shows_which_columns_are_left_out(script: Script, scripted: str) -> None:
    script.page("workloads", workload(NAMES[0], reason=WAITS))
    text = in_a_terminal(scripted, "get", "wl", width=60)
    assert "QUEUE" not in text
    wide = table_lines(in_a_terminal(scripted, "get", "wl", "-o", "wide", width=60))
    assert {"QUEUE", "CLUSTERQUEUE", "USER"} <= set(" ".join(wide).split())


def test_bars_are_left_out_before_columns_are(script: Script, scripted: str) -> None:
    script.page("cohorts", cohort("all", flavors=[quota(4, 8)]))
    assert "█" in in_a_terminal(scripted, width=100)
    narrow = in_a_terminal(scripted, width=76)
    assert "█" not in narrow
    assert "4/8 nvidia.com/gpu of a100" in narrow
    assert "PENDING" in narrow
