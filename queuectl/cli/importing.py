"""`queuectl import`: conversion of the policy of other queue systems; and files that commands read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from queuectl.cli import printing
from queuectl.cli.options import CommandGroup, Failure, Options, with_options
from queuectl.cli.printing import printable
from queuectl.files import BadFile, documents, read_open
from queuectl.files import read as read_file
from queuectl.kubernetes_yaml import dump_all

if TYPE_CHECKING:
    from queuectl.importers.result import Imported
    from queuectl.scenarios.manifests import Manifests

_SUFFIXES: Final = (".yaml", ".yml", ".json")

SOMETHING_LEFT_OUT: Final = 3
"""Exit code of an import that carried over everything but what its notes name."""

Source = Callable[[tuple[str, ...]], "Imported"]
"""Converts the files of these names."""


@click.group("import", cls=CommandGroup)
def import_() -> None:
    """Convert the policy of another queue system."""


def _files(what: str) -> Callable[[Source], Callable[..., None]]:
    """The flags of an import, and its output."""

    def decorate(function: Source) -> Callable[..., None]:
        @click.option(
            "-f",
            "--filename",
            "names",
            multiple=True,
            required=True,
            metavar="FILE",
            help=f"{what}: a file, a folder of them, or - for standard input. May be given several times.",
        )
        @with_options
        @wraps(function)
        def command(options: Options, names: tuple[str, ...]) -> None:
            imported = function(names)
            _print(imported, options.output)
            if imported.left_out:
                sys.exit(SOMETHING_LEFT_OUT)

        return command

    return decorate


@import_.command("kueue")
@_files("Manifests")
def kueue(names: tuple[str, ...]) -> Imported:
    """Convert manifests of Kueue (v1beta1, v1beta2).

    The objects go to standard output, ready for `kubectl apply -f -`; what cannot be converted is listed
    on standard error. With `-o json` one document contains both. The exit code is 3 if something was left
    out. Kueue's Configuration is read from its ConfigMap.

    Jobs may keep Kueue's labels with compatibility.kueueLabels: true (docs/from-kueue.md).

    \b
    kubectl get clusterqueues.kueue.x-k8s.io,cohorts.kueue.x-k8s.io,resourceflavors.kueue.x-k8s.io,\\
    workloadpriorityclasses.kueue.x-k8s.io,localqueues.kueue.x-k8s.io -A -o yaml > kueue.yaml
    kubectl -n kueue-system get configmap kueue-manager-config -o yaml > configuration.yaml
    queuectl import kueue -f kueue.yaml -f configuration.yaml > policy.yaml
    """
    from queuectl.app.kinds import built_in
    from queuectl.importers.kueue import import_kueue

    return import_kueue(documents_of(names), built_in().registry)


@import_.command("slurm")
@_files("Text")
def slurm(names: tuple[str, ...]) -> Imported:
    """Convert partitions, nodes, accounts, users and QOS of Slurm.

    The objects go to standard output, ready for `kubectl apply -f -`; what cannot be carried over is listed
    on standard error, with its lines. With `-o json` one document contains both. The exit code is 3 if
    something was left out. docs/from-slurm.md says what becomes of what.

    \b
    sacctmgr dump CLUSTER file=accounts.cfg
    { scontrol show partition; scontrol show node; sacctmgr -P show qos; } > slurm.txt
    queuectl import slurm -f slurm.txt -f accounts.cfg > policy.yaml
    """
    from queuectl.importers.slurm import import_slurm
    from queuectl.importers.slurm_text import BadSlurm, read

    try:
        records, wrong = [], []
        for name in names:
            for shown, text in texts(name, suffixes=None):
                try:
                    records += read(text, shown)
                except BadSlurm as bad:
                    wrong += bad.problems
        if wrong:
            raise BadSlurm(wrong)
        return import_slurm(records)
    except BadFile as error:
        raise Failure(str(error)) from None
    except BadSlurm as bad:
        raise Failure("\n".join(bad.problems)) from None


def documents_of(names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    try:
        for name in names:
            for shown, text in texts(name):
                for document in documents(text, shown):
                    yield f"{shown}: line {document.line}", document.content
    except BadFile as error:
        raise Failure(str(error)) from None


def texts(name: str, suffixes: tuple[str, ...] | None = _SUFFIXES) -> Iterator[tuple[str, bytes]]:
    """Name and content of a file, of all files of a folder, or of standard input. Raises BadFile.

    `suffixes`: of the files that are read of a folder; None: all but hidden ones.
    """
    for path in _paths(name, suffixes):
        shown = str(path or "standard input")
        yield shown, read_open(sys.stdin.buffer, shown) if path is None else read_file(path)


def _paths(name: str, suffixes: tuple[str, ...] | None) -> list[Path | None]:
    """None: standard input."""
    if name == "-":
        return [None]
    path = Path(name)
    if not path.is_dir():
        return [path]
    found: list[Path | None] = [
        file
        for file in sorted(path.iterdir())
        if (file.is_file() and not file.name.startswith(".") if suffixes is None else file.suffix in suffixes)
    ]
    if not found:
        ending = f" ends in {', '.join(suffixes)}" if suffixes else ""
        raise Failure(f"{path}: no file in it{ending}")
    return found


def _print(found: Imported, output: str) -> None:
    if output == "json":
        notes = [
            {"object": note.object, "field": note.field, "text": note.text, "leftOut": note.left_out}
            for note in found.notes
        ]
        printing.document({"objects": list(found.objects), "notes": notes}, output)
        return
    if found.objects:
        click.echo(dump_all(found.objects), nl=False)
    for note in found.notes:
        place = f"{note.object} {note.field}".strip()
        click.echo(f"{printing.printable(place)}: {printing.printable(note.text)}", err=True)
    carried = f"{len(found.objects)} objects converted"
    left = f", {found.left_out} of them on what was left out" if found.left_out else ""
    click.echo(f"{carried}, {len(found.notes)} notes{left}" if found.notes else carried, err=True)


T = TypeVar("T")

policy_option: Final = click.option(
    "-p",
    "--policy",
    "policies",
    multiple=True,
    metavar="FILE",
    help="Manifests: a file, or a folder. An object of a document replaces one of its kind and name. May be "
    "given several times.",
)


def read_policies(names: tuple[str, ...], wrong: list[str]) -> Manifests:
    """The manifests of all files, the later before the earlier. Errors are added to `wrong`."""
    from queuectl.scenarios.manifests import Manifests
    from queuectl.scenarios.reader import read_policy

    policy = Manifests()
    for given in read_each(names, read_policy, wrong):
        for note in given.without:
            click.echo(printable(note), err=True)  # the same as in a cluster
        policy = policy.under(Manifests(given.events))
    return policy


def read_each(names: tuple[str, ...], read: Callable[[bytes, str], T], wrong: list[str]) -> Iterator[T]:
    """The results of `read` for each file; errors are added to `wrong`."""
    from queuectl.files import BadFile
    from queuectl.scenarios.reader import BadScenarios

    for name in names:
        try:
            for shown, text in texts(name):
                try:
                    yield read(text, shown)
                except BadScenarios as error:
                    wrong += error.problems
        except BadFile as error:
            wrong.append(str(error))
