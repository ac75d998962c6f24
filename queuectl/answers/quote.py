"""What follows if a new workload starts: what its queue borrows, and which queues may take it. Pure."""

from __future__ import annotations

from datetime import datetime

from queuectl.answers.state import CommittedState, in_parts
from queuectl.core.model.what_if import Tried
from queuectl.core.model.workload import Attempt, AttemptState, Phase, StoredWorkload, Workload
from queuectl.kinds.policy import parse_policy
from queuectl.ports.reader import Reading


def started(
    state: CommittedState, workload: Workload, tried: Tried, now: datetime
) -> tuple[StoredWorkload | None, CommittedState]:
    """The workload as it would run, and the state then, with what it displaces; None: it does not start."""
    if tried.assignment is None:
        return None, state
    attempt = Attempt(
        workload=workload.id,
        number=1,
        state=AttemptState.ADMITTED,
        assignment=tried.assignment,
        admitted_at=now,
    )
    stored = StoredWorkload(
        id=workload.id,
        ref=workload.ref,
        queue=workload.queue,
        cluster_queue=tried.assignment.cluster_queue,
        priority=tried.priority or 0,
        created_at=workload.created_at,
        arrival=0,
        phase=Phase.ADMITTED,
        attempts=1,
        attempt=attempt,
        reason=None,
        pod_sets=workload.pod_sets,
    )
    reading = Reading(
        sequence=state.sequence,
        committed_at=now,
        read_at=now,
        epoch=state.epoch,
        workloads=(stored,),
        configs=(),
        batch=state.batch,
    )
    return stored, state.advance(reading, parse_policy)


def borrowed(stored: StoredWorkload | None, state: CommittedState) -> dict[str, dict[str, int]]:
    """By flavor and resource that it holds: what its ClusterQueue uses beyond its quota, in base units."""
    borrowed_amounts: dict[str, dict[str, int]] = {}
    if stored is None or stored.attempt is None:
        return borrowed_amounts
    name = stored.attempt.assignment.cluster_queue
    tree = state.tree_of(name)
    node = tree.queue(name)
    for cell in stored.attempt.assignment.usage():
        number = tree.cell(cell)
        if node.borrows(number):
            borrowed_amounts.setdefault(cell.flavor, {})[cell.resource] = (
                node.usage[number] - node.subtree[number]
            )
    return borrowed_amounts


async def ahead(state: CommittedState, cluster_queue: str | None, priority: int | None) -> int | None:
    """How many pending workloads come before a new one; None: no queue, or past usage orders it."""
    queue = state.queues.get(cluster_queue or "")
    if queue is None or priority is None or (queue.queue is not None and queue.queue.usage_based):
        return None
    before = 0
    async for id in in_parts(queue.workloads.line(0)):
        before += state.workloads[id].priority >= priority
    return before
