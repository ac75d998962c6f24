"""Changes objects that an API server would refuse into valid ones.

Kueue's tables are written without an API server: with invalid names, borrowing limits without a cohort, a
resource in two groups. That is not what they test.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from queuectl.core.model.resources import MAX_AMOUNT, QuantityOutOfRange, parse_quantity

TOO: Final = "-too"
"""Suffix of the name of a flavor in the second of two groups of a queue."""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_REFERRING: Final = ("cohort", "cohortName", "parent", "parentName", "clusterQueue")
_SIZED: Final = {"ClusterQueue": ("cohort", "cohortName"), "Cohort": ("parent", "parentName")}
"""Field that names the parent, by kind of object with quota."""


def repaired(vector: Mapping[str, Any]) -> dict[str, Any]:
    """The vector with objects that an API server accepts."""
    names = {name: _fit(name) for name in _names(vector.get("objects", ())) if not _NAME.fullmatch(name)}
    found: dict[str, Any] = _renamed(copy.deepcopy(dict(vector)), names)
    for obj in list(found.get("objects", ())):
        spec, kind = obj.get("spec") or {}, obj["kind"]
        if kind in _SIZED and "resourceGroups" in spec:
            _repair(spec, kind, found["objects"])
    return found


def _names(objects: Iterable[dict[str, Any]]) -> Iterator[str]:
    for obj in objects:
        spec = obj.get("spec") or {}
        for name in (obj["metadata"].get("name"), *(spec.get(field) for field in _REFERRING)):
            if isinstance(name, str) and name:
                yield name


def _fit(name: str) -> str:
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-") or "x"


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """Changes names of objects; workloads keep theirs."""
    if isinstance(value, dict) and "podSets" in value and "name" in value:
        return {key: inner if key == "name" else _renamed(inner, names) for key, inner in value.items()}
    if isinstance(value, dict):
        return {names.get(key, key): _renamed(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [_renamed(inner, names) for inner in value]
    return names.get(value, value) if isinstance(value, str) else value


def _repair(spec: dict[str, Any], kind: str, objects: list[dict[str, Any]]) -> None:
    _merge(spec)
    if kind == "ClusterQueue":
        _part(spec, objects)
    alone = not any(spec.get(field) for field in _SIZED[kind])
    for group in spec["resourceGroups"]:
        for flavor in group.get("flavors", ()):
            for quota in flavor.get("resources", ()):
                for limit in ("borrowingLimit", "lendingLimit") if alone else ():
                    quota.pop(limit, None)
                if _unbounded(quota):
                    quota["nominalQuota"] = MAX_AMOUNT // 1000 if quota["name"] == "cpu" else MAX_AMOUNT


def _unbounded(quota: dict[str, Any]) -> bool:
    try:
        parse_quantity(quota["nominalQuota"], quota["name"])
    except QuantityOutOfRange:
        return True
    return False


def _merge(spec: dict[str, Any]) -> None:
    """Merge groups that cover the same resources."""
    merged: list[dict[str, Any]] = []
    for group in spec["resourceGroups"]:
        covered = group.get("coveredResources")
        same = [one for one in merged if one.get("coveredResources") == covered]
        if same and group.get("flavors") and same[0].get("flavors"):
            same[0]["flavors"] += group["flavors"]
        else:
            merged.append(group)
    spec["resourceGroups"] = merged


def _part(spec: dict[str, Any], objects: list[dict[str, Any]]) -> None:
    """Rename a flavor that is in two groups, in the second."""
    seen: set[str] = set()
    for group in spec["resourceGroups"]:
        names = {flavor["name"] for flavor in group.get("flavors", ())}
        for flavor in group.get("flavors", ()):
            if flavor["name"] in seen:
                _copy(flavor["name"], objects)
                flavor["name"] += TOO
        seen |= names


def _copy(name: str, objects: list[dict[str, Any]]) -> None:
    flavors = {obj["metadata"].get("name"): obj for obj in objects if obj.get("kind") == "ResourceFlavor"}
    if name in flavors and f"{name}{TOO}" not in flavors:
        made = copy.deepcopy(flavors[name])
        made["metadata"]["name"] += TOO
        objects.insert(0, made)
