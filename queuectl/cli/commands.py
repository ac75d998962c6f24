"""The table of commands. A command's module is imported when the command runs or shows its help."""

from __future__ import annotations

from importlib import import_module
from keyword import iskeyword
from typing import Final

import click

from queuectl import __version__
from queuectl.cli import printing
from queuectl.cli.options import Options, common, given_first, with_options

_COMMANDS: Final = {
    "api": ("operating", "Serve queues, workloads and reasons over REST."),
    "completion": ("completion", "Print the completion script of bash, zsh or fish."),
    "controller": ("operating", "Run the controller: decide, record, act."),
    "events": ("following", "Show decisions as they are committed."),
    "explain": ("reading", "Explain why a workload is pending, and what would help."),
    "get": ("reading", "List queues, workloads or decisions, or show one."),
    "history": ("reading", "Show all decisions on a workload."),
    "hold": ("changing", "Keep a workload out of its queue."),
    "import": ("importing", "Convert manifests of Kueue."),
    "migrate": ("operating", "Create or update the ledger's tables."),
    "rebuild": ("operating", "Restore the open holds of a lost ledger from the cluster."),
    "release": ("changing", "Let a workload that is on hold queue again."),
    "report": ("report", "Report what an observer would have done."),
    "resume": ("changing", "Let a stopped queue admit again."),
    "sandbox": ("operating", "Run queuectl and all it needs on this machine."),
    "simulate": ("simulating", "Simulate workloads in virtual time, and measure."),
    "stop": ("changing", "Stop a queue."),
    "test": ("testing", "Run policy tests: compare decisions with expected ones."),
    "top": ("watching", "Watch queues, running and pending workloads, and reasons."),
    "verify": ("operating", "Compare the ledger with its own history."),
    "version": ("commands", "Print the version."),
    "webhook": ("operating", "Suspend labelled workloads at creation, before Kubernetes 1.36."),
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command = getattr(import_module(f"queuectl.cli.{_COMMANDS[cmd_name][0]}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # The common flags are accepted here too; the help of each command lists them.
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.command(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.option("-n", "--namespace")
@common
def main(**_: object) -> None:
    """Queues, quota and fair sharing for batch and training workloads on Kubernetes."""
    context = click.get_current_context()
    context.obj = given_first(context)


def kubectl() -> None:
    """The program `kubectl-queue`: the same commands as a kubectl plugin."""
    main(prog_name="kubectl queue")


@click.command("version")
@with_options
def version(options: Options) -> None:
    """Print the version."""
    if options.output == "table":
        click.echo(f"queuectl {__version__}")
    else:
        printing.document({"version": __version__}, options.output)
