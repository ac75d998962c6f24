"""What the ledger says into the state: its memory at the start, then decisions it has accepted."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import assert_never

from queuectl.core.decisions import (
    Admit,
    Amend,
    Configure,
    Decision,
    Enqueue,
    Evict,
    Keep,
    Look,
    Release,
    Retire,
    Shrink,
)
from queuectl.core.directory import GATE
from queuectl.core.lifecycle import facts
from queuectl.core.model import (
    Attempt,
    AttemptState,
    EffectKey,
    LocalQueueName,
    Phase,
    Snapshot,
    StoredWorkload,
    Verb,
    WorkloadId,
)
from queuectl.core.past import Past
from queuectl.core.pending import Entry, lacking
from queuectl.core.reasons import Code, Reason
from queuectl.core.state import State


def restore(state: State, snapshot: Snapshot) -> None:
    for key, spec in snapshot.configs:
        state.recorded_specs[key] = spec
        state.due_configs.add(key)
        if key.kind == GATE:
            state.specs[key] = spec
            state.directory.gate_since = datetime.fromisoformat(json.loads(spec)["installedAt"])
    if snapshot.now is not None:
        state.clock = state.now = max(state.clock, snapshot.now)
    unsent = frozenset(snapshot.effects)
    for stored in snapshot.workloads:
        restore_workload(state, stored, unsent)
    state.recount(snapshot.past_usage)


def restore_workload(state: State, stored: StoredWorkload, unsent: frozenset[EffectKey]) -> Entry:
    """One that the ledger remembers; `unsent`: the effects that are not acknowledged."""
    entry = Entry(stored.id, stored.ref)
    entry.queue, entry.cluster_queue, entry.priority = stored.queue, stored.cluster_queue, stored.priority
    entry.arrival, entry.attempts, entry.reason = stored.arrival, stored.attempts, stored.reason
    entry.past = stored.past
    entry.local_queue = LocalQueueName(stored.ref.namespace, stored.queue)
    entry.preempted_at = stored.preempted_at
    state.arrival = max(state.arrival, stored.arrival)
    attempt = stored.attempt
    if attempt is not None:
        state.charge(entry, attempt)
        entry.cluster_queue = attempt.assignment.cluster_queue
        entry.phase = Phase.EVICTING if attempt.state is AttemptState.EVICTING else Phase.ADMITTED
        if entry.phase is Phase.EVICTING and entry.reason is not None and entry.reason.by is not None:
            state.waking.expect(entry.reason.by)
        verb = Verb.STOP if entry.phase is Phase.EVICTING else Verb.START
        if EffectKey(entry.id, attempt.number, verb) in unsent:
            entry.unsent = verb
    entry.order = state.place(entry, stored.created_at)
    entry.recorded = facts(entry)
    state.enter(entry)
    state.refresh(entry)
    return entry


def apply(state: State, decision: Decision, sequence: int) -> None:
    """`sequence` is the number that the ledger has given it."""
    if isinstance(decision, Configure):
        if decision.spec is None:
            state.recorded_specs.pop(decision.key, None)
        else:
            state.recorded_specs[decision.key] = decision.spec
        return
    entry = state.entries[subject(decision)]
    match decision:
        case Enqueue():
            entry.recorded = facts(entry)
        case Keep():
            _keep(state, entry, decision)
        case Admit():
            _admit(state, entry, replace(decision.attempt, sequence=sequence))
        case Amend() | Shrink() | Evict():
            _change(state, entry, decision)
        case Release():
            state.release(entry)
            entry.phase, entry.denied = Phase.PENDING, None
            _leave_behind(entry, decision.past)
            state.route(entry)
        case Retire():
            state.release(entry)
            state.drop(entry)
            return
        case _:
            assert_never(decision)
    state.note_change(entry)
    state.refresh(entry)


def _change(state: State, entry: Entry, decision: Amend | Shrink | Evict) -> None:
    """Of one that holds quota, and goes on holding it."""
    match decision:
        case Amend():
            entry.priority, entry.past = decision.priority, decision.past
            entry.recorded = facts(entry)
            entry.order = (-entry.priority, *entry.order[1:])
            state.waking.charge(entry)
        case Shrink():
            state.shrink(entry, decision.assignment)
        case Evict():
            assert entry.attempt is not None
            entry.attempt = replace(entry.attempt, state=AttemptState.EVICTING)
            entry.phase, entry.unsent, entry.handed = Phase.EVICTING, Verb.STOP, False
            entry.counted = entry.probing = entry.refused = False
            entry.reason, entry.denied = decision.reason, None
            if decision.reason.code is Code.PREEMPTED:
                entry.preempted_at = (*entry.preempted_at, state.now)[-16:]
            _leave_behind(entry, decision.past)


def _leave_behind(entry: Entry, past: Past | None) -> None:
    if past is not None:
        entry.past = past
        entry.recorded = facts(entry)


def probe(state: State, workload: WorkloadId) -> None:
    """Somebody counts its pods."""
    entry = state.entries[workload]
    entry.probing = True
    state.refresh(entry)


def _keep(state: State, entry: Entry, decision: Keep) -> None:
    entry.reason = decision.reason
    group = entry.group
    if group is None:
        state.gated.pop(entry.id, None)
        return
    line, look = group.line, decision.look
    if look is None:
        if decision.reason.key == line.behind().key and not line.strict:
            group.reported = None  # they will be told more when they are looked at
        line.told(group, entry)
        return
    entry.tried = dict(look.tried)
    if look.claim is not None:
        line.wake(group)  # a head that holds back is looked at although it is parked
        state.waking.open_claim(entry, look.claim, state.entries)
        line.told(group, entry)
        group.reported = None  # what its equals were told is not what it was told
        return
    if line.preemptor is entry:
        line.preemptor, line.blocked = None, False
        state.waking.drop_claim(entry)
    if look.again:
        line.wake(group)  # one that holds back was parked
        state.due_lines.add(line.name)
    if look.again or group.head() is not entry:
        line.told(group, entry)
    else:
        _park(state, entry, decision.reason, look)


def _park(state: State, entry: Entry, reason: Reason, look: Look) -> None:
    group = entry.group
    assert group is not None
    line = group.line
    line.park(entry, reason)
    if look.contends:
        line.contending[group] = None
    state.waking.protect(group, look.until)
    kept = frozenset(cell for cell, _ in lacking(reason)) if look.holds_back else frozenset()
    state.waking.keep_back(line, kept)


def _admit(state: State, entry: Entry, attempt: Attempt) -> None:
    state.leave(entry)
    state.charge(entry, attempt)
    entry.phase, entry.reason, entry.gate, entry.denied = Phase.ADMITTED, None, None, None
    entry.cluster_queue = attempt.assignment.cluster_queue
    entry.recorded = facts(entry)
    entry.counted = entry.probing = entry.refused = entry.handed = False
    entry.generation = None
    entry.unsent = None if attempt.debt else Verb.START


def subject(decision: Decision) -> WorkloadId:
    """Whom it is about; a policy object is nobody."""
    match decision:
        case Enqueue():
            return decision.workload.id
        case Admit():
            return decision.attempt.workload
        case Configure():
            raise AssertionError("a policy object is no workload")
        case _:
            return decision.workload
