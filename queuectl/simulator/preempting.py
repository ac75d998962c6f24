"""Documents of kind `preemption`: the victims of a workload with given flavors."""

from __future__ import annotations

from queuectl.core.applying import restore
from queuectl.core.contest import Contest, Field, Target
from queuectl.core.fairness import fair_victims
from queuectl.core.folding import fold
from queuectl.core.preemption import classical_victims
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
    field = Field(
        tree=state.tree,
        queues=state.directory.queues,
        holders=state.holders,
        settings=state.settings,
        now=document.config.now,
    )
    victims = _search(field, document, state)
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


def _search(field: Field, document: Preemption, state: State) -> list[Target]:
    incoming = document.incoming
    workload = next(w for w in document.workloads if w.reference == incoming.workload)
    usage, contested = _request(document, workload)
    node = field.tree.queue(incoming.cluster_queue)
    cells = field.tree.numbered(usage)
    contest = Contest(
        field,
        node,
        state.entries[identity(workload)],
        cells,
        [field.tree.cell(cell) for cell in contested],
    )
    if not contest.rules.any:
        return []
    if field.fair(node):
        return fair_victims(contest, field.tree.root(node).sharing.strategies or field.settings.strategies)
    return classical_victims(contest)


def _request(document: Preemption, workload: Workload) -> tuple[Usage, set[FlavorResource]]:
    """Total requests of its pods, and the part that does not fit."""
    usage: Usage = {}
    contested: set[FlavorResource] = set()
    asked = {pod_set.name: pod_set for pod_set in workload.pod_sets}
    for name, assigned in document.incoming.assignment.items():
        count = asked[name].count if assigned.count is None else assigned.count
        requests = dict(asked[name].charged) | {"pods": 1}
        for resource, chosen in assigned.flavors.items():
            cell = FlavorResource(chosen.flavor, resource)
            usage[cell] = usage.get(cell, 0) + requests.get(resource, 0) * count
            if chosen.mode == "Preempt":
                contested.add(cell)
    return usage, contested
