"""Nodes and the pods on them, as the ledger tells of them, in the form of documents."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from queuectl.core.model.node_facts import NodeFacts, PodsOnNode
from queuectl.core.model.policy import Node
from queuectl.core.model.resources import Amounts, format_amount
from queuectl.core.model.workload import LedgerSnapshot, StoredWorkload

Document = dict[str, Any]


def add_nodes(document: Document, snapshot: LedgerSnapshot, dumped: Mapping[str, Document]) -> None:
    """Add them to a document. `dumped`: the workloads that are in it, by id.

    Pods that request what a podset requests are given at the admission of their workload, the others in
    `pods`. Those of a workload that is not in the document are pods of no queue; if it is over, they end.
    """
    stored = {str(one.id): one for one in snapshot.workloads}
    pods: list[Document] = []
    for facts in snapshot.nodes:
        for group in facts.pods:
            found, left = _pods(group, facts.name), group.pods
            if group.workload is not None and group.workload in dumped:
                owner = dumped[group.workload]
                found["workload"] = f"{owner['namespace']}/{owner['name']}"
                if not group.terminating:
                    left -= _bind(owner, stored[group.workload], group, facts.name)
            elif group.workload is not None and group.workload not in stored:
                found["terminating"] = True
            if left:
                pods.append({"name": f"pods-{len(pods) + 1}", **found, "count": left})
    if snapshot.nodes:
        document["nodes"], document["pods"] = [_node(one) for one in snapshot.nodes], pods


def _pods(group: PodsOnNode, node: str) -> Document:
    found: Document = {"namespace": group.namespace, "node": node, "requests": _quantities(group.requests)}
    return found | ({"terminating": True} if group.terminating else {})


def _bind(owner: Document, stored: StoredWorkload, group: PodsOnNode, node: str) -> int:
    """Give pods to the podsets that they may be of. Return how many."""
    asked = {pods.name: pods.requests for pods in stored.pod_sets}
    given = 0
    for held in stored.attempt.assignment.pod_sets if stored.attempt is not None else ():
        if asked.get(held.name) == group.requests:
            admitted = owner["admission"]["podSets"][held.name]
            bound = admitted.get("nodes", [])
            more = min(group.pods - given, held.count - len(bound))
            if more > 0:
                admitted["nodes"] = [*bound, *[node] * more]
                given += more
    return given


def _node(facts: NodeFacts) -> Document:
    # A Node that is gone while pods are on it is lost, as one that is not ready.
    node = facts.node or Node(facts.name, ready=False)
    found: Document = {
        "name": node.name,
        "labels": dict(node.labels),
        "allocatable": _quantities(node.allocatable),
        "taints": [{"key": one.key, "value": one.value, "effect": one.effect} for one in node.taints],
        "ready": node.ready,
        "cordoned": node.cordoned,
        "conditions": dict(node.conditions),
        "readySince": _time(node.ready_since),
        "createdAt": _time(node.created_at),
        "avoidedUntil": _time(facts.avoided_until),
    }
    usual = {"labels": {}, "taints": [], "ready": True, "cordoned": False, "conditions": {}}
    return {key: one for key, one in found.items() if one is not None and usual.get(key) != one}


def _quantities(amounts: Amounts) -> dict[str, str]:
    return {resource: format_amount(resource, amount) for resource, amount in amounts}


def _time(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()
