"""What other queues have borrowed of the quota of a pending workload's queue. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from queuectl.answers.state import State
from queuectl.core.model import Phase, StoredWorkload
from queuectl.core.policy import PreemptionPolicy
from queuectl.core.quota.shares import dominant_share, shares_fairly
from queuectl.core.reasons import Code
from queuectl.core.resources import FlavorResource

MAX_BORROWERS: Final = 5


@dataclass(frozen=True, slots=True)
class Borrower:
    """A ClusterQueue that uses more than its nominal quota."""

    name: str
    amount: int
    """Beyond its nominal quota, in base units."""
    share: int | None
    """Its dominant share in thousandths; None without fair sharing, and if it is infinite."""


@dataclass(frozen=True, slots=True)
class Lent:
    amount: int
    """Unused nominal quota of the queue that it cannot have now, in base units."""
    reclaims: bool
    """The queue preempts workloads of others to get it back."""
    share: int | None
    """The dominant share of the queue in thousandths, as in `Borrower`."""
    borrowers: tuple[Borrower, ...]
    """Largest first, at most MAX_BORROWERS."""


def lent(workload: StoredWorkload, state: State) -> Lent | None:
    """None if no quota that the workload lacks is lent."""
    why, queue = workload.reason, state.queues.get(workload.cluster_queue or "")
    if workload.phase is not Phase.PENDING or why is None or why.code is not Code.WAITING_FOR_QUOTA:
        return None
    if queue is None or queue.queue is None or why.flavor is None or why.resource is None:
        return None
    cell = FlavorResource(why.flavor, why.resource)
    own = queue.nominal.get(cell, 0) - queue.used.get(cell, 0)
    amount = own - state.free(queue).get(cell, 0)
    if amount <= 0:
        return None
    tree = state.tree_of(queue.name)
    fair = shares_fairly(tree, tree.queue(queue.name), state.configuration)

    def share(name: str) -> int | None:
        return dominant_share(tree, tree.queue(name)).reported if fair else None

    beyond = [
        (one.used.get(cell, 0) - one.nominal.get(cell, 0), one.name)
        for one in state.in_tree_of(queue.name)
        if one.name != queue.name
    ]
    found = sorted((pair for pair in beyond if pair[0] > 0), key=lambda pair: (-pair[0], pair[1]))
    return Lent(
        amount,
        queue.queue.preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER,
        share(queue.name),
        tuple(Borrower(name, amount, share(name)) for amount, name in found[:MAX_BORROWERS]),
    )
