"""Checks of the nodes and pods of a document, and of their numbers."""

from __future__ import annotations

from collections.abc import Iterator

from queuectl.kinds.json_fields import BadField
from queuectl.kinds.node_constraints import read_constraints
from queuectl.scenarios.documents import Cycle, ScenarioDocument
from queuectl.scenarios.manifests import BadDocument, Path
from queuectl.scenarios.nodes import MOST_NODES, MOST_PODS, PodModel, SimulatedPod
from queuectl.scenarios.simulation import Simulation


def node_problems(document: ScenarioDocument, manifests: set[str]) -> Iterator[BadDocument]:
    """`manifests`: names of the Nodes among the manifests, which nodes of the document replace."""
    if sum(one.count or 1 for one in document.nodes) + len(manifests) > MOST_NODES:
        yield BadDocument(("nodes",), f"more than {MOST_NODES} nodes, with those among the manifests")
        return
    known: dict[str, int] = {}
    for number, node in enumerate(document.nodes):
        twice = [name for name in node.names if known.setdefault(name, number) != number]
        if twice:
            yield BadDocument(("nodes", number, "name"), f"{twice[0]} is given twice")
    names = manifests | known.keys()
    yield from _pods(document, names)
    yield from _bound(document, names)
    if isinstance(document, Simulation):
        several = {one.name for one in document.nodes}
        for number, event in enumerate(document.node_events):
            if event.node not in names | several:
                yield BadDocument(("nodeEvents", number, "node"), _unknown(event.node))
        if names:
            yield from _counts(document)
    if isinstance(document, Cycle):
        yield from _steps(document)


def _steps(document: Cycle) -> Iterator[BadDocument]:
    for number, step in enumerate(document.steps):
        here: Path = ("steps", number, "nodes")
        if step.do.endswith("Nodes") and not step.nodes:
            yield BadDocument(here, "missing: it says which nodes")
        for name in step.nodes:
            if not step.do.endswith("Nodes"):
                yield BadDocument(here, f"{step.do} is not about nodes")
            elif not any(given.named(name) for given in document.nodes):
                yield BadDocument(here, _unknown(name))


def _unknown(node: str) -> str:
    return f"there is no node {node}"


def _pods(document: ScenarioDocument, names: set[str]) -> Iterator[BadDocument]:
    if sum(one.count for one in document.pods) > MOST_PODS:
        yield BadDocument(("pods",), f"more than {MOST_PODS} pods")
    known: set[str] = set()
    owners = {workload.reference for workload in document.workloads}
    for number, pods in enumerate(document.pods):
        here: Path = ("pods", number)
        reference = f"{pods.namespace}/{pods.name}"
        if reference in known:
            yield BadDocument((*here, "name"), f"{reference} is given twice")
        known.add(reference)
        if pods.node is not None and pods.node not in names:
            yield BadDocument((*here, "node"), _unknown(pods.node))
        elif pods.node is None and not isinstance(document, Simulation):
            yield BadDocument(here, "node is missing: pods are placed in simulations only")
        elif not names:
            yield BadDocument(here, "there are no nodes")
        if pods.workload is not None:
            yield from _owned(pods, here, owners)
        if isinstance(pods, SimulatedPod):
            try:
                read_constraints({"tolerations": pods.tolerations}, "")
            except BadField as problem:
                yield BadDocument((*here, "tolerations"), str(problem))


def _owned(pods: PodModel, here: Path, owners: set[str]) -> Iterator[BadDocument]:
    if pods.workload not in owners:
        yield BadDocument((*here, "workload"), f"{pods.workload} is not a workload of this document")
    elif pods.node is None:
        yield BadDocument((*here, "node"), "missing: only pods of workloads that are bound are given")


def _bound(document: ScenarioDocument, names: set[str]) -> Iterator[BadDocument]:
    """Nodes of pods of workloads that hold quota."""
    for number, workload in enumerate(document.workloads):
        asked = {pod_set.name: pod_set.count for pod_set in workload.pod_sets}
        for name, held in workload.admission.pod_sets.items() if workload.admission is not None else ():
            here: Path = ("workloads", number, "admission", "podSets", name, "nodes")
            count = asked.get(name, 0) if held.count is None else held.count
            if len(held.nodes) > count:
                yield BadDocument(here, f"{len(held.nodes)} nodes are given for {count} pods")
            for position, node in enumerate(held.nodes):
                if node not in names:
                    yield BadDocument((*here, position), _unknown(node))


def _counts(document: Simulation) -> Iterator[BadDocument]:
    """Each pod of a workload is placed by itself."""
    shapes = [
        *((("workloads", number), one.pod_sets) for number, one in enumerate(document.workloads)),
        *((("arrivals", number), one.pod_sets) for number, one in enumerate(document.arrivals)),
    ]
    for here, pod_sets in shapes:
        if sum(pod_set.count for pod_set in pod_sets) > MOST_PODS:
            yield BadDocument((*here, "podSets"), f"more than {MOST_PODS} pods, which are placed on nodes")
