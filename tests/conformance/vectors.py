"""The decision vectors beside the checkout, as documents that the simulator takes."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from tests.conftest import shared

FOLDER: Final = shared() / "conformance"
MISSING: Final = f"the decision vectors are not there: QUEUECTL_SHARED names no folder with {FOLDER.name}"
DELIBERATE: Final = {
    "schedule-42": "0009-limit-ranges.md",
    "schedule-admission-fair-sharing-03": "0010-no-admission-through-a-queue-that-is-gone.md",
    "schedule-admission-fair-sharing-04": "0010-no-admission-through-a-queue-that-is-gone.md",
}
"""Vectors that are decided otherwise on purpose, and the page in docs/decisions/ that says why."""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def vectors() -> list[dict[str, Any]]:
    """All of them, as they are; none where the folder is missing."""
    return [document for path in sorted(FOLDER.glob("*.json")) for document in json.loads(path.read_bytes())]


def adapted(document: dict[str, Any]) -> dict[str, Any]:
    """The same case as the API server would take it: the tables it is from do not go through one.

    Names are changed to such as objects can have, limits on lending and borrowing are left out where nobody
    is there to lend, and groups that cover the same resource become one.
    """
    found: dict[str, Any] = _renamed(copy.deepcopy(document), dict(_names(document)))
    found["objects"] = [obj for obj in found.get("objects", ()) if obj["kind"] not in ("LimitRange", "Topology")]
    for obj in found["objects"]:
        spec = obj.get("spec", {})
        spec.pop("topologyName", None)
        if obj["kind"] == "ClusterQueue":
            spec["resourceGroups"] = _merged(spec.get("resourceGroups", []))
        if not spec.get("cohortName") and not spec.get("parentName"):
            for group in spec.get("resourceGroups", ()):
                for flavor in group["flavors"]:
                    for resource in flavor["resources"]:
                        resource.pop("borrowingLimit", None)
                        resource.pop("lendingLimit", None)
    return found


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
