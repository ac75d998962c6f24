"""What the ledger says into the state: its memory at the start, then decisions it has accepted."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from datetime import datetime
from typing import assert_never

from queuectl.core.decisions import (
    Admit,
    Amend,
    Configure,
    Decision,
    Enqueue,
    Evaluation,
    Evict,
    Keep,
    Plan,
    PodsToCount,
    Release,
    Retire,
    Shrink,
)
from queuectl.core.directory import GATE
from queuectl.core.entries import Entry
from queuectl.core.lifecycle import facts
from queuectl.core.model import (
    Attempt,
    AttemptState,
    EffectKey,
    LedgerSnapshot,
    PastAttempts,
    Phase,
    StoredWorkload,
    Verb,
    WorkloadId,
)
from queuectl.core.policy import LocalQueueName
from queuectl.core.queues.pending import lacking
from queuectl.core.reasons import Code, Reason
from queuectl.core.state import State


def restore(state: State, snapshot: LedgerSnapshot) -> None:
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


def _leave_behind(entry: Entry, past: PastAttempts | None) -> None:
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


def _park(state: State, entry: Entry, reason: Reason, look: Evaluation) -> None:
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


ELSEWHERE = ""
"""The root of policy objects, and of workloads whose queue leads nowhere."""


def split(state: State, plan: Plan) -> list[tuple[str, Plan]]:
    """`plan` as one plan for each root it concerns, by its name; what belongs to none comes first."""
    decisions: defaultdict[str, list[Decision]] = defaultdict(list)
    for decision in plan.decisions:
        decisions[_root_of(state, decision)].append(decision)
    probes: defaultdict[str, list[PodsToCount]] = defaultdict(list)
    for probe in plan.probes:
        probes[state.root(state.entries[probe.workload])].append(probe)
    return [
        (root, replace(plan, decisions=tuple(decisions[root]), probes=tuple(probes[root])))
        for root in sorted(decisions.keys() | probes.keys())
    ]


def freeze(state: State, root: str) -> None:
    """Decide nothing about the workloads under `root` until it is thawed."""
    again = root in state.frozen
    state.frozen.add(root)
    for entry in _under(state, root):
        state.route(entry)
        state.refresh(entry)
        if again:
            state.gated.pop(entry.id, None)  # not even that much is accepted
    state.prune()


def thaw(state: State, root: str, snapshot: LedgerSnapshot) -> None:
    """Take what the ledger has of `root` in place of what memory has, and what was observed with it."""
    former = {entry.id: entry for entry in _under(state, root)}
    for entry in former.values():
        state.release(entry)
        state.drop(entry)
    state.frozen.discard(root)
    unsent = frozenset(snapshot.effects)
    for stored in snapshot.workloads:
        known = former.pop(stored.id, None)
        if known is not None:
            entry = restore_workload(state, stored, unsent)
            entry.workload, entry.observation, entry.gone = known.workload, known.observation, known.gone
            # What was seen may be older than our last write, or than the object's last edit.
            entry.generation = known.generation
            entry.refused = entry.unsent is Verb.START and entry.observation is not None
    for known in former.values():
        entry = Entry(known.id, known.ref)
        entry.queue, entry.arrival = known.queue, known.arrival
        entry.workload, entry.observation, entry.gone = known.workload, known.observation, known.gone
        state.enter(entry)
    for entry in list(state.entries.values()):
        state.route(entry)
        state.refresh(entry)
    state.recount(snapshot.past_usage)
    state.prune()


def _under(state: State, root: str) -> list[Entry]:
    return [entry for entry in state.entries.values() if state.root(entry) == root]


def _root_of(state: State, decision: Decision) -> str:
    if isinstance(decision, Configure):
        return ELSEWHERE
    if isinstance(decision, Enqueue):
        return state.root_of_queue(decision.cluster_queue)
    return state.root(state.entries[subject(decision)])
