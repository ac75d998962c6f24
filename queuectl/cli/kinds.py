"""`kinds`: the kinds of jobs that queue, and what a row makes of samples. `manifests`: what each needs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from queuectl.cli import contexts, printing, rest
from queuectl.cli.importing import documents_of
from queuectl.cli.operating import call
from queuectl.cli.options import CommandGroup, Failure, NotGood, Options, command, with_options
from queuectl.cli.printing import amount, field, printable, table_of

if TYPE_CHECKING:
    from queuectl.app.kinds import Surveyed
    from queuectl.kinds.sample import SampleOutcome


@click.group("kinds", cls=CommandGroup, invoke_without_command=True)
@with_options
def kinds(options: Options) -> None:
    """List the kinds of jobs that queue: built-in ones, and those of --config.

    SERVED: the versions that the cluster serves, none if the kind is not installed. QUEUED and RUNNING are
    asked of REST.
    """
    context = click.get_current_context()
    if context.invoked_subcommand is not None:
        context.obj = {**(context.obj or {}), **_given(options)}
        return
    found = _survey(options)
    counts = _counts(options)
    items = [_document(one, counts) for one in found]
    if not printing.as_document({"items": items}, options.output):
        table_of(_FIELDS, items, wide=options.wide)


def _given(options: Options) -> dict[str, Any]:
    """Flags that were given before `check`."""
    return {"config": options.config, "output": options.output} if options.config else {}


def _survey(options: Options) -> list[Surveyed]:
    from queuectl.app.kinds import survey
    from queuectl.kube.connections import session_to
    from queuectl.kube.errors import ApiError, BadKubeconfig

    rows = options.all_kinds()
    kubeconfig = contexts.checked(contexts.place(options), options).kubeconfig
    found: list[Surveyed] = []

    async def work() -> None:
        try:
            async with session_to(kubeconfig, options.context) as session:
                found.extend(await survey(rows, session))
        except (ApiError, BadKubeconfig) as problem:
            click.echo(printable(f"what the cluster serves is not known: {problem}"), err=True)
            found.extend(await survey(rows, None))

    call(work())
    return found


def _counts(options: Options) -> Counter[tuple[str, bool]] | None:
    """Workloads by kind, pending (true) or running; None if REST does not answer."""
    try:
        items = rest.connect(options).all(("workloads",), {})["items"]
    except Failure as problem:
        click.echo(
            printable(f"how many are queued is not known: {problem.message.splitlines()[0]}"), err=True
        )
        return None
    return Counter((item["kind"], item["phase"] == "Pending") for item in items)


def _document(one: Surveyed, counts: Counter[tuple[str, bool]] | None) -> dict[str, Any]:
    return {
        "name": one.name,
        "apiVersion": one.api_version,
        "place": one.place,
        "served": None if one.served is None else list(one.served),
        "queued": None if counts is None else counts[one.name, True],
        "running": None if counts is None else counts[one.name, False],
        "problem": one.problem,
    }


def _served(item: dict[str, Any]) -> str | None:
    return None if item["served"] is None else ", ".join(item["served"]) or "not installed"


_FIELDS: Final = (
    field("NAME", "name"),
    field("API VERSION", "apiVersion"),
    field("ROW", lambda item: item["place"] or "built in", drop=1),
    field("SERVED", _served),
    field("QUEUED>", "queued"),
    field("RUNNING>", "running"),
    field("PROBLEM", "problem"),
)


@kinds.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@with_options
def check(options: Options, *, files: tuple[str, ...]) -> None:
    """Show what the rows, with those of --config, make of the sample objects in FILEs; - is stdin.

    Their podsets, pods and requests, and why one cannot be queued. No cluster is asked. Exit code 1 if a row
    is malformed, or an object cannot be queued.
    """
    from queuectl.kinds.sample import tried

    rows = options.all_kinds()
    found = [tried(rows.registry, content) for _, content in documents_of(files)]
    if options.output == "table":
        click.echo("\n".join(printable(line) for one in found for line in _lines(one)))
    else:
        items = [_described(one) for one in found]
        printing.document({"items": items, "problems": list(rows.problems)}, options.output)
    wrong = sum(one.problem is not None for one in found)
    if rows.problems:
        raise NotGood("a row of the configuration is malformed:\n  " + "\n  ".join(rows.problems))
    if wrong:
        raise NotGood(f"{wrong} of {len(found)} objects cannot be queued")


def _lines(one: SampleOutcome) -> list[str]:
    ready = {None: "not known", True: "yes", False: "no"}[one.ready]
    lines = [f"{one.kind} {one.name}"]
    if one.problem is not None:
        lines.append(f"  cannot be queued: {one.problem}")
    for name, pods, requests in one.pod_sets:
        each = ", ".join(f"{resource} {amount(resource, value)}" for resource, value in requests) or "nothing"
        lines.append(f"  podset {name}: {pods} pod{'s' if pods != 1 else ''}, each requests {each}")
    if one.pod_sets:
        suspended = "yes" if one.suspended else "no"
        lines.append(f"  suspended: {suspended}; finished: {one.finished or 'no'}; ready: {ready}")
    return lines


def _described(one: SampleOutcome) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "name": one.name,
        "podSets": [
            {"name": name, "pods": pods, "requests": dict(requests)} for name, pods, requests in one.pod_sets
        ],
        "suspended": one.suspended,
        "finished": one.finished,
        "ready": one.ready,
        "problem": one.problem,
    }


_OPTIONAL = ("mutating", "webhook", "default-queue", "kueue-labels")


@command("manifests")
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
    from queuectl.app.kueue import honoured
    from queuectl.kinds.labels import KUEUES_TOO
    from queuectl.kinds.manifests import manifests as made

    kinds = options.all_kinds()
    if kinds.problems:
        raise Failure("a kind of the configuration is malformed:\n  " + "\n  ".join(kinds.problems))
    labels = honoured(options.settings())
    files = made(kinds.registry, labels)
    if folder is None:
        if labels == KUEUES_TOO:
            note = "only of pods do these read Kueue's labels: build the kustomization of docs/from-kueue.md"
            click.echo(f"{note}, from manifests written to FOLDER", err=True)
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
