"""From further objects that decisions depend on, as raw JSON, to values of the core."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from queuectl.core.model.devices import ResourceClaim, ResourceClaimTemplate
from queuectl.core.model.events import ContextGone, ContextObserved
from queuectl.core.model.pod_limits import (
    Counts,
    HardLimit,
    LimitRange,
    LimitRangeItem,
    LimitType,
    NamespaceQuota,
    QuotaScope,
)
from queuectl.core.model.policy import Context, Namespace, Node, PriorityClass, RuntimeClass, Taint
from queuectl.core.model.resources import CPU, PODS, Amounts, BadQuantity, Listed, amounts, parse_quantity
from queuectl.core.model.workload import ConfigKey
from queuectl.kinds.devices import resource_claim, resource_claim_template
from queuectl.kinds.jobs import conditions
from queuectl.kinds.json_fields import (
    BadField,
    Json,
    array,
    checked,
    clean,
    integer,
    mapping,
    namespaced_name,
    object_name,
    objects,
    time_or_none,
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


NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""API servers label each Namespace with its name."""

MAX_LABELS: Final = 1024
MAX_KEPT: Final = 1 << 16
"""Characters of JSON: a larger object is not kept in the ledger."""
MAX_TAINTS: Final = 1024


@dataclass(frozen=True, slots=True)
class ContextKind:
    """One kind of object with data about workloads or nodes."""

    name: str
    group: str
    version: str
    plural: str
    type: type[Context]
    read: Callable[[Json], Context]
    """Raises BadField."""
    namespaced: bool = False
    """The name of its values is `NAMESPACE/NAME`."""
    kept: Callable[[Json], Json] | None = None
    """The parts of an object that its value is read from, for the ledger. None: it keeps none of them."""

    def name_of(self, obj: Json) -> str:
        """The name of the object's value; empty if it has none."""
        metadata = obj.get("metadata")
        found = metadata if isinstance(metadata, Mapping) else {}
        parts = (str(found.get(key) or "") for key in ("namespace", "name")[not self.namespaced :])
        return "/".join(parts)

    def observe(self, obj: Json) -> Context | None:
        """The object's value; None if it is malformed."""
        try:
            return self.read(obj)
        except BadField:
            return None

    def event(self, obj: Json) -> ContextObserved | None:
        """None if the object is malformed."""
        value = self.observe(obj)
        if value is None or self.kept is None:
            return None if value is None else ContextObserved(value)
        spec = json.dumps(self.kept(obj), sort_keys=True)
        if len(spec) > MAX_KEPT:
            return ContextObserved(value)
        return ContextObserved(value, ConfigKey(self.name, *_parts(value.name)), spec)

    def gone(self, name: str) -> ContextGone:
        return ContextGone(self.type, name)


def _parts(name: str) -> tuple[str, str]:
    """Namespace and name of a value, as in the key of the ledger."""
    namespace, _, own = name.rpartition("/")
    return namespace, own


def as_object(key: ConfigKey, spec: str) -> Json:
    """An object of a kind that the ledger keeps, from its key and spec, as far as they say.

    Raises ValueError.
    """
    row = CONTEXT_KINDS[key.kind]
    content = json.loads(spec)
    if not isinstance(content, dict):
        raise ValueError(f"{key}: its spec is no object")
    metadata = {**mapping(content, "metadata", ""), "name": key.name}
    if key.namespace:
        metadata["namespace"] = key.namespace
    version = f"{row.group}/{row.version}" if row.group else row.version
    return {"apiVersion": version, "kind": key.kind, **content, "metadata": metadata}


def kept_context(key: ConfigKey, spec: str) -> ContextObserved:
    """The event of an object as the ledger keeps it. Raises ValueError."""
    value = CONTEXT_KINDS[key.kind].read(as_object(key, spec))
    return ContextObserved(value, key, spec)


_FORMERLY_KEPT: Final = ("ResourceClaimTemplate",)
"""Kinds that the ledger kept before their requests were recorded with the podsets that name them."""


def is_kept(kind: str) -> bool:
    """Return whether the ledger has, or may have from an older version, objects of this kind of context."""
    return kind in CONTEXT_KINDS and (CONTEXT_KINDS[kind].kept is not None or kind in _FORMERLY_KEPT)


def _namespace(obj: Json) -> Namespace:
    return Namespace(object_name(obj), _labels(obj))


def as_created(namespace: Namespace) -> Namespace:
    """The Namespace of a manifest as an API server stores it: labelled with its name."""
    labels = {**dict(namespace.labels), NAMESPACE_NAME_LABEL: namespace.name}
    return replace(namespace, labels=tuple(sorted(labels.items())))


def _priority_class(obj: Json) -> PriorityClass:
    value = integer(obj, "value", "", default=0, low=-(2**31), high=2**31 - 1)
    return PriorityClass(object_name(obj), value, obj.get("globalDefault") is True)


def _runtime_class(obj: Json) -> RuntimeClass:
    overhead = mapping(obj, "overhead", "")
    return RuntimeClass(object_name(obj), _amounts(mapping(overhead, "podFixed", "overhead")))


def _node(obj: Json) -> Node:
    spec, found = mapping(obj, "spec", ""), conditions(obj)
    return Node(
        object_name(obj),
        _labels(obj),
        _amounts(mapping(mapping(obj, "status", ""), "allocatable", "status")),
        ready=found.pop("Ready", "Unknown") == "True",
        ready_since=time_or_none(conditions(obj, "lastTransitionTime").get("Ready")),
        created_at=time_or_none(mapping(obj, "metadata", "").get("creationTimestamp")),
        cordoned=spec.get("unschedulable") is True,
        taints=tuple(_taint(one) for one in objects(spec, "taints", "spec", MAX_TAINTS)),
        conditions=tuple(sorted(found.items())),
        uid=clean(str(mapping(obj, "metadata", "").get("uid") or ""), 64),
    )


def _taint(taint: Json) -> Taint:
    found = (clean(str(taint.get(key) or ""), 512) for key in ("key", "value", "effect"))
    return Taint(*found)


def _labels(obj: Json) -> tuple[tuple[str, str], ...]:
    found = mapping(mapping(obj, "metadata", ""), "labels", "metadata")
    kept = [(key, value) for key, value in found.items() if isinstance(value, str)][:MAX_LABELS]
    return tuple(sorted((clean(key, 512), clean(value, 512)) for key, value in kept))


def _amounts(found: Json) -> Amounts:
    """The valid amounts of a list of resources: a malformed one does not hide the others."""
    return amounts(dict(_quantities(found)))


def _labels_kept(obj: Json) -> Json:
    return {"metadata": {"labels": dict(_labels(obj))}}


def _only(*fields: str) -> Callable[[Json], Json]:
    return lambda obj: {field: obj[field] for field in fields if field in obj}


_ROWS: Final = (
    ContextKind("Namespace", "", "v1", "namespaces", Namespace, _namespace, kept=_labels_kept),
    ContextKind(
        "PriorityClass",
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        PriorityClass,
        _priority_class,
        kept=_only("value", "globalDefault"),
    ),
    ContextKind(
        "RuntimeClass",
        "node.k8s.io",
        "v1",
        "runtimeclasses",
        RuntimeClass,
        _runtime_class,
        kept=_only("overhead"),
    ),
    ContextKind("Node", "", "v1", "nodes", Node, _node),
    ContextKind(
        "LimitRange", "", "v1", "limitranges", LimitRange, limit_range, namespaced=True, kept=_only("spec")
    ),
    ContextKind(
        "ResourceQuota",
        "",
        "v1",
        "resourcequotas",
        NamespaceQuota,
        resource_quota,
        namespaced=True,
        kept=_only("spec"),
    ),
    ContextKind(
        "ResourceClaim",
        "resource.k8s.io",
        "v1",
        "resourceclaims",
        ResourceClaim,
        resource_claim,
        namespaced=True,
    ),
    ContextKind(
        "ResourceClaimTemplate",
        "resource.k8s.io",
        "v1",
        "resourceclaimtemplates",
        ResourceClaimTemplate,
        resource_claim_template,
        namespaced=True,
    ),
)

CONTEXT_KINDS: Final[Mapping[str, ContextKind]] = {row.name: row for row in _ROWS}
"""By kind, which is also the name of the source in `Listed`."""
