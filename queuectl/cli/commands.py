"""The table of commands. A command's module is imported when the command runs or shows its help."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

import click

from queuectl import __version__
from queuectl.cli import printing
from queuectl.cli.arguments import meant
from queuectl.cli.options import Options, command, common, given_first, with_options

_GROUPS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "Workloads": {
        "submit": ("submitting", "Create workloads in a queue."),
        "get": ("reading", "List queues, workloads, nodes or decisions, or show one."),
        "quote": ("planning", "Tell whether a workload would start, before it is created."),
        "explain": ("reading", "Explain why a workload is pending, and what would help."),
        "history": ("reading", "Show all decisions on a workload."),
        "waited": ("answers", "Show where the wait of a workload went."),
        "eta": ("answers", "Show when a pending workload starts, as far as the past tells."),
        "preemptions": ("preemptions", "Show what was preempted, for what, and what may be."),
        "logs": ("pods", "Print the output of the pods of a workload."),
        "exec": ("pods", "Run a command in a pod of a workload."),
        "wait": ("waiting", "Wait until a workload has started or is finished."),
        "hold": ("changing", "Keep workloads out of their queue."),
        "release": ("changing", "Let workloads that are on hold queue again."),
        "force-release": ("changing", "Release the quota of an evicted workload although pods exist."),
        "fit": ("fitting", "Change the pods or GPUs of a workload that waits; it keeps its place."),
        "move": ("changing", "Move workloads that wait to another LocalQueue."),
        "priority": ("changing", "Change the priority class of workloads."),
        "cancel": ("submitting", "Delete workloads that are pending or run."),
    },
    "Live views": {
        "top": ("watching", "Watch queues, running and pending workloads, and reasons."),
        "events": ("following", "Show decisions as they are committed."),
    },
    "Queues and their policy": {
        "info": ("nodes", "Show nodes by flavor, or one: used, unmanaged and free."),
        "share": ("answers", "Show what a queue is guaranteed, uses, borrows and lends."),
        "statement": ("statement", "Show what months cost, close a month, correct a closed one."),
        "usage": ("usage", "Show who held how much over a time."),
        "budget": ("budget", "Show what is left of GPU hours, and why."),
        "limits": ("limits", "Show what users and accounts use of UsageLimits."),
        "idle": ("idle", "Show which workloads leave their GPUs idle."),
        "stop": ("changing", "Stop a queue."),
        "resume": ("changing", "Let a stopped queue admit again."),
        "plan": ("planning", "Tell what another policy would decide at once."),
        "replay": ("replaying", "Play a past time again under another policy."),
        "test": ("testing", "Run policy tests: compare decisions with expected ones."),
        "dump": ("replaying", "Print a state of the ledger as a document for test or simulate."),
        "simulate": ("simulating", "Simulate workloads in virtual time, and measure."),
        "import": ("importing", "Convert the policy of Kueue or Slurm."),
        "report": ("report", "Report what an observer would have done."),
    },
    "Processes and the ledger": {
        "sandbox": ("operating", "Run queuectl and all it needs on this machine."),
        "controller": ("operating", "Run the controller: decide, record, act."),
        "api": ("operating", "Serve queues, workloads and reasons over REST."),
        "notifier": ("notifying", "Send messages about decisions to webhooks, Slack and mail."),
        "notifications": ("notifying", "Show how each sink of messages goes, or test one."),
        "webhook": ("operating", "Suspend labelled workloads at creation, before Kubernetes 1.36."),
        "kinds": ("kinds", "List the kinds of jobs that queue, or try a row on sample objects."),
        "manifests": ("kinds", "Print the manifests that depend on the kinds of jobs."),
        "migrate": ("operating", "Create or update the ledger's tables."),
        "verify": ("operating", "Compare the ledger with its own history, and with the cluster."),
        "rebuild": ("operating", "Restore the open holds of a lost ledger from the cluster."),
    },
    "Other commands": {
        "completion": ("completion", "Print the completion script of bash, zsh or fish."),
        "help": ("commands", "Show the help of queuectl, or of one command."),
        "version": ("commands", "Print the version."),
    },
}
"""By the heading in the help: each command with its module and what it does."""
_COMMANDS: Final = {name: row for group in _GROUPS.values() for name, row in group.items()}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"queuectl.cli.{_COMMANDS[cmd_name][0]}")
        # A name that Python has taken ends in an underscore.
        command = getattr(module, name := cmd_name.replace("-", "_"), None) or getattr(module, f"{name}_")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise _unknown(error.command_name, ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # The common flags are accepted here too; the help of each command lists them.
        self.format_commands(ctx, formatter)
        with formatter.section("Options"):
            formatter.write_dl(
                [("-h, --help", "Show this message and exit."), ("--version", "Print the version.")]
            )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _COMMANDS))
        for heading, group in _GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<{width}}", text) for name, (_, text) in group.items()])


@click.command(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.option("-n", "--namespace")
@click.version_option(__version__, message="queuectl %(version)s")
@common
def main(**_: object) -> None:
    """Queues, quota and fair sharing for batch and training workloads on Kubernetes."""
    context = click.get_current_context()
    context.obj = given_first(context)


def kubectl() -> None:
    """The program `kubectl-queue`: the same commands as a kubectl plugin."""
    main(prog_name="kubectl queue")


def _unknown(name: str, context: click.Context) -> click.UsageError:
    return click.UsageError(f"there is no command {name!r}{meant(name, _COMMANDS)}", context)


@command("help")
@click.argument("command", required=False)
@click.pass_context
def help_(context: click.Context, command: str | None) -> None:
    """Show the help of queuectl, or of one command."""
    top = context.find_root()
    if command is None:
        click.echo(main.get_help(top))
        return
    found = main.get_command(top, command)
    if found is None:
        raise _unknown(command, top)
    with click.Context(found, parent=top, info_name=command) as about:
        click.echo(found.get_help(about))


@command("version")
@with_options
def version(options: Options) -> None:
    """Print the version."""
    if not printing.as_document({"version": __version__}, options.output):
        click.echo(f"queuectl {__version__}")
