"""What becomes of one workload, from what was last seen of it. The first condition that holds counts.

Rules L1 to L12 of docs/scheduling.md, in this order.
"""

from __future__ import annotations

from dataclasses import dataclass

from queuectl.core.decisions import Enqueue, Evict, Release, Retire
from queuectl.core.directory import Directory
from queuectl.core.matching import mismatch
from queuectl.core.model import Outcome, Phase, StopPolicy, Verb
from queuectl.core.pending import Entry
from queuectl.core.reasons import Code, Reason
from queuectl.core.resources import PODS, amounts


@dataclass(frozen=True, slots=True)
class Probe:
    """Its pods have to be counted before its quota can come back."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """It runs without an open attempt: charge it as debt."""

    detail: str
    stop: Reason | None = None
    """Why it may not run on; None: it may."""


@dataclass(frozen=True, slots=True)
class Resend:
    """The object changed but asks for the same: send the same attempt again."""


Step = Enqueue | Evict | Release | Retire | Probe | Adopt | Resend


def facts(entry: Entry) -> tuple[object, ...]:
    """What the ledger keeps of a waiting workload; a change is recorded (L3)."""
    return (entry.queue, entry.cluster_queue, entry.priority)


def step(entry: Entry, directory: Directory) -> Step | None:
    """The next decision about `entry`, or None if nothing is due."""
    if entry.attempt is None:
        return _without_attempt(entry, directory)
    if entry.phase is Phase.EVICTING:
        return _evicting(entry)
    return _admitted(entry, directory)


def _without_attempt(entry: Entry, directory: Directory) -> Step | None:
    seen = entry.observation
    if entry.gone:  # L1
        return Retire(entry.id, entry.ref, None, Outcome.DELETED) if entry.recorded is not None else None
    if seen is None or entry.workload is None or not entry.current:
        return None
    if seen.finished:  # L2
        return Retire(entry.id, entry.ref, None, seen.finished) if entry.recorded is not None else None
    if entry.recorded != facts(entry):  # L3
        return Enqueue(entry.workload, entry.cluster_queue, entry.priority, entry.arrival)
    if not seen.suspended and entry.cluster_queue is not None and entry.workload.problem is None:
        return _adoption(entry, directory)
    return None


def _adoption(entry: Entry, directory: Directory) -> Adopt:
    """It runs although we hold no attempt of it (L4)."""
    assert entry.observation is not None
    assert entry.workload is not None
    if entry.observation.admission is not None:
        return Adopt("runs by an admission that the ledger has no memory of")
    if _slipped_through(entry, directory):
        why = "was started while no gate was in force"
        return Adopt(why, Reason(code=Code.BYPASS, detail=f"it {why}"))
    if directory.gate_since is None or entry.workload.created_at < directory.gate_since:
        return Adopt("ran before the gate was installed")
    by = entry.observation.bypassed_by
    return Adopt(f"was let past the gate by {by}" if by else "was let past the gate")


def _slipped_through(entry: Entry, directory: Directory) -> bool:
    """It was made after a gate had been installed, and runs while there is none."""
    return (
        directory.gate is None
        and directory.gate_since is not None
        and entry.workload is not None
        and entry.workload.created_at >= directory.gate_since
        and entry.observation is not None
        and entry.observation.bypassed_by is None
    )


def _admitted(entry: Entry, directory: Directory) -> Step | None:
    attempt, seen = entry.attempt, entry.observation
    assert attempt is not None
    if (over := _over(entry)) is not None:
        return over
    if entry.denied is not None and entry.unsent is None:  # L7
        return Release(entry.id, entry.ref, attempt.number, f"its start was denied: {entry.denied}")
    if entry.refused and seen is not None:
        if _landed(entry) or _charge_unchanged(entry, directory):
            return Resend()
        return Release(entry.id, entry.ref, attempt.number, "the object changed before it was started")
    reason = _taken_away(entry, directory)
    return None if reason is None else Evict(entry.id, entry.ref, attempt.number, reason)


def _landed(entry: Entry) -> bool:
    """It runs by this very attempt: the start was done, whatever we heard of it."""
    seen, attempt = entry.observation, entry.attempt
    if seen is None or attempt is None or seen.admission is None or seen.suspended:
        return False
    return seen.admission.number == attempt.number


def _charge_unchanged(entry: Entry, directory: Directory) -> bool:
    """Would the object as it is now be charged what its open attempt holds, from the same flavors?"""
    workload, attempt = entry.workload, entry.attempt
    if workload is None or attempt is None or workload.problem or workload.queue != entry.queue:
        return False
    charges = {c.pod_set.name: c for c in directory.charges(workload)}
    held = attempt.assignment.pod_sets
    if charges.keys() != {p.name for p in held}:
        return False
    for assigned in held:
        charge = charges[assigned.name]
        requests = amounts(item for item in assigned.requests if item[0] != PODS)
        if charge.pod_set.count != assigned.count or charge.requests != requests:
            return False
        for _, name in assigned.flavors:
            flavor = directory.flavors.get(name)
            if flavor is None or mismatch(flavor, charge.pod_set):
                return False
    return True


def _taken_away(entry: Entry, directory: Directory) -> Reason | None:
    seen = entry.observation
    if entry.workload is not None and entry.workload.hold:  # L8
        return Reason(code=Code.USER_HOLD)
    queue = directory.local_queues.get(entry.local_queue)
    if queue is not None and queue.stop_policy is StopPolicy.HOLD_AND_DRAIN:  # L9
        return Reason(code=Code.LOCAL_QUEUE_STOPPED, node=f"LocalQueue/{queue.name}")
    charged = directory.queues.get(entry.cluster_queue or "")
    if charged is not None and charged.stop_policy is StopPolicy.HOLD_AND_DRAIN:
        return Reason(code=Code.CLUSTER_QUEUE_STOPPED, node=f"ClusterQueue/{entry.cluster_queue}")
    if seen is not None and seen.suspended and _after_our_write(entry, Verb.START):  # L10
        return Reason(code=Code.BYPASS, detail="somebody suspended it; to stop it, set queuectl.dev/hold")
    return None


def _evicting(entry: Entry) -> Step | None:
    attempt = entry.attempt
    assert attempt is not None
    if (over := _over(entry)) is not None:
        return over
    if entry.unsent is Verb.STOP:  # L11
        return None
    if entry.counted:
        return Release(entry.id, entry.ref, attempt.number, "nothing of it is alive")
    return None if entry.probing else Probe()


def _over(entry: Entry) -> Step | None:
    """Finished or gone: the attempt closes once nothing of it is alive (L5, L6)."""
    attempt, seen = entry.attempt, entry.observation
    assert attempt is not None
    outcome: Outcome | None = None
    if seen is not None and seen.finished:
        outcome = seen.finished
        if seen.quiet:
            return Retire(entry.id, entry.ref, attempt.number, outcome)
    elif entry.gone:
        outcome = Outcome.DELETED
    if outcome is None:
        return None
    if entry.counted:
        return Retire(entry.id, entry.ref, attempt.number, outcome)
    return None if entry.probing else Probe()


def _after_our_write(entry: Entry, verb: Verb) -> bool:
    """Does the observation show the object as it is after our acknowledged write, or later?"""
    if entry.unsent is verb or entry.observation is None:
        return False
    return entry.generation is None or entry.observation.generation > entry.generation
