"""Common parts of the models of the policy objects, which the CRDs are generated from.

Fields are Kueue's (v1beta2) plus our own. Unknown ones are ignored, as the API server prunes them. Rules in
CEL are on the field they are about, so that errors name it. Rules whose cost CEL in a CRD cannot bound
(arithmetic on the quantities of 16 groups x 64 flavors x 64 resources) are in the admission policy
`queuectl-policies`, and everything is checked again when an object is read.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, WithJsonSchema
from pydantic.alias_generators import to_camel

MAX_GROUPS: Final = 16
MAX_FLAVORS: Final = 64
MAX_RESOURCES: Final = 64

_SUFFIX: Final = "m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei"
QUANTITY_PATTERN: Final = (
    rf"^[+-]?([0-9]{{1,19}}([.][0-9]{{1,4}})?({_SUFFIX})?|[.][0-9]{{1,4}}({_SUFFIX})?"
    r"|[0-9]{1,19}[eE][+]?[0-9]{1,2})$"
)
"""At most 4 decimals and 2 digits of exponent: bounds the cost of hostile numbers."""

MAX_QUANTITY_TEXT: Final = 32
_WEIGHT_PATTERN: Final = r"^[+-]?([0-9]{1,9}([.][0-9]{1,6})?|[.][0-9]{1,6}|[0-9]{1,9}m)$"
_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_QUALIFIED: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
_LABEL_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"


def divisible(name: str) -> str:
    """CEL: whether the resource `name` has fractional amounts; all others are whole devices or objects."""
    return f"{name} in ['cpu', 'memory', 'ephemeral-storage'] || {name}.startsWith('hugepages-')"


def rule(cel: str, message: str, **more: str) -> dict[str, str]:
    """One x-kubernetes-validations entry."""
    return {"rule": cel, "message": message, **more}


def rules(*entries: dict[str, str]) -> dict[str, Any]:
    return {"x-kubernetes-validations": list(entries)}


def _fits(pattern: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(value: int | str) -> int | str:
        text = str(value)
        if len(text) > MAX_QUANTITY_TEXT or not compiled.fullmatch(text):
            raise ValueError(f"{text[:40]!r} is not a quantity of at most {MAX_QUANTITY_TEXT} characters")
        return value

    return AfterValidator(check)


def _int_or_string(pattern: str) -> dict[str, Any]:
    return {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "pattern": pattern,
        "maxLength": MAX_QUANTITY_TEXT,
    }


def not_negative(field: str) -> dict[str, str]:
    value = f"self.{field}"
    return rule(
        f"!has({value}) || (type({value}) == int ? int({value}) >= 0 : !{value}.startsWith('-'))",
        "must be at least 0",
        fieldPath=f".{field}",
    )


def _whole(field: str) -> dict[str, str]:
    """Rule on a resource's quota: `field` is a whole number, unless the resource is divisible.

    The pattern allows a decimal point only in the 2nd to 7th place from the end. Checking these costs a fixed
    amount, while a search is estimated as one through the largest possible request (before
    Kubernetes 1.34 whatever its maxLength).
    """
    value = f"self.{field}"
    return rule(
        f"{divisible('self.name')} || !has({value}) || type({value}) == int || (!{value}.endsWith('m') && "
        f"[2, 3, 4, 5, 6, 7].all(i, size({value}) < i || {value}.charAt(size({value}) - i) != '.'))",
        "must be a whole number: only cpu, memory, ephemeral-storage and hugepages can be divided",
        fieldPath=f".{field}",
    )


def _at_least_zero(value: int | str) -> int | str:
    if str(value).startswith("-"):
        raise ValueError("must be at least 0")
    return value


Quantity = Annotated[int | str, _fits(QUANTITY_PATTERN), WithJsonSchema(_int_or_string(QUANTITY_PATTERN))]
Weight = Annotated[
    int | str,
    _fits(_WEIGHT_PATTERN),
    AfterValidator(_at_least_zero),
    WithJsonSchema(_int_or_string(_WEIGHT_PATTERN)),
]
Name = Annotated[str, StringConstraints(pattern=_SUBDOMAIN, min_length=1, max_length=253)]
ResourceName = Annotated[str, StringConstraints(pattern=_QUALIFIED, min_length=1, max_length=317)]
LabelKey = Annotated[str, StringConstraints(pattern=_QUALIFIED, min_length=1, max_length=317)]
LabelValue = Annotated[str, StringConstraints(pattern=_LABEL_VALUE, max_length=63)]
MAX_TEXT: Final = 2048
"""Characters."""
Text = Annotated[str, StringConstraints(max_length=MAX_TEXT)]
Seconds = Annotated[int, Field(ge=0, le=2**31 - 1)]
RunSeconds = Annotated[int, Field(ge=1, le=2**31 - 1)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]


def by_key(*keys: str) -> dict[str, Any]:
    """A list with unique keys: the API server refuses a duplicate and names its path."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


SET: Final[dict[str, Any]] = {"x-kubernetes-list-type": "set"}
ATOMIC: Final[dict[str, Any]] = {"x-kubernetes-list-type": "atomic"}


class ObjectPart(BaseModel):
    """Part of an object: camelCase in JSON, frozen, unknown fields ignored."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        use_attribute_docstrings=True,
        json_schema_serialization_defaults_required=False,
    )


# --- quota ------------------------------------------------------------------------------------------


class ResourceQuotaSpec(ObjectPart):
    """Quota for one resource of one flavor."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *(
                check(field)
                for field in ("nominalQuota", "borrowingLimit", "lendingLimit")
                for check in (not_negative, _whole)
            )
        )
    )

    name: ResourceName
    """The resource, such as nvidia.com/gpu."""
    nominal_quota: Quantity
    """Quota that the queue or cohort owns: how much of the resource its workloads may use in this flavor at
    the same time. Nodes are a second limit, where spec.nodes of the ResourceFlavor says so."""
    borrowing_limit: Quantity | None = None
    """How much unused quota of the cohort may be used beyond nominalQuota. Unset: all of it; 0: none. Needs a
    cohort."""
    lending_limit: Quantity | None = None
    """How much unused nominalQuota others of the cohort may use. Unset: all of it; 0: none. Needs a
    cohort."""


class FlavorQuotasSpec(ObjectPart):
    """Quotas of one ResourceFlavor."""

    name: Name
    """Name of a ResourceFlavor. While it does not exist, the queue is not active."""
    resources: Annotated[
        tuple[ResourceQuotaSpec, ...],
        Field(min_length=1, max_length=MAX_RESOURCES, json_schema_extra=by_key("name")),
    ]
    """One for each of coveredResources, in the same order."""


class ResourceGroupSpec(ObjectPart):
    """Resources that a podset gets from the same flavor, and the flavors in the order they are tried."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "self.flavors.all(f, f.resources.map(r, r.name) == self.coveredResources)",
                "each flavor must list exactly the coveredResources, in the same order",
                fieldPath=".flavors",
            )
        )
    )

    covered_resources: Annotated[
        tuple[ResourceName, ...], Field(min_length=1, max_length=MAX_RESOURCES, json_schema_extra=SET)
    ]
    """Resources of this group. No other group of the queue may cover one of them."""
    flavors: Annotated[
        tuple[FlavorQuotasSpec, ...],
        Field(min_length=1, max_length=MAX_FLAVORS, json_schema_extra=by_key("name")),
    ]
    """Flavors in the order they are tried. No other group of the queue may list one of them."""


class OrderedFlavorQuotas(FlavorQuotasSpec):
    wait_before_next_seconds: Seconds | None = None
    """For how many seconds a workload waits for this flavor before it may take the next one, counted
    from its creation or from the end of its last pause; it does not wait without it. No meaning in the
    last flavor."""


class OrderedResourceGroup(ResourceGroupSpec):
    flavors: Annotated[
        tuple[OrderedFlavorQuotas, ...],
        Field(min_length=1, max_length=MAX_FLAVORS, json_schema_extra=by_key("name")),
    ]
    """Flavors in the order they are tried. No other group of the queue may list one of them."""


def _once(what: str, names: str) -> list[dict[str, str]]:
    """Rules on resourceGroups: no name of `names` (of group `g`) is in two groups.

    One rule for each index of the second group, so that the message can name it: the cost of a
    computed message is estimated by the largest possible text.
    """
    found = []
    for second in range(1, MAX_GROUPS):
        here, there = names.replace("g.", f"self[{second}]."), names.replace("g.", "self[i].")
        found.append(
            rule(
                f"size(self) <= {second} || {list(range(second))}.all(i, !sets.intersects({here}, {there}))",
                f"resourceGroups[{second}].{what}: one of them is in an earlier group already",
            )
        )
    return found


_GROUPS = Field(
    max_length=MAX_GROUPS,
    json_schema_extra=ATOMIC
    | rules(*_once("coveredResources", "g.coveredResources"), *_once("flavors", "g.flavors.map(f, f.name)")),
)
ResourceGroups = Annotated[tuple[ResourceGroupSpec, ...], _GROUPS]
OrderedResourceGroups = Annotated[tuple[OrderedResourceGroup, ...], _GROUPS]
"""Of a ClusterQueue, which chooses among the flavors."""


def without_cohort(field: str, cohort: str) -> dict[str, str]:
    return rule(
        f"has(self.{cohort}) || !has(self.resourceGroups) || self.resourceGroups.all(g, g.flavors.all(f, "
        f"f.resources.all(r, !has(r.{field}))))",
        f"{field} needs {cohort}: without a cohort there is nothing to share with",
        fieldPath=".resourceGroups",
    )


_MAX_OF_NODES: Final = 16

Mode = Literal["Static", "Observe", "Enforce", "Elastic"]

_KEYS: Final = rule(
    "self.all(k, size(k) <= 317 && k.matches('^([-a-z0-9.]{1,253}/)?[-A-Za-z0-9_.]{1,63}$'))",
    "keys must be resource names, such as nvidia.com/gpu",
)


AMOUNTS: Final = (
    rule(
        "self.all(k, type(self[k]) == int ? int(self[k]) >= 0 : !self[k].startsWith('-'))",
        "must be at least 0",
    ),
    rule(
        f"self.all(k, {divisible('k')} || type(self[k]) == int || (!self[k].endsWith('m') && "
        "[2, 3, 4, 5, 6, 7].all(i, size(self[k]) < i || self[k].charAt(size(self[k]) - i) != '.')))",
        "must be a whole number: only cpu, memory, ephemeral-storage and hugepages can be divided",
    ),
)
"""Rules of a map of quantities by resource."""


def _of_resources(*more: dict[str, str]) -> Any:
    return Field(default_factory=dict, max_length=_MAX_OF_NODES, json_schema_extra=rules(_KEYS, *more))


class FlavorNodesModel(ObjectPart):
    """What its nodes limit. By default they limit the devices that they have, such as nvidia.com/gpu: an
    admission needs quota and room for its pods on them."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.headroom) || self.headroom.all(k, (has(self.resources) && k in self.resources ? "
                "self.resources[k] : has(self.mode) ? self.mode : k.contains('/') ? 'Enforce' : 'Observe') "
                "== 'Enforce')",
                "is kept for resources with mode Enforce only",
                fieldPath=".headroom",
            )
        )
    )

    mode: Mode | None = None
    """What the nodes mean for all resources of the flavor. Static: nothing, quota alone decides. Observe:
    their capacity is compared with the quota, and limits nothing. Enforce: they limit what is admitted.
    Elastic: they come on demand, so they limit nothing, and what waits is reported as demand. Unset: Enforce
    for devices that some node of the flavor has, Observe for all other resources."""
    resources: dict[ResourceName, Mode] = _of_resources()
    """Other modes of single resources, such as memory: Enforce. The values are those of mode."""
    headroom: dict[ResourceName, Quantity] = _of_resources(
        *AMOUNTS,
    )
    """What an admission leaves free on all ready nodes of the flavor together, by resource with mode
    Enforce. Unset: nothing."""
