"""Commands that run or repair an installation: their calls of the application, and their error messages."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner

import queuectl.app
from queuectl.cli import main
from queuectl.kube.errors import BadKubeconfig, Forbidden
from queuectl.ports.cluster import ClusterUnavailable
from queuectl.ports.ledger import LedgerUnavailable, LostLeadership, SchemaMismatch
from queuectl.sandbox.run import SandboxOptions
from queuectl.settings import ConfigurationError
from tests.unit.cli.conftest import Run

URL = "postgresql://queuectl@db/queuectl"


class App(ModuleType):
    """Replaces queuectl.app: records its calls, and ends with the configured result."""

    def __init__(self) -> None:
        super().__init__("queuectl.app")
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.result: object = None
        self.error: BaseException | None = None
        for name in ("run_controller", "run_api", "run_sandbox", "migrate", "verify", "rebuild", "compare"):
            setattr(self, name, self._function(name))

    def _function(self, name: str) -> Callable[..., Any]:
        async def call(*arguments: Any, **named: Any) -> object:
            self.calls.append((name, (*arguments, *named.items())))
            if self.error is not None:
                raise self.error
            return self.result

        return call


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> App:
    found = App()
    for name in ("controller", "api", "upkeep", "sandbox"):
        monkeypatch.setitem(sys.modules, f"queuectl.app.{name}", found)
        monkeypatch.setattr(queuectl.app, name, found, raising=False)
    return found


def test_the_controller_gets_settings_kubeconfig_and_context(run: Run, app: App, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("controller: {budget: 7}")
    result = run(
        "controller", "--config", str(config), "--kubeconfig", "k", "--context", "c", "--database-url", URL
    )
    assert result.exit_code == 0, result.output
    ((name, (settings, kubeconfig, context)),) = app.calls
    assert (name, kubeconfig, context) == ("run_controller", Path("k"), "c")
    assert (settings.controller.budget, settings.database_url) == (7, URL)


@pytest.mark.parametrize("command", ["controller", "api", "migrate", "verify", "rebuild"])
def test_without_a_database_nothing_starts_and_the_ways_to_set_one_are_listed(
    run: Run, app: App, command: str
) -> None:
    result = run(command)
    assert result.exit_code == 2
    assert "--database-url" in result.stderr
    assert app.calls == []


def test_database_and_cluster_of_the_sandbox_are_used_together_or_not_at_all(
    run: Run, app: App, tmp_path: Path
) -> None:
    (tmp_path / "endpoints.json").write_text(json.dumps({"postgres": "postgresql://sandbox/q"}))
    assert run("rebuild", "--data", str(tmp_path)).exit_code == 0
    ((_, (settings, kubeconfig, context)),) = app.calls
    assert settings.database_url == "postgresql://sandbox/q"
    assert (kubeconfig, context) == (tmp_path / "kubeconfig", "controller")

    result = run("rebuild", "--data", str(tmp_path), "--kubeconfig", "production")
    assert result.exit_code == 2
    assert "kubeconfig" in result.stderr

    assert run("rebuild", "--data", str(tmp_path), "--database-url", URL).exit_code == 0
    assert app.calls[-1][1][1:] == (None, None)


@pytest.mark.parametrize("command", ["controller", "api", "migrate", "verify", "rebuild"])
def test_an_invalid_configuration_starts_nothing(run: Run, app: App, tmp_path: Path, command: str) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("controller: {budget: 0}\napi: {listen: '0.0.0.0'}\n")
    result = run(command, "--config", str(config), "--database-url", URL)
    assert result.exit_code == 2
    assert "controller.budget" in result.stderr
    assert "api.listen" in result.stderr
    assert app.calls == []


@dataclass(frozen=True)
class Finding:
    place: str
    amount: int


def test_verify_exits_1_when_it_finds_something(run: Run, app: App) -> None:
    assert run("verify", "--database-url", URL).exit_code == 0
    app.result = [Finding("hold 7", 3), Finding("hold\x1b8", 4)]
    result = run("verify", "--database-url", URL)
    assert result.exit_code == 1
    assert "hold 7" in result.stdout
    assert "\x1b" not in result.stdout
    assert "2 differences" in result.stderr
    result = run("verify", "--database-url", URL, "-o", "json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["findings"][0] == {"place": "hold 7", "amount": 3}


def test_verify_compares_with_the_cluster_where_it_is_asked_to(run: Run, app: App) -> None:
    assert run("verify", "--database-url", URL).exit_code == 0
    assert [name for name, _ in app.calls] == ["verify"]
    given = ("verify", "--database-url", URL, "--cluster", "--kubeconfig", "there", "--context", "admin")
    clean = run(*given)
    assert (clean.exit_code, clean.stdout) == (
        0,
        "clean: the ledger agrees with its history and with the cluster\n",
    )
    name, (_, kubeconfig, context) = app.calls[-1]
    assert (name, kubeconfig, context) == ("compare", Path("there"), "admin")
    app.result = [Finding("ns/Job/a", 3)]
    found = run(*given)
    assert found.exit_code == 1
    assert found.stdout.count("ns/Job/a") == 2


def test_verify_reads_all_history_unless_it_is_told_to_begin_at_the_checkpoint(run: Run, app: App) -> None:
    assert run("verify", "--database-url", URL).exit_code == 0
    assert run("verify", "--database-url", URL, "--from-checkpoint").exit_code == 0
    assert [arguments[-1] for _, arguments in app.calls] == [
        ("from_checkpoint", False),
        ("from_checkpoint", True),
    ]


@pytest.fixture(autouse=True)
def _no_findings(app: App) -> None:
    app.result = []


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (SchemaMismatch("no ledger in it: run `queuectl migrate`"), 2, "queuectl migrate"),
        (LedgerUnavailable("connection refused"), 2, "--database-url"),
        (ClusterUnavailable("timed out"), 2, "--kubeconfig"),
        (Forbidden("GET /api/v1/namespaces/kube-system: 403 no", status=403), 2, "--context"),
        (BadKubeconfig("kubeconfig /none: no such file"), 2, "kubeconfig /none"),
        (ConfigurationError("database.url: bad"), 2, "database.url: bad"),
        (OSError(98, "address in use"), 2, "address in use"),
        (LostLeadership("epoch 4"), 1, "another controller"),
        (ExceptionGroup("tasks", [ExceptionGroup("", [LostLeadership("epoch 5")])]), 1, "epoch 5"),
    ],
)
def test_failures_say_what_to_do_next(run: Run, app: App, error: Exception, code: int, told: str) -> None:
    app.error = error
    result = run("controller", "--database-url", URL)
    assert result.exit_code == code
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_a_schema_newer_than_the_program_is_not_answered_with_migrate(run: Run, app: App) -> None:
    app.error = SchemaMismatch("the ledger's schema 0999 is newer than this program: run a newer queuectl")
    result = run("controller", "--database-url", URL)
    assert result.exit_code == 2
    assert "run a newer queuectl" in result.stderr
    assert "migrate" not in result.stderr


@pytest.mark.parametrize("error", [KeyError("x"), ExceptionGroup("", [OSError("a"), KeyError("x")])])
def test_a_defect_shows_its_traceback(app: App, error: Exception) -> None:
    app.error = error
    result = CliRunner().invoke(main, ["api", "--database-url", URL])
    assert result.exception is error


def test_the_sandbox_gets_its_flags_and_its_exit_code_is_returned(run: Run, app: App, tmp_path: Path) -> None:
    app.result = 0
    flags = ("--empty", "--headless", "--control-plane", "real", "--no-controller", "--rest-port", "8080")
    assert run("sandbox", "--data", str(tmp_path), *flags).exit_code == 0
    ((_, (wanted, _)),) = app.calls
    assert wanted == SandboxOptions(
        data=tmp_path, empty=True, headless=True, control_plane="real", controller=False, rest_port=8080
    )
    app.result = 1
    assert run("sandbox").exit_code == 1


def test_the_sandbox_makes_nodes_in_place_of_the_example(run: Run, app: App, tmp_path: Path) -> None:
    app.result = 0
    assert run("sandbox", "--data", str(tmp_path), "--nodes", "3x8").exit_code == 0
    ((_, (wanted, _)),) = app.calls
    assert wanted == SandboxOptions(data=tmp_path, empty=True, nodes=(3, 8))
    for text in ("3", "0x8", "3x", "3x8x", "1000x1", "-3x8"):
        result = run("sandbox", "--nodes", text)
        assert result.exit_code == 2
        assert "is not N nodes with G GPUs, as 3x8: N from 1 to 999, G from 0 to 999" in result.stderr


def test_every_command_takes_the_common_flags_after_its_name(run: Run) -> None:
    context = click.Context(main)
    for command in main.list_commands(context):
        if command == "help":
            continue  # it is about queuectl alone
        found = main.get_command(context, command)
        below = list(found.commands) if isinstance(found, click.Group) else []
        text = run(command, *below[:1], "--help").stdout
        for flag in ("--config", "--kubeconfig", "--context", "--database-url", "--data", "--server", "-o,"):
            assert flag in text, (command, flag)


@pytest.mark.parametrize(
    "line",
    ["nonsense", "get", "get pods", "version -o xml", "--bogus", "sandbox --rest-port 70000", "explain"],
)
def test_usage_errors_exit_2(run: Run, line: str) -> None:
    assert run(*line.split()).exit_code == 2


def test_version_prints_the_version(run: Run) -> None:
    assert run("version").stdout == f"queuectl {queuectl.__version__}\n"
    assert json.loads(run("version", "-o", "json").stdout) == {"version": queuectl.__version__}
