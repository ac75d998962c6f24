"""Each command of the table in docs/from-slurm.md, typed with the objects of a small cluster."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner

from queuectl.cli import main
from tests.unit.cli.documented import PAGE, place

_PAGE: Final = PAGE.parent / "from-slurm.md"
_ENDLESS: Final = {
    "top": "goes on until it is stopped (tests of the screen)",
    "wait": "goes on until the workload is over (test_waiting)",
    "--follow": "goes on until the workload is over (test_submitting)",
    "logs": "becomes kubectl (test_nodes_and_pods)",
    "exec": "becomes kubectl (test_nodes_and_pods)",
}
_FOR: Final = (
    ("clusterqueue/NAME", "clusterqueue/team-a"),
    ("--after job/NAME", "--after job/prepare"),
    ("job/NAME ...", "job/waits job/urgent"),
    ("job/NAME", "job/waits"),
    ("queuectl.dev/array=NAME", "!queuectl.dev/array"),
    ("--cohort NAME", "--cohort all"),
    ("share NAME", "share team-a"),
    ("--class CLASS", "--class high"),
    ("--to LOCALQUEUE", "--to research"),
    ("--pods N", "--pods 2"),
    ("QUEUE", "main"),
    ("IMAGE", "registry.example.com/train:1"),
)


def typed() -> list[str]:
    """Commands of the first table of the page, as they are written there."""
    table = _PAGE.read_text().partition("## Commands")[2].partition("## Nouns")[0]
    return list(re.findall(r"`queuectl ([^`]+)`", table))


def ends(line: str) -> bool:
    return not set(line.split()) & set(_ENDLESS)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder with the kubeconfig; job.yaml and script.sh are in the current one."""
    (tmp_path / "job.yaml").write_text((PAGE.parent / "examples" / "job.yaml").read_text())
    (tmp_path / "script.sh").write_text("#!/bin/bash\n#SBATCH --gpus=1 --time=30\npython train.py\n")
    monkeypatch.chdir(tmp_path)
    with place(past=True, nodes=True) as found:
        yield found


def test_the_table_names_many_commands_and_most_of_them_end() -> None:
    assert len(typed()) > 30
    assert len([line for line in typed() if not ends(line)]) == len(_ENDLESS)


@pytest.mark.parametrize("line", sorted({line for line in typed() if ends(line)}))
def test_a_command_of_the_table_works_as_it_is_written(folder: Path, line: str) -> None:
    for placeholder, value in _FOR:
        line = line.replace(placeholder, value)
    assert not re.search(r"\b[A-Z]{3,}\b", line), line
    words = shlex.split(line)
    command = main.get_command(click.Context(main), words[0])
    assert command is not None
    if any("--yes" in parameter.opts for parameter in command.params):
        words.insert(1, "--yes")
    flags = ["--kubeconfig", str(folder / "kubeconfig")]
    result = CliRunner().invoke(main, [*flags, *words], prog_name="queuectl")
    assert result.exit_code == 0, result.output
    assert result.stdout
