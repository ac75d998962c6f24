"""Sets up a simulation document and runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain, islice
from typing import Final

from queuectl.core.engine import Engine
from queuectl.core.features.feature_set import kernel_with
from queuectl.core.model.events import ContextObserved, PolicyObserved
from queuectl.core.model.policy import Node, OfNamespace, ResourceFlavor
from queuectl.core.model.resources import amounts
from queuectl.kinds.node_constraints import read_constraints
from queuectl.scenarios.arrivals import (
    MOST_WORKLOADS,
    Arrival,
    Template,
    after,
    arrivals,
    milliseconds,
)
from queuectl.scenarios.build import SOURCE, avoided, beginning, identity, observed, settings
from queuectl.scenarios.manifests import Manifests
from queuectl.scenarios.nodes import SimulatedPod
from queuectl.scenarios.reader import BadScenarios, Scenario, read_scenarios
from queuectl.scenarios.simulation import ArrivalsModel, SimulatedWorkload, Simulation
from queuectl.simulation.cluster import COLLECT_SECONDS, Other, SimulatedCluster
from queuectl.simulation.measures import Document, measures
from queuectl.simulation.player import Play
from queuectl.simulation.usage import QuotaTable

_MODELS: Final = {"simulation": Simulation}


def read_simulation(text: bytes, name: str, policy: Manifests = Manifests()) -> Scenario:  # noqa: B008
    """The one simulation in a file, on top of `policy`. Raises BadScenarios."""
    found = read_scenarios(text, name, policy, models=_MODELS)
    for one in found:
        if one.left_out:
            raise BadScenarios([f"{name}: line {one.line}: {one.header.title}: {one.left_out}"])
    if len(found) > 1:
        raise BadScenarios(
            [f"{name}: line {found[1].line}: one document is played at a time, this is the second"]
        )
    return found[0]


def play(scenario: Scenario, progress: Callable[[float], None] = lambda _: None) -> Document:
    """Its measures. Raises NeverEnds, and BadScenarios if there are too many workloads."""
    document = scenario.document
    assert isinstance(document, Simulation)
    start = document.config.now
    begun = beginning(replace(scenario, document=_whole(document)))
    engine = Engine(frozenset({SOURCE}), settings(document.config))
    engine.restore(replace(begun.snapshot, nodes=avoided(document)))
    engine.handle(begun.batches[0])
    cluster = cluster_of(scenario, document)
    driver = Play(engine, start, eviction_seconds=document.eviction_seconds, cluster=cluster)
    if cluster is not None:
        prepare(driver, engine, cluster, scenario, document)
    holding = {one.id: one for one in begun.snapshot.workloads}
    bound = _nodes_of_pods(document)
    for one in document.workloads:
        if one.holds:
            run = _run(one.run_seconds)
            driver.hold(observed(one).workload, holding[identity(one)], run, bound[one.reference])
    coming = list(islice(_coming(document, start), MOST_WORKLOADS + 1))
    if len(coming) > MOST_WORKLOADS:
        raise BadScenarios([f"{scenario.file}: more than {MOST_WORKLOADS} workloads arrive"])
    names = Counter(one.workload.ref[:3] for one in coming)
    if len(names) < len(coming):
        (namespace, _, name), _ = names.most_common(1)[0]
        raise BadScenarios([f"{scenario.file}: two workloads that arrive are called {namespace}/{name}"])
    policies = (event.value for event in scenario.policy if isinstance(event, PolicyObserved))
    history = driver.play(coming, until=document.until, progress=progress)
    return {"name": document.name, **measures(history, QuotaTable(policies))}


def _whole(document: Simulation) -> Simulation:
    """With a workload for each template, so that what they name is made; nodes and pods come later."""
    shapes = tuple(template.shape for template in document.arrivals)
    workloads = (*document.workloads, *shapes)
    return document.model_copy(update={"workloads": workloads, "nodes": (), "pods": ()})


def _nodes_of_pods(document: Simulation) -> dict[str, list[str]]:
    """The nodes of bound pods, by NAMESPACE/NAME of their workload."""
    found: dict[str, list[str]] = {}
    for one in document.workloads:
        held = one.admission.pod_sets.values() if one.admission is not None else ()
        found[one.reference] = [node for pod_set in held for node in pod_set.nodes]
    for pods in document.pods:
        if pods.workload is not None and pods.node is not None:
            found[pods.workload] += [pods.node] * pods.count
    return found


# --- arrivals ------------------------------------------------------------------------------------------


def _coming(document: Simulation, start: datetime) -> Iterator[Arrival]:
    templates = (_templated(one, document, start) for one in document.arrivals)
    single = (_single(one, start) for one in document.workloads if not one.holds)
    return chain(single, *templates)


def _single(one: SimulatedWorkload, start: datetime) -> Arrival:
    at = 0 if one.arrival is None else milliseconds(one.arrival)
    if one.arrival is None and one.created_at is not None:
        at = max(0, milliseconds((one.created_at - start).total_seconds()))
    workload = observed(one).workload
    if one.created_at is None:
        workload = replace(workload, created_at=after(start, at))
    return Arrival(at=at, workload=workload, run=_run(one.run_seconds))


def _templated(one: ArrivalsModel, document: Simulation, start: datetime) -> Iterator[Arrival]:
    shape = observed(one.shape).workload
    template = Template(
        shape=shape,
        spacing=one.spacing(),
        run=None if one.run_seconds is None else one.run_seconds.value(),
        first=one.from_,
        last=one.to,
        count=one.count,
        seed=document.seed if one.seed is None else one.seed,
    )
    return arrivals(template, start, until=document.until)


def _run(seconds: float | None) -> int | None:
    return None if seconds is None else milliseconds(seconds)


def cluster_of(scenario: Scenario, document: Simulation) -> SimulatedCluster | None:
    """Return the cluster without its nodes; None: there are none at any time."""
    nodes = [node for _, node in _nodes(scenario, document)]
    if not nodes:
        return None
    context = (event for event in scenario.policy if isinstance(event, ContextObserved))
    of_namespaces = [event for event in context if isinstance(event.value, OfNamespace)]
    directory, _ = kernel_with(of_namespaces, settings(document.config))
    policies = (event.value for event in scenario.policy if isinstance(event, PolicyObserved))
    flavors = (value for value in policies if isinstance(value, ResourceFlavor))
    return SimulatedCluster(nodes, flavors, directory, document.config.now)


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
