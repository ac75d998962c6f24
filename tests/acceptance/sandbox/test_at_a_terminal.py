"""`queuectl sandbox` at a terminal: the screen starts and ends with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuectl.sandbox.endpoints import Endpoints
from tests.integration.ledger.places import reachable_folder
from tests.integration.sandbox.process_tree import descendants, running
from tests.unit.screen.terminal import Terminal, terminal

ALTERNATE, NORMAL = "\x1b[?1049h", "\x1b[?1049l"


@pytest.fixture
def folder() -> Iterator[Path]:
    with reachable_folder() as found:
        yield found / "data"


def up(shown: Terminal) -> str:
    """The first frame with the tables; the start is slow on a slow machine."""
    return shown.until(lambda text: "Decisions" in text and "stop" in text, "the screen", seconds=120)


def test_the_screen_shows_the_example_with_commands_to_try_and_q_stops_all_parts(folder: Path) -> None:
    with terminal(["sandbox", "--data", str(folder)]) as shown:
        before = shown.settings()
        up(shown)
        shown.until(
            lambda text: "team-a/job/train-resnet" in text and "ExceedsMaxQuota" in text, "the example"
        )
        endpoints = Endpoints.read(folder)
        assert endpoints is not None
        assert endpoints.rest in [line.strip() for line in shown.frame.splitlines()]
        shown.send("?")
        shown.until(lambda text: f"explain job/too-large -n team-a --server {endpoints.rest}" in text, "help")
        children = descendants(shown.process.pid)
        assert len(running(children)) > 3
        shown.send("xq")
        assert shown.ended() == 0
        assert shown.settings() == before
        assert not running(children)
        greeting, screen = shown.output.split(ALTERNATE)
        assert greeting.startswith(
            f"starting Postgres, the Kubernetes API and queuectl, with data in {folder}"
        )
        assert "queuectl sandbox is up after" in greeting
        assert "first admission" in screen.split(NORMAL)[1], "lines of the meantime are printed afterwards"


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (b"\0queuectl\0api\0", "Error: queuectl api ended (signal 9)"),
        (b"\0queuectl\0controller\0", "Error: queuectl controller ended (signal 9)"),
        (b"/postgres\0-D\0", "Error: Postgres has ended, see "),
    ],
    ids=["api", "controller", "postgres"],
)
def test_a_part_that_ends_closes_the_screen_and_is_then_reported(
    folder: Path, part: bytes, said: str
) -> None:
    with terminal(["sandbox", "--empty", "--data", str(folder)]) as shown:
        before = shown.settings()
        up(shown)
        one = next(
            pid for pid in descendants(shown.process.pid) if part in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        os.kill(one, signal.SIGKILL)
        assert shown.ended() == 1
        assert shown.settings() == before
        assert said in shown.output.split(NORMAL)[1]
