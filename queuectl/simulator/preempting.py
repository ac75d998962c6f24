"""Documents of kind `preemption`: the victims of a workload with given flavors."""

from __future__ import annotations

from queuectl.core.applying import restore
from queuectl.core.observing import fold
from queuectl.core.preemption.classical import classical_victims
from queuectl.core.preemption.fair import fair_victims
from queuectl.core.preemption.search import PreemptionSearch, Snapshot, Target
from queuectl.core.resources import FlavorResource, Usage
from queuectl.core.state import State
from queuectl.simulator.building import SOURCE, beginning, identity, settings
from queuectl.simulator.documents import Preemption, PreemptionExpect, Victim, Workload
from queuectl.simulator.reading import Scenario


def preempted(scenario: Scenario) -> PreemptionExpect:
    document = scenario.document
    assert isinstance(document, Preemption)
    start = beginning(scenario)
    state = State(frozenset({SOURCE}), settings(document.config))
    restore(state, start.snapshot)
    for events in start.batches:
        fold(state, events)
    snapshot = Snapshot(
        tree=state.tree,
        limit=state.limit,
        queues=state.directory.queues,
        entries=state.entries,
        holders=state.holders,
        configuration=state.configuration,
        now=document.config.now,
    )
    victims = _search(snapshot, document, state)
    return PreemptionExpect(
        preempted=tuple(
            Victim(
                workload=start.references[entry.id],
                reason=cause,
                cluster_queue=entry.attempt.assignment.cluster_queue if entry.attempt else None,
            )
            for entry, cause in victims
        )
    )


def _search(snapshot: Snapshot, document: Preemption, state: State) -> list[Target]:
    incoming = document.incoming
    workload = next(w for w in document.workloads if w.reference == incoming.workload)
    usage, needed = _request(document, workload)
    node = snapshot.tree.queue(incoming.cluster_queue)
    cells = snapshot.tree.numbered(usage)
    search = PreemptionSearch(
        snapshot,
        node,
        state.entries[identity(workload)],
        cells,
        [snapshot.tree.cell(cell) for cell in needed],
    )
    if not search.rules.enabled:
        return []
    if snapshot.fair(node):
        return fair_victims(
            search, snapshot.tree.root(node).sharing.strategies or snapshot.configuration.strategies
        )
    return classical_victims(search)


def _request(document: Preemption, workload: Workload) -> tuple[Usage, set[FlavorResource]]:
    """Total requests of its pods, and the part that does not fit."""
    usage: Usage = {}
    needed: set[FlavorResource] = set()
    asked = {pod_set.name: pod_set for pod_set in workload.pod_sets}
    for name, assigned in document.incoming.assignment.items():
        count = asked[name].count if assigned.count is None else assigned.count
        requests = dict(asked[name].charged) | {"pods": 1}
        for resource, chosen in assigned.flavors.items():
            cell = FlavorResource(chosen.flavor, resource)
            usage[cell] = usage.get(cell, 0) + requests.get(resource, 0) * count
            if chosen.mode == "Preempt":
                needed.add(cell)
    return usage, needed
