"""Why one workload is pending, admitted or evicted, on one page."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import click

from queuectl.cli import rest
from queuectl.cli.arguments import meant
from queuectl.cli.decisions import why
from queuectl.cli.options import Failure
from queuectl.cli.printing import device_times, field, local, printable, shown, table_of
from queuectl.cli.rest import Document, Server
from queuectl.core.model.policy import cohorts_above
from queuectl.screen import explanation
from queuectl.screen.text import age

_MAX_DEPTH: Final = 64
_NARROW: Final = 20
"""Least width of the text column."""
_FIELDS: Final = (
    field("TIME", shown(local, "time")),
    field("DECISION", "verdict"),
    field("ATTEMPT>", "attempt"),
    field("WHY", why),
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Further objects that matter for it; those the caller may not read are left out."""

    nodes: tuple[Document, ...] = ()
    """Its ClusterQueue and the cohorts above it, from the bottom."""
    queues: tuple[str, ...] = ()
    """LocalQueues of its namespace, if its own does not exist."""
    changes: tuple[Document, ...] | None = None
    """The smallest changes with which it starts; None: it is not pending, or they cannot be tried."""


def surroundings(server: Server, workload: Document) -> Surroundings:
    reason = workload["reason"] or {}
    queues: tuple[str, ...] = ()
    if reason.get("code") == "QueueNotFound":
        found = _items(server, "localqueues", {"namespace": workload["namespace"]})
        queues = tuple(item["name"] for item in found)
    nodes = tuple(_above(server, workload["clusterQueue"])) if workload["clusterQueue"] else ()
    return Surroundings(nodes, queues, changes(server, workload))


def changes(server: Server, workload: Document) -> tuple[Document, ...] | None:
    """The smallest changes with which it starts, each with its `command`; None as in Surroundings."""
    path = ("workloads", workload["namespace"], workload["kind"], workload["name"], "counterfactuals")
    if workload["phase"] != "Pending" or server.looks_back:
        return None
    try:
        found = server.get(path, quiet=True)["items"]
    except Failure:
        return None
    return tuple({**one, "command": _command(workload, one.get("fit"))} for one in found)


def _command(workload: Document, fit: Document | None) -> str | None:
    """The command line that makes a change of size; None: there is none."""
    if fit is None:
        return None
    options = (("--gpus", "gpus"), ("--pods", "pods"), ("--podset", "podSet"))
    given = (f" {option} {fit[field]}" for option, field in options if fit[field] is not None)
    name = f"{workload['kind'].lower()}/{workload['name']} -n {workload['namespace']}"
    return f"queuectl fit {name}{''.join(given)}"


def _above(server: Server, queue: str) -> Iterator[Document]:
    """The queue, its cohort, the parent of the cohort, and so on."""
    try:
        node = server.get(("clusterqueues", queue), quiet=True)
    except Failure:
        return
    yield {"object": f"ClusterQueue/{queue}", **node}
    nearest = node["cohort"]
    cohorts = {item["name"]: item for item in _items(server, "cohorts", {})} if nearest else {}
    for name in cohorts_above(nearest, lambda name: cohorts.get(name, {}).get("parent"))[:_MAX_DEPTH]:
        yield {"object": f"Cohort/{name}", **cohorts.get(name, {})}


def _items(server: Server, resource: str, parameters: dict[str, str]) -> list[Document]:
    """The first page only. Empty if it cannot be read."""
    try:
        found = server.get((resource,), {**parameters, "limit": str(rest.PAGE)}, quiet=True)
    except Failure:
        return []
    return list(found["items"])


def show(workload: Document, history: Document | None, around: Surroundings, now: datetime | None) -> None:
    """`history`: None if the ledger cannot be read; `now`: the server's clock."""
    click.echo(explanation.headline(workload))
    click.echo()
    lines = [*explanation.lines(workload, now, around.nodes, around.changes or ())]
    if around.queues:
        near = meant(workload["queue"], around.queues)
        lines.append(("Queues here", f"{', '.join(sorted(around.queues))}{near}"))
    lines += _stopped(history, now)
    width = max((len(label) for label, _ in lines), default=0) + 2
    for label, text in lines:
        click.echo(_hanging(f"{label:<{width}}", printable(text)))
    click.echo()
    if history is None:
        click.echo("History: not available while the ledger cannot be reached")
        return
    click.echo("History")
    table_of(_FIELDS, history["items"])


def show_story(found: Document) -> None:
    """In the form in which the controller prints the story of a workload in its errors."""
    from queuectl.core.entries import WorkloadEvent, story

    remarks = (
        WorkloadEvent(
            datetime.fromisoformat(item["time"]).astimezone(UTC),
            printable(item["what"]),
            printable(item["detail"]),
        )
        for item in found["items"]
    )
    click.echo(story(remarks))


def _hanging(label: str, text: str) -> str:
    """In a terminal wrapped between words, with a hanging indent; in a pipe one line."""
    if not sys.stdout.isatty():
        return label + text
    width = max(shutil.get_terminal_size().columns, len(label) + _NARROW)
    rest = " " * len(label)
    return textwrap.fill(
        text,
        width,
        initial_indent=label,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _stopped(history: Document | None, now: datetime | None) -> Iterator[tuple[str, str]]:
    """The last eviction, and what it cost."""
    found = last_stop(history["items"]) if history is not None else None
    if found is not None:
        yield "Last stop", f"{explanation.when(found[0], now)}: {found[1]}"


_CHARGED: Final = ("Admitted", "Shrunk")


def last_stop(history: Sequence[Document]) -> tuple[str, str] | None:
    """Time and text of the last eviction, with the run time and the device hours that were lost with it.

    `history`: decisions, oldest first. None: none of them is an eviction. Without the admission of that
    attempt its cost is not known.
    """
    stop = next((row for row in reversed(history) if row["verdict"] == "Evicted"), None)
    if stop is None:
        return None
    attempt = [row for row in history if row["attempt"] == stop["attempt"]]
    text = why(stop) or stop["verdict"]
    admitted = next((row for row in attempt if row["verdict"] == "Admitted"), None)
    if admitted is None:
        return stop["time"], text
    ran = datetime.fromisoformat(stop["time"]) - datetime.fromisoformat(admitted["time"])
    held = [row["details"].get("podSets") for row in attempt if row["verdict"] in _CHARGED][-1] or ()
    lost: dict[str, float] = {}
    for pods in held:
        for resource, each in pods["requests"].items():
            time = int(each) * int(pods["count"]) * ran.total_seconds()
            lost[resource] = lost.get(resource, 0) + time
    text += f"; attempt {stop['attempt']} ran {age(ran.total_seconds())}"
    return stop["time"], ", ".join((text, *device_times(lost)))
