"""Why one workload waits, on one screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from queuectl.cli.printing import amount, printable, table
from queuectl.cli.rest import Document

_DETAILS: Final = ("queue", "clusterQueue", "priority", "outcome", "debt", "detail")


def show(workload: Document, history: Document | None) -> None:
    """`history`: None where the ledger can't be asked."""
    click.echo(headline(workload))
    click.echo()
    lines = list(_lines(workload))
    width = max((len(label) for label, _ in lines), default=0) + 2
    for label, text in lines:
        click.echo(f"{label:<{width}}{printable(text)}")
    click.echo()
    if history is None:
        click.echo("History: not available while the ledger can't be reached")
        return
    click.echo("History")
    table(
        ("SEQUENCE", "TIME", "DECISION", "ATTEMPT", "WHY"),
        [
            (
                row["sequence"],
                row["time"],
                row["verdict"],
                row["attempt"],
                row["reason"]["message"] if row["reason"] else _details(row["details"]),
            )
            for row in history["items"]
        ],
    )


def headline(workload: Document) -> str:
    name = printable(f"{workload['kind']} {workload['namespace']}/{workload['name']}")
    text = f"{name}: {workload['phase']}"
    if workload["position"] is not None:
        text += f", position {workload['position']} of {workload['line']}"
    if workload["clusterQueue"]:
        text += f" in ClusterQueue {printable(workload['clusterQueue'])}"
    return text


def _lines(workload: Document) -> Iterator[tuple[str, str]]:
    yield "Queue", f"{workload['namespace']}/{workload['queue']}, priority {workload['priority']}"
    yield "Created", workload["createdAt"] + (f" by {workload['submitter']}" if workload["submitter"] else "")
    if workload["admission"]:
        yield "Admitted", f"{workload['admittedAt']}, attempt {workload['attempt']}"
        for pods in workload["admission"]["podSets"]:
            yield "Holds", _pod_set(pods)
    reason = workload["reason"]
    if reason:
        yield "Reason", reason["message"]
        yield from _numbers(reason)
        for other in reason["others"]:
            yield "Also tried", other["message"]
    for holder in workload["holders"]:
        who = (
            f"{holder['namespace']}/{holder['kind']}/{holder['name']}"
            if holder["name"]
            else "another tenant's"
        )
        yield "Held by", f"{who}: {amount(reason['resource'], holder['amount'])} since {holder['since']}"
    if workload["help"]:
        yield "Would help", workload["help"]


def _numbers(reason: Document) -> Iterator[tuple[str, str]]:
    resource = reason["resource"]
    if reason["limit"] or reason["node"]:
        yield "Limit", " of ".join(part for part in (reason["limit"], reason["node"]) if part)
    if resource is None:
        return
    where = f" of flavor {reason['flavor']}" if reason["flavor"] else ""
    most = "At most" if reason["code"] == "ExceedsMaxQuota" else "Available"
    for label, key in (("Requested", "requested"), (most, "available"), ("Short by", "shortBy")):
        if reason[key] is not None:
            yield label, f"{amount(resource, reason[key])} {resource}{where}"


def _pod_set(pods: Document) -> str:
    each = ", ".join(
        f"{amount(resource, value)} {resource} of {pods['flavors'].get(resource, '-')}"
        for resource, value in sorted(pods["requests"].items())
    )
    return f"{pods['name']}: {pods['count']} x ({each})"


def _details(details: dict[str, Any]) -> str | None:
    """What else a decision says that people ask for, in `key=value` form."""
    found = [f"{key}={details[key]}" for key in _DETAILS if details.get(key) not in (None, False)]
    return " ".join(found) or None
