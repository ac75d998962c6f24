"""Past usage of LocalQueues, from the ledger and from what is held now (U1, U5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from queuectl.core.features.usage_history.decayed import UsageHistory, UsageValue
from queuectl.core.model.policy import NORMAL_WEIGHT, LocalQueueName
from queuectl.core.model.workload import UsageSum
from queuectl.core.state import EngineState


def recount(state: EngineState, past: Iterable[UsageSum]) -> None:
    """Compute past usage anew, from the ledger and from what is held now (U5)."""
    if state.configuration.usage_sharing is None:
        return
    state.usage_history = UsageHistory(state.configuration.usage_sharing)
    state.usage_history.restore(past)
    for entry in state.entries.values():
        if (attempt := entry.attempt) is not None:
            state.count_usage(entry, attempt)


def past_usage(
    state: EngineState, now: datetime, added: Mapping[LocalQueueName, Mapping[str, int]]
) -> Callable[[LocalQueueName], UsageValue] | None:
    """Return past usage at `now` by LocalQueue, with what a plan `added`; None: not counted (U1)."""
    past, queues = state.usage_history, state.directory.local_queues
    if past is None:
        return None

    def usage_of(name: LocalQueueName) -> UsageValue:
        queue = queues.get(name)
        weight = queue.weight if queue is not None else NORMAL_WEIGHT
        return past.usage(name, weight, now, added.get(name, {}))

    return usage_of
