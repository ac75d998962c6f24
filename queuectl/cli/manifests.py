"""`queuectl manifests`: what an installation needs for each kind of job."""

from __future__ import annotations

from pathlib import Path

import click

from queuectl.cli.options import Failure, Options, with_options

_OPTIONAL = ("mutating", "webhook", "default-queue", "kueue-labels")


@click.command("manifests")
@click.option(
    "--component",
    "components",
    multiple=True,
    type=click.Choice(_OPTIONAL),
    help="Print those of an optional component too; may be repeated.",
)
@click.argument("folder", required=False, type=click.Path(file_okay=False, path_type=Path))
@with_options
def manifests(options: Options, *, components: tuple[str, ...], folder: Path | None) -> None:
    """Print the manifests that depend on the kinds of jobs: policies, webhook rules, rights.

    With FOLDER, such as the folder manifests of a checkout, all of them are written below it instead.
    """
    from queuectl.kinds.manifests import manifests as made

    kinds = options.all_kinds()
    if kinds.problems:
        raise Failure("a kind of the configuration is malformed:\n  " + "\n  ".join(kinds.problems))
    files = made(kinds.registry)
    if folder is None:
        left_out = set(_OPTIONAL) - set(components)
        objects = {name: text for name, text in files.items() if not name.endswith("kustomization.yaml")}
        printed = [text for name, text in objects.items() if name.partition("/")[0] not in left_out]
        click.echo("---\n".join(printed), nl=False)
        return
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        except OSError as error:
            raise Failure(f"{path}: {error.strerror or error}") from None
