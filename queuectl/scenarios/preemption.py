"""Documents of kind `preemption`: the victims of a workload with given flavors."""

from __future__ import annotations

from queuectl.core.committed_plans import restore
from queuectl.core.features.feature_set import new_state
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.resources import FlavorResource, Usage
from queuectl.core.observed_events import fold
from queuectl.core.preemption.classical import classical_victims
from queuectl.core.preemption.fair import fair_victims
from queuectl.core.preemption.search import PreemptionSearch, Snapshot, Target
from queuectl.core.state import EngineState
from queuectl.scenarios.build import SOURCE, beginning, identity, settings
from queuectl.scenarios.documents import (
    Incoming,
    PreemptionExpect,
    ScenarioPreemption,
    ScenarioVictim,
    ScenarioWorkload,
)
from queuectl.scenarios.findings import Finding, WorkloadState, rejected
from queuectl.scenarios.reader import Scenario


def preempted(scenario: Scenario) -> tuple[PreemptionExpect, Finding]:
    """The victims, and what the search found."""
    document = scenario.document
    assert isinstance(document, ScenarioPreemption)
    start = beginning(scenario)
    state, _ = new_state(frozenset({SOURCE}), settings(document.config))
    restore(state, start.snapshot)
    for events in start.batches:
        fold(state, events)
    snapshot = Snapshot(
        tree=state.tree,
        limits=state.limits,
        queues=state.directory.queues,
        entries=state.entries,
        holders=state.holders,
        configuration=state.configuration,
        now=document.config.now,
    )
    search = _search(snapshot, document, state)
    expect = PreemptionExpect(
        preempted=tuple(
            ScenarioVictim(
                workload=start.references[entry.id],
                reason=cause,
                cluster_queue=entry.attempt.assignment.cluster_queue if entry.attempt else None,
            )
            for entry, cause in _victims(search)
        )
    )
    return expect, _finding(document.incoming, search, len(expect.preempted))


def _finding(incoming: Incoming, search: PreemptionSearch, victims: int) -> Finding:
    queue = f"ClusterQueue {incoming.cluster_queue}"
    if not search.rules.enabled:
        text = f"{queue} preempts no workload: its spec.preemption is Never"
        return Finding(incoming.workload, WorkloadState.PENDING, text)
    found = search.rejected.added_to(Reason(code=Code.WAITING_FOR_QUOTA))
    text = f"{victims} victims found for {queue}"
    if found.considered:
        text += f"; not preempted: {found.considered}"
    return Finding(incoming.workload, WorkloadState.PENDING, text, tuple(rejected(found.victims)))


def _search(snapshot: Snapshot, document: ScenarioPreemption, state: EngineState) -> PreemptionSearch:
    incoming = document.incoming
    workload = next(w for w in document.workloads if w.reference == incoming.workload)
    usage, needed = _request(document, workload)
    node = snapshot.tree.queue(incoming.cluster_queue)
    cells = snapshot.tree.numbered(usage)
    return PreemptionSearch(
        snapshot,
        node,
        state.entries[identity(workload)],
        cells,
        [snapshot.tree.cell(cell) for cell in needed],
    )


def _victims(search: PreemptionSearch) -> list[Target]:
    if not search.rules.enabled:
        return []
    if search.snapshot.fair(search.node):
        root = search.tree.root(search.node)
        return fair_victims(search, root.sharing.strategies or search.configuration.strategies)
    return classical_victims(search)


def _request(document: ScenarioPreemption, workload: ScenarioWorkload) -> tuple[Usage, set[FlavorResource]]:
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
