"""By when the pods of an admitted workload must be ready, as the ledger has it (L14, L24 to L26)."""

from __future__ import annotations

from queuectl.answers.state import State
from queuectl.api import schemas
from queuectl.core.model import ConfigKey, Phase, StoredWorkload
from queuectl.core.pods_ready import running_clock
from queuectl.core.policy import ClusterQueue
from queuectl.core.readiness import readiness_rules


def readiness(value: StoredWorkload, state: State) -> schemas.Readiness | None:
    """The clock that runs; None: its pods are ready, its status does not say, or there is no limit.

    It counts from the admission: the start time in the status of the object may be later.
    """
    attempt, ready = value.attempt, state.ready(value)
    if value.phase is not Phase.ADMITTED or attempt is None:
        return None
    if ready is None or ready >= attempt.assignment.pods - value.past.held_back:
        return None
    queue = state.policies.get(ConfigKey("ClusterQueue", "", attempt.assignment.cluster_queue))
    rules = readiness_rules(state.configuration, queue if isinstance(queue, ClusterQueue) else None)
    clock = running_clock(rules, attempt, value.past, None)
    return clock and schemas.Readiness(clock=clock.name, since=clock.since, until=clock.until)
