"""Forgets what is left of deleted queues: nodes, cells and pending queues."""

from __future__ import annotations

from queuectl.core.state import EngineState


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
