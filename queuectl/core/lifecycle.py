"""The next decision about one workload, from its last observation and the time.

The conditions L1 to L16, L30 and L31 of docs/scheduling.md: the first that holds counts. Phases:
core/transitions.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from queuectl.core.decisions import (
    Admit,
    Amend,
    Decision,
    Enqueue,
    Evict,
    Release,
    Retire,
    Shrink,
    subject,
)
from queuectl.core.directory import DEFAULT_PRIORITY_CLASS, Directory
from queuectl.core.entries import Entry
from queuectl.core.feature import Features
from queuectl.core.flavors.queue_flavors import mismatch
from queuectl.core.model.budgets import NO_ENTRIES
from queuectl.core.model.policy import StopPolicy
from queuectl.core.model.priorities import PRIORITY_CLASS, LoweredPriority, counting_priority, with_lowered
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.resources import PODS, amounts
from queuectl.core.model.values import value
from queuectl.core.model.workload import (
    MOST_ATTEMPTS,
    Assignment,
    Attempt,
    Observation,
    Phase,
    PodSet,
    Verb,
    Workload,
    WorkloadId,
    WorkloadOutcome,
)
from queuectl.core.pod_numbers import edited, excess, fewer
from queuectl.core.queues.backoff import failed, ran


@value(frozen=True, slots=True)
class Probe:
    """Its pods must be counted before its quota is released."""

    at_most: int | None = None
    """It runs, and so many of them may be alive (L15); None: it is to have none."""
    generation: int | None = None
    """Of the object that allows so many."""


@value(frozen=True, slots=True)
class Adopt:
    """It runs, or may have pods, by no attempt of the ledger: charge it as debt, and not its open attempt."""

    detail: str
    stop: Reason | None = None
    """Why it must be evicted at once; None: it runs on."""


@value(frozen=True, slots=True)
class Resend:
    """Send the write of the open attempt again. A start: its object changed, and would be charged the same,
    or pods of it wait for it. A stop: its object was started again after the stop."""

    verb: Verb


_FORGOTTEN: Final = Adopt("runs by an admission that the ledger has no memory of")
_LEFT_OVER: Final = Adopt(
    "had an admission that the ledger has no memory of",
    Reason(code=Code.BYPASS, detail="it was stopped in an attempt that the ledger does not have"),
)

Step = Enqueue | Amend | Shrink | Evict | Release | Retire | Probe | Adopt


def facts(entry: Entry) -> tuple[object, ...]:
    """Return what the ledger has of a pending workload: a change of it is recorded (L3)."""
    return (entry.queue, entry.cluster_queue, entry.priority, entry.past)


def remaining(workload: Workload, seen: Observation) -> Workload:
    """Return `workload` without those of its pods that have ended for good: they request nothing (H3)."""
    ended = dict(seen.reclaimable)
    if not ended:
        return workload
    pod_sets = tuple(_without(pods, ended.get(pods.name, 0)) for pods in workload.pod_sets)
    return replace(workload, pod_sets=pod_sets)


def _without(pods: PodSet, ended: int) -> PodSet:
    count, least = max(0, pods.count - ended), pods.min_count
    return replace(pods, count=count, min_count=least if least is not None and least < count else None)


def step(entry: Entry, directory: Directory, features: Features, now: datetime) -> Step | Resend | None:
    """Return the next decision about `entry`; None: nothing is due."""
    if entry.attempt is None:
        return _without_attempt(entry, directory)
    marked = forgotten(entry)
    if marked is not None and (other := _by_another_attempt(entry, marked)) is not None:
        return other
    if entry.phase is Phase.EVICTING:
        return _evicting(entry)
    if _outcome(entry) is not None:
        return _ended(entry) or _changed(entry, directory, features, now)
    return (
        _admitted(entry, directory, features)
        or (features.step(entry, now) if features.active else None)
        or _changed(entry, directory, features, now)
    )


def next_time(entry: Entry, features: Features, now: datetime) -> datetime | None:
    """Return when, later than `now`, `step` or its eligibility may change by time alone; None: never."""
    until = entry.past.until if entry.attempt is None else None
    earliest = until if until is not None and until > now else None
    for feature in features.active:
        when = feature.next_time(entry, now)
        if when is not None and when > now and (earliest is None or when < earliest):
            earliest = when
    return earliest


def accounted(
    decision: Decision,
    entries: Mapping[WorkloadId, Entry],
    directory: Directory,
    features: Features,
    now: datetime,
) -> Decision:
    """Return `decision` with what the attempt that it ends leaves (L17, L18), and its time (L24, L26)."""
    match decision:
        case Amend(workload):
            past = features.accounted(decision.past, decision, entries[workload], now)
            return replace(decision, past=past)
        case Evict(workload):
            entry = entries[workload]
            admitted_at = entry.attempt.admitted_at if entry.attempt is not None else now
            past = ran(entry.past, admitted_at, now)
            if decision.reason.code is Code.PODS_READY_TIMEOUT:
                rules = directory.requeueing(entry.ruled_by)
                past = failed(past, workload, now, rules, decision.reason.detail or "")
            return replace(decision, past=features.accounted(past, decision, entry, now))
        case Release(workload) if (denied := entries[workload].start_denied) is not None:
            why = f"its start was denied: {denied}"
            entry = entries[workload]
            past = failed(entry.past, workload, now, directory.requeueing(entry.ruled_by), why)
            return replace(decision, past=past)
        case Retire(workload, outcome=WorkloadOutcome.FAILED | WorkloadOutcome.TIMED_OUT):
            seen = entries[workload].observation
            return replace(decision, detail=seen.failure if seen is not None else None)
        case _:
            return decision


def with_budget(
    decision: Decision, entries: Mapping[WorkloadId, Entry], features: Features, now: datetime
) -> Decision:
    """Return `decision` with what it changes of budgets (Y3)."""
    if not isinstance(decision, Admit | Amend | Shrink | Release | Retire):
        return decision
    entry, found = entries[subject(decision)], NO_ENTRIES
    for feature in features.active:
        found += feature.budget_entries(decision, entry, now)
    return replace(decision, budget=found) if found else decision


def _without_attempt(entry: Entry, directory: Directory) -> Step | None:
    seen = entry.observation
    if entry.gone:  # L1
        return (
            Retire(entry.id, entry.ref, None, WorkloadOutcome.DELETED) if entry.recorded is not None else None
        )
    if seen is None or entry.workload is None or not entry.current:
        return None
    if (outcome := over(entry)) is not None:  # L2
        return Retire(entry.id, entry.ref, None, outcome) if entry.recorded is not None else None
    if may_have_pods(entry, directory):
        return _LEFT_OVER
    if (unrecorded := to_be_queued(entry, directory)) is not None:
        return unrecorded
    if entry.workload.owner is not None and entry.stray is None:  # K1
        return None
    if not seen.suspended and charged_to(entry) is not None and _can_be_charged(entry.workload):
        return _adoption(entry, directory)
    return None


def over(entry: Entry) -> WorkloadOutcome | None:
    """Return how it ended, as its object says; None: it waits, runs, or holds quota.

    The recorded stop of another attempt than the last one of the ledger says nothing: others followed, or
    the ledger lost decisions (L30).
    """
    seen = entry.observation
    if seen is None or entry.attempt is not None:
        return None
    if seen.stopped is None:
        return seen.finished
    of_another = entry.recorded is not None and seen.stopped.attempt != entry.attempts
    return seen.finished if of_another else seen.over


def to_be_queued(entry: Entry, directory: Directory) -> Enqueue | None:
    """Return the decision that records it as it waits now; None: the ledger has it so (L3)."""
    workload, seen = entry.workload, entry.observation
    if workload is None or seen is None:
        return None
    pod_sets = directory.pods.recorded(workload)
    known = entry.recorded == facts(entry) and entry.recorded_pods == pod_sets
    if known and (not seen.suspended or entry.recorded_options == workload.options):
        return None
    as_recorded = workload if pod_sets is workload.pod_sets else replace(workload, pod_sets=pod_sets)
    return Enqueue(as_recorded, entry.cluster_queue, entry.priority, entry.arrival, entry.past)


def _can_be_charged(workload: Workload) -> bool:
    """Return whether its pods are known, also where another problem keeps it from being queued (G1)."""
    return workload.problem is None or bool(workload.pod_sets)


def _adoption(entry: Entry, directory: Directory) -> Adopt:
    """It runs without an open attempt (L4)."""
    assert entry.observation is not None
    assert entry.workload is not None
    if forgotten(entry) is not None:
        return _FORGOTTEN
    since = directory.gate_since
    # An attempt in the ledger has ended: the workload was suspended after it.
    if entry.attempts == 0 and (since is None or entry.workload.created_at < since):
        return Adopt("ran before the gate was installed")
    if entry.stray is not None:  # K3
        why = entry.stray.detail
        return Adopt(why, Reason(code=Code.BYPASS, detail=f"it {why}") if entry.stray.stop else None)
    user, reason = entry.observation.bypass
    by = f" by {user}" if user else ""
    if directory.gate is None:
        why = f"was started{by} while no gate was in force"
        return Adopt(why, Reason(code=Code.BYPASS, detail=f"it {why}"))
    why = f": {reason}" if reason else ""
    return Adopt(f"was let past the gate{by}{why}")


def forgotten(entry: Entry) -> Attempt | None:
    """Return the admission in its annotation, where the ledger does not have it: the ledger was restored from
    an older state, or lost (L30).

    An older one has ended; its annotation stays on the object.
    """
    seen, known = entry.observation, entry.attempt
    marked = seen.admission if seen is not None else None
    if seen is None or marked is None or marked.number > MOST_ATTEMPTS:
        return None
    if marked.number > entry.attempts:
        return marked
    if known is None or known.debt or seen.suspended or marked.number != known.number:
        return None
    return None if marked.admitted_at == known.admitted_at else marked


def next_number(entry: Entry) -> int:
    """Return the number of its next attempt: above all that the ledger or its annotation has (L30)."""
    marked = forgotten(entry)
    return max(entry.attempts, marked.number if marked is not None else 0) + 1


def charged_to(entry: Entry) -> str | None:
    """Return the ClusterQueue that an adoption charges; None: its queue does not exist."""
    marked = forgotten(entry)
    return entry.cluster_queue if marked is None else marked.assignment.cluster_queue


def may_have_pods(entry: Entry, directory: Directory) -> bool:
    """Return whether it waits, and had an attempt that the ledger does not have: pods of it may be alive.

    Only an admission of its own ClusterQueue that charges what it requests counts.
    """
    seen, workload, marked = entry.observation, entry.workload, forgotten(entry)
    if marked is None or seen is None or workload is None or entry.attempt is not None or entry.gone:
        return False
    if not seen.suspended or seen.finished or not entry.current or workload.owner is not None:
        return False
    return _still_charges(marked, entry, workload, directory)


def steered_by(entry: Entry, directory: Directory) -> Assignment | None:
    """Return what the admission in its annotation charged, where that has ended and its object still requests
    it: a stop leaves the node selectors of that admission, so pods run on its flavors (L4)."""
    marked = entry.observation.admission if entry.observation is not None else None
    if marked is None or entry.workload is None or marked.number > entry.attempts:
        return None
    return marked.assignment if _still_charges(marked, entry, entry.workload, directory) else None


def _still_charges(marked: Attempt, entry: Entry, workload: Workload, directory: Directory) -> bool:
    return marked.assignment.cluster_queue == entry.cluster_queue and _charges(marked, workload, directory)


def _by_another_attempt(entry: Entry, marked: Attempt) -> Adopt | Evict | None:
    """It has an open attempt, and its annotation `marked`, which the ledger does not have (L30)."""
    attempt, seen = entry.attempt, entry.observation
    assert attempt is not None
    if seen is None or seen.finished or entry.gone:
        return None
    if not seen.suspended:
        return _FORGOTTEN
    if entry.phase is Phase.EVICTING:
        return None
    why = f"it was stopped in attempt {marked.number}, which the ledger does not have"
    return Evict(entry.id, entry.ref, attempt.number, Reason(code=Code.BYPASS, detail=why))


def _admitted(entry: Entry, directory: Directory, features: Features) -> Step | Resend | None:
    attempt, seen = entry.attempt, entry.observation
    assert attempt is not None
    if entry.start_denied is not None and entry.unacknowledged is None:  # L7
        return Release(entry.id, entry.ref, attempt.number, f"its start was denied: {entry.start_denied}")
    stopped = None
    if entry.start_refused and seen is not None:
        if _landed(entry) or _charge_unchanged(entry, directory):
            return Resend(Verb.START)
        if not _has_start(entry):
            return Release(entry.id, entry.ref, attempt.number, "the object changed before it was started")
        # It ran: its pods may be alive.
        stopped = Reason(code=Code.BYPASS, detail="it was started, suspended and changed since")
    reason = _eviction(entry, directory, features) or stopped
    if reason is not None:
        return Evict(entry.id, entry.ref, attempt.number, reason)
    waits = seen is not None and seen.unstarted and not attempt.debt  # L33
    return Resend(Verb.START) if waits and _after_our_write(entry, Verb.START) else None


def _landed(entry: Entry) -> bool:
    """Return whether it runs by its open attempt: the start was applied, whatever the answer to it was."""
    return _has_start(entry) and entry.observation is not None and not entry.observation.suspended


def _has_start(entry: Entry) -> bool:
    """Return whether the start of its open attempt was applied to its object."""
    seen, attempt = entry.observation, entry.attempt
    if seen is None or attempt is None or seen.admission is None:
        return False
    return seen.admission.is_same(attempt)


def _charge_unchanged(entry: Entry, directory: Directory) -> bool:
    """Return whether the object as it is now would be charged as its open attempt is, flavors included."""
    workload, attempt = entry.workload, entry.attempt
    if workload is None or attempt is None or workload.problem or workload.queue != entry.queue:
        return False
    return _charges(attempt, workload, directory)


def _charges(attempt: Attempt, workload: Workload, directory: Directory) -> bool:
    """Return whether `attempt` holds what `workload` would be charged now, of flavors that it may use."""
    charges = {c.pod_set.name: c for c in directory.pods.charges(workload)}
    held = attempt.assignment.pod_sets
    if charges.keys() != {p.name for p in held}:
        return False
    for assigned in held:
        charge = charges[assigned.name]
        requests = amounts(item for item in assigned.requests if item[0] != PODS)
        asked = directory.charged(attempt.assignment.cluster_queue, charge.requests)
        if not _count_unchanged(charge.pod_set, assigned.count) or asked != requests:
            return False
        if charge.pod_set.not_charged is not None:
            return False
        for _, name in assigned.flavors:
            flavor = directory.flavors.get(name)
            if flavor is None or mismatch(flavor, charge.pod_set):
                return False
    return True


def _count_unchanged(asked: PodSet, held: int) -> bool:
    """Return whether it still asks for what it holds, or for more and is content with that (F9)."""
    return (asked.count if asked.min_count is None else asked.min_count) <= held <= asked.count


def _eviction(entry: Entry, directory: Directory, features: Features) -> Reason | None:
    seen = entry.observation
    if entry.workload is not None and entry.workload.hold:  # L8
        return Reason(code=Code.USER_HOLD, detail=entry.workload.hold_reason)
    queue = directory.local_queues.get(entry.local_queue)
    if queue is not None and queue.stop_policy is StopPolicy.HOLD_AND_DRAIN:  # L9
        node = f"LocalQueue/{queue.name}"
        return Reason(code=Code.LOCAL_QUEUE_STOPPED, node=node, detail=queue.stop_reason)
    charged = directory.queues.get(entry.cluster_queue or "")
    if charged is not None and charged.stop_policy is StopPolicy.HOLD_AND_DRAIN:
        node = f"ClusterQueue/{charged.name}"
        return Reason(code=Code.CLUSTER_QUEUE_STOPPED, node=node, detail=charged.stop_reason)
    if seen is not None and seen.suspended and _after_our_write(entry, Verb.START):  # L10
        return Reason(
            code=Code.BYPASS, detail="another client suspended it; to stop it, set queuectl.dev/hold"
        )
    more = beyond_admission(entry, features)
    return Reason(code=Code.BYPASS, detail=more) if more is not None else None


def beyond_admission(entry: Entry, features: Features) -> str | None:
    """Return what its object says now beyond what its open attempt was admitted with (L22); None: nothing.

    Compared are the podsets of its child, its own after an edit, and what features charge beside them.
    """
    attempt, workload, seen = entry.attempt, entry.workload, entry.observation
    if attempt is None or seen is None or not entry.runs:
        return None
    if seen.by_child and workload is not None:
        of_child = excess(attempt, entry.recorded_pods, workload, seen, edited=False)
        if of_child is not None:
            return of_child
    more = entry.resized.grown
    for feature in features.active if more is None else ():
        more = more or feature.excess(entry)
    return more


def _changed(
    entry: Entry, directory: Directory, features: Features, now: datetime
) -> Amend | Shrink | Probe | None:
    """Records changes of a workload that stays admitted (L15, L16)."""
    attempt, workload, seen = entry.attempt, entry.workload, entry.observation
    assert attempt is not None
    if workload is None or not _can_be_charged(workload) or seen is None:
        return None
    if (smaller := _shrunk(entry, attempt, workload, seen)) is not None:
        return smaller
    priority, past = directory.priority(workload), entry.past
    records_use = False
    for feature in features.active:
        past = feature.noted(past, entry, now)
        records_use = records_use or feature.records_use(entry)
    kept = _kept_class(entry, workload, attempt, directory, features)
    if kept is not None or past.lowered:
        past = replace(past, lowered=with_lowered(past.lowered, PRIORITY_CLASS, kept))
    reason = None
    if isinstance(priority, Reason):
        reason = replace(priority, detail=f"{priority.detail}: it keeps the priority that it had")
        priority = entry.priority
    if past.lowered:
        priority = counting_priority(priority, past.lowered, attempt.number)
    if (priority, past, reason) == (entry.priority, entry.past, entry.reason) and not records_use:
        return None
    return Amend(entry.id, entry.ref, attempt.number, priority, past, reason)


def _kept_class(
    entry: Entry, workload: Workload, attempt: Attempt, directory: Directory, features: Features
) -> LoweredPriority | None:
    """Return what counts in place of a limited class that it was given while it runs (X8); None: its own."""
    booked = entry.attribution
    named, own = workload.priority_class, booked.priority_class if booked is not None else None
    if booked is None or named == own:
        return None
    if not features.limits_class(replace(booked, priority_class=named), attempt.assignment.cluster_queue):
        return None
    priority = directory.priority(replace(workload, priority_class=own))
    if isinstance(priority, Reason):
        return None
    policy = f"{PRIORITY_CLASS}/{named or DEFAULT_PRIORITY_CLASS}"
    return LoweredPriority(policy, own or DEFAULT_PRIORITY_CLASS, priority, attempt.number)


def _shrunk(entry: Entry, attempt: Attempt, workload: Workload, seen: Observation) -> Shrink | Probe | None:
    """Counts only go down (L15).

    Its status promises that pods have ended for good, or its object allows fewer and no more are alive.
    """
    assignment = fewer(attempt, workload, seen) if entry.runs and seen.finished is None else None
    if assignment is None or entry.loose_pods:
        return None
    if edited(attempt, workload, seen):
        alive = entry.resized.alive
        if alive is None or alive > assignment.pods:
            return None if entry.counting_pods else Probe(assignment.pods, seen.generation)
    return Shrink(entry.id, entry.ref, attempt.number, assignment)


def _evicting(entry: Entry) -> Step | Resend | None:
    attempt, seen = entry.attempt, entry.observation
    assert attempt is not None
    if (ended := _ended(entry)) is not None:
        return ended
    if entry.unacknowledged is Verb.STOP:  # L11
        return None
    if _runs_again(entry):  # L31
        return Resend(Verb.STOP)
    if entry.pods_gone and not entry.bound:
        if seen is not None and (outcome := seen.ended_by_stop_of(attempt.number)) is not None:  # L13, I8
            return Retire(entry.id, entry.ref, attempt.number, outcome)
        return Release(entry.id, entry.ref, attempt.number, "its pods are gone")
    if entry.pods_gone:  # the watch of pods is behind, or these are others than were counted (M9)
        return _forced(entry, attempt)
    return _while_pods_exist(entry, attempt)


def _runs_again(entry: Entry) -> bool:
    """Return whether another client started it after its stop."""
    seen = entry.observation
    if seen is None or seen.suspended or seen.finished or entry.gone:
        return False
    return _after_our_write(entry, Verb.STOP)


def _ended(entry: Entry) -> Step | Resend | None:
    """It is finished or deleted: the attempt is closed once nothing of it is alive (L5, L6)."""
    attempt, seen, outcome = entry.attempt, entry.observation, _outcome(entry)
    assert attempt is not None
    if outcome is None:
        return None
    quiet = seen is not None and seen.finished and seen.quiet and not entry.loose_pods
    if quiet or entry.pods_gone:
        if entry.unacknowledged is not None and (entry.dispatched or not entry.gone):
            # A start that is on its way may still let a pod of a group run; the stop comes after it.
            if entry.unacknowledged is Verb.STOP or not entry.start_refused:
                return None
            if not entry.dispatched:  # an earlier process may have sent it
                return Resend(Verb.START)
        return Retire(entry.id, entry.ref, attempt.number, outcome)
    return _while_pods_exist(entry, attempt)


def _outcome(entry: Entry) -> WorkloadOutcome | None:
    """Return how it ended, whatever of it is still alive; None: it is neither finished nor deleted."""
    attempt, seen = entry.attempt, entry.observation
    if attempt is not None and seen is not None and seen.finished:
        return seen.ended_by_stop_of(attempt.number) or seen.finished
    return WorkloadOutcome.DELETED if entry.gone else None


def _while_pods_exist(entry: Entry, attempt: Attempt) -> Release | Probe | None:
    forced = _forced(entry, attempt)
    return forced if forced is not None or entry.counting_pods else Probe()


def _forced(entry: Entry, attempt: Attempt) -> Release | None:
    """An admin releases its quota although pods of it may exist (L28): by a mark from after its admission."""
    mark = entry.observation.release if entry.observation is not None else None
    if mark is None or mark.attempt != attempt.number or mark == entry.marked_before:
        return None
    why = f"by force, by {mark.by}: {mark.reason}"
    return Release(entry.id, entry.ref, attempt.number, why)


def _after_our_write(entry: Entry, verb: Verb) -> bool:
    """Return whether the observation shows the object as our acknowledged write left it, or later."""
    if entry.unacknowledged is verb or entry.observation is None:
        return False
    return entry.generation is None or entry.observation.generation > entry.generation
