"""A state of the ledger as a document for `queuectl test` or `queuectl simulate`, of one tree or of all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from pydantic import TypeAdapter

from queuectl.core.directory import GATE
from queuectl.core.model.budgets import BudgetEntry, BudgetSum
from queuectl.core.model.capacity import NodeFacts, PodsOnNode
from queuectl.core.model.policy import ClusterQueue, Cohort, LocalQueue, Node, Policy, SchedulingConfiguration
from queuectl.core.model.resources import Amounts, format_amount
from queuectl.core.model.workload import (
    ConfigKey,
    LedgerSnapshot,
    Phase,
    PodSet,
    StoredWorkload,
    names_claim,
)
from queuectl.core.observed_events import CONFIGURATION
from queuectl.core.quota.cohort_trees import CohortTrees
from queuectl.kinds.context import as_object, is_kept
from queuectl.kinds.policy import parse_policy, stored_object
from queuectl.kinds.policy_objects import API_VERSION
from queuectl.scenarios.documents import FORMAT
from queuectl.scenarios.rebuilt_engine import requested

Document = dict[str, Any]

_STORED: Final = TypeAdapter(StoredWorkload)
_SUMS: Final = TypeAdapter(tuple[BudgetSum, ...])
_ENTRIES: Final = TypeAdapter(tuple[BudgetEntry, ...])
_SETTINGS: Final = TypeAdapter(SchedulingConfiguration)


class NoSuchTree(ValueError):
    """No Cohort or ClusterQueue has that name."""


def dump(
    snapshot: LedgerSnapshot,
    configuration: SchedulingConfiguration,
    *,
    now: datetime,
    tree: str | None = None,
    run_seconds: float | None = None,
) -> Document:
    """Return the document. `tree`: a Cohort, or a ClusterQueue without one; the tree that it is in is dumped.
    `run_seconds`: for a simulation: how long each workload still runs.

    Raises NoSuchTree, and ValueError for a spec that cannot be read.
    """
    policies = {key: parse_policy(key, spec) for key, spec in snapshot.configs if _is_policy(key)}
    queues = _queues_of(policies.values(), tree)
    workloads = [one for one in snapshot.workloads if queues is None or _queue_of(one, policies) in queues]
    dumped = {str(one.id): _workload((name, one), run_seconds) for name, one in _named(workloads)}
    found: Document = {
        "format": FORMAT,
        "kind": "cycle" if run_seconds is None else "simulation",
        "name": f"State of {now.isoformat()}",
        "config": {
            "now": now.isoformat(),
            "ledger": {
                "scheduling": _SETTINGS.dump_python(configuration, mode="json", exclude_defaults=True),
                # The totals as text: readers of JSON and YAML round a number of more than 64 bits.
                "pastUsage": [[list(one.account), one.period, str(one.total)] for one in snapshot.past_usage],
                **_budgets(snapshot),
            },
        },
        "objects": list(_objects(snapshot, policies, queues, {one.ref.namespace for one in workloads})),
        "workloads": list(dumped.values()),
    }
    add_nodes(found, snapshot, dumped)
    return found


def _budgets(snapshot: LedgerSnapshot) -> Document:
    """Balances of budgets, if there are any: of all trees, since a Budget may count in several."""
    sums = _SUMS.dump_python(snapshot.budget_sums, mode="json")
    entries = _ENTRIES.dump_python(snapshot.budget_entries, mode="json")
    for one in entries:
        one.update(reserved=str(one["reserved"]), used=str(one["used"]))
    found = {"budgetSums": [[*of, str(used)] for *of, used in sums], "budgetEntries": entries}
    return {name: rows for name, rows in found.items() if rows}


def _is_policy(key: ConfigKey) -> bool:
    return key != CONFIGURATION and key.kind != GATE and not is_kept(key.kind)


def _queues_of(policies: Iterable[Policy], tree: str | None) -> set[str] | None:
    """Names of the ClusterQueues and Cohorts of a tree; None: of all trees."""
    if tree is None:
        return None
    trees = CohortTrees(policies)
    if tree not in {*trees.cohorts, *trees.queues}:
        raise NoSuchTree(f"{tree} is neither a Cohort nor a ClusterQueue")
    root = trees.root(tree) if tree in trees.cohorts else trees.root_of(tree)
    if root is None:
        return {tree}
    return {*trees.queues_below(root), *(f"Cohort/{name}" for name in trees.cohorts_in(root))}


def _queue_of(one: StoredWorkload, policies: dict[ConfigKey, Policy]) -> str | None:
    if one.attempt is not None:
        return one.attempt.assignment.cluster_queue
    local = policies.get(ConfigKey("LocalQueue", one.ref.namespace, one.queue))
    return local.cluster_queue if isinstance(local, LocalQueue) else one.cluster_queue


def _objects(
    snapshot: LedgerSnapshot,
    policies: dict[ConfigKey, Policy],
    queues: set[str] | None,
    namespaces: set[str],
) -> Iterator[Document]:
    """Manifests of the policy of the tree, and of the context of its namespaces."""
    for key, spec in snapshot.configs:
        policy = policies.get(key)
        match policy:
            case ClusterQueue() if queues is not None and policy.name not in queues:
                continue
            case Cohort() if queues is not None and f"Cohort/{policy.name}" not in queues:
                continue
            case LocalQueue() if queues is not None and policy.cluster_queue not in queues:
                continue
        if policy is not None:
            yield _manifest(key, json.loads(spec))
        elif is_kept(key.kind):
            of = key.name if key.kind == "Namespace" else key.namespace
            if queues is None or not of or of in namespaces:
                yield dict(as_object(key, spec))


def _manifest(key: ConfigKey, spec: Document) -> Document:
    content = stored_object(key, spec)
    names = {"name": key.name, **({"namespace": key.namespace} if key.namespace else {})}
    metadata = {**names, **content.get("metadata", {})}
    return {**content, "apiVersion": API_VERSION, "kind": key.kind, "metadata": metadata}


def _named(workloads: Iterable[StoredWorkload]) -> Iterator[tuple[str, StoredWorkload]]:
    """Each with a name of its own in its namespace: those of different kinds may have the same."""
    known: set[tuple[str, str]] = set()
    for one in workloads:
        name = one.ref.name
        if (one.ref.namespace, name) in known:
            name = f"{name}.{one.ref.kind.lower()}.{one.id}"
        known.add((one.ref.namespace, name))
        yield name, one


def _workload(named: tuple[str, StoredWorkload], run_seconds: float | None) -> Document:
    name, one = named
    found: Document = {
        "name": name,
        "namespace": one.ref.namespace,
        "queue": one.queue,
        "priority": one.priority,
        "createdAt": one.created_at.isoformat(),
        "podSets": [_pod_set(pods) for pods in requested(one).pod_sets],
        "state": "pending" if one.phase is Phase.PENDING else "admitted",
    }
    if one.attempt is not None:
        held = one.attempt.assignment
        found["admission"] = {
            "clusterQueue": held.cluster_queue,
            "podSets": {
                pods.name: {"flavors": dict(pods.flavors)}
                for pods in held.pod_sets
                if not names_claim(pods.name)
            },
        }
    if run_seconds is not None:
        found["runSeconds"] = run_seconds
    found["ledger"] = _STORED.dump_python(one, mode="json", exclude_defaults=True)
    return found


def _pod_set(pods: PodSet) -> Document:
    requests = {resource: format_amount(resource, amount) for resource, amount in pods.requests}
    return {"name": pods.name, "count": pods.count, "requests": requests}


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
