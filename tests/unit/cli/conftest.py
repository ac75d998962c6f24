from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from click.testing import CliRunner, Result

from queuectl.cli import main
from tests.unit.api.canned import CannedReadings, two_teams
from tests.unit.cli.servers import Script, answering, rest


class Run(Protocol):
    def __call__(self, *arguments: str) -> Result: ...


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line in an environment without any configuration."""
    for name in ("SERVER", "SERVER_CA", "TOKEN", "DATABASE_URL"):
        monkeypatch.delenv(f"QUEUECTL_{name}", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("QUEUECTL_DATA", str(tmp_path / "none"))

    def invoke(*arguments: str) -> Result:
        result = CliRunner().invoke(main, arguments, prog_name="queuectl")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@pytest.fixture
def readings() -> CannedReadings:
    return two_teams()


@pytest.fixture
def server(readings: CannedReadings) -> Iterator[str]:
    with rest(readings) as url:
        yield url


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def scripted(script: Script) -> Iterator[str]:
    """Base URL of the server that answers with `script`."""
    with answering(script.answer) as url:
        yield url
