"""Applies the ledger to the state: its memory at the start, then the decisions that it has accepted.

Where memory and ledger disagree about a tree, that tree is frozen: nothing is decided about its workloads,
running ones are left alone, and pending ones get the reason `LedgerMismatch`. Loading it again thaws it.
A plan that the ledger refuses is split by tree, so that only one is frozen. A plan that it fails to store is
split further, down to the workload that causes it: this one is frozen alone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from itertools import product
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
    WorkloadDecision,
    becomes_row,
    subject,
)
from queuectl.core.directory import GATE
from queuectl.core.entries import Entry
from queuectl.core.lifecycle import facts
from queuectl.core.model.policy import LocalQueueName
from queuectl.core.model.reasons import Code, Reason, waits_for_victims
from queuectl.core.model.workload import (
    Attempt,
    AttemptState,
    ConfigKey,
    EffectKey,
    LedgerSnapshot,
    PastAttempts,
    Phase,
    StoredWorkload,
    Verb,
    WorkloadId,
)
from queuectl.core.pod_numbers import NOT_RESIZED
from queuectl.core.preemption.claims import PreemptionClaim, Victim
from queuectl.core.queues.pending import is_refusal, wanted
from queuectl.core.state import EngineState
from queuectl.core.transitions import transition

ELSEWHERE = ""
"""Root of policy objects, and of workloads whose queue does not exist."""


# --- memory of the ledger


def restore(state: EngineState, snapshot: LedgerSnapshot) -> None:
    """Fill an empty state."""
    for key, spec in snapshot.configs:
        _restore_config(state, key, spec)
    if snapshot.now is not None:
        state.clock = state.now = max(state.clock, snapshot.now)
    unacknowledged = frozenset(snapshot.effects)
    for stored in snapshot.workloads:
        restore_workload(state, stored, unacknowledged)
    state.features.restored(snapshot, state.entries)
    for entry in list(state.entries.values()):
        if entry.attempt is not None or entry.past.until is not None:
            state.refresh(entry)  # of others, nothing is due before they are observed


def _restore_config(state: EngineState, key: ConfigKey, spec: str) -> None:
    state.recorded_specs[key] = spec
    state.due_configs.add(key)
    if key.kind == GATE:
        state.specs[key] = spec
        state.directory.gate_since = datetime.fromisoformat(json.loads(spec)["installedAt"])


def follow(state: EngineState, before: LedgerSnapshot, after: LedgerSnapshot) -> None:
    """Replace what memory has of what the ledger has changed; observations are kept."""
    configs = dict(after.configs)
    for key in dict(before.configs).keys() - configs.keys():
        state.recorded_specs.pop(key, None)
        state.due_configs.add(key)
    for key, spec in configs.items():
        if state.recorded_specs.get(key) != spec:
            _restore_config(state, key, spec)
    state.now = after.now or state.now
    known = {stored.id: stored for stored in before.workloads}
    moved = {key.workload for key in {*before.effects} ^ {*after.effects}}
    changed = {
        one.id
        for one in after.workloads
        if one.id in moved or not ((was := known.get(one.id)) is one or was == one)
    }
    changed |= known.keys() - {one.id for one in after.workloads}
    stored = [one for one in after.workloads if one.id in changed or one.preemptor in changed]
    changed.update(one.id for one in stored)
    former = {one: state.entries[one] for one in sorted(changed) if one in state.entries}
    for entry in _replace(state, former, stored, after):
        state.route(entry)
        state.refresh(entry)
    for feature in state.features.active:
        feature.settle()
    state.route_renominated()
    state.pods_changed &= state.entries.keys()


def restore_workload(
    state: EngineState, stored: StoredWorkload, unacknowledged: frozenset[EffectKey]
) -> Entry:
    """Return the entry of a workload as the ledger has it."""
    entry = Entry(stored.id, stored.ref)
    entry.queue, entry.cluster_queue, entry.priority = stored.queue, stored.cluster_queue, stored.priority
    entry.arrival, entry.attempts, entry.reason = stored.arrival, stored.attempts, stored.reason
    entry.past = stored.past
    entry.refused = stored.phase is Phase.PENDING and stored.reason is not None and is_refusal(stored.reason)
    entry.local_queue = LocalQueueName(stored.ref.namespace, stored.queue)
    entry.preempted_at = stored.preempted_at
    state.arrival = max(state.arrival, stored.arrival)
    attempt = stored.attempt
    if attempt is not None:
        entry.attribution = stored.attribution
        state.charge(entry, attempt)
        entry.cluster_queue = attempt.assignment.cluster_queue
        entry.phase = Phase.EVICTING if attempt.state is AttemptState.EVICTING else Phase.ADMITTED
        entry.evicted_at = stored.evicted_at
        if entry.phase is Phase.EVICTING and stored.preemptor is not None:
            state.claims.expect(stored.preemptor, Victim(entry.id, attempt.number))
        verb = Verb.STOP if entry.phase is Phase.EVICTING else Verb.START
        if EffectKey(entry.id, attempt.number, verb) in unacknowledged:
            entry.unacknowledged = verb
    elif waits_for_victims(stored.reason):
        state.claims.expect(entry.id)
    entry.order = state.place(entry, stored.created_at)
    entry.recorded, entry.recorded_pods = facts(entry), stored.pod_sets
    entry.recorded_options = stored.options
    state.enter(entry)
    return entry


# --- decisions


def apply_plan(state: EngineState, plan: Plan, first: int) -> None:
    """Apply the decisions of a plan. `first` is the sequence number of the first that the ledger recorded."""
    state.now = plan.now  # as in the ledger, where the clock may have been set back since a plan without rows
    state.apart, state.left = plan.apart, plan.left
    changed: dict[WorkloadId, Entry] = {}
    sequence = first
    for decision in plan.decisions:
        if isinstance(decision, Configure):
            _configure(state, decision)
        elif (entry := _apply(state, decision, sequence)) is not None:
            changed[entry.id] = entry
        sequence += becomes_row(decision)
    for counted in plan.probes:
        entry = changed[counted.workload] = state.entries[counted.workload]
        entry.counting_pods, entry.count_void = True, False
    for check, feature in product(plan.checks, state.features.active):
        feature.asked(check)
    for entry in changed.values():
        state.refresh(entry)
    for feature in state.features.active:
        feature.settle()
    if state.requeuer.renominated:
        state.route_renominated()


def _configure(state: EngineState, decision: Configure) -> None:
    if decision.spec is None:
        state.recorded_specs.pop(decision.key, None)
    else:
        state.recorded_specs[decision.key] = decision.spec


def _apply(state: EngineState, decision: WorkloadDecision, sequence: int) -> Entry | None:
    """Return the entry that changed, None if there is none any more."""
    entry = state.entries[subject(decision)]
    entry.phase = transition(entry, entry.phase, decision)
    if becomes_row(decision):
        entry.remember(state.now, decision.verdict, _detail(decision))
    match decision:
        case Enqueue():
            _enqueue(state, entry, decision)
        case Keep():
            _keep(state, entry, decision)
        case Admit():
            entry.attribution = decision.attribution
            _admit(state, entry, replace(decision.attempt, sequence=sequence))
        case Amend():
            entry.priority, entry.past, entry.reason = decision.priority, decision.past, decision.reason
            entry.recorded = facts(entry)
            entry.order = (-entry.priority, *entry.order[1:])
            state.requeuer.charged.append(entry)
        case Shrink():
            state.shrink(entry, decision.assignment)
        case Evict():
            _evict(state, entry, decision)
        case Release():
            state.release(entry)
            entry.start_denied = None
            _leave_behind(entry, decision.past)
            state.route(entry)
        case Retire():
            state.release(entry)
            state.features.decided(decision, entry)
            state.drop(entry)
            return None
        case _:
            assert_never(decision)
    state.features.decided(decision, entry)
    state.note_change(entry)
    return entry


def _enqueue(state: EngineState, entry: Entry, decision: Enqueue) -> None:
    first = entry.recorded is None
    entry.recorded, entry.recorded_pods = facts(entry), decision.workload.pod_sets
    entry.recorded_options = decision.workload.options
    if first:
        state.note_unreported(entry)


def _detail(decision: Decision) -> Reason | int | None:
    """Return what the story of a workload says of a decision: objects that are kept anyway."""
    match decision:
        case Keep() | Amend() | Evict():
            return decision.reason
        case Admit():
            return decision.attempt.number
        case _:
            return None


def _admit(state: EngineState, entry: Entry, attempt: Attempt) -> None:
    queued = entry.group is not None
    if entry.group is not None:
        entry.group.nominated()
    state.leave(entry)
    state.charge(entry, attempt)
    entry.held_known = queued  # by the shape that it was queued with; one that is adopted may have another
    entry.reason = entry.ineligible = entry.start_denied = entry.evicted_at = None
    entry.refused = False
    entry.cluster_queue = attempt.assignment.cluster_queue
    entry.recorded = facts(entry)
    entry.pods_gone = entry.counting_pods = entry.start_refused = entry.dispatched = False
    entry.resized, entry.generation = NOT_RESIZED, None
    entry.marked_before = entry.observation.release if entry.observation is not None else None
    entry.unacknowledged = None if attempt.debt else Verb.START
    state.pods_changed.add(entry.id)  # also where as many are ready as before, which no reader was told


def _evict(state: EngineState, entry: Entry, decision: Evict) -> None:
    assert entry.attempt is not None
    entry.attempt = replace(entry.attempt, state=AttemptState.EVICTING)
    entry.unacknowledged, entry.dispatched = Verb.STOP, False
    entry.pods_gone = entry.counting_pods = entry.start_refused = False
    entry.resized = NOT_RESIZED
    entry.reason, entry.evicted_at, entry.start_denied = decision.reason, state.now, None
    if decision.reason.code is Code.PREEMPTED:
        entry.preempted_at = (*entry.preempted_at, state.now)[-16:]
    _leave_behind(entry, decision.past)


def _leave_behind(entry: Entry, past: PastAttempts | None) -> None:
    if past is not None:
        entry.past = past
        entry.recorded = facts(entry)


def _keep(state: EngineState, entry: Entry, decision: Keep) -> None:
    entry.reason = decision.reason
    group = entry.group
    if group is None:
        state.unreported.pop(entry.id, None)
        return
    if decision.evaluation is not None and decision.evaluation.must_wait:
        group.nominated()
        for feature in state.features.active:
            feature.must_wait(entry, decision.reason)
        state.leave(entry)  # it is queued anew where it need not wait, also in the same group
        state.route(entry)
        return
    queue, evaluation = state.pending[group.cluster_queue], decision.evaluation
    if decision.claim is not None or evaluation is not None:
        group.nominated()
    if decision.claim is not None:
        entry.last_tried = {}
        queue.activate(group)  # a head that reserves quota is inadmissible and nominated all the same
        state.requeuer.open_claim(_still_waiting(state, decision.claim))
        queue.mark_reported(group, entry)
        group.reported = None  # the others of its group have not been given this reason
    elif evaluation is None:
        if decision.reason.code is Code.WAITING_FOR_HEAD and decision.reason.key != group.reported:
            group.reported = None  # they get another reason once their head is nominated
        queue.mark_reported(group, entry)
    else:
        entry.last_tried = dict(evaluation.last_tried)
        state.requeuer.drop_claim(queue.name, of=entry.id)
        if evaluation.again:
            queue.activate(group)  # a head that reserves quota is inadmissible and nominated all the same
            state.due_queues.add(queue.name)
        if evaluation.again or group.head() is not entry:
            queue.mark_reported(group, entry)
            return
        _refuse(state, entry, decision.reason, evaluation)


def _refuse(state: EngineState, entry: Entry, reason: Reason, evaluation: Evaluation) -> None:
    """The head of a group was nominated: its group becomes inadmissible."""
    group = entry.group
    assert group is not None
    queue = state.pending[group.cluster_queue]
    queue.mark_inadmissible(entry, reason)
    state.due_queues.add(queue.name)  # others of the group may wait with another reason
    if evaluation.may_preempt:
        state.requeuer.may_preempt(queue, group)
    if evaluation.lacking:
        state.requeuer.lack_room(queue, group, evaluation.lacking)
    state.requeuer.protections.set(group, evaluation.until)
    state.requeuer.reserve(queue, frozenset(wanted(reason) if evaluation.reserves else ()))


def _still_waiting(state: EngineState, claim: PreemptionClaim) -> PreemptionClaim:
    """Return `claim` without victims whose attempts are over."""
    over = {
        victim.workload
        for victim in claim.victims
        if (holder := state.entries.get(victim.workload)) is None
        or holder.attempt is None
        or holder.attempt.number != victim.attempt
    }
    return claim.without(over) if over else claim


# --- trees of which memory and ledger disagree, workloads that are set aside


def split(state: EngineState, plan: Plan) -> list[tuple[str, Plan]]:
    """Return `plan` as one plan for each root, with its name; what belongs to none comes first."""
    decisions: defaultdict[str, list[Decision]] = defaultdict(list)
    for decision in plan.decisions:
        decisions[_root_of(state, decision)].append(decision)
    probes: defaultdict[str, list[PodsToCount]] = defaultdict(list)
    for probe in plan.probes:
        probes[state.root(state.entries[probe.workload])].append(probe)
    parts = {
        root: replace(plan, decisions=tuple(decisions[root]), probes=tuple(probes[root]), checks=())
        for root in sorted(decisions.keys() | probes.keys())
    }
    if plan.checks:
        rest = replace(plan, decisions=(), probes=())
        parts[ELSEWHERE] = replace(parts.get(ELSEWHERE, rest), checks=plan.checks)
    return sorted(parts.items())


def freeze(state: EngineState, what: str) -> None:
    """Decide nothing about the workloads under root `what`, or about workload `what`, until it is thawed."""
    again = what in state.frozen
    state.frozen.add(what)
    for entry in _under(state, what):
        state.route(entry)
        state.refresh(entry)
        if again:
            state.unreported.pop(entry.id, None)  # the ledger refused even that reason
    state.prune()


def unfreeze(state: EngineState, workload: str) -> None:
    """Decide about a workload again that was set aside: memory and ledger agree about it."""
    state.frozen.discard(workload)
    for entry in _under(state, workload):
        state.route(entry)
        state.refresh(entry)
    state.prune()


def thaw(state: EngineState, root: str, snapshot: LedgerSnapshot) -> None:
    """Replace what memory has under `root` by what the ledger has; observations are kept."""
    former = {entry.id: entry for entry in _under(state, root)}
    state.frozen.discard(root)
    _replace(state, former, [one for one in snapshot.workloads if one.id in former], snapshot)
    for entry in list(state.entries.values()):
        state.route(entry)
        state.refresh(entry)
    state.prune()


def _replace(
    state: EngineState,
    former: dict[WorkloadId, Entry],
    stored: Iterable[StoredWorkload],
    snapshot: LedgerSnapshot,
) -> list[Entry]:
    """Replace entries by what the ledger has, and return the new ones; observations are kept."""
    for entry in former.values():
        state.release(entry)
        state.drop(entry)
        state.claims.expected.pop(entry.id, None)
    unacknowledged, found = frozenset(snapshot.effects), list[Entry]()
    for one in stored:
        entry = restore_workload(state, one, unacknowledged)
        found.append(entry)
        if (known := former.pop(one.id, None)) is not None:
            _take_observation(entry, known)
            # The observation may be older than our last write, or than the last edit of the object.
            entry.start_refused = entry.unacknowledged is Verb.START and entry.observation is not None
            if entry.attempt is not None and entry.attempt.debt and entry.attempts != known.attempts:
                entry.marked_before = known.observation.release if known.observation else None  # as observed
    for known in former.values():
        if known.observation is not None:
            entry = Entry(known.id, known.ref)
            entry.queue, entry.arrival = known.queue, known.arrival
            _take_observation(entry, known)
            state.enter(entry)
            found.append(entry)
    state.features.restored(snapshot, state.entries)
    return found


def _take_observation(entry: Entry, known: Entry) -> None:
    entry.workload, entry.observation, entry.gone_at = known.workload, known.observation, known.gone_at
    entry.recent, entry.marked_before, entry.generation = known.recent, known.marked_before, known.generation


def _under(state: EngineState, what: str) -> list[Entry]:
    return [entry for entry in state.entries.values() if what in (entry.id, state.root(entry))]


def _root_of(state: EngineState, decision: Decision) -> str:
    if isinstance(decision, Configure):
        return ELSEWHERE
    if isinstance(decision, Enqueue):
        return state.root_of_queue(decision.cluster_queue)
    return state.root(state.entries[subject(decision)])
