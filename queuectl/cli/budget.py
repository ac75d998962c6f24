"""`budget`: what is left of budgets, and by which rows; hours that are granted or refunded by hand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import ROUND_DOWN, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

import click

from queuectl.cli import printing, rest, writing
from queuectl.cli.arguments import BeginTime
from queuectl.cli.changing import say
from queuectl.cli.options import CommandGroup, NotGood, Options, with_options
from queuectl.cli.printing import field, local, shown, table_of
from queuectl.cli.rest import Document

if TYPE_CHECKING:
    from queuectl.kube.session import Session


def _hours(name: str) -> Callable[[Document], str]:
    """Hours of one unit of the resource, with one decimal."""

    def shown_hours(item: Document) -> str:
        units = 1000 if item["resource"] == "cpu" else 1
        return f"{item[name] / units:.1f}"

    return shown_hours


_FIELDS: Final = (
    field("BUDGET", "budget"),
    field("SUBJECT", lambda item: item["subject"] or "(all)"),
    field("RESOURCE", "resource"),
    field("HOURS>", _hours("hours")),
    field("USED>", _hours("used")),
    field("RESERVED>", _hours("reserved")),
    field("LEFT>", _hours("left")),
    field("GRANTED>", _hours("granted"), wide=True),
    field("ENDS", shown(local, "ends"), drop=1),
    field("MODE", "mode", wide=True),
    field("ON EXHAUSTED", "onExhausted", wide=True),
    field("TARGET", "target", wide=True),
    field("BEGINS", shown(local, "begins"), wide=True),
)
_ROWS: Final = (
    field("TIME", shown(local, "at")),
    field("KIND", "kind"),
    field("SUBJECT", lambda item: item["subject"] or "(all)", drop=1),
    field("WORKLOAD", "workload"),
    field("ATTEMPT>", "attempt", drop=2),
    field("RESERVED>", _hours("reserved")),
    field("USED>", _hours("used")),
    field("GRANTED>", _hours("granted"), drop=3),
    field("AUTHOR", "author", wide=True),
    field("REASON", "reason", wide=True),
    field("DECISION>", "sequence", wide=True),
)
_AT: Final = click.option(
    "--at",
    type=BeginTime(),
    default="0s",
    metavar="TIME",
    help="A time in the period that they are for.  [default: now]",
)
_REASON: Final = click.option("--reason", required=True, help="Why: the ledger keeps it with the author.")


class _Budget(CommandGroup):
    """`budget NAME` is `budget show NAME`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] not in ([one] for one in (*self.commands, "-h", "--help")):
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group("budget", cls=_Budget)
def budget() -> None:
    """Show what is left of GPU hours, and why.

    `budget [NAME]` is `budget show [NAME]`. Hours are granted and refunded by hand, too.
    """


@budget.command("show")
@click.argument("name", required=False)
@click.option("--why", is_flag=True, help="Also the rows that make the balance, the newest first. With NAME.")
@with_options
def show(options: Options, name: str | None, why: bool) -> None:
    """Show what is left of the hours of Budgets in their present period.

    A Safe budget reserves the run time limit of what it admits; at the end, what was used is settled.
    """
    if why and name is None:
        raise click.UsageError("--why: needs the name of a Budget")
    server = rest.connect(options)
    found = server.get(("budgets",), {"budget": name} if name else {})
    if not why:
        found["rows"] = None
    if printing.as_document(found, options.output):
        return
    none = "no budgets found: there are none, or none of what you may read counts"
    table_of(_FIELDS, found["items"], wide=options.wide, none=none)
    if why:
        resource = found["items"][0]["resource"] if found["items"] else ""
        click.echo()
        table_of(
            _ROWS,
            [one | {"resource": resource} for one in found["rows"]],
            wide=options.wide,
            none="no rows found",
        )


@budget.command("grant")
@click.argument("name")
@click.argument("hours")
@click.option("--subject", help="The user, or the value of the account key.  [default: each]")
@_AT
@_REASON
@with_options
def grant(options: Options, name: str, hours: str, subject: str | None, at: datetime, reason: str) -> None:
    """Grant hours beside those of a Budget, in one period. With your rights: patch and grant on budgets."""
    _give(options, name, at, {"hours": hours, "subject": subject, "reason": reason})


@budget.command("refund")
@click.argument("name")
@click.argument("workload", metavar="NAMESPACE/KIND/NAME")
@click.option("--hours", help="At most those that it has used.  [default: all of them]")
@_AT
@_REASON
@with_options
def refund(options: Options, name: str, workload: str, hours: str | None, at: datetime, reason: str) -> None:
    """Give back what a workload has used of a Budget in its present period, as far as it is settled."""
    found = rest.connect(options).get(("budgets",), {"budget": name})
    rows = [one for one in found["rows"] if one["workload"] == workload]
    units = 1000 if found["items"] and found["items"][0]["resource"] == "cpu" else 1
    used = Decimal(sum(one["used"] - one["granted"] for one in rows)) / units
    most = used.quantize(Decimal("0.001"), ROUND_DOWN)
    try:
        given = most if hours is None else Decimal(hours)
    except InvalidOperation:
        raise click.UsageError(f"--hours: {hours!r} is not a number") from None
    if not 0 < given <= most:
        raise NotGood(f"{workload} has used {most} hours of Budget/{name} that are not refunded")
    subject = next((one["subject"] for one in rows if one["subject"]), None)
    grants = {"hours": str(given), "subject": subject, "workload": workload, "reason": reason}
    _give(options, name, at, grants)


def _give(options: Options, name: str, at: datetime, given: dict[str, str | None]) -> None:
    from queuectl.changes import edit

    target = writing.target(lambda: edit.budget(name))
    added = {"at": f"{at:%Y-%m-%dT%H:%M:%SZ}"} | {key: one for key, one in given.items() if one is not None}

    async def work(session: Session) -> None:
        change = await edit.grant(session, target, added)
        say(change, options, f"`queuectl budget {name} --why` shows it once the controller has seen it.")

    writing.run(options, target, work)
