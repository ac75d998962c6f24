"""`usage`: who held what over a time."""

from __future__ import annotations

import csv
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import click

from queuectl.cli import printing, rest
from queuectl.cli.answers import times
from queuectl.cli.arguments import Since
from queuectl.cli.options import Options, command, with_options
from queuectl.cli.printing import NOTHING, Column, printable, resource_hours
from queuectl.cli.reading import When
from queuectl.cli.rest import Document
from queuectl.ports.rates import hour_unit

CSV: Final = "csv"
OTHERS: Final = "(others)"
_FORMULA: Final = re.compile(r"(?!-[\d.]+$)[=+\-@\t\r]")
"""A cell that begins so is a formula to a spreadsheet; a negative number is none."""
_TOTALS: Final = (
    *(Column("FLAVOR"), Column("RESOURCE"), Column("USED", right=True), Column("FREE", right=True)),
    *(Column("UNMANAGED", right=True), Column("UNUSABLE", right=True), Column("CAPACITY", right=True)),
    Column("OVERCOMMITTED", right=True, wide=True),
)


@command("usage")
@click.option(
    "--by",
    default="user",
    show_default=True,
    metavar="NAMES",
    help="What to divide by, with commas: user, submitter, namespace, localqueue, clusterqueue, class, "
    "flavor, or account keys such as project.",
)
@click.option("--month", metavar="YYYY-MM", help="Of this month.  [default: the present one]")
@click.option("--since", type=Since(), metavar="TIME", help="From then on: 12h, 7d, or a time (UTC).")
@click.option("--until", type=Since(), metavar="TIME", help="With --since: up to then.  [default: now]")
@click.option("--zone", metavar="ZONE", help="In which the month begins.  [default: as configured]")
@partial(with_options, formats=(CSV,))
def usage(options: Options, by: str, month: str | None, since: When, until: When, zone: str | None) -> None:
    """Show who held how much over a time, in resource-hours, and what the nodes had.

    Held is from the admission until the pods are gone. The rows of a resource add up to all that was held of
    it: what you may not read is one row. IDLE is what of it was idle or hung. With -o csv cores, GiB or
    devices times hours, without rounding.
    """
    if month is not None and (since is not None or until is not None):
        raise click.UsageError("--month goes without --since and --until")
    if until is not None and since is None:
        raise click.UsageError("--until goes with --since")
    server = rest.connect(options)
    asked = {"by": by} | ({"month": month} if month else {}) | ({"zone": zone} if zone else {})
    if since is not None:
        server.learn_time()
        asked |= times(server, since, until)
    found = server.get(("usage",), asked)
    if options.output == CSV:
        _csv(found)
    elif not printing.as_document(found, options.output):
        _tables(found, wide=options.wide)


def _tables(found: Document, *, wide: bool) -> None:
    since, until = printing.local(found["since"]), printing.local(found["until"])
    click.echo(f"From {since} to {until}, in resource-hours")
    if not found["items"]:
        click.echo("Nothing was held.")
    else:
        click.echo()
        columns = (*(Column(name.upper()) for name in found["by"]), Column("RESOURCE"))
        figures = [Column("USED", right=True), Column("SHARE", right=True)]
        idle = any(item["idle"] for item in found["items"])
        whole: defaultdict[str, float] = defaultdict(float)
        for item in found["items"]:
            whole[item["resource"]] += item["amount"]
        rows = [
            (
                *_names(found["by"], item),
                item["resource"],
                _hours(item["resource"], item["amount"]),
                f"{100 * item['amount'] / whole[item['resource']]:.1f}%",
                *([_hours(item["resource"], item["idle"]) if item["idle"] else NOTHING] if idle else ()),
            )
            for item in found["items"]
        ]
        figures += [Column("IDLE", right=True)] if idle else []
        printing.table((*columns, *figures), rows)
    if found["totals"]:
        click.echo()
        printing.table(_TOTALS, [_total(one) for one in found["totals"]], wide=wide)


def _total(one: Document) -> tuple[str, ...]:
    known = one["usable"] + one["unusable"] > 0
    amounts = (one["free"], one["unmanaged"], one["unusable"], one["usable"] + one["unusable"])
    return (
        *(one["flavor"], one["resource"], _hours(one["resource"], one["used"])),
        *(_hours(one["resource"], amount) if known else NOTHING for amount in amounts),
        _hours(one["resource"], one["overcommitted"]) if known else NOTHING,
    )


def _names(by: Sequence[str], item: Document) -> Iterator[str]:
    for name in by:
        yield OTHERS if item["others"] else printable(item["keys"][name] or NOTHING)


def _csv(found: Document) -> None:
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(("since", "until", *found["by"], "others", "resource", "unit", "amount", "idle"))
    for item in found["items"]:
        unit, size = hour_unit(item["resource"])
        rows.writerow(
            (
                *(found["since"], found["until"]),
                *(csv_cell(item["keys"][name]) for name in found["by"]),
                *("true" if item["others"] else "false", item["resource"], unit),
                *(f"{item[name] / size:.6f}" for name in ("amount", "idle")),
            )
        )


def csv_cell(value: str | None) -> str:
    return f"'{value}" if value and _FORMULA.match(value) else value or ""


def _hours(resource: str, amount: float) -> str:
    return resource_hours(resource, amount, digits=2)
