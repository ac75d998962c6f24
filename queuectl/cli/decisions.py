"""Decisions of the ledger as text for users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from queuectl.cli.printing import Column, local, printable
from queuectl.cli.rest import Document

COLUMNS: Final = (
    Column("SEQUENCE", right=True, drop=2),
    Column("TIME"),
    Column("DECISION"),
    Column("ATTEMPT", right=True, drop=4),
    Column("FLAVORS", drop=3),
    Column("WHY"),
    Column("BY", drop=1),
)
LISTED: Final = (*COLUMNS[:3], Column("OBJECT"), *COLUMNS[3:])
_DETAILS: Final = {
    "queue": "LocalQueue {}",
    "clusterQueue": "ClusterQueue {}",
    "priority": "priority {}",
    "outcome": "{}",
    "debt": "charged as debt",
    "detail": "{}",
}
_VERDICT: Final = 10
"""Characters of the longest verdict."""


def row(decision: Document) -> Sequence[object]:
    """A row of COLUMNS."""
    return (
        decision["sequence"],
        local(decision["time"]),
        decision["verdict"],
        decision["attempt"],
        flavors(decision["details"]),
        why(decision),
        who(decision),
    )


def listed(decision: Document) -> Sequence[object]:
    """A row of LISTED."""
    found = row(decision)
    return (*found[:3], about(decision), *found[3:])


def line(decision: Document) -> str:
    """A line of a stream, with columns of fixed width."""
    parts = [
        local(decision["time"]),
        f"{decision['verdict']:<{_VERDICT}}",
        about(decision),
        *(f"[{found}]" for found in (flavors(decision["details"]),) if found),
        why(decision) or "",
        *(f"(by {found})" for found in (who(decision),) if found and found not in (why(decision) or "")),
    ]
    return "  ".join(printable(part) for part in parts if part)


def about(decision: Document) -> str:
    """`namespace/kind/name`, or the policy object."""
    found = decision if decision.get("kind") else decision["details"]
    parts = (found.get("namespace"), (found.get("kind") or "").lower(), found.get("name"))
    return "/".join(part for part in parts if part)


def flavors(details: dict[str, Any]) -> str | None:
    """Of an admission, such as `main 4 x a100`."""
    pods = details.get("podSets")
    if not isinstance(pods, list):
        return None
    return ", ".join(
        f"{one['name']} {one['count']} x {'+'.join(sorted(set(one['flavors'].values()))) or 'no flavor'}"
        for one in pods
    )


def why(decision: Document) -> str | None:
    """The reason, or the most useful other detail."""
    if decision["reason"]:
        return str(decision["reason"]["message"])
    details = decision["details"]
    found = [
        form.format(details[key])
        for key, form in _DETAILS.items()
        if details.get(key) not in (None, False, 0)
    ]
    return ", ".join(found) or None


def who(decision: Document) -> str | None:
    """The user or workload that caused it, if there is one."""
    details = decision["details"]
    found = (decision["reason"] or {}).get("by") or details.get("submitter") or details.get("author")
    return str(found) if found else None
