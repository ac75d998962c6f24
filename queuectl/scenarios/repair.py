"""Changes objects that an API server would refuse into valid ones.

Test tables, Kueue's among them, are often written without an API server: with invalid names, borrowing limits
without a cohort, a resource in two groups. That is not what they test. So they are run, and the changes are
reported.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any, Final

from queuectl.core.model.resources import MAX_AMOUNT, QuantityOutOfRange, parse_quantity

TOO: Final = "-too"
"""Suffix of the name of a flavor in the second of two groups of a queue."""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_REFERRING: Final = ("cohort", "cohortName", "parent", "parentName", "clusterQueue")
_SIZED: Final = {"ClusterQueue": ("cohort", "cohortName"), "Cohort": ("parent", "parentName")}
"""Field that names the parent, by kind of object with quota."""


def taken(document: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The document with objects that an API server accepts, and the changes.

    A value of a wrong type is left unchanged: its error is reported later.
    """
    objects = document.get("objects")
    if not isinstance(objects, list) or not all(map(_readable, objects)):
        return document, []
    names = {name: _fit(name) for name in _names(objects) if not _NAME.fullmatch(name)}
    changes = [f"{old} is not a valid name, {new} is used" for old, new in names.items()]
    if not names and not any(_changes(copy.deepcopy(objects))):
        return document, []
    found: dict[str, Any] = _renamed(copy.deepcopy(document), names)
    changes += _changes(found["objects"])
    return found, changes


def _readable(obj: Any) -> bool:
    """Whether it has the structure of an object with quota, as far as needed here."""
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
        return False
    spec = obj.get("spec") or {}
    if not isinstance(obj.get("kind"), str) or not isinstance(spec, dict):
        return False
    groups = _dicts(spec.get("resourceGroups", []))
    if groups is None:
        return False
    for group in groups:
        flavors = _dicts(group.get("flavors", []))
        if flavors is None or not all(isinstance(flavor.get("name"), str) for flavor in flavors):
            return False
        if any(_dicts(flavor.get("resources", [])) is None for flavor in flavors):
            return False
    return True


def _dicts(value: Any) -> list[dict[str, Any]] | None:
    return value if isinstance(value, list) and all(isinstance(one, dict) for one in value) else None


def _names(objects: list[dict[str, Any]]) -> Iterator[str]:
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


def _changes(objects: list[dict[str, Any]]) -> Iterator[str]:
    """Makes the changes and reports them."""
    for obj in list(objects):
        spec, kind = obj.get("spec") or {}, obj.get("kind")
        if kind not in _SIZED or "resourceGroups" not in spec:
            continue
        where = f"{kind}/{obj['metadata'].get('name')}"
        yield from _merge(spec, where)
        if kind == "ClusterQueue":
            yield from _part(spec, where, objects)
        alone = not any(spec.get(field) for field in _SIZED[kind])
        for quota in _quotas(spec):
            for limit in ("borrowingLimit", "lendingLimit") if alone else ():
                if quota.pop(limit, None) is not None:
                    yield f"{where}: a {limit} without a cohort is left out"
            if _unbounded(quota):
                quota["nominalQuota"] = MAX_AMOUNT // 1000 if quota["name"] == "cpu" else MAX_AMOUNT
                yield f"{where}: a quota above all bounds becomes the largest"


def _quotas(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for group in spec["resourceGroups"]:
        for flavor in group.get("flavors", ()):
            yield from flavor.get("resources", ())


def _unbounded(quota: dict[str, Any]) -> bool:
    nominal, name = quota.get("nominalQuota"), quota.get("name")
    if not isinstance(nominal, str) or not isinstance(name, str) or len(nominal) > len("999E"):
        return False
    try:
        parse_quantity(nominal, name)
    except QuantityOutOfRange:
        return True
    except ValueError:
        pass
    return False


def _merge(spec: dict[str, Any], where: str) -> Iterator[str]:
    """Merge groups that cover the same resources."""
    merged: list[dict[str, Any]] = []
    for group in spec["resourceGroups"]:
        covered = group.get("coveredResources")
        same = [one for one in merged if one.get("coveredResources") == covered]
        if same and group.get("flavors") and same[0].get("flavors"):
            same[0]["flavors"] += group["flavors"]
            yield f"{where}: two groups that cover the same become one"
        else:
            merged.append(group)
    spec["resourceGroups"] = merged


def _part(spec: dict[str, Any], where: str, objects: list[dict[str, Any]]) -> Iterator[str]:
    """Rename a flavor that is in two groups, in the second."""
    seen: set[str] = set()
    for group in spec["resourceGroups"]:
        names = {flavor["name"] for flavor in group.get("flavors", ())}
        for flavor in group.get("flavors", ()):
            if flavor["name"] in seen:
                _copy(flavor["name"], objects)
                flavor["name"] += TOO
                yield f"{where}: flavor {flavor['name'].removesuffix(TOO)} is in two groups"
        seen |= names


def _copy(name: str, objects: list[dict[str, Any]]) -> None:
    flavors = {obj["metadata"].get("name"): obj for obj in objects if obj.get("kind") == "ResourceFlavor"}
    if name in flavors and f"{name}{TOO}" not in flavors:
        made = copy.deepcopy(flavors[name])
        made["metadata"]["name"] += TOO
        objects.insert(0, made)
