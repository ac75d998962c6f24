"""`notifications` and `notifier`: what they print, and what they say when nothing can be sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from queuectl.app import notifier as notifying
from queuectl.notifications.delivery import SinkFailed
from queuectl.settings import Settings
from tests.unit.cli.conftest import Run

URL = "postgresql://queuectl@db/queuectl"
ITEMS: list[dict[str, Any]] = [
    {
        "name": "team",
        "kind": "slack",
        "sequence": 120,
        "behind": 3,
        "sentAt": "2026-01-05T10:00:00Z",
        "error": "answers 503",
        "nextTry": "2026-01-05T10:05:00Z",
        "sent": 7,
        "failures": 2,
    },
    {
        "name": "new",
        "kind": "mail",
        "sequence": None,
        "behind": None,
        "sentAt": None,
        "error": None,
        "nextTry": None,
        "sent": 0,
        "failures": 0,
    },
    {
        "name": "removed",
        "kind": None,
        "sequence": 5,
        "behind": 118,
        "sentAt": None,
        "error": "no\x1bescape",
        "nextTry": None,
        "sent": 0,
        "failures": 0,
    },
]
STATUS: dict[str, Any] = {"cluster": "c", "sequence": 123, "items": ITEMS}


@pytest.fixture
def told(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    async def status(settings: Settings) -> dict[str, Any]:
        assert settings.database_url == URL
        return STATUS

    async def test(settings: Settings, name: str) -> None:
        if name == "down":
            raise SinkFailed("answers 503")
        if name != "team":
            raise notifying.NoSuchSink(name, ["team", "down"])

    monkeypatch.setattr(notifying, "status", status)
    monkeypatch.setattr(notifying, "test", test)
    monkeypatch.setenv("TZ", "UTC")
    return lambda *arguments: run(*arguments, "--database-url", URL)


def test_each_sink_has_a_line_with_its_cursor_and_its_last_failure(told: Run) -> None:
    result = told("notifications")
    assert result.exit_code == 0, result.stderr
    _, team, new, removed = result.stdout.splitlines()
    assert team.split()[:5] == ["team", "slack", "120", "3", "7"]
    assert team.endswith("answers 503")
    assert new.split() == ["new", "mail", "-", "-", "0", "-", "0", "-", "-"]
    assert "not configured" in removed
    assert "\x1b" not in removed


def test_the_state_of_the_sinks_reads_as_json(told: Run) -> None:
    assert json.loads(told("notifications", "-o", "json").stdout) == STATUS


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("team", 0, "sink team accepted the message"),
        ("down", 1, "sink down does not accept the message: answers 503"),
        ("taem", 1, "there is no sink 'taem': did you mean team?\nThere are: team, down"),
    ],
)
def test_a_test_message_is_accepted_or_the_problem_is_shown(
    told: Run, name: str, code: int, said: str
) -> None:
    result = told("notifications", "--test", name)
    assert result.exit_code == code
    assert said in result.output


def test_the_notifier_does_not_start_without_a_sink(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("notifications: []\n")
    result = run("notifier", "--config", str(config), "--database-url", URL)
    assert result.exit_code == 2
    assert "notifications: none is configured" in result.stderr


@pytest.mark.parametrize("command", ["notifier", "notifications"])
def test_without_a_database_the_ways_to_set_one_are_listed(run: Run, command: str) -> None:
    result = run(command)
    assert result.exit_code == 2
    assert "--database-url" in result.stderr
