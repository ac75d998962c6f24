"""After a batch of events or decisions: what is no longer due, and what may be forgotten."""

from __future__ import annotations

from collections.abc import Iterable

from queuectl.core.entries import Entry
from queuectl.core.queues.chances import Chances
from queuectl.core.queues.pending import PendingQueue
from queuectl.core.quota.tree import QuotaNode
from queuectl.core.state import EngineState


def prune(state: EngineState) -> None:
    """Forget what is no longer due."""
    requeued = [queue for name in state.due_queues if (queue := state.pending[name]).requeued]
    if requeued:
        _forget_missed(state, requeued)
    if state.claims.helped:
        state.requeuer.forget_preemptors()
    state.due_queues -= {name for name in state.due_queues if not state.pending[name].due}
    state.due_configs = {key for key, _ in state.unrecorded_configs()}


def _forget_missed(state: EngineState, queues: Iterable[PendingQueue]) -> None:
    """Forget requeued groups for which too little is available, or the quota is taken already (W1, W7)."""
    late = state.features.set_aside

    def holding(node: QuotaNode) -> Iterable[Entry]:
        found = state.holders.get(node.name, {}).values()
        return [entry for entry in found if entry.id not in late] if late else found

    chances = Chances(state.directory, state.configuration, holding)
    for queue in queues:
        for group in list(queue.requeued):
            if not chances.has(queue, group):
                queue.forget(group)


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
