"""Which nodes a pod may run on: node selector, tolerations, required node affinity; from JSON and to JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from queuectl.core.model.policy import Requirement, Toleration
from queuectl.kinds.json_fields import Json, array, checked, integer, mapping, objects, pairs, text

MAX_ENTRIES: Final = 512
"""Of one node selector or list of tolerations."""
MAX_TERMS: Final = 64
MAX_EXPRESSIONS: Final = 64
MAX_VALUES: Final = 1024

Selector = tuple[tuple[str, str], ...]
Tolerations = tuple[Toleration, ...]


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """The fields of a pod spec that an admission may change."""

    node_selector: Selector = ()
    tolerations: Tolerations = ()

    def steered(self, added: NodeConstraints) -> NodeConstraints:
        """This with `added` on top. A label of a flavor wins: its quota is what is charged."""
        selector = dict(self.node_selector) | dict(added.node_selector)
        extra = tuple(item for item in added.tolerations if item not in self.tolerations)
        return NodeConstraints(tuple(sorted(selector.items())), self.tolerations + extra)


def read_constraints(spec: Json, path: str) -> NodeConstraints:
    """Of the pod spec `spec`, found at `path`. Raises BadField."""
    where = f"{path}.tolerations"
    return NodeConstraints(
        pairs(spec, "nodeSelector", path, MAX_ENTRIES),
        tuple(_toleration(item, where) for item in objects(spec, "tolerations", path, MAX_ENTRIES)),
    )


def _toleration(item: Json, path: str) -> Toleration:
    seconds = None
    if item.get("tolerationSeconds") is not None:
        seconds = integer(item, "tolerationSeconds", path, default=None, low=-(2**63), high=2**63 - 1)
    return Toleration(
        key=text(item, "key", path),
        operator=text(item, "operator", path),
        value=text(item, "value", path),
        effect=text(item, "effect", path),
        seconds=seconds,
    )


def constraints_json(found: NodeConstraints) -> dict[str, Any]:
    return {
        "nodeSelector": dict(found.node_selector),
        "tolerations": [toleration_json(item) for item in found.tolerations],
    }


def toleration_json(item: Toleration) -> dict[str, Any]:
    """As a pod spec has it."""
    fields = {
        "key": item.key,
        "operator": item.operator,
        "value": item.value,
        "effect": item.effect,
        "tolerationSeconds": item.seconds,
    }
    return {name: value for name, value in fields.items() if value is not None}


def stored_toleration(item: Json) -> Toleration:
    """From JSON that was checked when it was written: nothing is refused."""
    return Toleration(
        key=item.get("key"),
        operator=item.get("operator"),
        value=item.get("value"),
        effect=item.get("effect"),
        seconds=item.get("tolerationSeconds"),
    )


def required_affinity(spec: Json, path: str, *, fields: bool = False) -> tuple[tuple[Requirement, ...], ...]:
    """Required node affinity of a pod with spec `spec`. Raises BadField.

    `fields`: also what it says of fields of a node, as if they were labels.
    """
    path = f"{path}.affinity"
    node = mapping(mapping(spec, "affinity", path), "nodeAffinity", path)
    path = f"{path}.nodeAffinity"
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    required = mapping(node, key, path)
    terms = []
    for term in objects(required, "nodeSelectorTerms", f"{path}.{key}", MAX_TERMS):
        expressions = objects(term, "matchExpressions", f"{path}.{key}", MAX_EXPRESSIONS)
        if fields:
            expressions = (*expressions, *objects(term, "matchFields", f"{path}.{key}", MAX_EXPRESSIONS))
        # An empty term matches no node; one on fields of a node alone says nothing about its labels.
        if expressions or term.get("matchFields"):
            terms.append(tuple(_requirement(item, f"{path}.{key}.matchExpressions") for item in expressions))
    return tuple(terms)


def _requirement(item: Json, path: str) -> Requirement:
    values = array(item, "values", path, MAX_VALUES)
    return Requirement(
        checked(item.get("key"), f"{path}.key"),
        checked(item.get("operator"), f"{path}.operator"),
        tuple(checked(value, f"{path}.values") for value in values),
    )
