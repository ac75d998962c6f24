"""docs/cli.md and docs/answers.md agree with the output of the commands."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from queuectl.cli import main
from tests.unit.cli.documented import PAGE, PAGES, rendered


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_shows_the_current_output_of_its_commands(page: Path) -> None:
    assert page.read_text() == rendered(page), "run: python -m tests.unit.cli.documented"


def test_the_page_has_every_command() -> None:
    text = PAGE.read_text()
    assert all(f"\n  {command} " in text for command in main.list_commands(click.Context(main)))


@pytest.mark.parametrize("page", ["from-slurm.md", "from-kueue.md", "troubleshooting.md"])
def test_each_command_that_a_page_names_exists_with_its_flags(page: str) -> None:
    text = (PAGE.parent / page).read_text()
    named = re.findall(r"(?:`|^|\| )queuectl ([a-z][^`\n|>]*)", text, re.MULTILINE)
    assert len(named) > 5
    for line in named:
        words = line.partition(" -- ")[0].split()
        command = main.get_command(click.Context(main), words[0])
        if isinstance(command, click.Group) and len(words) > 1:
            command = command.get_command(click.Context(command), words[1])
        assert command is not None, line
        flags = {
            flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)
        }
        assert {word for word in words if word.startswith("-") and len(word) > 1} <= flags, line
