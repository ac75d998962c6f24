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
from queuectl.cli.printing import (
    ago,
    amount,
    device_times,
    field,
    local,
    printable,
    share_of,
    shown,
    table_of,
)
from queuectl.cli.resources import phase
from queuectl.cli.rest import Document, Server
from queuectl.core.model.policy import cohorts_above
from queuectl.screen.text import age

_MAX_DEPTH: Final = 64
_NARROW: Final = 20
"""Least width of the text column."""
_HIDDEN: Final = "a workload not shown to you"
_GOALS: Final = {
    "PodsReady": "all its pods are ready",
    "Scheduling": "all its pods are bound to nodes",
    "Startup": "all its pods are ready, now that they are bound",
    "Recovery": "all its pods are ready again",
}
"""By the clock that runs (L14, L24 to L26), what it asks for."""
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
    click.echo(headline(workload))
    click.echo()
    lines = [*_lines(workload, around, now), *_stopped(history, now)]
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


def headline(workload: Document) -> str:
    name = printable(f"{workload['kind']} {workload['namespace']}/{workload['name']}")
    text = f"{name}: {phase(workload)}"
    if workload["position"] is not None:
        text += f", position {workload['position']} of {workload['line']}"
    if workload["clusterQueue"]:
        text += f" in ClusterQueue {printable(workload['clusterQueue'])}"
    return text


def _lines(workload: Document, around: Surroundings, now: datetime | None) -> Iterator[tuple[str, str]]:
    yield "Queue", f"{workload['namespace']}/{workload['queue']}, priority {workload['priority']}"
    for one in workload.get("lowered", ()):  # absent: of an older server
        yield "Lowered", f"by {one['policy']} to the priority of WorkloadPriorityClass {one['priorityClass']}"
    by = f" by {workload['submitter']}" if workload["submitter"] else ""
    yield "Created", _when(workload["createdAt"], now) + by
    yield from _pods(workload, now)
    yield from _end(workload.get("end"), now)
    reason = workload["reason"]
    if reason:
        yield "Reason", reason["message"]
        yield from _numbers(reason)
        yield from _tree(reason, around.nodes)
        yield from _other_limits(workload, reason)
        for other in reason["others"]:
            yield "Also tried", other["message"]
        for one in reason["victims"]:
            who = one["who"] or _HIDDEN
            yield "Considered", f"{who}: {one['why']}"
    yield from _holders(workload, now)
    yield from _lent(workload)
    yield from _line_ahead(workload)
    if workload["help"]:
        yield "Would help", workload["help"]
    for change in around.changes or ():
        yield "With", change_text(change)
        if change["command"]:
            yield "Command", change["command"]
    if around.queues:
        near = meant(workload["queue"], around.queues)
        yield "Queues here", f"{', '.join(sorted(around.queues))}{near}"


def change_text(change: Document) -> str:
    """A change, and which workloads it displaces."""
    names = ", ".join(map(named, change["displaces"]))
    return f"{change['message']}: {names}" if names else str(change["message"])


def named(one: Document) -> str:
    """A workload that may not be shown to the caller."""
    return f"{one['namespace']}/{one['kind']}/{one['name']}" if one["name"] else _HIDDEN


def _pods(workload: Document, now: datetime | None) -> Iterator[tuple[str, str]]:
    for text in filter(None, map(requested, workload.get("podSets") or ())):
        yield "Requests", text
    if workload["admission"]:
        yield "Admitted", f"{_when(workload['admittedAt'], now)}, attempt {workload['attempt']}"
        if booked := workload.get("booked"):
            named = (f"{key} {value or 'unassigned'}" for key, value in booked.items())
            yield "Booked", f"on {', '.join(named)}"
        if workload.get("podsReady") is not None:
            yield "Pods", f"{workload['podsReady']} of {workload['pods']} ready"
        if workload.get("podsMissing"):
            yield "Missing", workload["podsMissing"]
        if (clock := workload.get("readiness")) is not None:
            goal = _GOALS.get(clock["clock"], clock["clock"])
            yield "Deadline", f"{local(clock['until'])}: {goal}, else it is evicted"
        for pods in workload["admission"]["podSets"]:
            yield "Holds", pod_set_text(pods)


def _end(end: Document | None, now: datetime | None) -> Iterator[tuple[str, str]]:
    """How a workload that is over ended, and its attempts that ended otherwise."""
    if end is None:
        return
    if end["startedAt"]:
        yield "Started", _when(end["startedAt"], now)
    held = f"{end['outcome']}, held quota for {age(end['heldSeconds'])} in all" if end["attempts"] else ""
    used = device_times(end.get("resourceSeconds"))  # absent: of an older server
    yield "Ended", f"{_when(end['endedAt'], now)}: {', '.join((held or end['outcome'], *used))}"
    if end.get("failure"):  # absent: of an older server
        yield "Failure", end["failure"]
    for one in end["attempts"][:-1]:
        ended = f"{one['outcome']}, ended {_when(one['endedAt'], now)}"
        yield f"Attempt {one['number']}", ", ".join((ended, *device_times(one.get("resourceSeconds"))))


def _stopped(history: Document | None, now: datetime | None) -> Iterator[tuple[str, str]]:
    """The last eviction, and what it cost."""
    found = last_stop(history["items"]) if history is not None else None
    if found is not None:
        yield "Last stop", f"{_when(found[0], now)}: {found[1]}"


def _when(stamp: str | None, now: datetime | None) -> str:
    return local(stamp) if now is None else f"{local(stamp)} ({ago(stamp, now)} ago)"


def _holders(workload: Document, now: datetime | None) -> Iterator[tuple[str, str]]:
    for holder in workload["holders"]:
        yield "Held by", _holder(holder, workload["reason"]["resource"], now)
    if more := workload.get("moreHolders"):  # absent: of an older server
        yield "Held by", f"{more} more"


def _holder(holder: Document, resource: str, now: datetime | None) -> str:
    return f"{named(holder)}: {amount(resource, holder['amount'])} since {_when(holder['since'], now)}"


def _lent(workload: Document) -> Iterator[tuple[str, str]]:
    """What other queues have borrowed of its queue's own quota."""
    lent, reason = workload.get("lent"), workload["reason"]
    if not lent:
        return
    resource = reason["resource"]
    queue = f"ClusterQueue {workload['clusterQueue']}"
    text = f"{amount(resource, lent['amount'])} {resource} of the quota of {queue}"
    if not lent["reclaims"]:
        text += ", which does not reclaim it (reclaimWithinCohort is Never)"
    yield "Lent", text
    for one in lent["borrowers"]:
        name = f"ClusterQueue {one['clusterQueue']}" if one["clusterQueue"] else "a queue not shown to you"
        shares = ""
        if one["share"] is not None and lent["share"] is not None:
            shares = f"; shares: {share_of(one['share'])}, and {share_of(lent['share'])} of {queue}"
        yield "Borrowed by", f"{name}: {amount(resource, one['amount'])}{shares}"


def _line_ahead(workload: Document) -> Iterator[tuple[str, str]]:
    if not workload["position"]:
        return
    count = workload["position"] - 1
    if count == 0:
        yield "Ahead", "none: it is the head of the pending queue"
        return
    known = [item for item in workload.get("ahead") or () if item["name"]]
    names = [f"{item['namespace']}/{item['kind'].lower()}/{item['name']}" for item in known]
    others = count - len(names)
    if names and others:
        names.append(f"{others} more")
    text = f"{count} in the pending queue" + (f": {', '.join(names)}" if names else "")
    size = (workload.get("aheadSize") or {}).get("requests") or {}
    asks = ", ".join(f"{amount(resource, value)} {resource}" for resource, value in sorted(size.items()))
    yield "Ahead", f"{text}; in all {asks}" if asks else text


_AT_MOST: Final = ("ExceedsMaxQuota", "ExceedsResourceQuota", "OutsideUsageLimit")
"""Codes where `available` is what there is at most, whatever ends."""


def _numbers(reason: Document) -> Iterator[tuple[str, str]]:
    resource = reason["resource"]
    if reason["limit"] or reason["node"]:
        yield "Limit", " of ".join(part for part in (reason["limit"], reason["node"]) if part)
    if resource is None:
        return
    where = " hours" if reason["limit"] == "spec.hours" else ""
    where += f" of flavor {reason['flavor']}" if reason["flavor"] else ""
    most = "At most" if reason["code"] in _AT_MOST else "Available"
    for label, key in (("Requested", "requested"), (most, "available"), ("Short by", "shortBy")):
        if reason[key] is not None:
            yield label, f"{amount(resource, reason[key])} {resource}{where}"


def _tree(reason: Document, nodes: tuple[Document, ...]) -> Iterator[tuple[str, str]]:
    """The nodes above it, from the root down, where its reason is about one or its quota; that is marked."""
    binds = any(node["object"] == reason["node"] for node in nodes)
    if len(nodes) < 2 or not (reason["flavor"] or binds):
        return
    shown = []
    for node in reversed(nodes):
        cell = next(
            (
                cell
                for cell in node.get("flavors") or ()
                if (cell["flavor"], cell["resource"]) == (reason["flavor"], reason["resource"])
            ),
            None,
        )
        text = node["object"]
        if cell is not None:
            used, nominal = (amount(cell["resource"], cell[key]) for key in ("used", "nominal"))
            text += f" {used}/{nominal}"
        shown.append(f"{text} (binds)" if node["object"] == reason["node"] else text)
    yield "Tree", " > ".join(shown)


def _other_limits(workload: Document, reason: Document) -> Iterator[tuple[str, str]]:
    for one in workload.get("limits") or ():
        if all(one[key] == reason[key] for key in ("flavor", "resource", "node", "limit")):
            continue
        resource = one["resource"]
        left, short = amount(resource, max(0, one["available"])), amount(resource, one["shortBy"])
        where = f"{one['limit']} of {one['node']}"
        ever = "" if one["ever"] else ", and never enough"
        yield "Also binds", f"{where}: {left} {resource} of flavor {one['flavor']}, short by {short}{ever}"


def pod_set_text(pods: Document) -> str:
    each = ", ".join(
        f"{amount(resource, value)} {resource} of {pods['flavors'].get(resource, '-')}"
        for resource, value in sorted(pods["requests"].items())
    )
    return f"{pods['name']}: {pods['count']} x ({each})"


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


def requested(pods: Document) -> str | None:
    """What a podset requests that may start with fewer pods; None: it starts with all of them."""
    if (pods.get("minCount") or pods["count"]) >= pods["count"]:
        return None
    each = ", ".join(f"{amount(name, value)} {name}" for name, value in sorted(pods["requests"].items()))
    return f"{pods['name']}: {pods['count']} x ({each}), at least {pods['minCount']}"
