"""docs/cli.md agrees with the output of the commands."""

from __future__ import annotations

import click

from queuectl.cli import main
from tests.cli.documented import PAGE, rendered


def test_the_page_shows_what_its_commands_print_today() -> None:
    text = PAGE.read_text()
    assert text == rendered(text), "run: python -m tests.cli.documented"


def test_no_command_is_left_out() -> None:
    text = PAGE.read_text()
    assert all(f"\n  {command} " in text for command in main.list_commands(click.Context(main)))
