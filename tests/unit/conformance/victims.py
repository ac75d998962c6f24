"""Vectors of kind `preemption`: the victims of a workload with given flavors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from queuectl.core.committed_plans import restore
from queuectl.core.cycle.nomination import PreemptionSimulation
from queuectl.core.cycle.plan_draft import PlanDraft
from queuectl.core.features.feature_set import new_state
from queuectl.core.model.resources import FlavorResource, Usage
from queuectl.core.observed_events import fold
from queuectl.scenarios.build import SOURCE, beginning, identity, settings
from queuectl.scenarios.documents import Cycle, Expect, ScenarioVictim, ScenarioWorkload
from queuectl.scenarios.findings import Difference, differences
from queuectl.scenarios.reader import Scenario, read_scenarios
from tests.unit.conformance.vectors import document


def preemption(vector: Mapping[str, Any]) -> list[Difference]:
    """Differences from its victims."""
    whole = document(vector) | {"kind": "cycle"}
    incoming = whole.pop("incoming")
    (scenario,) = read_scenarios(json.dumps(whole).encode(), f"{vector['id']}.json")
    assert isinstance(scenario.document, Cycle)
    assert scenario.document.expect is not None
    return differences(scenario.document.expect, Expect(preempted=_victims(scenario, incoming)))


def _victims(scenario: Scenario, incoming: Mapping[str, Any]) -> tuple[ScenarioVictim, ...]:
    document = scenario.document
    assert document is not None
    start = beginning(scenario)
    state, _ = new_state(frozenset({SOURCE}), settings(document.config))
    restore(state, start.snapshot)
    for events in start.batches:
        fold(state, events)
    workload = next(one for one in document.workloads if one.reference == incoming["workload"])
    usage, needed = _request(workload, incoming["assignment"])
    cells = state.tree.numbered(usage)
    with state.limits.trying() as trial:
        snapshot = PlanDraft(state, document.config.now, 1, trial).snapshot
        flavors = state.directory.queue_flavors(incoming["clusterQueue"])
        simulation = PreemptionSimulation(snapshot, state.entries[identity(workload)], flavors)
        found = simulation.victims(cells, [state.tree.cell(cell) for cell in needed])
    return tuple(
        ScenarioVictim(
            workload=start.references[entry.id],
            reason=cause,
            cluster_queue=entry.attempt.assignment.cluster_queue if entry.attempt else None,
        )
        for entry, cause in found
    )


def _request(workload: ScenarioWorkload, assignment: Mapping[str, Any]) -> tuple[Usage, set[FlavorResource]]:
    """Total requests of its pods, and the part that does not fit."""
    usage: Usage = {}
    needed: set[FlavorResource] = set()
    asked = {pod_set.name: pod_set for pod_set in workload.pod_sets}
    for name, assigned in assignment.items():
        count = assigned.get("count", asked[name].count)
        requests = dict(asked[name].charged) | {"pods": 1}
        for resource, chosen in assigned["flavors"].items():
            cell = FlavorResource(chosen["flavor"], resource)
            usage[cell] = usage.get(cell, 0) + requests.get(resource, 0) * count
            if chosen["mode"] == "Preempt":
                needed.add(cell)
    return usage, needed
