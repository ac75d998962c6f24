"""A dump without names: each is replaced by one that sorts alike, the same wherever it occurs.

Names of objects, namespaces, workloads and users are replaced, and UIDs. Free text and labels are left out,
but for labels of Namespaces that a selector names. What says what the cluster is remains: quota, resources,
flavors with their node labels and taints, podsets, times, priorities, nodes with their taints and conditions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

Document = dict[str, Any]

_TEXTS: Final = frozenset({"detail", "hold_reason", "considered", "victims", "annotations", "description"})
"""Fields with free text."""
_NAMING: Final = ("pastUsage", "budgetSums", "budgetEntries")
"""Fields of the ledger with names."""
_WORDS: Final = frozenset({"pending", "admitted", "default"})
"""Words of the format, which may be names too."""


def anonymous(document: Document) -> Document:
    """Return a dump (see `dumping`) without names."""
    kept = {*_WORDS, *_vocabulary(document)}
    found = sorted({name for name in _names(document) if name and name not in kept})
    width = len(str(len(found)))
    new = {name: f"name-{number:0{width}}" for number, name in enumerate(found, 1)}
    selected = set(_selected(document["objects"]))
    ledger = document["config"]["ledger"]
    return {
        **document,
        "config": {
            **document["config"],
            "ledger": {**ledger, **{name: _renamed(ledger[name], new) for name in _NAMING if name in ledger}},
        },
        "objects": [_object(one, new, selected) for one in document["objects"]],
        "workloads": [_workload(one, new) for one in document["workloads"]],
        **_nodes(document, new),
    }


def _names(document: Document) -> Iterator[str]:
    ledger = document["config"]["ledger"]
    for account, *_ in ledger.get("pastUsage", ()):
        yield from account
    for budget, subject, *_ in ledger.get("budgetSums", ()):
        yield from (budget, subject)
    for one in ledger.get("budgetEntries", ()):
        yield from (one["budget"], one["subject"], one["workload"])
    for one in document["objects"]:
        metadata, spec = one["metadata"], one.get("spec", {})
        if one["kind"] != "ResourceFlavor":
            yield metadata["name"]
        yield metadata.get("namespace", "")
        yield from (spec.get(field) or "" for field in ("cohortName", "parentName", "clusterQueue"))
        yield (spec.get("subject") or {}).get("name") or ""
    for one in document["workloads"]:
        stored = one["ledger"]
        yield from (one["name"], one["namespace"], one["queue"], stored["id"], *stored["ref"])
        yield from (stored.get(field) or "" for field in ("cluster_queue", "submitter", "preemptor"))
        yield (stored.get("options") or {}).get("priority_class") or ""
        for pods in stored.get("pod_sets", ()):
            yield from (pods.get(field) or "" for field in ("priority_class", "runtime_class"))
            yield from (claim["name"] for claim in pods.get("claims", ()))
    yield from (one["name"] for one in document.get("nodes", ()))
    yield from (one["namespace"] for one in document.get("pods", ()))


def _nodes(document: Document, new: dict[str, str]) -> Document:
    """Nodes and pods, if there are any. Labels that no flavor and no podset names are left out."""
    if "nodes" not in document:
        return {}
    asked = set(_asked(document))
    nodes = [_renamed(one, new) for one in document["nodes"]]
    for one in nodes:
        if labels := {key: value for key, value in one.pop("labels", {}).items() if key in asked}:
            one["labels"] = labels
    return {"nodes": nodes, "pods": [_renamed(one, new) for one in document["pods"]]}


def _asked(document: Document) -> Iterator[str]:
    """Keys of node labels that flavors and podsets name."""
    for one in document["objects"]:
        yield from one.get("spec", {}).get("nodeLabels") or ()
    for one in document["workloads"]:
        for pods in one["ledger"].get("pod_sets", ()):
            yield from (key for key, _ in pods.get("node_selector", ()))
            yield from (each["key"] for term in pods.get("affinity", ()) for each in term)


def _vocabulary(document: Document) -> Iterator[str]:
    """Kinds, podsets, resources and flavors."""
    for one in document["objects"]:
        if one["kind"] == "ResourceFlavor":
            yield one["metadata"]["name"]
        for group in one.get("spec", {}).get("resourceGroups") or ():
            yield from group["coveredResources"]
            yield from (flavor["name"] for flavor in group["flavors"])
    for one in document["workloads"]:
        yield one["ledger"]["ref"][1]
        for pods in one["podSets"]:
            yield pods["name"]
            yield from pods["requests"]


def _selected(objects: list[Document]) -> Iterator[str]:
    """Keys of labels that a selector names."""
    for one in objects:
        selector = one.get("spec", {}).get("namespaceSelector") or {}
        yield from selector.get("matchLabels") or ()
        yield from (expression["key"] for expression in selector.get("matchExpressions") or ())


def _object(one: Document, new: dict[str, str], selected: set[str]) -> Document:
    if one["kind"] == "ResourceFlavor":
        return one
    found: Document = _renamed(one, new)
    labels = (found["metadata"].pop("labels", None) or {}).items()
    if one["kind"] == "Namespace":
        found["metadata"]["labels"] = {key: value for key, value in labels if key in selected}
    return found


def _workload(one: Document, new: dict[str, str]) -> Document:
    found: Document = _renamed(one, new)
    found["ledger"].pop("labels", None)
    return found


def _renamed(value: Any, new: dict[str, str]) -> Any:
    match value:
        case str():
            return new.get(value) or "/".join(new.get(part, part) for part in value.split("/"))
        case dict():
            return {key: _renamed(one, new) for key, one in value.items() if key not in _TEXTS}
        case list():
            return [_renamed(one, new) for one in value]
        case _:
            return value
