"""What tests read of an engine that no report, fact or decision says: the one module that opens its state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from queuectl.controller.loop import Controller
from queuectl.core.engine import Engine
from queuectl.core.entries import Entry
from queuectl.core.features.nodes.room import NodeRoom
from queuectl.core.features.usage_history.decay import UsageValue
from queuectl.core.model.workload import UsageAccount, WorkloadId
from queuectl.core.preemption.claims import ClaimState, PreemptionClaim
from queuectl.core.quota.tree import QuotaTree
from queuectl.core.state import EngineState


def state(engine: Engine) -> EngineState:
    """Return the whole state, for tests of core modules that take it."""
    return engine._state


def engine_of(controller: Controller) -> Engine:
    """Return the engine that a controller owns: only to be looked at."""
    return controller._engine


def entries(engine: Engine) -> Mapping[WorkloadId, Entry]:
    return engine._state.entries


def entry(engine: Engine, name: str) -> Entry:
    """Return the entry of the workload with UID `name`, or else of the one whose object has that name.

    Raises StopIteration if there is none.
    """
    known = engine._state.entries
    by_id = known.get(WorkloadId(name))
    return by_id or next(entry for entry in known.values() if entry.ref.name == name)


def claims(engine: Engine) -> list[PreemptionClaim]:
    """Return the claims that reserve something."""
    found = engine._state.claims.by_queue.values()
    return [claim for claim in found if claim.state is not ClaimState.FIRST]


def claim_of(engine: Engine, queue: str) -> PreemptionClaim | None:
    """Return the claim of the workload that has preempted in a ClusterQueue."""
    return engine._state.claims.by_queue.get(queue)


def tree(engine: Engine) -> QuotaTree:
    return engine._state.tree


def room(engine: Engine) -> NodeRoom:
    return engine.features.nodes.room


def free_on_nodes(engine: Engine) -> dict[str, tuple[int, ...]]:
    """Return what is free of each resource by node, after what is outstanding is settled."""
    engine.features.nodes.room.settle()
    return {record.name: record.free for record in engine.features.nodes.room.inventory.nodes()}


def past_usage(engine: Engine, now: datetime) -> dict[UsageAccount, UsageValue]:
    """Return that of each account that has any; none where it does not count."""
    history = engine.features.usage_history.history
    if history is None:
        return {}
    used = {account: history.usage(account, 1000, now) for account in history._used}
    return {account: value for account, value in used.items() if value}
