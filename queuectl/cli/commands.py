"""The table of commands. A command's module is imported when it is run or asked for help."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from queuectl import __version__
from queuectl.cli import printing
from queuectl.cli.options import Options, with_options

_COMMANDS: Final = {
    "api": ("operating", "Serve queues, workloads and their reasons over REST."),
    "controller": ("operating", "Decide, record and act."),
    "explain": ("reading", "Say why a workload waits, and what would help."),
    "get": ("reading", "List queues or workloads, or show one."),
    "migrate": ("operating", "Make the ledger's tables, or bring them up to date."),
    "rebuild": ("operating", "Make a lost ledger's open holds again from the cluster."),
    "sandbox": ("operating", "Run all of it on this machine."),
    "verify": ("operating", "Compare the ledger with its own history."),
    "version": ("commands", "Print the version."),
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(import_module(f"queuectl.cli.{_COMMANDS[cmd_name][0]}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.command(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
def main() -> None:
    """Queues, quota and fair share for batch and training work on Kubernetes."""


@click.command("version")
@with_options
def version(options: Options) -> None:
    """Print the version."""
    if options.output == "table":
        click.echo(f"queuectl {__version__}")
    else:
        printing.document({"version": __version__}, options.output)
