"""Arrays: in a list, a row for those of one in the same phase; as the argument `array/NAME`, all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import click

from queuectl.cli.rest import Document
from queuectl.core.model.start_conditions import ARRAY


def folded(items: Iterable[Document]) -> list[Document]:
    """Return the documents with those of an array as one, where its first one is: numbers are added up."""
    groups: dict[tuple[str | None, ...], list[Document]] = {}
    for item in items:
        array = item.get("labels", {}).get(ARRAY)  # absent: of an older server
        phase = item["end"]["outcome"] if item.get("end") else item["phase"]
        key = (item["namespace"], item["queue"], phase, array) if array else (item["uid"],)
        groups.setdefault(key, []).append(item)
    return [_one(members) if len(members) > 1 else members[0] for members in groups.values()]


def _one(members: list[Document]) -> Document:
    first, requests = members[0], Counter[str]()
    for one in members:
        requests.update(one.get("requests") or {})

    def least(field: str) -> str | int | None:
        return min((one[field] for one in members if one[field] is not None), default=None)

    def whole(field: str) -> int | None:
        found = [one.get(field) for one in members]
        return (
            sum(value for value in found if value is not None) if any(v is not None for v in found) else None
        )

    ends, used = [one["end"] for one in members if one.get("end")], Counter[str]()
    for end in ends:
        used.update(end.get("resourceSeconds") or {})
    if ends:
        held = sum(end["heldSeconds"] for end in ends)
        first = {**first, "end": {**first["end"], "heldSeconds": held, "resourceSeconds": dict(used)}}
    return {
        **first,
        "kind": "Array",
        "name": f"{first['labels'][ARRAY]} ({len(members)})",
        "requests": dict(requests),
        **{field: whole(field) for field in ("pods", "podsReady", "attempts")},
        **{field: least(field) for field in ("position", "createdAt", "admittedAt")},
    }


def selector(words: Sequence[str]) -> str | None:
    """Return the label selector of the workloads of `array/NAME …`; None: no array is named.

    Raises UsageError if arrays are named beside other workloads.
    """
    names = [name for kind, _, name in (word.partition("/") for word in words) if kind.lower() == "array"]
    if not names:
        return None
    if len(names) < len(words) or not all(names):
        raise click.UsageError(f"{' '.join(words)[:80]!r}: arrays go with arrays alone, as array/NAME")
    return f"{ARRAY} in ({', '.join(dict.fromkeys(names))})"


def hint(kind: str, name: str) -> str:
    """What lists the workloads of an array, where one workload is expected; empty for other kinds."""
    if kind.lower() != "array" or not name:
        return ""
    return f"; `queuectl get workloads -l {ARRAY}={name}` lists the workloads of an array"
