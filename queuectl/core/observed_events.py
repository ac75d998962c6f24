"""Applies events to the state. Each event has a whole object: repeated and merged events are harmless."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import assert_never

from queuectl.core.directory import GATE, AffectedObjects
from queuectl.core.entries import NOT_READ, Entry
from queuectl.core.lifecycle import remaining
from queuectl.core.model.events import (
    ConfigurationObserved,
    ContextGone,
    ContextObserved,
    DeviceUseFound,
    EffectSettled,
    Event,
    Listed,
    OutcomesRead,
    OwnerRead,
    PodGone,
    PodObserved,
    PodOwnerRead,
    PodsCounted,
    PolicyGone,
    PolicyInvalid,
    PolicyObserved,
    Result,
    TimeCame,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.model.policy import Gate, LocalQueue, LocalQueueName
from queuectl.core.model.workload import (
    ConfigKey,
    ObjectRef,
    Observation,
    Verb,
    Workload,
    WorkloadId,
    precedes,
)
from queuectl.core.pod_numbers import Resized, excess, larger
from queuectl.core.queues.backoff import tried_anew
from queuectl.core.queues.inadmissible import queues_below
from queuectl.core.quota.tree import QuotaNode
from queuectl.core.state import EngineState

CONFIGURATION = ConfigKey("Configuration", "", "queuectl")
"""The ledger key of the component configuration."""

Rules = PolicyObserved | PolicyInvalid | PolicyGone | ConfigurationObserved | ContextObserved | ContextGone


@dataclass(slots=True)
class _Batch:
    """What the events of one batch affect."""

    affected: AffectedObjects = field(default_factory=AffectedObjects)
    entries: dict[WorkloadId, Entry] = field(default_factory=dict)
    new: list[Entry] = field(default_factory=list)


def fold(state: EngineState, events: Iterable[Event]) -> None:
    """Apply a batch of events to `state`, and update the affected entries."""
    batch = _Batch()
    for event in events:
        _apply(state, event, batch)
    # The arrival number is the order of first observation (O2). Within one batch it is set by creation time.
    for entry in sorted(batch.new, key=_first_sight):
        state.arrival += 1
        entry.arrival = state.arrival
    for entry in _affected(state, batch.affected):
        entry.held_known = False
        batch.entries[entry.id] = entry
    if batch.affected.rules:
        # Due entries may depend on policy that their queues no longer refer to.
        for key in state.due_steps:
            entry = batch.entries[key] = state.entries[key]
            entry.held_known = False
    for entry in sorted(batch.entries.values(), key=attrgetter("arrival", "id")):
        state.route(entry)
        state.refresh(entry)
    for feature in state.features.active:
        feature.settle()
    if state.requeuer.renominated:
        state.route_renominated()
    state.may_forget |= batch.affected.rules


def _apply(state: EngineState, event: Event, batch: _Batch) -> None:
    known = isinstance(event, PolicyObserved) and state.specs.get(event.key) == event.spec
    match event:
        case WorkloadObserved(workload):
            if workload.id in state.entries or workload.owner is None:
                _observe(state, event, batch)
        case WorkloadGone(workload_id, version):
            _mark_gone(state, state.entries.get(workload_id), batch, version)
        case Listed():
            _list(state, event, batch)
        case EffectSettled():
            _settle(state, event, batch)
        case PodsCounted():
            _count(state, event, batch)
        case PodObserved() | PodGone() | OwnerRead() | PodOwnerRead() | DeviceUseFound() | OutcomesRead():
            pass  # features alone take these
        case TimeCame(now):
            _time_came(state, now, batch)
        case _:
            batch.affected.rules |= _apply_rules(state, event, batch.affected)
    if not known:  # its status alone changed
        state.features.observe(event, batch.affected)


def _time_came(state: EngineState, now: datetime, batch: _Batch) -> None:
    state.clock = max(state.clock, now)
    for workload_id in state.timers.take(state.clock):
        batch.entries[workload_id] = state.entries[workload_id]
    state.requeuer.time_came(state.clock)


# --- policy and context


def _apply_rules(state: EngineState, event: Rules, affected: AffectedObjects) -> bool:
    """Return whether policy or context has changed, other than in specs that only the ledger keeps."""
    match event:
        case PolicyObserved():
            return _observe_policy(state, event, affected)
        case PolicyInvalid(key, detail, status_lost):
            state.directory.invalid[key] = detail
            _report(state, key)
            if status_lost:
                _report_again(state, key)
        case PolicyGone(key):
            state.specs.pop(key, None)
            state.authors.pop(key, None)
            state.due_configs.add(key)
            state.directory.forget(key, affected)
            return True
        case ConfigurationObserved(spec):
            state.specs[CONFIGURATION] = spec
            state.due_configs.add(CONFIGURATION)
        case ContextObserved():
            return _observe_context(state, event, affected)
        case ContextGone(kind, name):
            if (kept := state.contexts.forget(event)) is not None:
                state.specs.pop(kept, None)
                state.due_configs.add(kept)
            return state.directory.forget_context(kind, name, affected)
        case _:
            assert_never(event)
    return False


def _observe_policy(state: EngineState, event: PolicyObserved, affected: AffectedObjects) -> bool:
    if event.status_lost:
        _report_again(state, event.key)
    if state.directory.invalid.pop(event.key, None) is not None:
        _report(state, event.key)
    if state.specs.get(event.key) == event.spec:
        return False
    state.specs[event.key] = event.spec
    state.authors[event.key] = event.author
    state.due_configs.add(event.key)
    if not state.directory.observe(event.value, affected):
        return False
    if isinstance(event.value, LocalQueue):
        state.due_configs.update(state.contexts.of(event.key.namespace))
    return True


def _report_again(state: EngineState, key: ConfigKey) -> None:
    """Report a queue that has lost its status, although nothing about it has changed."""
    if key.kind == "LocalQueue":
        state.changed.add(LocalQueueName(key.namespace, key.name))
    else:
        state.changed_queues.add(key.name)


def _report(state: EngineState, key: ConfigKey) -> None:
    """Mark the status of a ClusterQueue as changed, although its policy in force is not."""
    if key.kind == "ClusterQueue":
        state.changed_queues.add(key.name)
        state.changed.update(state.directory.pointing_to(key.name))


def _observe_context(state: EngineState, event: ContextObserved, affected: AffectedObjects) -> bool:
    value = event.value
    changed = state.directory.observe_context(value, affected)
    if (key := state.contexts.observe(event)) is not None:
        state.specs[key] = event.spec
        state.due_configs.add(key)
    if isinstance(value, Gate):
        gate = ConfigKey(GATE, "", value.name)
        state.specs[gate] = json.dumps({"installedAt": value.installed_at.isoformat()})
        state.due_configs.add(gate)
    return changed


def _affected(state: EngineState, affected: AffectedObjects) -> Iterator[Entry]:
    """Requeue what a change of policy or context affects, and yield the affected entries."""
    for name in affected.cluster_queues:
        _rebuild(state, name)
    for root in affected.trees:
        _renominate(state, root)
    state.changed |= affected.local_queues
    for local in affected.local_queues:
        if known := state.directory.local_queues.get(local):
            state.changed_queues.add(known.cluster_queue)
    if affected.everything:
        yield from state.entries.values()
        return
    names = set(affected.local_queues)
    for name in affected.cluster_queues:
        names.update(state.directory.pointing_to(name))
        yield from state.holders.get(name, {}).values()
    if affected.namespaces:
        names |= _under_other_rules(state, affected.namespaces)
    for local in names:
        yield from state.members.get(local, {}).values()


def _renominate(state: EngineState, root: QuotaNode) -> None:
    """Nominate all queues of a tree again, and report shares that may be others (S2)."""
    for queue in queues_below(root, state.pending):
        state.requeuer.renominate(queue)
    if state.configuration.fair_sharing or root.sharing.enabled:
        state.changed_queues.update(node.name for node in root.queues())


def _under_other_rules(state: EngineState, namespaces: Set[str]) -> set[LocalQueueName]:
    """Objects of these namespaces changed: return the LocalQueues whose workloads this affects."""
    found = {local for local in state.members if local.namespace in namespaces}
    for local in found:
        for workload in state.members[local]:
            state.features.revised(workload)
    return found


def _rebuild(state: EngineState, name: str) -> None:
    """Requeue the pending queue of a ClusterQueue whose policy changed; recreate it if its order changed."""
    state.changed_queues.add(name)
    state.changed.update(state.directory.pointing_to(name))
    queue = state.pending.get(name)
    if queue is None:
        return
    state.requeuer.renominate(queue)
    fresh = state.new_queue(name)
    if queue.order != fresh.order:
        for entry in list(queue.entries()):
            state.leave(entry)
        state.pending[name] = fresh


# --- workloads


def _observe(state: EngineState, event: WorkloadObserved, batch: _Batch) -> None:
    workload, observation = event.workload, event.observation
    entry = state.entries.get(workload.id)
    if entry is None:
        if observation.over is not None:
            return  # it finished before its first observation
        entry = _enter(state, event, batch)
    last = entry.observation
    if entry.gone_at is not None:
        if precedes(observation.resource_version, entry.gone_at):
            return
    elif last is not None and observation.outdated_by(last):
        return
    if entry.gone or not (observation.suspended or observation.finished):
        entry.pods_gone, entry.count_void = False, entry.counting_pods
    if last is not None and entry.attempt is None:
        ours = max(last.generation, entry.generation or 0)
        if observation.generation > ours:  # L20
            entry.past = tried_anew(entry.past)
    if entry.unacknowledged is Verb.START and not entry.dispatched:
        entry.start_refused = True  # its request may have changed: handled like a refused start (L7)
    workload = remaining(workload, observation)
    _note_size(entry, workload, observation)
    _note_changes(state, entry, workload, observation)
    entry.held_known = entry.held_known and entry.workload == workload
    entry.workload = workload
    # The mark of one that was adopted is of unknown age: no start of ours has removed it.
    adopted = last is None and entry.attempt is not None and entry.attempt.debt
    entry.marked_before = observation.release if adopted else entry.marked_before
    entry.observation, entry.gone_at = observation, None
    entry.remember(state.clock, "observed", observation)
    batch.entries[entry.id] = entry


def _enter(state: EngineState, event: WorkloadObserved, batch: _Batch) -> Entry:
    entry = Entry(event.workload.id, event.workload.ref)
    entry.queue = event.workload.queue
    if event.ordered_from is not None:
        entry.past = replace(entry.past, ordered_from=event.ordered_from)
    state.enter(entry)
    batch.new.append(entry)
    return entry


def _note_size(entry: Entry, workload: Workload, now: Observation) -> None:
    """Note an edit of the podsets of a workload that runs (L15, L22)."""
    attempt, known, before = entry.attempt, entry.workload, entry.observation
    if attempt is None or known is None or before is None or before.suspended or now.suspended:
        return
    if entry.resized.grown is not None or larger((known, before), workload, now):
        more = excess(attempt, entry.recorded_pods, workload, now, edited=True)
        entry.resized = Resized(grown=more, void=entry.counting_pods)


def _note_changes(state: EngineState, entry: Entry, workload: Workload, now: Observation) -> None:
    if entry.workload is not None and entry.workload.pod_sets != workload.pod_sets:
        state.features.revised(entry.id)
    known = entry.recorded_pods
    if entry.attempt is None and known and known != state.directory.pods.recorded(workload):
        entry.reason = None  # its numbers are about what it asked for: the next one is recorded (L29)
    before = entry.observation
    told = (before.pods_ready, before.pods_missing) if before is not None else (None, "")
    if (now.pods_ready, now.pods_missing) != told:
        state.pods_changed.add(entry.id)


def _mark_gone(state: EngineState, entry: Entry | None, batch: _Batch, version: str = "") -> None:
    if entry is not None:
        entry.gone_at = version
        entry.remember(state.clock, "gone", None)
        batch.entries[entry.id] = entry


def _list(state: EngineState, event: Listed, batch: _Batch) -> None:
    first = event.source in state.missing
    if first:
        state.missing.discard(event.source)
        if not state.missing:
            state.changed |= state.directory.local_queues.keys()
            state.changed_queues |= state.directory.queues.keys()
    if event.workloads is None and not first:
        return
    for entry in state.entries.values():
        if entry.ref.kind != event.source:
            continue
        if event.workloads is not None and entry.id not in event.workloads:
            _mark_gone(state, entry, batch)
        if event.workloads is None or entry.generation == NOT_READ:
            entry.generation = NOT_READ if event.workloads is None else None
            batch.entries[entry.id] = entry


def _settle(state: EngineState, event: EffectSettled, batch: _Batch) -> None:
    entry = state.entries.get(event.key.workload)
    if entry is None or entry.attempt is None or entry.attempt.number != event.key.attempt:
        return
    entry.remember(state.clock, "settled", f"{event.key.verb} of attempt {event.key.attempt}: {event.result}")
    if entry.unacknowledged is not event.key.verb:
        return  # superseded: it was stopped before its start was settled
    if event.result is Result.DENIED:
        entry.unacknowledged, entry.start_denied = None, event.detail or "no reason given"
    elif event.result is not Result.REFUSED:
        entry.unacknowledged = None
        entry.generation = event.generation
        if event.key.verb is Verb.STOP:
            entry.pods_gone = False  # pods that were counted before the stop are no proof
        if event.result is Result.GONE:
            # Pending watch events precede the deletion: none of them shows a write after this effect.
            entry.generation = entry.observation.generation if entry.observation is not None else None
            entry.gone_at = entry.gone_at or ""
    elif event.key.verb is Verb.START:
        entry.start_refused = True
    else:
        entry.dispatched = False  # a stop is valid for every state of the object: it is sent again
    batch.entries[entry.id] = entry


def _count(state: EngineState, event: PodsCounted, batch: _Batch) -> None:
    entry = state.entries.get(event.workload)
    if entry is not None and entry.attempt is not None and entry.attempt.number == event.attempt:
        if event.at_most is not None:
            unknown = event.alive or entry.resized.void
            entry.resized = replace(entry.resized, alive=None if unknown else event.at_most, void=False)
            entry.counting_pods = False
        else:
            entry.pods_gone = not (event.alive or entry.count_void)
            entry.counting_pods = event.alive
        batch.entries[entry.id] = entry


def _first_sight(entry: Entry) -> tuple[datetime, ObjectRef]:
    assert entry.workload is not None
    return (entry.workload.created_at, entry.ref)
