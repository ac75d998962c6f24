"""Completion in shells and in kubectl, and the CLI as a kubectl plugin."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Protocol

import pytest
from click.shell_completion import get_completion_class

import queuectl
from queuectl.cli import main
from queuectl.sandbox.control_plane import find_assets
from tests.unit.cli.clusters import kubeconfig
from tests.unit.cli.conftest import Run
from tests.unit.cli.servers import DEADLINE_SECONDS, Script
from tests.unit.cli.test_listing import workload


class Words(Protocol):
    def __call__(self, url: str | None, *line: str) -> list[str]: ...


@pytest.fixture(autouse=True)
def _names(script: Script) -> None:
    script.page("workloads", workload("train"), workload("test", kind="PyTorchJob"), workload("train-2"))
    script.page("clusterqueues", {"name": "team-a"}, {"name": "team-b"})
    script.page("localqueues", {"name": "main", "namespace": "ml"}, {"name": "main", "namespace": "web"})


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Words:
    """The completions of bash for the last word of a line, with a server at this URL."""
    monkeypatch.setenv("QUEUECTL_DATA", "/none")

    def offered(url: str | None, *line: str) -> list[str]:
        monkeypatch.delenv("QUEUECTL_SERVER", raising=False)
        if url is not None:
            monkeypatch.setenv("QUEUECTL_SERVER", url)
        shell = get_completion_class("bash")
        assert shell is not None
        found = shell(main, {}, "queuectl", "").get_completions(list(line[:-1]), line[-1])
        return [item.value for item in found]

    return offered


def test_a_shell_requests_completion_by_an_environment_variable(scripted: str) -> None:
    asked = {"COMP_WORDS": "queuectl explain job/train-", "COMP_CWORD": "2", "QUEUECTL_SERVER": scripted}
    found = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'queuectl'; from queuectl.cli import main; main()"],
        env={**os.environ, **asked, "_QUEUECTL_COMPLETE": "bash_complete"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=True,
    )
    assert (found.stdout, found.stderr) == ("plain,job/train-2\n", "")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ho", ["hold"]),
        ("get c", ["clusterqueues", "cohorts"]),
        ("get clusterqueues team-", ["team-a", "team-b"]),
        ("explain ", ["job/train", "job/train-2", "pytorchjob/test"]),
        ("hold job/train-", ["job/train-2"]),
        ("stop ", ["clusterqueue/team-a", "clusterqueue/team-b", "localqueue/main"]),
        ("get pytorchjob t", ["test", "train", "train-2"]),
        ("explain job/x -n w", ["web"]),
        ("get wl --cluster-queue team-b", ["team-b"]),
        ("completion f", ["fish"]),
    ],
)
def test_commands_kinds_names_and_namespaces_are_offered(
    words: Words, scripted: str, line: str, offered: list[str]
) -> None:
    assert words(scripted, *line.split(" ")) == offered


def test_names_are_completed_from_the_given_namespace(words: Words, script: Script, scripted: str) -> None:
    words(scripted, "explain", "-n", "ml", "j")
    assert script.asked == [("workloads", {"namespace": "ml", "limit": "1000"})]


def test_without_a_server_there_are_no_completions_and_no_message(
    words: Words, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert words(None, "explain", "") == []
    assert words("http://127.0.0.1:9", "explain", "") == []
    assert words("nonsense", "explain", "") == []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        before = time.monotonic()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert words(url, "explain", "") == []
        # A cluster that does not answer.
        assert words(None, "--kubeconfig", str(kubeconfig(tmp_path, url)), "explain", "") == []
        assert time.monotonic() - before < DEADLINE_SECONDS / 2
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_it_can_parse(run: Run, shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert f"_QUEUECTL_COMPLETE={shell}_complete" in result.stdout
    if (program := shutil.which(shell)) is not None:
        subprocess.run([program, "-n", "/dev/stdin"], input=result.stdout, text=True, timeout=20, check=True)


def test_another_shell_is_a_usage_error(run: Run) -> None:
    assert run("completion", "tcsh").exit_code == 2


# --- kubectl ------------------------------------------------------------------------------------------


@pytest.fixture
def plugins(tmp_path: Path) -> str:
    """A folder with the programs of pyproject.toml."""
    folder = tmp_path / "bin"
    folder.mkdir()
    project = Path(queuectl.__file__).parent.parent / "pyproject.toml"
    for name, entry in tomllib.loads(project.read_text())["project"]["scripts"].items():
        module, _, function = entry.partition(":")
        assert callable(getattr(import_module(module), function))
        program = folder / name
        # After `#!` the path of an interpreter ends at its first space: a shell starts it, as pip does.
        start = f"#!/bin/sh\n'''exec' {shlex.quote(sys.executable)} \"$0\" \"$@\"\n' '''\n"
        program.write_text(f"{start}from {module} import {function}\n{function}()\n")
        program.chmod(0o755)
    return str(folder)


def test_kubectl_queue_is_the_same_command_with_its_own_name(plugins: str, scripted: str) -> None:
    found = subprocess.run(
        [f"{plugins}/kubectl-queue", "get", "wl", "-n", "default", "--context", "c", "--server", scripted],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=True,
    )
    assert "job/train" in found.stdout
    told = subprocess.run(
        [f"{plugins}/kubectl-queue", "get", "--help"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=True,
    )
    assert told.stdout.startswith("Usage: kubectl queue get ")


def test_kubectl_gets_completions_and_the_directive_without_files(plugins: str, scripted: str) -> None:
    def offered(*line: str) -> list[str]:
        found = subprocess.run(
            [f"{plugins}/kubectl_complete-queue", *line],
            env={**os.environ, "QUEUECTL_SERVER": scripted},
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=True,
        )
        return found.stdout.splitlines()

    assert offered("explain", "job/train-") == ["job/train-2", ":4"]
    command, directive = offered("hol")
    assert command.startswith("hold\tKeep workloads out of their queue")
    assert directive == ":4"


@pytest.mark.acceptance
def test_the_real_kubectl_finds_the_plugin_and_its_completions(plugins: str, scripted: str) -> None:
    assets = find_assets()
    if assets is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: there is no kubectl to type")
    environment = {**os.environ, "PATH": f"{plugins}:{os.environ['PATH']}", "QUEUECTL_SERVER": scripted}

    def kubectl(*line: str) -> str:
        found = subprocess.run(
            [assets / "kubectl", *line],
            env=environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=True,
        )
        return found.stdout

    assert "job/train-2" in kubectl("queue", "get", "wl", "-n", "default")
    assert "job/train-2" in kubectl("__complete", "queue", "explain", "job/train-").splitlines()
