"""`plan` and `quote`: what another policy, or a new workload, would mean at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from queuectl.cli import completion, printing, rest
from queuectl.cli.importing import texts
from queuectl.cli.job_flags import CommandWithProgram, JobFlags, job_flags
from queuectl.cli.options import Failure, NotGood, Options, command, with_options
from queuectl.cli.printing import amount, field, printable, table_of
from queuectl.cli.rest import Document
from queuectl.cli.submitting import submissions_of
from queuectl.kinds.reserved_keys import GROUP_SIZE
from queuectl.screen.explanation import change_text, named, pod_set_text


@command("plan")
@click.argument("names", nargs=-1, metavar="FILE...")
@click.option(
    "--delete",
    "deleted",
    multiple=True,
    metavar="KIND/NAME",
    help="Also without this object; LocalQueue/NAMESPACE/NAME. May be repeated.",
)
@click.option(
    "--detailed-exitcode",
    "detailed",
    is_flag=True,
    help="Exit with 0 if no object changes, with 2 if one does, and with 1 after an error.",
)
@with_options
def plan(options: Options, names: tuple[str, ...], deleted: tuple[str, ...], detailed: bool) -> None:
    """Tell what the policy of FILE changes, and which workloads it would admit, evict and strand at once.

    + are objects that it creates, - those that it deletes, ~ those of which it changes fields. It warns of
    fields that do not exist, which an API server drops, and of names that no object has. FILE is YAML or
    JSON, a folder of such files, or - for stdin. Nothing is written: it is a dry run on the state of now. It
    needs the right to list all workloads.
    """
    try:
        found = _planned(options, names, deleted)
    except click.ClickException as problem:
        if detailed:
            raise NotGood(problem.format_message()) from None
        raise
    if not printing.as_document(found, options.output):
        _print(found)
    if detailed and (found["objects"] or found["items"]):
        raise click.exceptions.Exit(2)


def _planned(options: Options, names: tuple[str, ...], deleted: tuple[str, ...]) -> Document:
    body = {"objects": _objects(names), "deleted": [_deleted(one) for one in deleted]}
    if not any(body.values()):
        raise click.UsageError("give a FILE, or --delete")
    return rest.connect(options).post(("plan",), body)


def _print(found: Document) -> None:
    for one in found.get("objects", ()):  # absent: of an older server
        click.echo(printable(f"{_SIGNS[one['change']]} {one['object']}"))
        for changed in one["fields"]:
            before, after = (changed[name] or "unset" for name in ("before", "after"))
            click.echo(printable(f"    {changed['field']}: {before} -> {after}"))
    if not found.get("objects", True):
        click.echo("no object changes")
    numbers = {name: found[name] for name in ("admitted", "evicted", "stranded")}
    others = found.get("otherReason", 0)  # absent: of an older server
    text = ", ".join(f"{number} {name}" for name, number in numbers.items())
    text += f", {others} {'waits' if others == 1 else 'wait'} for another reason" if others else ""
    click.echo(f"At once: {text}")
    for one in found["inactive"]:
        text = f"ClusterQueue {one['clusterQueue']} would not be active: {one['condition']['message']}"
        click.echo(printable(text))
    for one in found["warnings"]:
        click.echo(printable(f"Warning: {one['object']} {one['field']}: {one['message']}"))
    if found["items"]:
        click.echo()
        table_of(_FIELDS, found["items"])
    if (hidden := sum(numbers.values()) + others - len(found["items"])) > 0:
        click.echo(f"and {hidden} more")


_SIGNS: Final = {"Created": "+", "Changed": "~", "Deleted": "-"}


def _why(one: Document) -> str:
    if one["admission"]:
        pods = (f"{of['name']}: {_flavors(of)}" for of in one["admission"]["podSets"])
        return f"{one['admission']['clusterQueue']}, {', '.join(pods)}"
    return one["reason"]["message"] if one["reason"] else ""


def _flavors(pods: Document) -> str:
    return ", ".join(f"{resource} {flavor}" for resource, flavor in sorted(pods["flavors"].items()))


_BECOMES: Final = {"OtherReason": "Waits"}
_FIELDS: Final = (
    field("WORKLOAD", lambda one: f"{one['namespace']}/{one['kind']}/{one['name']}"),
    field("BECOMES", lambda one: _BECOMES.get(one["change"], one["change"])),
    field("WHY", _why),
)


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


_STARTS = {
    "Now": "starts now",
    "AfterPreemption": "starts as soon as the pods of preempted workloads have ended",
    "NotYet": "waits",
    "Never": "cannot start: waiting does not help",
}


@command("quote", cls=CommandWithProgram)
@click.argument("file", required=False)
@click.option("-q", "--queue", help="LocalQueue in its namespace.  [default: that of the queue label]")
@click.option(
    "-p", "--priority-class", "priority", help="WorkloadPriorityClass.  [default: that of its label, if any]"
)
@completion.NAMESPACE
@job_flags
@with_options
def quote(
    options: Options,
    file: str | None,
    queue: str | None,
    priority: str | None,
    namespace: str | None,
    flags: JobFlags,
) -> None:
    """Tell whether the workload of FILE would start now, where, and what it would displace.

    FILE and the flags of a Job are those of `submit`; FILE may also be a Deployment, ReplicaSet or
    StatefulSet whose pods queue: the answer is for one of them, or for their group. Nothing is created: the
    change is tried on a copy of the state. If it would wait, the smallest changes with which it starts are
    shown.
    """
    found = submissions_of(file, flags, queue, priority, namespace, options)
    if len(found) > 1:
        raise Failure(f"there are {len(found)} workloads: a quote is for one")
    (one,) = found
    server = rest.connect(options, namespace=one.target.namespace)
    metadata = {**one.object["metadata"], "namespace": one.target.namespace}
    answer = server.post(("quote",), {**one.object, "metadata": metadata})
    if printing.as_document(answer, options.output):
        return
    part = "" if GROUP_SIZE in metadata.get("annotations", ()) else "Pod of "
    what = f"{part}{one.owner}:" if one.owner else str(one.target)
    click.echo(printable(f"{what} {_STARTS[answer['now']['starts']]}"))
    click.echo()
    lines = list(_lines(answer))
    width = max((len(label) for label, _ in lines), default=0) + 2
    for label, text in lines:
        click.echo(f"{label:<{width}}{printable(text)}")


def _lines(answer: Document) -> Iterator[tuple[str, str]]:
    if answer["clusterQueue"]:
        text = f"ClusterQueue {answer['clusterQueue']}, priority {answer['priority']}"
        if answer["ahead"]:
            text += f", behind {answer['ahead']} pending"
        yield "Queue", text
    admission = answer["now"]["admission"]
    for pods in admission["podSets"] if admission else ():
        yield "Holds", pod_set_text(pods)
    for flavor, amounts in answer["borrows"].items():
        for resource, value in amounts.items():
            yield "Borrows", f"{amount(resource, value)} {resource} of flavor {flavor}"
    for one in answer["now"]["displaces"]:
        yield "Displaces", f"{named(one)} ({one['cause']})"
    for one in answer["threats"]:
        queue = f"ClusterQueue {one['clusterQueue']}" if one["clusterQueue"] else "queues not shown to you"
        yield "May be taken", f"by {queue} ({one['cause']}), {one['pending']} pending that may do so now"
    if answer["reason"]:
        yield "Reason", answer["reason"]["message"]
    for change in answer["items"]:
        yield "Or", change_text(change)
