"""`waited`: answers from history."""

from __future__ import annotations

from typing import Final

import click

from queuectl.cli import printing
from queuectl.cli.options import Options, with_options
from queuectl.cli.printing import Column, printable
from queuectl.cli.reading import NAMESPACE, WORKLOAD, workload_of
from queuectl.screen.text import figure

_PARTS: Final = (Column("WAITED", right=True), Column("SHARE", right=True), Column("FOR"))


@click.command("waited")
@WORKLOAD
@NAMESPACE
@with_options
def waited(options: Options, workload: str, namespace: str | None) -> None:
    """Show where the wait of a workload went, also after its end: each cause with its time.

    The parts add up to the wait. The time that it ran, and that its pods took to end, is shown separately.
    """
    server, path, _ = workload_of(options, workload, namespace)
    found = server.get((*path, "waited"))
    if options.output != "table":
        printing.document(found, options.output)
        return
    whole = found["waitedSeconds"]
    name = printable(f"{found['kind']} {found['namespace']}/{found['name']}")
    text = f"{name}: {found['phase']}, waited {figure(whole)}"
    text += f", ran {figure(found['ranSeconds'])} in {_attempts(found['attempts'])}"
    if found["evictingSeconds"]:
        text += f", its pods took {figure(found['evictingSeconds'])} to end"
    click.echo(text)
    click.echo(f"From {printing.local(found['since'])} to {printing.local(found['until'])}")
    if not found["parts"]:
        return
    click.echo()
    rows = [
        (figure(part["seconds"]), f"{100 * part['seconds'] / whole:.0f}%", part["text"])
        for part in found["parts"]
    ]
    printing.table(_PARTS, rows)


def _attempts(count: int) -> str:
    return f"{count} {'attempt' if count == 1 else 'attempts'}"
