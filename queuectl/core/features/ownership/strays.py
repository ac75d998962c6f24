"""Whether owners hold quota for what their controllers run (section K of docs/scheduling.md)."""

from __future__ import annotations

from queuectl.core.entries import Entry, Stray
from queuectl.core.features.ownership.children import OwnedChild
from queuectl.core.lifecycle import remaining
from queuectl.core.model.resources import PODS
from queuectl.core.model.workload import WorkloadId
from queuectl.core.state import EngineState

MAX_OWNERS = 10
"""Owners above each other that are followed."""


def judge(state: EngineState) -> None:
    """Find the children that run and for which no owner holds quota: their owners are to be read (K2).

    One of which they were read is charged as debt (K3).
    """
    if not state.synced:
        return
    for holder in state.children.take_changed():
        _judge_family(state, holder)


def _judge_family(state: EngineState, holder: WorkloadId) -> None:
    children = state.children
    family = children.family(holder)
    room = _room(state, holder, family[0], MAX_OWNERS) if family else None
    for child in family:
        children.touch(child.workload.id)
        entry = state.entries.get(child.workload.id)
        if entry is not None and entry.attempt is not None and child.runs:
            continue  # charged by itself
        asked = _requests(state, child) if child.runs else {}
        fits = room is not None and all(room.get(name, 0) >= asked[name] for name in asked)
        if fits and room is not None:
            for name, amount in asked.items():
                room[name] -= amount
        if fits or not child.runs:
            children.trust(child)
            _set_stray(state, entry, None)
        elif child.read is None:
            children.doubt(child)
        else:
            _set_stray(state, entry or _entered(state, child), _stray(child, held=room is not None))


def _room(state: EngineState, holder: WorkloadId, child: OwnedChild, hops: int) -> dict[str, int] | None:
    """Return the amounts that `holder` holds, in base units, with `pods`; None: it holds no quota."""
    namespace = child.workload.ref.namespace
    entry = state.entries.get(holder)
    if entry is not None and entry.attempt is not None:
        assignment = entry.attempt.assignment
        held = assignment.resources() | {PODS: assignment.pods}
        return held if entry.ref.namespace == namespace else None
    above = state.children.get(holder)
    if above is None or hops == 0 or not above.runs or above.workload.ref.namespace != namespace:
        return None
    if _room(state, above.holder, above, hops - 1) is None:
        return None
    return _requests(state, above)


def _requests(state: EngineState, child: OwnedChild) -> dict[str, int]:
    """Return the total that it requests, in base units, with `pods`; zero amounts are left out."""
    workload = remaining(child.workload, child.observation)
    total = {PODS: sum(pod_set.count for pod_set in workload.pod_sets)}
    for charge in state.directory.charges(workload):
        for name, amount in charge.requests:
            total[name] = total.get(name, 0) + amount * charge.pod_set.count
    return {name: amount for name, amount in total.items() if amount > 0}


def _stray(child: OwnedChild, *, held: bool) -> Stray:
    read, owner = child.read, child.workload.owner
    assert read is not None
    assert owner is not None
    problem = read.problem or ("was not charged for it" if held else "holds no quota")
    return Stray(f"was let past the gate: its owner {owner.kind} {owner.name} {problem}", stop=read.stop)


def _entered(state: EngineState, child: OwnedChild) -> Entry:
    workload = child.workload
    entry = Entry(workload.id, workload.ref)
    entry.queue = workload.queue
    entry.workload, entry.observation = remaining(workload, child.observation), child.observation
    state.arrival += 1
    entry.arrival = state.arrival
    state.enter(entry)
    return entry


def _set_stray(state: EngineState, entry: Entry | None, stray: Stray | None) -> None:
    if entry is not None and entry.stray != stray:
        entry.stray = stray
        state.route(entry)
        state.refresh(entry)
