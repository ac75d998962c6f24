"""`queuectl import`: conversion of manifests of other queue controllers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import yaml

from queuectl.cli import printing
from queuectl.cli.options import Failure, NotGood, Options, with_options
from queuectl.files import BadFile, documents, read

if TYPE_CHECKING:
    from queuectl.kinds.kueue import Imported

_SUFFIXES: Final = (".yaml", ".yml", ".json")


@click.group("import")
def import_() -> None:
    """Convert the manifests of another queue controller."""


@import_.command("kueue")
@click.option(
    "-f",
    "--filename",
    "names",
    multiple=True,
    required=True,
    metavar="FILE",
    help="Manifests: a file, a folder of them, or - for standard input. May be given several times.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 if something was not converted.")
@with_options
def kueue(options: Options, names: tuple[str, ...], strict: bool) -> None:
    """Convert manifests of Kueue (v1beta1, v1beta2).

    The objects go to standard output, ready for `kubectl apply -f -`; what cannot be converted is listed
    on standard error. With `-o json` one document contains both.

    Jobs may keep Kueue's labels with compatibility.kueueLabels: true (docs/operations.md, Coming from Kueue).

    \b
    kubectl get clusterqueues.kueue.x-k8s.io,cohorts.kueue.x-k8s.io,resourceflavors.kueue.x-k8s.io,\\
    workloadpriorityclasses.kueue.x-k8s.io,localqueues.kueue.x-k8s.io -A -o yaml | queuectl import kueue -f -
    """
    from queuectl.kinds.kueue import import_kueue

    found = import_kueue(_documents(names))
    _print(found, options.output)
    if strict and found.notes:
        raise NotGood(f"{len(found.notes)} things were not converted")


def _documents(names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    try:
        for name in names:
            for shown, text in texts(name):
                for document in documents(text, shown):
                    yield f"{shown}: line {document.line}", document.content
    except BadFile as error:
        raise Failure(str(error)) from None


def texts(name: str) -> Iterator[tuple[str, bytes]]:
    """Name and content of a file, of all YAML and JSON of a folder, or of standard input. Raises BadFile."""
    for path in _paths(name):
        yield str(path or "standard input"), sys.stdin.buffer.read() if path is None else read(path)


def _paths(name: str) -> list[Path | None]:
    """None: standard input."""
    if name == "-":
        return [None]
    path = Path(name)
    if not path.is_dir():
        return [path]
    found: list[Path | None] = [file for file in sorted(path.iterdir()) if file.suffix in _SUFFIXES]
    if not found:
        raise Failure(f"{path}: no file in it ends in {', '.join(_SUFFIXES)}")
    return found


def _print(found: Imported, output: str) -> None:
    if output == "json":
        notes = [note._asdict() for note in found.notes]
        printing.document({"objects": list(found.objects), "notes": notes}, output)
        return
    if found.objects:
        click.echo(yaml.safe_dump_all(found.objects, sort_keys=False, allow_unicode=True), nl=False)
    for note in found.notes:
        place = f"{note.object} {note.field}".strip()
        click.echo(f"{printing.printable(place)}: {printing.printable(note.text)}", err=True)
    carried = f"{len(found.objects)} objects converted"
    click.echo(f"{carried}, {len(found.notes)} notes" if found.notes else carried, err=True)
