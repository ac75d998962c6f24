"""`waited`, `share` and `eta`: answers from history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import click

from queuectl.cli import completion, printing, rest
from queuectl.cli.arguments import Since
from queuectl.cli.completion import NAMESPACE
from queuectl.cli.options import Failure, Options, command, with_options
from queuectl.cli.printing import TableField, columns_of, field, printable
from queuectl.cli.reading import AS_OF, WORKLOAD, When, workload_of
from queuectl.cli.resources import phase
from queuectl.cli.rest import Document, Server
from queuectl.screen.text import figure

_PARTS: Final = columns_of("WAITED>", "SHARE>", "FOR")


@command("waited")
@WORKLOAD
@NAMESPACE
@AS_OF
@with_options
def waited(options: Options, workload: str, namespace: str | None, as_of: When) -> None:
    """Show where the wait of a workload went, also after its end: each cause with its time.

    The parts add up to the wait. The time that it ran, and that its pods took to end, is shown separately.
    """
    server, path, document = workload_of(options, workload, namespace, as_of)
    found = server.get((*path, "waited"))
    if printing.as_document(found, options.output):
        return
    whole = found["waitedSeconds"]
    name = printable(f"{found['kind']} {found['namespace']}/{found['name']}")
    text = f"{name}: {phase(document)}, waited {figure(whole)}"
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


_PAST_USAGE: Final = columns_of("NAME", "KIND", "ORDER>", "WEIGHT>", "PAST USAGE>", "PART>")
_HIDDEN: Final = "queues not shown to you"


@command("share")
@click.argument("queue", metavar="[CLUSTERQUEUE]", required=False, shell_complete=completion.cluster_queues)
@click.option(
    "--cohort",
    metavar="COHORT",
    help="Each ClusterQueue at or below it instead.",
    shell_complete=completion.cohorts,
)
@click.option("--since", type=Since(), metavar="TIME", help="Also from then on: 12h, 7d, or a time (UTC).")
@click.option("--until", type=Since(), metavar="TIME", help="With --since: up to then.  [default: now]")
@click.option(
    "--past-usage", is_flag=True, help="Decayed past usage instead: of its members, LocalQueues and users."
)
@AS_OF
@with_options
def share(
    options: Options,
    queue: str | None,
    cohort: str | None,
    since: When,
    until: When,
    past_usage: bool,
    as_of: When,
) -> None:
    """Show what a ClusterQueue is guaranteed, uses, borrows from which queues, and lends to which.

    With --since also over that time, in resource-hours: the lending statement, and idle quota. With
    --past-usage in the order in which what waits comes; ORDER is a place that past usage gives.
    """
    if until is not None and since is None:
        raise click.UsageError("--until goes with --since")
    if (queue is None) is (cohort is None):
        raise click.UsageError(
            "name a CLUSTERQUEUE, or --cohort COHORT; `queuectl get clusterqueues` lists them"
        )
    if past_usage and (since is not None or as_of is not None):
        raise click.UsageError("--past-usage is as of now: without --since and --as-of")
    server = rest.connect(options)
    server.look_back(as_of)
    node = ("clusterqueues", queue) if queue is not None else ("cohorts", str(cohort))
    if past_usage:
        _past_usage(options, server.get((*node, "pastusage")))
        return
    path = (*node, "share")
    found = server.get(path)
    if since is not None:
        found = server.get(path, times(server, since, until), quiet=True)
    if printing.as_document(found, options.output):
        return
    whole = queue is None
    click.echo(printable(f"Cohort {found['name']}") if whole else _share_of(found))
    click.echo()
    _accounts(found, found["accounts"], printing.amount, "NOW", members=whole)
    if (told := found["statement"]) is None:
        return
    click.echo()
    click.echo(f"From {printing.local(told['since'])} to {printing.local(told['until'])}, in resource-hours")
    click.echo()
    _accounts(found, told["accounts"], printing.resource_hours, "HOURS", members=whole)


def _past_usage(options: Options, found: Document) -> None:
    if printing.as_document(found, options.output):
        return
    if found["halfLifeSeconds"] is None:
        click.echo("Past usage does not count: scheduling.admissionFairSharing is not configured")
        return
    rows = []
    for item in found["items"]:
        name = item["name"] or "(unknown)"
        if item["kind"] == "LocalQueue":
            name = f"{item['namespace']}/{name}"
        order = printing.NOTHING if item["order"] is None else str(item["order"])
        weight, part = f"{item['weight'] / 1000:g}", f"{100 * item['part']:.0f}%"
        of_all = (f"{item['used']:.4g}", part)
        rows.append(("  " * item["level"] + printable(name), item["kind"], order, weight, *of_all))
    click.echo(f"Past usage, with a half-life of {figure(found['halfLifeSeconds'])}")
    click.echo()
    printing.table(_PAST_USAGE, rows)


def _share_of(found: Document) -> str:
    where = f" in Cohort {found['cohort']}" if found["cohort"] else ""
    text = f"ClusterQueue {found['name']}{where}: {found['pending']} pending"
    if found["fairSharing"]:
        share = "infinite (weight 0)" if found["share"] is None else printing.share_of(found["share"])
        by = f" by {found['dominantResource']}" if found["dominantResource"] else ""
        text += f", share {share}{by}, weight {found['weight'] / 1000:g}"
    return printable(text)


def _accounts(
    found: Document,
    accounts: Sequence[Document],
    form: Callable[[str, Any], str],
    unit: str,
    *,
    members: bool,
) -> None:
    """The table of the cells, and that of what is lent between these queues and others.

    `form`: of an amount. `unit`: NOW, or HOURS of a statement. `members`: of the queues of a cohort.
    """

    def amounts(name: str) -> TableField:
        return field(f"{name.upper()}>", lambda one: form(one["resource"], _whole(one[name])))

    names = ["guaranteed", "fair", "used", "borrowed", "lent", "idle"]
    if members or unit == "HOURS":
        names.remove("fair")
    if unit == "HOURS":
        names.append("lost")
    queue = (field("CLUSTERQUEUE", "clusterQueue"),) if members else ()
    cell = (field("FLAVOR", "flavor"), field("RESOURCE", "resource"))
    printing.table_of((*queue, *cell, *map(amounts, names)), accounts)
    pairs = (
        (*pair, one["flavor"], one["resource"], form(one["resource"], _whole(loan["amount"])))
        for one in accounts
        for own in (f"ClusterQueue/{one.get('clusterQueue', found['name'])}",)
        for pair, loan in (
            *(((loan["node"] or _HIDDEN, own), loan) for loan in one["borrowedFrom"]),
            *(((own, loan["node"] or _HIDDEN), loan) for loan in one["lentTo"]),
        )
    )
    rows = list(dict.fromkeys(pairs))  # lender and borrower may both tell of a loan
    if rows:
        click.echo()
        printing.table(columns_of("LENDER", "BORROWER", "FLAVOR", "RESOURCE", f"{unit}>"), rows)


def _whole(value: float | None) -> float | None:
    return int(value) if value is not None and value == int(value) else value


def times(server: Server, since: When, until: When) -> dict[str, str]:
    """The parameters, by the clock of the server at its last answer."""
    found = {}
    for key, value in (("since", since), ("until", until)):
        if isinstance(value, timedelta):
            if server.now is None:
                raise Failure(f"--{key}: the server does not send its time: give a time, not how long ago")
            value = server.now - value
        if value is not None:
            found[key] = rest.utc(value)
    return found


_ROWS: Final = (("low", "10% start before"), ("median", "median"), ("high", "90% start before"))
_TABLE: Final = columns_of("START", "IN>", "AT")

TIMEOUT_SECONDS: Final = 75.0
"""More than the minute that the server takes at most."""


@command("eta")
@WORKLOAD
@NAMESPACE
@with_options
def eta(options: Options, workload: str, namespace: str | None) -> None:
    """Show when a pending workload starts: the median, and the interval that holds 8 of 10 starts.

    The queues of its cohort tree are played forward many times, with run times and arrivals drawn from the
    last weeks. It may take a minute if many workloads wait. Changes of policy, and nodes that come or fail,
    are not part of it. Of a workload that does not wait it tells when it started and ended.
    """
    server, path, document = workload_of(options, workload, namespace, timeout=TIMEOUT_SECONDS)
    found = server.get((*path, "eta"))
    if printing.as_document(found, options.output):
        return
    name = printable(f"{found['kind']} {found['namespace']}/{found['name']}")
    if found["unknown"] is not None:
        known = _known(found) or f"start unknown: {printable(found['unknown'])}"
        click.echo(f"{name}: {phase(document)}, {known}")
        return
    click.echo(f"{name}: pending in ClusterQueue {printable(found['clusterQueue'])}, {found['draws']} draws")
    click.echo()
    printing.table(_TABLE, [(title, *_when(found, key)) for key, title in _ROWS])
    click.echo()
    click.echo(_calibration(found["calibration"]))


def _known(found: Document) -> str:
    """Empty if it waits."""
    times = (("started", found["startedAt"]), ("ended", found["endedAt"]))
    return ", ".join(f"{what} at {printing.local(time)}" for what, time in times if time is not None)


def _when(found: Document, key: str) -> tuple[str, str]:
    seconds, after = found[f"{key}Seconds"], found["afterSeconds"]
    at = datetime.fromisoformat(found["at"])
    shown = after if seconds is None else seconds
    word = "after " if seconds is None else ""
    return f"{word}{figure(shown)}", f"{word}{printing.local((at + timedelta(seconds=shown)).isoformat())}"


def _calibration(found: Document | None) -> str:
    if found is None:
        return "How often such intervals held: unknown, too few could be checked so far"
    share = f"{100 * found['held'] / found['checked']:.0f}%"
    since = printing.local(found["since"])
    return f"Such intervals held {found['held']} of {found['checked']} times ({share}) since {since}"
