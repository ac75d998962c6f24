"""`eta`: when a pending workload starts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import click

from queuectl.cli import printing
from queuectl.cli.options import Options, with_options
from queuectl.cli.printing import Column, printable
from queuectl.cli.reading import NAMESPACE, WORKLOAD, workload_of
from queuectl.cli.rest import Document
from queuectl.screen.text import figure

_ROWS: Final = (("low", "10% start before"), ("median", "median"), ("high", "90% start before"))
_TABLE: Final = (Column("START"), Column("IN", right=True), Column("AT"))

TIMEOUT_SECONDS: Final = 75.0
"""More than the minute that the server takes at most."""


@click.command("eta")
@WORKLOAD
@NAMESPACE
@with_options
def eta(options: Options, workload: str, namespace: str | None) -> None:
    """Show when a pending workload starts: the median, and the interval that holds 8 of 10 starts.

    The queues of its cohort tree are played forward many times, with run times and arrivals drawn from the
    last weeks. It may take a minute if many workloads wait. Changes of policy, and nodes that come or fail,
    are not part of it. Of a workload that does not wait it tells when it started and ended.
    """
    server, path, _ = workload_of(options, workload, namespace, timeout=TIMEOUT_SECONDS)
    found = server.get((*path, "eta"))
    if options.output != "table":
        printing.document(found, options.output)
        return
    name = printable(f"{found['kind']} {found['namespace']}/{found['name']}")
    if found["unknown"] is not None:
        known = _known(found) or f"start unknown: {printable(found['unknown'])}"
        click.echo(f"{name}: {found['phase']}, {known}")
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
