"""The decision vectors beside the checkout, as documents that the simulator takes."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from queuectl.core.resources import MAX_AMOUNT
from tests.conftest import shared

FOLDER: Final = shared() / "conformance"
MISSING: Final = f"the decision vectors are not there: QUEUECTL_SHARED names no folder with {FOLDER.name}"
DELIBERATE: Final = {
    "0008-limit-ranges.md": ("schedule-42",),
    "0009-no-way-through-a-queue-that-is-gone.md": (
        "schedule-admission-fair-sharing-03",
        "schedule-admission-fair-sharing-04",
    ),
    "0010-topology-comes-as-one-piece.md": (
        "flavor-assign-07",
        "flavor-nofit-reason-09",
        "flavor-nofit-reason-11",
    ),
}
"""What is decided otherwise on purpose: the page in docs/decisions/ that says why, and the vectors."""
OTHERWISE: Final = frozenset(vector for found in DELIBERATE.values() for vector in found)

TOO: Final = "-too"
"""At the end of the name of a flavor that is in two groups of a queue, where it is in the second."""
MOST: Final = str(MAX_AMOUNT // 1000)
"""Of cpu."""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def vectors() -> list[dict[str, Any]]:
    """All of them, as they are; none where the folder is missing."""
    return [document for path in sorted(FOLDER.glob("*.json")) for document in json.loads(path.read_bytes())]


def adapted(document: dict[str, Any]) -> dict[str, Any]:
    """The same case as the API server would take it: the tables it is from do not go through one.

    Names are changed to such as objects can have, limits on lending and borrowing are left out where nobody
    is there to lend, groups that cover the same resources become one, and a quota without bounds the largest.
    """
    found: dict[str, Any] = _renamed(copy.deepcopy(document), dict(_names(document)))
    found["objects"] = [
        obj for obj in found.get("objects", ()) if obj["kind"] not in ("LimitRange", "Topology")
    ]
    _apart(found)
    for obj in found["objects"]:
        spec = obj.get("spec", {})
        spec.pop("topologyName", None)
        if obj["kind"] == "ClusterQueue":
            spec["resourceGroups"] = _merged(spec.get("resourceGroups", []))
        alone = not spec.get("cohortName") and not spec.get("parentName")
        for quota in _quotas(spec):
            if alone:
                quota.pop("borrowingLimit", None)
                quota.pop("lendingLimit", None)
            if quota["nominalQuota"] == "1E":
                quota["nominalQuota"] = MOST
    return found


def _quotas(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for group in spec.get("resourceGroups", ()):
        for flavor in group["flavors"]:
            yield from flavor["resources"]


def _apart(document: dict[str, Any]) -> None:
    """A flavor belongs to one group of a queue: elsewhere it gets a name of its own."""
    flavors = {obj["metadata"]["name"]: obj for obj in document["objects"] if obj["kind"] == "ResourceFlavor"}
    for obj in list(document["objects"]):
        seen: set[str] = set()
        for group in obj.get("spec", {}).get("resourceGroups", ()) if obj["kind"] == "ClusterQueue" else ():
            for flavor in group["flavors"]:
                name = flavor["name"]
                if name in seen:
                    flavor["name"] = f"{name}{TOO}"
                    if flavor["name"] not in flavors and name in flavors:
                        made = copy.deepcopy(flavors[name])
                        made["metadata"]["name"] = flavor["name"]
                        flavors[flavor["name"]] = made
                        document["objects"].insert(0, made)
                seen.add(name)


def _names(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for obj in document.get("objects", ()):
        spec = obj.get("spec", {})
        for name in (
            obj["metadata"]["name"],
            *(spec.get(key) for key in ("cohortName", "parentName", "clusterQueue")),
        ):
            if isinstance(name, str) and not _NAME.fullmatch(name):
                made = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
                yield name, made


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """Workloads keep their names."""
    if isinstance(value, dict) and "podSets" in value and "name" in value:
        return {key: inner if key == "name" else _renamed(inner, names) for key, inner in value.items()}
    if isinstance(value, dict):
        return {names.get(key, key): _renamed(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [_renamed(inner, names) for inner in value]
    return names.get(value, value) if isinstance(value, str) else value


def _merged(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for group in groups:
        same = [one for one in found if one["coveredResources"] == group["coveredResources"]]
        if same:
            same[0]["flavors"] += group["flavors"]
        else:
            found.append(group)
    return found
