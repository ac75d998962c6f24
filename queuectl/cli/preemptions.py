"""`preemptions`: what was preempted, and what may be."""

from __future__ import annotations

from typing import Any, Final

import click

from queuectl.cli import completion, printing, rest
from queuectl.cli.answers import times
from queuectl.cli.arguments import Since
from queuectl.cli.options import Options, command, with_options
from queuectl.cli.printing import (
    Lines,
    field,
    local,
    printable,
    resource_time,
    share_of,
    shown,
    table_of,
)
from queuectl.cli.reading import AS_OF, When, workload_of
from queuectl.cli.resources import phase
from queuectl.cli.rest import Document
from queuectl.screen.text import figure

_HIDDEN: Final = "not shown to you"


@command("preemptions")
@click.argument("workload", required=False, metavar="[KIND/NAME]", shell_complete=completion.workloads)
@click.option(
    "-n",
    "--namespace",
    help="Only there; for KIND/NAME: its own.",
    shell_complete=completion.namespaces,
)
@click.option("--queue", help="Only workloads of LocalQueues of this name.")
@click.option(
    "--cluster-queue",
    "clusterqueue",
    help="Only those that held quota of this ClusterQueue.",
    shell_complete=completion.cluster_queues,
)
@click.option("--since", type=Since(), metavar="TIME", help="From then on: 12h, 7d, or a time (UTC).")
@click.option("--until", type=Since(), metavar="TIME", help="Up to then.  [default: now]")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many.")
@AS_OF
@with_options
def preemptions(
    options: Options,
    workload: str | None,
    *,
    since: When,
    until: When,
    limit: int,
    as_of: When,
    **given: Any,
) -> None:
    """Show what was preempted, newest first: for which workload, by which rule, and what was lost.

    With KIND/NAME: whether this running workload may be preempted now, and by which queues.
    """
    filters = {key: str(value) for key, value in given.items() if value is not None}
    if workload is not None:
        if set(filters) - {"namespace"} or since is not None or until is not None:
            raise click.UsageError("filters and times do not go with KIND/NAME")
        _exposure(options, workload, filters.get("namespace"), as_of)
        return
    server = rest.connect(options, namespace=filters.get("namespace"))
    server.look_back(as_of)
    if since is not None or until is not None:
        server.get(("preemptions",), {"limit": "1", **filters}, quiet=True)  # its clock
    asked = {**filters, **times(server, since, until)}
    found = server.all(("preemptions",), asked, limit=limit)
    if printing.as_document(found, options.output):
        return
    table_of(_FIELDS, found["items"], wide=options.wide, none="no preemptions found")


def _lost(item: Document) -> Lines:
    return Lines(tuple(resource_time(resource, amount) for resource, amount in item["lost"].items()))


def _shares(item: Document) -> Lines:
    """Such as `ClusterQueue/a 25% > 12.5%`, of the victim's side first."""
    shares = item["shares"]
    moves = (shares["victim"], shares["preemptor"]) if shares else ()
    return Lines(
        tuple(
            f"{move['node'] or _HIDDEN} {share_of(move['before'])} > {share_of(move['after'])}"
            for move in moves
        )
    )


def _exposure(options: Options, workload: str, namespace: str | None, as_of: When) -> None:
    server, path, of = workload_of(options, workload, namespace, as_of)
    found = server.get((*path, "exposure"))
    if printing.as_document(found, options.output):
        return
    name = printable(f"{found['kind']} {found['namespace']}/{found['name']}")
    if of["phase"] != "Admitted":
        click.echo(f"{name} is {phase(of)}: it does not run")
        return
    waits = sum(one["pending"] for one in found["threats"])
    count = f"{waits} pending {'workload' if waits == 1 else 'workloads'}"
    text = f"{count} may preempt it" if found["threats"] else "no queue may preempt it"
    if found["threats"] and not found["exposed"]:
        text = "none may preempt it now"
    click.echo(f"{name}: {text}")
    if not found["threats"]:
        return
    click.echo()
    table_of(_THREATS, found["threats"])


_FIELDS: Final = (
    field("TIME", shown(local, "time")),
    field("WORKLOAD", lambda item: f"{item['namespace']}/{item['kind'].lower()}/{item['name']}"),
    field("ATTEMPT>", "attempt", drop=5),
    field("CLUSTERQUEUE", "clusterQueue", drop=4),
    field("RULE", "cause", drop=2),
    field("FOR", lambda item: item["by"] or _HIDDEN),
    field("RAN>", shown(figure, "ranSeconds"), drop=1),
    field("LOST", _lost),
    field("SHARES", _shares, drop=3),
)
_THREATS: Final = (
    field("CLUSTERQUEUE", lambda threat: threat["clusterQueue"] or _HIDDEN),
    field("RULE", "cause"),
    field("POLICY", "policy"),
    field("PENDING>", "pending"),
    field("PROTECTED UNTIL", shown(local, "protectedUntil")),
)
