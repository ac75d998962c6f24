"""Why one workload is pending, admitted or evicted, line by line: for `explain` and for the screen. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from queuectl.screen.facts import HIDDEN, Document
from queuectl.screen.text import age, ago, amount, device_times, local, printable, share_of

_GOALS: Final = {
    "PodsReady": "all its pods are ready",
    "Scheduling": "all its pods are bound to nodes",
    "Startup": "all its pods are ready, now that they are bound",
    "Recovery": "all its pods are ready again",
}
"""By the clock that runs (L14, L24 to L26), what it asks for."""


def phase(workload: Document) -> str:
    """Of one that is over, its outcome, such as Failed."""
    end = workload.get("end")  # absent: of an older server
    return str(workload["phase"] if end is None else end["outcome"])


def headline(workload: Document) -> str:
    name = printable(f"{workload['kind']} {workload['namespace']}/{workload['name']}")
    text = f"{name}: {phase(workload)}"
    if workload["position"] is not None:
        text += f", position {workload['position']} of {workload['line']}"
    if workload["clusterQueue"]:
        text += f" in ClusterQueue {printable(workload['clusterQueue'])}"
    return text


def lines(
    workload: Document,
    now: datetime | None,
    nodes: Sequence[Document] = (),
    changes: Iterable[Document] = (),
) -> Iterator[tuple[str, str]]:
    """Label and text of each line. `now`: the server's clock. `nodes`: the ClusterQueue and the cohorts above
    it, from the bottom. `changes`: the smallest changes with which it starts."""
    yield "Queue", f"{workload['namespace']}/{workload['queue']}, priority {workload['priority']}"
    for one in workload.get("lowered", ()):  # absent: of an older server
        yield "Lowered", f"by {one['policy']} to the priority of WorkloadPriorityClass {one['priorityClass']}"
    by = f" by {workload['submitter']}" if workload["submitter"] else ""
    yield "Created", when(workload["createdAt"], now) + by
    yield from _pods(workload, now)
    yield from _end(workload.get("end"), now)
    reason = workload["reason"]
    if reason:
        yield "Reason", reason["message"]
        yield from _numbers(reason)
        yield from _tree(reason, nodes)
        yield from _other_limits(workload, reason)
        for other in reason["others"]:
            yield "Also tried", other["message"]
        for one in reason["victims"]:
            who = one["who"] or HIDDEN
            yield "Considered", f"{who}: {one['why']}"
    yield from _holders(workload, now)
    yield from _lent(workload)
    yield from _line_ahead(workload)
    if workload["help"]:
        yield "Would help", workload["help"]
    for change in changes:
        yield "With", change_text(change)
        if change["command"]:
            yield "Command", change["command"]


def change_text(change: Document) -> str:
    """A change, and which workloads it displaces."""
    names = ", ".join(map(named, change["displaces"]))
    return f"{change['message']}: {names}" if names else str(change["message"])


def named(one: Document) -> str:
    """A workload that may not be shown to the caller."""
    return f"{one['namespace']}/{one['kind']}/{one['name']}" if one["name"] else HIDDEN


def _pods(workload: Document, now: datetime | None) -> Iterator[tuple[str, str]]:
    for text in filter(None, map(requested, workload.get("podSets") or ())):
        yield "Requests", text
    if workload["admission"]:
        yield "Admitted", f"{when(workload['admittedAt'], now)}, attempt {workload['attempt']}"
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
        yield "Started", when(end["startedAt"], now)
    held = f"{end['outcome']}, held quota for {age(end['heldSeconds'])} in all" if end["attempts"] else ""
    used = device_times(end.get("resourceSeconds"))  # absent: of an older server
    yield "Ended", f"{when(end['endedAt'], now)}: {', '.join((held or end['outcome'], *used))}"
    if end.get("failure"):  # absent: of an older server
        yield "Failure", end["failure"]
    for one in end["attempts"][:-1]:
        ended = f"{one['outcome']}, ended {when(one['endedAt'], now)}"
        yield f"Attempt {one['number']}", ", ".join((ended, *device_times(one.get("resourceSeconds"))))


def when(stamp: str | None, now: datetime | None) -> str:
    return local(stamp) if now is None else f"{local(stamp)} ({ago(stamp, now)} ago)"


def _holders(workload: Document, now: datetime | None) -> Iterator[tuple[str, str]]:
    for holder in workload["holders"]:
        yield "Held by", _holder(holder, workload["reason"]["resource"], now)
    if more := workload.get("moreHolders"):  # absent: of an older server
        yield "Held by", f"{more} more"


def _holder(holder: Document, resource: str, now: datetime | None) -> str:
    return f"{named(holder)}: {amount(resource, holder['amount'])} since {when(holder['since'], now)}"


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


def _tree(reason: Document, nodes: Sequence[Document]) -> Iterator[tuple[str, str]]:
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


def requested(pods: Document) -> str | None:
    """What a podset requests that may start with fewer pods; None: it starts with all of them."""
    if (pods.get("minCount") or pods["count"]) >= pods["count"]:
        return None
    each = ", ".join(f"{amount(name, value)} {name}" for name, value in sorted(pods["requests"].items()))
    return f"{pods['name']}: {pods['count']} x ({each}), at least {pods['minCount']}"
