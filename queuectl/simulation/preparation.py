"""Sets up the nodes of a simulation document, what happens to them, and the pods of no queue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from queuectl.core.engine import Engine
from queuectl.core.features.namespace_quota.charges import PodCharges
from queuectl.core.model.events import ContextObserved, PolicyObserved
from queuectl.core.model.policy import Node, OfNamespace, ResourceFlavor
from queuectl.core.model.resources import amounts
from queuectl.kinds.node_constraints import read_constraints
from queuectl.scenarios.arrivals import milliseconds
from queuectl.scenarios.build import settings
from queuectl.scenarios.nodes import SimulatedPod
from queuectl.scenarios.reader import Scenario
from queuectl.scenarios.simulation import Simulation
from queuectl.simulation.cluster import COLLECT_SECONDS, Other, SimulatedCluster
from queuectl.simulation.player import Play


def cluster_of(scenario: Scenario, document: Simulation) -> SimulatedCluster | None:
    """Return the cluster without its nodes; None: there are none at any time."""
    nodes = [node for _, node in _nodes(scenario, document)]
    if not nodes:
        return None
    charges = PodCharges(settings(document.config).resources)
    for event in scenario.policy:
        if isinstance(event, ContextObserved) and isinstance(event.value, OfNamespace):
            charges.observe(event.value)
    policies = (event.value for event in scenario.policy if isinstance(event, PolicyObserved))
    flavors = (value for value in policies if isinstance(value, ResourceFlavor))
    return SimulatedCluster(nodes, flavors, charges, document.config.now)


def prepare(
    driver: Play, engine: Engine, cluster: SimulatedCluster, scenario: Scenario, document: Simulation
) -> None:
    """Add the nodes that are there at the start, and plan what happens later."""
    for at, node in _nodes(scenario, document):
        if at is None:
            engine.handle(cluster.add(node, document.config.now))
        else:
            driver.happen(milliseconds(at), partial(cluster.add, node))
    named = {one.name: tuple(one.names) for one in document.nodes}
    for event in document.node_events:
        for name in named.get(event.node, (event.node,)):
            driver.happen(milliseconds(event.at), partial(cluster.change, name, event.do))
            if event.do == "remove":
                later = milliseconds(event.at + COLLECT_SECONDS)
                driver.happen(later, partial(cluster.collect, name))
    for pods in document.pods:
        if pods.workload is not None or pods.terminating:
            continue  # those of workloads are bound as these start; the others end before anything happens
        run = None if pods.run_seconds is None else milliseconds(pods.run_seconds)
        driver.run_pods(milliseconds(pods.at), _other(pods), run)


def _nodes(scenario: Scenario, document: Simulation) -> Iterator[tuple[float | None, Node]]:
    """Yield all nodes, each with the seconds after which it is added; None: it is there at the start."""
    for event in scenario.policy:
        if isinstance(event, ContextObserved) and isinstance(event.value, Node):
            yield None, replace(event.value, created_at=None, ready_since=None)  # not of virtual time
    for one in document.nodes:
        for node in one.values():
            yield one.added_at, node


def _other(pods: SimulatedPod) -> Other:
    own = read_constraints({"nodeSelector": pods.node_selector, "tolerations": pods.tolerations}, pods.name)
    return Other(
        namespace=pods.namespace,
        name=pods.name,
        pods=pods.count,
        requests=amounts(pods.requests),
        node=pods.node,
        node_selector=own.node_selector,
        tolerations=own.tolerations,
    )
