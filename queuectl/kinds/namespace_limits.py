"""From LimitRange and ResourceQuota objects, as raw JSON, to values of the core.

A field that cannot be read is left out: it must not hold workloads back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from queuectl.core.model.pod_limits import (
    Counts,
    HardLimit,
    LimitRange,
    LimitRangeItem,
    LimitType,
    NamespaceQuota,
    QuotaScope,
)
from queuectl.core.model.resources import CPU, PODS, BadQuantity, Listed, parse_quantity
from queuectl.kinds.json_fields import (
    Json,
    array,
    checked,
    clean,
    mapping,
    namespaced_name,
    objects,
)

MAX_ITEMS: Final = 64
MAX_RESOURCES: Final = 256
_LIMITS: Final = "limits."
_REQUESTS: Final = "requests."
_COMPUTE: Final = (CPU, "memory", "ephemeral-storage")


def limit_range(obj: Json) -> LimitRange:
    """Raises BadField."""
    items = objects(mapping(obj, "spec", ""), "limits", "spec", MAX_ITEMS)
    return LimitRange(
        namespaced_name(obj), tuple(found for item in items if (found := _item(item)) is not None)
    )


def _item(item: Json) -> LimitRangeItem | None:
    if item.get("type") not in tuple(LimitType):
        return None
    low, high, limits, requests = (
        dict(_quantities(mapping(item, field, "spec.limits")))
        for field in ("min", "max", "default", "defaultRequest")
    )
    if item["type"] == LimitType.CONTAINER:  # defaults of the API server
        limits = high | limits
        requests = low | limits | requests
    return LimitRangeItem(
        type=LimitType(item["type"]),
        min=_listed(low),
        max=_listed(high),
        default=_listed(limits),
        default_request=_listed(requests),
        ratio=_listed(dict(_quantities(mapping(item, "maxLimitRequestRatio", "spec.limits"), unit=CPU))),
    )


def resource_quota(obj: Json) -> NamespaceQuota:
    """Raises BadField."""
    spec = mapping(obj, "spec", "")
    hard = mapping(spec, "hard", "spec")
    used = mapping(mapping(obj, "status", ""), "used", "status")
    return NamespaceQuota(namespaced_name(obj), tuple(_hard_limits(hard, used)), tuple(_scopes(spec)))


def _hard_limits(hard: Json, used: Json) -> Iterator[HardLimit]:
    for key in sorted(hard)[:MAX_RESOURCES]:
        what = _counted(key)
        if what is None:
            continue
        counts, resource = what
        amounts = dict(_quantities({"hard": hard[key], "used": used.get(key, 0)}, resource))
        if "hard" in amounts:
            yield HardLimit(clean(key, 512), counts, resource, amounts["hard"], amounts.get("used", 0))


def _counted(key: str) -> tuple[Counts, str] | None:
    """What a key of `spec.hard` counts of pods; None: it counts something else."""
    if key in (PODS, f"count/{PODS}"):
        return Counts.PODS, PODS
    counts = Counts.LIMITS if key.startswith(_LIMITS) else Counts.REQUESTS
    resource = key.removeprefix(_LIMITS).removeprefix(_REQUESTS)
    if resource in _COMPUTE:
        return counts, resource
    if counts is Counts.LIMITS:
        return None
    extended = "/" in resource and "kubernetes.io/" not in resource and key.startswith(_REQUESTS)
    return (counts, resource) if extended or resource.startswith("hugepages-") else None


def _scopes(spec: Json) -> Iterator[QuotaScope]:
    for name in array(spec, "scopes", "spec", MAX_ITEMS):
        yield QuotaScope(checked(name, "spec.scopes"))
    selector = mapping(spec, "scopeSelector", "spec")
    for one in objects(selector, "matchExpressions", "spec.scopeSelector", MAX_ITEMS):
        where = "spec.scopeSelector.matchExpressions"
        values = array(one, "values", where, MAX_RESOURCES)
        yield QuotaScope(
            checked(one.get("scopeName"), where),
            checked(one.get("operator"), where),
            tuple(checked(value, where) for value in values),
        )


def _quantities(found: Json, unit: str | None = None) -> Iterator[tuple[str, int]]:
    for name, quantity in list(found.items())[:MAX_RESOURCES]:
        if isinstance(quantity, bool) or not isinstance(quantity, str | int | float):
            continue
        try:
            yield clean(name, 512), max(0, parse_quantity(quantity, unit or name))
        except BadQuantity:
            continue


def _listed(found: dict[str, int]) -> Listed:
    return tuple(sorted(found.items()))
