"""`plan`: what another policy would decide at once."""

from __future__ import annotations

from typing import Any, Final

import click

from queuectl.cli import printing, rest
from queuectl.cli.importing import texts
from queuectl.cli.options import Failure, Options, with_options
from queuectl.cli.printing import Column, printable
from queuectl.cli.rest import Document

_COLUMNS: Final = (Column("WORKLOAD"), Column("BECOMES"), Column("WHY", wide=True))


@click.command("plan")
@click.argument("names", nargs=-1, metavar="FILE...")
@click.option(
    "--delete",
    "deleted",
    multiple=True,
    metavar="KIND/NAME",
    help="Also without this object; LocalQueue/NAMESPACE/NAME. May be repeated.",
)
@with_options
def plan(options: Options, names: tuple[str, ...], deleted: tuple[str, ...]) -> None:
    """Tell which workloads the policy of FILE would admit, evict and strand at once.

    FILE is YAML or JSON, a folder of such files, or - for stdin. Nothing is written: it is a dry run on the
    state of now. It needs the right to list all workloads.
    """
    body = {"objects": _objects(names), "deleted": [_deleted(one) for one in deleted]}
    if not any(body.values()):
        raise click.UsageError("give a FILE, or --delete")
    found = rest.connect(options).post(("plan",), body)
    if options.output != "table":
        printing.document(found, options.output)
        return
    numbers = (f"{found[name]} {name}" for name in ("admitted", "evicted", "stranded"))
    click.echo(f"At once: {', '.join(numbers)}")
    for one in found["inactive"]:
        text = f"ClusterQueue {one['clusterQueue']} would not be active: {one['condition']['message']}"
        click.echo(printable(text))
    if found["items"]:
        click.echo()
        printing.table(_COLUMNS, [_row(one) for one in found["items"]])
    if (hidden := found["admitted"] + found["evicted"] + found["stranded"] - len(found["items"])) > 0:
        click.echo(f"and {hidden} more")


def _row(one: Document) -> tuple[str, str, str]:
    why = one["reason"]["message"] if one["reason"] else ""
    if one["admission"]:
        pods = (f"{of['name']}: {_flavors(of)}" for of in one["admission"]["podSets"])
        why = f"{one['admission']['clusterQueue']}, {', '.join(pods)}"
    return f"{one['namespace']}/{one['kind']}/{one['name']}", one["change"], why


def _flavors(pods: Document) -> str:
    return ", ".join(f"{resource} {flavor}" for resource, flavor in sorted(pods["flavors"].items()))


def _objects(names: tuple[str, ...]) -> list[Any]:
    from queuectl.files import BadFile, documents, listed

    try:
        return [
            one
            for name in names
            for file, text in texts(name)
            for document in documents(text, file)
            for one in listed(document.content)
        ]
    except BadFile as problem:
        raise Failure(str(problem)) from None


def _deleted(text: str) -> Document:
    kind, *parts = text.split("/")
    if len(parts) not in (1, 2) or not all(parts):
        raise click.UsageError(f"--delete {printable(text)}: give KIND/NAME, or LocalQueue/NAMESPACE/NAME")
    metadata = {"name": parts[-1], **({"namespace": parts[0]} if len(parts) == 2 else {})}
    return {"kind": kind, "metadata": metadata}
