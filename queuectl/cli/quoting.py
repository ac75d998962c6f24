"""`quote`: whether a workload would start now, before it is created."""

from __future__ import annotations

from collections.abc import Iterator

import click

from queuectl.cli import printing, rest, writing
from queuectl.cli.explain import change_text, named, pod_set_text
from queuectl.cli.options import Failure, Options, with_options
from queuectl.cli.printing import amount, printable
from queuectl.cli.rest import Document
from queuectl.cli.submitting import submissions_of

_STARTS = {
    "Now": "starts now",
    "AfterPreemption": "starts as soon as the pods of preempted workloads have ended",
    "NotYet": "waits",
    "Never": "cannot start: waiting does not help",
}


@click.command("quote")
@click.argument("file")
@click.option("-q", "--queue", help="LocalQueue in its namespace.  [default: that of the queue label]")
@click.option(
    "-p", "--priority-class", "priority", help="WorkloadPriorityClass.  [default: that of its label, if any]"
)
@writing.NAMESPACE
@with_options
def quote(
    options: Options, file: str, queue: str | None, priority: str | None, namespace: str | None
) -> None:
    """Tell whether the workload of FILE would start now, where, and what it would displace.

    FILE is YAML or JSON; - is stdin. Nothing is created: the change is tried on a copy of the state. If it
    would wait, the smallest changes with which it starts are shown.
    """
    found = submissions_of(file, queue, priority, namespace, options)
    if len(found) > 1:
        raise Failure(f"{file} has {len(found)} workloads: a quote is for one")
    (one,) = found
    server = rest.connect(options, namespace=one.target.namespace)
    metadata = {**one.object["metadata"], "namespace": one.target.namespace}
    answer = server.post(("quote",), {**one.object, "metadata": metadata})
    if options.output != "table":
        printing.document(answer, options.output)
        return
    click.echo(f"{one.target} {_STARTS[answer['now']['starts']]}")
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
