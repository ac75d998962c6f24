"""`report`: figures from a ledger."""

from __future__ import annotations

from typing import Any, Final

import click

from queuectl.cli import printing
from queuectl.cli.arguments import Since
from queuectl.cli.operating import call
from queuectl.cli.options import CommandGroup, Options, with_options
from queuectl.cli.printing import field, quantity, section, shown
from queuectl.screen.text import figure

Document = dict[str, Any]


@click.group("report", cls=CommandGroup)
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

    Reads the ledger of `queuectl controller --observe` directly, not REST, and from the cluster which
    objects were not looked at.
    """
    settings, kubeconfig, context = options.connected(cluster=False)
    from queuectl.app import upkeep

    asked = upkeep.observed(settings, kubeconfig, context, cluster=cluster, since=since, decisions=decisions)
    found = call(asked)
    if printing.as_document(found, options.output):
        return
    _show(found)
    if decisions:
        section("Decisions", _DECISIONS, found["decisions"])


def _show(found: Document) -> None:
    begun = found["since"] or found["observingSince"]
    click.echo(f"Observed: {printing.printable(found['cluster'])}")
    click.echo(f"From {printing.local(begun)} to {printing.local(found['until'])}, nothing was written to it")
    if found["notLookedAt"]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(found["notLookedAt"].items()))
        click.echo(f"Not looked at, without a queue label: {kinds} (the observer's --default-queue does)")
    rows = [*found["queues"], {"name": "total", **found["total"]}]
    section("What queuectl would have done", _DONE, rows)
    click.echo("(the wait of workloads that are not admitted yet counts up to the end of the report)")
    section("Where reality differs", _DIFFERS, rows)
    for title, fields, rows in (
        ("Why workloads would have been pending, or never have run", _WAITS, found["waits"]),
        ("Workloads that would have been evicted", _EVICTIONS, found["evictions"]),
        ("Where more ran than the nominal quota", _EXCEEDED, found["exceeded"]),
    ):
        if rows:
            section(title, fields, rows)


_DONE: Final = (
    field("QUEUE", "name"),
    field("WORKLOADS>", "workloads"),
    field("AT ONCE>", "admittedAtOnce"),
    field("AFTER A WAIT>", "waited"),
    field("NOT YET>", "waiting"),
    field("WAIT P50>", shown(figure, "wait.p50")),
    field("P90>", shown(figure, "wait.p90")),
    field("MAX>", shown(figure, "wait.max")),
    field("NEVER>", "never"),
    field("HELD>", "held"),
    field("RAN BEFORE>", "debt"),
    field("STOPPED>", "evicted"),
)
_DIFFERS: Final = (
    field("QUEUE", "name"),
    field("RAN THOUGH IT WOULD WAIT>", "ranAnyway"),
    field("OVER BEFORE ITS TURN>", "overBeforeItsTurn"),
    field("WAITED LONGER IN REALITY>", "startedSooner.workloads"),
    field("P50>", shown(figure, "startedSooner.p50")),
    field("MAX>", shown(figure, "startedSooner.max")),
    field("OVER BEFORE SEEN>", "overBeforeSeen"),
)
_WAITS: Final = (
    field("QUEUE", "queue"),
    field("WORKLOADS>", "workloads"),
    field("RAN ANYWAY>", "ranAnyway"),
    field("REASON", "reason.message"),
    field("EXAMPLE", "example"),
)
_EVICTIONS: Final = (
    field("QUEUE", "queue"),
    field("TIMES>", "evictions"),
    field("BY", lambda one: one["by"] or one["reason"].get("node")),
    field("REASON", "reason.message"),
    field("EXAMPLE", "example"),
)
_EXCEEDED: Final = (
    field("CLUSTERQUEUE", "clusterQueue"),
    field("RESOURCE", "resource"),
    field("NOMINAL>", quantity("nominal")),
    field("MOST AT A TIME>", quantity("peak")),
    field("AT", shown(printing.local, "at")),
)
_DECISIONS: Final = (
    field("SEQUENCE>", "sequence"),
    field("TIME", shown(printing.local, "time")),
    field("WORKLOAD", lambda one: f"{one['namespace']}/{one['kind']}/{one['name']}"),
    field("DECISION", "verdict"),
    field("WHY", "reason.message"),
    field("REALITY", "reality"),
    field("DIFFERENCE", "difference"),
)
