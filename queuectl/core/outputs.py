"""What drivers take from the state: writes for the cluster, news for readers, reports on queues."""

from __future__ import annotations

from collections.abc import Set

from queuectl.core.model.capacity import CapacityWarning
from queuectl.core.model.workload import Effect, EffectKey, Eviction, PodsReady
from queuectl.core.reports import ClusterQueueReport, ClusterReport, LocalQueueReport, ReportBuilder
from queuectl.core.state import EngineState


def unacknowledged(state: EngineState) -> frozenset[EffectKey]:
    return frozenset(
        EffectKey(entry.id, entry.attempt.number, entry.unacknowledged)
        for entry in state.entries.values()
        if entry.unacknowledged is not None and entry.attempt is not None
    )


def take_effects(state: EngineState) -> list[Effect]:
    effects: list[Effect] = []
    if not state.synced:
        return effects  # flavors may not have been read yet
    for entry in list(state.outbox.values()):
        attempt, verb = entry.attempt, entry.unacknowledged
        workload, seen = entry.workload, entry.observation
        if attempt is None or verb is None or workload is None or seen is None:
            continue  # restored, and its object is not observed yet
        del state.outbox[entry.id]
        entry.dispatched = True
        eviction = None
        if entry.evicted_at is not None and entry.reason is not None:
            eviction = Eviction(entry.reason, entry.evicted_at, state.features.fails(entry))
        names = sorted({flavor for p in attempt.assignment.pod_sets for _, flavor in p.flavors})
        flavors = tuple(f for name in names if (f := state.directory.flavors.get(name)))
        key = EffectKey(entry.id, attempt.number, verb)
        asked = Effect(
            key=key, workload=workload, observation=seen, attempt=attempt, flavors=flavors, eviction=eviction
        )
        effects.append(asked)
    return effects


def take_pods_ready(state: EngineState) -> list[PodsReady]:
    changed, state.pods_changed = state.pods_changed, set()
    return [
        PodsReady(
            entry.id, entry.attempt.number, entry.observation.pods_ready, entry.observation.pods_missing
        )
        for entry in map(state.entries.get, sorted(changed))
        if entry is not None and entry.attempt is not None and entry.observation is not None
        if entry.observation.pods_ready is not None
    ]


def take_reports(state: EngineState) -> tuple[list[LocalQueueReport], list[ClusterQueueReport], list[str]]:
    if not state.synced:
        return [], [], []
    state.changed_queues |= state.features.changed_warnings()
    # An admission changes the positions in all LocalQueues of its ClusterQueue.
    state.changed.update(*(state.directory.pointing_to(name) for name in state.changed_queues))
    locals_, queues = sorted(state.changed), sorted(state.changed_queues)
    state.changed, state.changed_queues = set(), set()
    directory, known = state.directory, _known_queues(state)
    builder = survey(state)
    return (
        [builder.local_queue(name) for name in locals_ if name in directory.local_queues],
        [builder.cluster_queue(name) for name in queues if name in known],
        [name for name in queues if name not in known],
    )


def warnings(state: EngineState) -> tuple[CapacityWarning, ...]:
    """Return the warnings about quota and nodes as of now (M15)."""
    state.changed_queues |= state.features.changed_warnings()
    return state.features.warnings


def cluster_report(state: EngineState) -> ClusterReport:
    aside = sum(what in state.entries for what in state.frozen)
    strays, gate = survey(state).strays(_known_queues(state)), state.directory.gate is not None
    return ClusterReport(
        strays=strays,
        frozen=len(state.frozen) - aside,
        set_aside=aside,
        gate_installed=gate,
        local_queues=frozenset(state.directory.local_queues),
        warnings=warnings(state),
    )


def survey(state: EngineState) -> ReportBuilder:
    """Return what computes reports on the queues as of now."""
    now = max(state.now, state.clock)
    return ReportBuilder(
        state.directory,
        state.members,
        state.holders,
        state.pending,
        state.features,
        now,
    )


def _known_queues(state: EngineState) -> Set[str]:
    invalid = {key.name for key in state.directory.invalid if key.kind == "ClusterQueue"}
    return state.directory.queues.keys() | invalid
