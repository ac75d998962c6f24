"""docs/cli.md agrees with the output of the commands."""

from __future__ import annotations

import click

from queuectl.cli import main
from tests.cli.documented import PAGE, rendered


def test_the_page_shows_the_current_output_of_its_commands() -> None:
    text = PAGE.read_text()
    assert text == rendered(text), "run: python -m tests.cli.documented"


def test_the_page_has_every_command() -> None:
    text = PAGE.read_text()
    assert all(f"\n  {command} " in text for command in main.list_commands(click.Context(main)))
