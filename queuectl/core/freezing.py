"""What becomes of a root cohort of which memory and ledger disagree: it stands still, the others go on.

A plan that the ledger refuses is split by root. The part that is refused again is frozen: nothing is decided
about its workloads, what runs is left alone, those that wait are told `LedgerMismatch`. Loading it again from
the ledger thaws it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from queuectl.core.applying import restore_workload, subject
from queuectl.core.decisions import Configure, Decision, Enqueue, Plan, PodsToCount
from queuectl.core.model import Snapshot, Verb
from queuectl.core.pending import Entry
from queuectl.core.state import State

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


def thaw(state: State, root: str, snapshot: Snapshot) -> None:
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
