"""`budget`: what is left of budgets, and by which rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import click

from queuectl.cli import printing, rest
from queuectl.cli.options import Options, command, with_options
from queuectl.cli.printing import NOTHING, field, local, shown, table_of
from queuectl.cli.rest import Document


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
    field("WORKLOAD", lambda item: item["workload"] or NOTHING),
    field("ATTEMPT>", "attempt", drop=2),
    field("RESERVED>", _hours("reserved")),
    field("USED>", _hours("used")),
    field("DECISION>", "sequence", wide=True),
)


@command("budget")
@click.argument("name", required=False)
@click.option("--why", is_flag=True, help="Also the rows that make the balance, the newest first. With NAME.")
@with_options
def budget(options: Options, name: str | None, why: bool) -> None:
    """Show what is left of the hours of Budgets in their present period.

    A Safe budget reserves the run time limit of what it admits; at the end, what was used is settled.
    """
    if why and name is None:
        raise click.UsageError("--why: needs the name of a Budget")
    server = rest.connect(options)
    found = server.get(("budgets",), {"budget": name} if name else {})
    if not why:
        found["rows"] = None
    if options.output != "table":
        printing.document(found, options.output)
        return
    table_of(_FIELDS, found["items"], wide=options.wide)
    if why:
        resource = found["items"][0]["resource"] if found["items"] else ""
        click.echo()
        table_of(_ROWS, [one | {"resource": resource} for one in found["rows"]], wide=options.wide)
