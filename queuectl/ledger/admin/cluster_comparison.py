"""Compares the open state of a ledger with the objects of its cluster, each by its own annotation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from queuectl.core.lifecycle import remaining
from queuectl.core.model.events import WorkloadObserved
from queuectl.core.model.resources import format_amount
from queuectl.core.model.workload import (
    Attempt,
    AttemptState,
    EffectKey,
    LedgerSnapshot,
    Observation,
    PodSetAssignment,
    StoredWorkload,
    Verb,
    Workload,
    names_claim,
)
from queuectl.core.pod_numbers import larger_request
from queuectl.ledger.history.replay import LedgerFinding


def differences(ledger: LedgerSnapshot, objects: Iterable[WorkloadObserved]) -> list[LedgerFinding]:
    """Return how the objects with a queue label differ from `ledger`, in the order of their names.

    What a write that is not acknowledged may change is no difference. Workloads that are over may hold quota
    until their pods are gone, and are left out.
    """
    stored = {one.id: one for one in ledger.workloads}
    unacknowledged = frozenset(ledger.effects)
    found: list[LedgerFinding] = []
    for event in objects:
        known = stored.pop(event.workload.id, None)
        if event.observation.over is None and event.workload.owner is None:
            found += _of_object(event.workload, event.observation, known, unacknowledged)
    for one in stored.values():
        found.append(
            LedgerFinding("Missing", str(one.ref), f"is {one.phase} in the ledger, its object is gone")
        )
    return sorted(found, key=lambda one: (one.subject, one.code))


def _of_object(
    workload: Workload, seen: Observation, known: StoredWorkload | None, unacknowledged: frozenset[EffectKey]
) -> Iterator[LedgerFinding]:
    name, open_attempt = str(workload.ref), known.attempt if known is not None else None
    by = f"attempt {seen.admission.number}" if seen.admission is not None else "no attempt"
    if known is None:
        state = "is suspended" if seen.suspended else f"runs by {by}"
        yield LedgerFinding("Unknown", name, f"{state}, the ledger does not have it")
        return
    if open_attempt is None:
        if not seen.suspended:
            yield LedgerFinding("NotCharged", name, f"runs by {by}, the ledger holds no quota for it")
        elif seen.admission is not None and seen.admission.number > known.attempts:
            yield LedgerFinding("Attempt", name, f"had {by}, the ledger knows of {known.attempts} attempts")
        return
    if _unacknowledged(open_attempt, unacknowledged):
        return
    number = open_attempt.number
    if seen.suspended:
        if open_attempt.state is not AttemptState.EVICTING:
            yield LedgerFinding(
                "Suspended", name, f"is suspended, the ledger has attempt {number} as admitted"
            )
        return
    if open_attempt.state is AttemptState.EVICTING:
        yield LedgerFinding("NotStopped", name, f"runs by {by}, the ledger evicts attempt {number}")
    yield from _of_charge(name, workload, seen, open_attempt)
    if (more := larger_request(known.pod_sets, workload.pod_sets)) is not None:
        yield LedgerFinding("Requests", name, more)


def _of_charge(name: str, workload: Workload, seen: Observation, held: Attempt) -> Iterator[LedgerFinding]:
    """Of an object that runs: its attempt, and what that holds against its annotation and its pod counts."""
    marked = seen.admission
    if marked is None or (held.debt and marked.number < held.number):
        if not held.debt:
            yield LedgerFinding("Attempt", name, f"has no annotation, the ledger has attempt {held.number}")
    elif marked.number != held.number:
        yield LedgerFinding(
            "Attempt", name, f"runs by attempt {marked.number}, the ledger has attempt {held.number}"
        )
        return
    else:
        yield from _of_assignments(name, marked, held)
    counts = {one.name: one.count for one in held.assignment.pod_sets}
    for pods in remaining(workload, seen).pod_sets:
        if pods.count > counts.get(pods.name, 0):
            text = f"podset {pods.name} has {pods.count} pods, the ledger charges {counts.get(pods.name, 0)}"
            yield LedgerFinding("Counts", name, text)


def _of_assignments(name: str, marked: Attempt, held: Attempt) -> Iterator[LedgerFinding]:
    """The ledger may charge fewer pods than the annotation says: some have ended for good (L15)."""
    if marked.assignment.cluster_queue != held.assignment.cluster_queue:
        by, stored = marked.assignment.cluster_queue, held.assignment.cluster_queue
        yield LedgerFinding("Charge", name, f"its annotation charges ClusterQueue {by}, the ledger {stored}")
    charged = {one.name: one for one in held.assignment.pod_sets}
    for one in marked.assignment.pod_sets:
        other = charged.pop(one.name, None)
        if other is None or (one.flavors, one.requests) != (other.flavors, other.requests):
            charge = "nothing" if other is None else _words(other)
            text = f"podset {one.name}: {_words(one)} by its annotation, the ledger charges {charge}"
            yield LedgerFinding("Charge", name, text)
        elif other.count > one.count and not names_claim(one.name):
            text = f"podset {one.name}: {one.count} pods by its annotation, the ledger charges {other.count}"
            yield LedgerFinding("Charge", name, text)
    for left in charged:
        yield LedgerFinding("Charge", name, f"podset {left} is charged, its annotation does not have it")


def _words(pods: PodSetAssignment) -> str:
    flavors = dict(pods.flavors)
    parts = [f"{format_amount(name, amount)} {name} of {flavors[name]}" for name, amount in pods.requests]
    return f"{pods.count} x ({', '.join(parts)})"


def _unacknowledged(attempt: Attempt, effects: frozenset[EffectKey]) -> bool:
    verb = Verb.STOP if attempt.state is AttemptState.EVICTING else Verb.START
    return EffectKey(attempt.workload, attempt.number, verb) in effects
