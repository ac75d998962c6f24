"""`limits`: what users, accounts or all use of UsageLimits."""

from __future__ import annotations

from typing import Final

import click

from queuectl.cli import printing, rest
from queuectl.cli.options import Options, command, with_options
from queuectl.cli.printing import field, quantity, table_of
from queuectl.cli.reading import AS_OF, When, own_name
from queuectl.cli.rest import Document


def _resource(item: Document) -> str:
    flavor = f" of {item['flavor']}" if item["flavor"] else ""
    return f"{item['resource']}{flavor}"


_FIELDS: Final = (
    field("LIMIT", "usageLimit"),
    field("TARGET", "target", drop=1),
    field("SUBJECT", lambda item: item["subject"] or "(all)"),
    field("RESOURCE", _resource),
    field("USED>", quantity("used")),
    field("MOST>", quantity("limit")),
    field("LEFT>", quantity("left")),
    field("WAITING>", "waiting"),
    field("BINDS", lambda item: "yes" if item["binding"] else printing.NOTHING),
)


@command("limits")
@click.option("--mine", is_flag=True, help="Those that apply to your own workloads.")
@click.option("--submitter", metavar="USER", help="Those that apply to workloads of this user.")
@AS_OF
@with_options
def limits(options: Options, mine: bool, submitter: str | None, as_of: When) -> None:
    """Show what users, accounts or all together use of UsageLimits.

    WAITING: pending workloads that wait for this limit. BINDS: of the limits on this resource that apply to
    some workload, it has the least left.
    """
    if mine and submitter is not None:
        raise click.UsageError("--mine and --submitter exclude each other")
    server = rest.connect(options)
    server.look_back(as_of)
    submitter = own_name(options) if mine else submitter
    found = server.all(("usagelimits",), {"submitter": submitter} if submitter else {})
    if not printing.as_document(found, options.output):
        none = "no limits found: there are no UsageLimits, or none of what you may read counts"
        table_of(_FIELDS, found["items"], wide=options.wide, none=none)
