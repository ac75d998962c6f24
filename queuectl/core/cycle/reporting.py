"""Which pending workloads get a reason by a plan, besides the heads that its cycles nominated (R2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from queuectl.core.cycle.cycle import CycleOutcome
from queuectl.core.entries import Entry, EquivalenceGroup
from queuectl.core.model.reasons import Reason
from queuectl.core.queues.inadmissible import Groups
from queuectl.core.queues.pending import PendingQueue


def unreported(
    queues: Iterable[PendingQueue],
    pending: Mapping[str, PendingQueue],
    outcome: CycleOutcome,
    requeued: Groups,
) -> Iterator[tuple[Entry, Reason]]:
    """Yield the workloads, other than refused heads, whose reason is to be reported, group by group (R2)."""
    moved = {entry.id for entry, _ in outcome.admitted} | {one.entry.id for one in outcome.preempting}
    moved |= {entry.id for entry, _ in outcome.no_room}
    preempting = {one.claim.cluster_queue: one.claim for one in outcome.preempting}
    with_requeued = {group.cluster_queue for group in requeued}
    groups = dict.fromkeys(outcome.refused)
    for queue in queues:
        groups |= queue.unreported
    for group in groups:
        queue = pending[group.cluster_queue]
        known = None if group in requeued or group in queue.requeued else group.inadmissible
        head, reason, _ = outcome.refused.get(group, (None, known, None))
        at_head = queue.stopped_at_head and not queue.requeued and queue.name not in with_requeued
        claim = preempting.get(queue.name, queue.claim if queue.blocked else None)
        behind = claim is not None and (queue.strict or claim.owner in group.members)
        if reason is None and (behind or at_head):
            for entry in group.unreported.values():
                if entry.id not in moved and not queue.preempted(entry):
                    yield entry, queue.waiting_for_head()
            continue
        if reason is None:
            continue  # it will be nominated
        shown = queue.told(reason)
        for entry in _unreported(group, shown):
            if entry is not head and entry.id not in moved:
                yield entry, shown


def _unreported(group: EquivalenceGroup, reason: Reason) -> Iterable[Entry]:
    if group.reported == reason.key:
        return group.unreported.values()
    return sorted(group.members.values(), key=lambda entry: entry.order)
