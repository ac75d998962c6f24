"""After a batch of events or decisions: what changed in rooms, and what of it changes workloads and quota."""

from __future__ import annotations

from collections.abc import Iterable

from queuectl.core.entries import Entry
from queuectl.core.queues.chances import Chances
from queuectl.core.queues.inadmissible import forget_missed, queues_below
from queuectl.core.quota.tree import QuotaNode
from queuectl.core.state import EngineState


def settle_nodes(state: EngineState) -> None:
    """Nodes, their pods, or what is held changed: bring the room on nodes up to date."""
    nodes, limited = state.nodes, bool(state.nodes)
    nodes.note()
    if nodes and not limited:
        for entry in state.entries.values():
            if entry.attempt is not None:
                state.hold_pods(entry, entry.attempt, state.charges(entry))
        nodes.note()
    for workload in nodes.bound.take_moved():
        moved = state.entries.get(workload)
        if moved is not None and moved.bound != (bound := nodes.bound.count(workload)):
            matters = state.features.counts_bound or not moved.bound or not bound
            moved.bound = bound
            if matters:
                state.refresh(moved)
    nodes.losses.settle()
    for workload in nodes.losses.take_affected():
        affected = state.entries.get(workload)
        if affected is not None and affected.lost != (lost := nodes.losses.lost_under(workload)):
            affected.lost = lost
            state.refresh(affected)
    state.requeuer.room_changed(nodes)


def settle_flavors(state: EngineState) -> None:
    """Nominate again what may use a flavor that is left out, or used again (M20)."""
    for flavor in state.stock_outs.take_changed():
        for name in state.directory.users_of(flavor):
            state.directory.renew_flavors(name)
            state.changed_queues.add(name)
            if (queue := state.pending.get(name)) is not None:
                state.requeuer.renominate(queue)
        state.nodes.usage.changed = True


def settle_quota(state: EngineState) -> None:
    """Nodes or policy may have changed: nominal quotas count as nodes allow (M11)."""
    changed = state.promises.share_out()
    for root in dict.fromkeys(map(state.tree.root, changed)):
        for queue in queues_below(root, state.pending):
            state.requeuer.renominate(queue)
    state.changed_queues.update(node.name for node in changed if node.kind == "ClusterQueue")


def prune(state: EngineState) -> None:
    """Forget what is no longer due."""
    there = chances(state)
    for name in state.due_queues:
        forget_missed(there, state.pending[name])
        state.requeuer.forget_preemptor(name)
    state.due_queues -= {name for name in state.due_queues if not state.pending[name].due}
    state.due_configs = {key for key, _ in state.unrecorded_configs()}


def chances(state: EngineState) -> Chances:
    """Return what tells which groups have a chance, in this state as it is at any time."""
    late = state.features.set_aside

    def holding(node: QuotaNode) -> Iterable[Entry]:
        found = state.holders.get(node.name, {}).values()
        return [entry for entry in found if entry.id not in late] if late else found

    return Chances(state.directory, state.configuration, holding)


def forget_unused(state: EngineState) -> None:
    """Forget ClusterQueues that have neither an object nor usage, and cells that nothing names or holds.

    To be called where no cell number is kept outside of the state. Costs nothing if `may_forget` is not set.
    """
    if not (state.may_forget and state.synced):
        return
    state.may_forget = False
    tree = state.tree
    for name in tree.queue_names() - state.directory.queues.keys() - state.holders.keys():
        queue = state.pending.get(name)
        if queue is None or not queue.groups:
            tree.forget_queue(name)
            state.pending.pop(name, None)
            state.due_queues.discard(name)
    if tree.numbering.unnamed:
        held = (entry.cells for holders in state.holders.values() for entry in holders.values())
        tree.numbering.forget({cell for cells in held for cell, _ in cells})
