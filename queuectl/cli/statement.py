"""`statement`: what the usage of a month costs."""

from __future__ import annotations

import csv
import re
import sys
from functools import partial
from typing import Final

import click

from queuectl.cli import printing, rest
from queuectl.cli.operating import call
from queuectl.cli.options import CommandGroup, Options, with_options
from queuectl.cli.printing import NOTHING, columns_of, field, printable, shown, table_of
from queuectl.cli.rest import Document
from queuectl.cli.usage import OTHERS, csv_cell
from queuectl.ports.periods import MONTH_PATTERN
from queuectl.ports.rates import decimal, hour_unit, in_units, money

CSV: Final = "csv"
FOCUS: Final = "focus"
_MONTHS: Final = (
    *(
        field("MONTH", "month"),
        field("STATUS", "status"),
        field("TOTAL>", "total"),
        field("CURRENCY", "currency"),
    ),
    *(field("BEGINS", shown(printing.local, "since"), wide=True), field("ZONE", "zone", wide=True)),
    *(field("CLOSED", shown(printing.local, "closedAt")), field("BY", "closedBy", wide=True)),
    *(field("LINES>", "lines", wide=True), field("DIGEST", "digest", wide=True)),
)


class _MonthName(click.ParamType[str]):
    name = "month"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(MONTH_PATTERN, text := str(value)):
            self.fail(f"{text[:80]!r} is not a month such as 2026-11", param, ctx)
        return text


MONTH: Final = click.argument("month", metavar="YYYY-MM", type=_MonthName())
CLUSTER: Final = click.option(
    "--cluster", metavar="UID", help="Of its namespace kube-system, if there are several."
)


@click.group("statement", cls=CommandGroup)
def statement() -> None:
    """Show what months cost, close a month, correct a closed one."""


@statement.command("list")
@with_options
def list_(options: Options) -> None:
    """List closed and open months, the newest first."""
    found = rest.connect(options).get(("statements",))
    if not printing.as_document(found, options.output):
        table_of(_MONTHS, found["items"], wide=options.wide, none="no months found: nothing was decided yet")


@statement.command("show")
@MONTH
@click.option(
    "--by",
    default="user",
    show_default=True,
    metavar="NAMES",
    help="What to divide by, with commas: as usage, and kind or resource.",
)
@partial(with_options, formats=(CSV, FOCUS))
def show(options: Options, month: str, by: str) -> None:
    """Show what a month costs, or an open one so far.

    The rows add up to the total: what you may not read is one row. With -o focus the lines as CSV of FOCUS
    1.2: of an open month as computed now.
    """
    server = rest.connect(options)
    if options.output == FOCUS:
        _focus(server, month)
        return
    found = server.get(("statements", month), {"by": by})
    if options.output == CSV:
        _csv(found)
    elif not printing.as_document(found, options.output):
        _show(found)


def _show(found: Document) -> None:
    since, until = printing.local(found["since"]), printing.local(found["until"])
    click.echo(f"{found['month']} ({found['status']}), from {since} to {until}, in {found['currency']}")
    click.echo()
    names = tuple(name.upper() for name in found["by"])
    with_amounts = "resource" in found["by"]
    total = sum(decimal(item["exact"]) for item in found["items"])
    shares = in_units([decimal(item["exact"]) * 1000 for item in found["items"]], total) if total > 0 else ()
    rows = [
        (
            *_names(found, item),
            *((_hours(item),) if with_amounts else ()),
            item["cost"],
            f"{money(shares[n] * 100_000, 1)}%" if shares else NOTHING,
        )
        for n, item in enumerate(found["items"])
    ]
    blank = [""] * (len(names) - 1 + with_amounts)
    columns = columns_of(*names, *(("HELD>",) if with_amounts else ()), "COST>", "SHARE>")
    printing.table(columns, [*rows, ("total", *blank, found["rounded"], "100.0%" if shares else NOTHING)])
    if found["unpriced"]:
        click.echo(f"\nWithout a rate: {printable(', '.join(found['unpriced']))}")
    if decimal(found["corrections"]):
        click.echo(f"\nCorrected in later months: {found['corrections']}")


def _names(found: Document, item: Document) -> list[str]:
    return [OTHERS if item["others"] else printable(item["keys"][name] or NOTHING) for name in found["by"]]


def _hours(item: Document) -> str:
    """Held, in device-, core- or GiB-hours."""
    if item["amount"] is None or not (resource := item["keys"]["resource"]):
        return NOTHING
    return money(in_units([int(item["amount"]) * 100], hour_unit(resource)[1] * 3_600_000_000)[0] * 10_000, 2)


def _csv(found: Document) -> None:
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(("month", "status", *found["by"], "others", "currency", "cost", "exact"))
    for item in found["items"]:
        keys = (csv_cell(item["keys"][name]) for name in found["by"])
        others = "true" if item["others"] else "false"
        rows.writerow(
            (found["month"], found["status"], *keys, others, found["currency"], item["cost"], item["exact"])
        )


def _focus(server: rest.Server, month: str) -> None:
    if items := server.get(("statements", month, "focus"))["items"]:
        rows = csv.DictWriter(sys.stdout, items[0], lineterminator="\n")
        rows.writeheader()
        rows.writerows({name: csv_cell(value) for name, value in item.items()} for item in items)


# --- what writes to the ledger


@statement.command("close")
@MONTH
@CLUSTER
@with_options
def close(options: Options, month: str, cluster: str | None) -> None:
    """Close a month that is over: nothing of its statement changes any more.

    Writes to the ledger: who has its database URL may close. The months are closed in their order.
    """
    settings, _, _ = options.connected(cluster=False)
    from queuectl.app import statements

    found = call(statements.close(settings, month, cluster))
    if options.output != "table":
        how = {"lines": found.lines, "digest": found.digest, "total": money(found.total, 6)}
        when = {"closedAt": found.closed_at.isoformat(), "closedBy": found.closed_by}
        printing.document({"month": month, "currency": found.currency} | how | when, options.output)
        return
    unit = 10 ** (6 - found.decimals)
    total = money(in_units([found.total], unit)[0] * unit, found.decimals)
    cost = f"{total} {found.currency} in {found.lines} lines"
    click.echo(f"{month} is closed: {cost}, digest {found.digest[:12]}")


@statement.command("correct")
@MONTH
@click.option("--reason", required=True, metavar="TEXT", help="Why, in one line.")
@CLUSTER
@with_options
def correct(options: Options, month: str, reason: str, cluster: str | None) -> None:
    """Correct a closed month by new lines, in the month that is closed next.

    The month is computed again, at the rates that are configured now, and the difference is added. Writes to
    the ledger, as close does.
    """
    if not 1 <= len(reason.strip()) <= 200 or not reason.isprintable():
        raise click.UsageError("--reason: one line of 1 to 200 characters")
    settings, _, _ = options.connected(cluster=False)
    from queuectl.app import statements

    found = call(statements.correct(settings, month, reason.strip(), cluster))
    if options.output != "table":
        numbers = {"lines": found.lines, "cost": money(found.cost, 6), "currency": found.currency}
        printing.document({"month": month, "openMonth": found.open_month} | numbers, options.output)
    elif found.lines:
        cost = f"{money(found.cost, 6)} {found.currency} in {found.lines} lines"
        click.echo(f"{month} is corrected by {cost}, in the statement of {found.open_month}")
    else:
        click.echo(f"{month} needs no correction: it costs the same at the rates that are configured now")
