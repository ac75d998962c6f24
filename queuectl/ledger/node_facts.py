"""Facts of nodes as JSON of the ledger, and back. Fields with their usual value are left out."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from queuectl.core.model.node_facts import NodeFacts, PodsOnNode
from queuectl.core.model.policy import Node, Taint

Json = dict[str, Any]


def facts_to_json(value: NodeFacts) -> Json:
    """An empty object: the node is gone."""
    found = {
        "node": None if value.node is None else _node_to_json(value.node),
        "pods": [_pods_to_json(one) for one in value.pods],
        "avoidedUntil": None if value.gone else _time_to_json(value.avoided_until),
    }
    return {key: one for key, one in found.items() if one is not None and one != []}


def facts_from_json(name: str, value: Json) -> NodeFacts:
    return NodeFacts(
        name=name,
        node=_node_from_json(name, value["node"]) if "node" in value else None,
        pods=tuple(_pods_from_json(one) for one in value.get("pods", ())),
        avoided_until=_time_from_json(value.get("avoidedUntil")),
    )


def _node_to_json(node: Node) -> Json:
    found = {
        "labels": dict(node.labels),
        "allocatable": dict(node.allocatable),
        "notReady": not node.ready,
        "readySince": _time_to_json(node.ready_since),
        "createdAt": _time_to_json(node.created_at),
        "cordoned": node.cordoned,
        "taints": [[one.key, one.value, one.effect] for one in node.taints],
        "conditions": dict(node.conditions),
    }
    return {key: one for key, one in found.items() if one}


def _node_from_json(name: str, value: Json) -> Node:
    return Node(
        name,
        _pairs(value.get("labels", {})),
        _pairs(value.get("allocatable", {})),
        ready=not value.get("notReady", False),
        ready_since=_time_from_json(value.get("readySince")),
        created_at=_time_from_json(value.get("createdAt")),
        cordoned=value.get("cordoned", False),
        taints=tuple(Taint(*one) for one in value.get("taints", ())),
        conditions=_pairs(value.get("conditions", {})),
    )


def _pods_to_json(one: PodsOnNode) -> list[Any]:
    found = [one.namespace, one.workload, dict(one.requests), one.pods, one.terminating]
    usual = 3 + (one.pods != 1)
    return found if one.terminating else found[:usual]


def _pods_from_json(value: list[Any]) -> PodsOnNode:
    namespace, workload, requests, *others = value
    return PodsOnNode(namespace, workload, _pairs(requests), *others)


def _pairs(value: Json) -> tuple[tuple[str, Any], ...]:
    """Sorted, as where they were read from the cluster."""
    return tuple(sorted(value.items()))


def _time_to_json(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def _time_from_json(value: str | None) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value)
