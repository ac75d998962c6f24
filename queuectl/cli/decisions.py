"""Decisions of the ledger as text for users."""

from __future__ import annotations

from typing import Any, Final

from queuectl.cli.printing import device_times, field, local, printable, shown
from queuectl.cli.rest import Document

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
    found += [f"held {time}" for time in device_times(decision.get("resourceSeconds"))]
    return ", ".join(found) or None


def who(decision: Document) -> str | None:
    """The user or workload that caused it, if there is one."""
    details = decision["details"]
    found = (decision["reason"] or {}).get("by") or details.get("submitter") or details.get("author")
    return str(found) if found else None


FIELDS: Final = (
    field("SEQUENCE>", "sequence", drop=2),
    field("TIME", shown(local, "time")),
    field("DECISION", "verdict"),
    field("ATTEMPT>", "attempt", drop=4),
    field("FLAVORS", lambda decision: flavors(decision["details"]), drop=3),
    field("WHY", why),
    field("BY", who, drop=1),
)
LISTED: Final = (*FIELDS[:3], field("OBJECT", about), *FIELDS[3:])
