"""`report`: figures from a ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from queuectl.cli import printing
from queuectl.cli.arguments import Since
from queuectl.cli.operating import call
from queuectl.cli.options import Options, with_options
from queuectl.cli.printing import Column
from queuectl.screen.text import figure

Document = dict[str, Any]


@click.group("report")
def report() -> None:
    """Report figures from a ledger."""


@report.command("observe")
@click.option(
    "--since", type=Since(), help="Only workloads first seen since then: 90m, 12h, 3d, or a time (UTC)."
)
@click.option("--cluster", help="UID of its namespace kube-system, if several clusters were observed.")
@click.option("--decisions", is_flag=True, help="List each decision, and its difference from reality.")
@with_options
def observe(options: Options, since: Any, cluster: str | None, decisions: bool) -> None:
    """Report what an observer would have done, and where that differs from what happened.

    Reads the ledger of `queuectl controller --observe` directly, not REST.
    """
    settings, _, _ = options.connected(cluster=False)
    from queuectl.shadow import report as reporting

    found = call(reporting.report(settings, cluster=cluster, since=since, decisions=decisions))
    if options.output != "table":
        printing.document(found, options.output)
        return
    _show(found)
    if decisions:
        _heading("Decisions")
        printing.table(_DECISIONS, [_decision(one) for one in found["decisions"]])


def _show(found: Document) -> None:
    begun = found["since"] or found["observingSince"]
    click.echo(f"Observed: {printing.printable(found['cluster'])}")
    click.echo(f"From {printing.local(begun)} to {printing.local(found['until'])}, nothing was written to it")
    _heading("What queuectl would have done")
    rows = [*found["queues"], {"name": "total", **found["total"]}]
    printing.table(_DONE, [_done(one) for one in rows])
    click.echo("(the wait of workloads that are not admitted yet counts up to the end of the report)")
    _heading("Where reality differs")
    printing.table(_DIFFERS, [_differs(one) for one in rows])
    _part("Why workloads would have been pending, or never have run", _WAITS, map(_wait, found["waits"]))
    _part("Workloads that would have been evicted", _EVICTIONS, map(_eviction, found["evictions"]))
    _part("Where more ran than the nominal quota", _EXCEEDED, map(_exceeded, found["exceeded"]))


def _heading(text: str) -> None:
    click.echo()
    click.echo(text)


def _part(text: str, columns: Sequence[Column], rows: Any) -> None:
    if found := list(rows):
        _heading(text)
        printing.table(columns, found)


_DONE: Final = printing.columns_of(
    "QUEUE",
    "WORKLOADS>",
    "AT ONCE>",
    "AFTER A WAIT>",
    "NOT YET>",
    "WAIT P50>",
    "P90>",
    "MAX>",
    "NEVER>",
    "HELD>",
    "RAN BEFORE>",
    "STOPPED>",
)


def _done(figures: Document) -> Sequence[object]:
    wait = figures["wait"]
    return (
        figures["name"],
        figures["workloads"],
        figures["admittedAtOnce"],
        figures["waited"],
        figures["waiting"],
        *(figure(wait[rank]) for rank in ("p50", "p90", "max")),
        figures["never"],
        figures["held"],
        figures["debt"],
        figures["evicted"],
    )


_DIFFERS: Final = printing.columns_of(
    "QUEUE",
    "RAN THOUGH IT WOULD WAIT>",
    "OVER BEFORE ITS TURN>",
    "WAITED LONGER IN REALITY>",
    "P50>",
    "MAX>",
    "OVER BEFORE SEEN>",
)


def _differs(figures: Document) -> Sequence[object]:
    sooner = figures["startedSooner"]
    return (
        figures["name"],
        figures["ranAnyway"],
        figures["overBeforeItsTurn"],
        sooner["workloads"],
        figure(sooner["p50"]),
        figure(sooner["max"]),
        figures["overBeforeSeen"],
    )


_WAITS: Final = printing.columns_of("QUEUE", "WORKLOADS>", "RAN ANYWAY>", "REASON", "EXAMPLE")


def _wait(one: Document) -> Sequence[object]:
    return (one["queue"], one["workloads"], one["ranAnyway"], one["reason"]["message"], one["example"])


_EVICTIONS: Final = printing.columns_of("QUEUE", "TIMES>", "BY", "REASON", "EXAMPLE")


def _eviction(one: Document) -> Sequence[object]:
    by = one["by"] or one["reason"].get("node")
    return (one["queue"], one["evictions"], by, one["reason"]["message"], one["example"])


_EXCEEDED: Final = printing.columns_of("CLUSTERQUEUE", "RESOURCE", "NOMINAL>", "MOST AT A TIME>", "AT")


def _exceeded(one: Document) -> Sequence[object]:
    amounts = (printing.amount(one["resource"], one[key]) for key in ("nominal", "peak"))
    return (one["clusterQueue"], one["resource"], *amounts, printing.local(one["at"]))


_DECISIONS: Final = printing.columns_of(
    "SEQUENCE>", "TIME", "WORKLOAD", "DECISION", "WHY", "REALITY", "DIFFERENCE"
)


def _decision(one: Document) -> Sequence[object]:
    return (
        one["sequence"],
        printing.local(one["time"]),
        f"{one['namespace']}/{one['kind']}/{one['name']}",
        one["verdict"],
        one["reason"]["message"] if one["reason"] else None,
        one["reality"],
        one["difference"],
    )
