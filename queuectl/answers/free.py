"""What a new workload can have now of each flavor and resource: FREE, wherever it is shown (A40). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from queuectl.answers.queue_states import QueueState
from queuectl.answers.state import CommittedState
from queuectl.core.model.capacity import FlavorCapacity, FlavorResourceCapacity, WarningCode
from queuectl.core.model.policy import CapacityMode, PreemptionPolicy, QueueingStrategy
from queuectl.core.model.reasons import Code, waits_for_victims
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.usage_limits import WORKLOADS, Dimension, SubjectKind, UsageLimit
from queuectl.core.model.workload import Phase, StoredWorkload
from queuectl.core.quota.tree import QuotaTree


class FreeQuota:
    """FREE of the ClusterQueues of one state. What others reserve is found once for each tree."""

    def __init__(self, state: CommittedState) -> None:
        self._state = state
        self._later: dict[str, QuotaTree | None] = {}
        """By ClusterQueue: its tree once what is reserved is in use; None: nothing is."""
        self._on_nodes: Counter[FlavorResource] | None = None
        """What preemptors may take of nodes; None: there are none."""
        self._limits = [
            (one, {queue.name: queue for queue in state.below(str(one.target))})
            for one in state.policies.values()
            if isinstance(one, UsageLimit) and one.subject.kind is SubjectKind.ALL
            if one.target.kind in ("ClusterQueue", "Cohort")
        ]
        """The UsageLimits of all that is in ClusterQueues, and these (X1, X2)."""
        self._left: dict[str, list[tuple[Dimension, int]]] = {}
        """By UsageLimit."""
        if any(one.nodes for one in state.capacities.values()):  # M4
            self._on_nodes = _reserved(_claims(state, state.queues.values()))

    def of(self, queue: QueueState) -> dict[FlavorResource, int]:
        """Return what a new workload of a ClusterQueue can have now of each cell of its spec, in base units.

        It is the largest request that starts without preemption: by quota, by the usable nodes of the
        flavor, beside what preemptors wait for, and by the UsageLimits of all that is in the queue. 0 where
        nothing can start: the queue is not active, or it is StrictFIFO and its head waits. The workload has
        no tolerations of its own, and pods of the smallest size.
        """
        state = self._state
        if queue.queue is None or not queue.condition.active or _is_blocked(queue):
            return dict.fromkeys(queue.nominal, 0)
        amounts = dict(state.available_quota(queue))
        later = self._tree_after(queue)
        if later is not None:
            amounts = {
                cell: min(amounts[cell], most) for cell, most in later.free(queue.name, amounts).items()
            }
        if self._on_nodes is not None:
            for cell in amounts:
                room = _limit_of_nodes(state.capacity(cell.flavor), cell.resource)
                if room is not None:
                    amounts[cell] = max(0, min(amounts[cell], room - self._on_nodes[cell]))
        self._reduce_to_limits(queue.name, amounts)
        return amounts

    def _reduce_to_limits(self, name: str, amounts: dict[FlavorResource, int]) -> None:
        """Reduce `amounts` of a ClusterQueue to what its UsageLimits allow a new workload."""
        limits = [(limit, queues) for limit, queues in self._limits if name in queues]
        for dimension, left in (one for limit, queues in limits for one in self._left_of(limit, queues)):
            for cell, amount in amounts.items():
                if dimension.resource == WORKLOADS and left <= 0:
                    amounts[cell] = 0
                elif _counts(dimension, cell):
                    amounts[cell] = max(0, min(amount, left))
        for resource, smallest in (one for limit, _ in limits for one in limit.min_request):
            for cell, amount in amounts.items():
                if cell.resource != resource or amount < smallest:
                    amounts[cell] = 0

    def _left_of(self, limit: UsageLimit, queues: Mapping[str, QueueState]) -> list[tuple[Dimension, int]]:
        """Return what a limit has left. Its number of pending workloads does not count."""
        found = self._left.get(limit.name)
        if found is None:
            claims = _claims(self._state, self._state.in_tree_of(next(iter(queues))))
            owners = [one.owner for one in claims if one.owner.cluster_queue in queues]
            running = sum(len(one.holders) for one in queues.values()) + len(owners)
            found = self._left[limit.name] = []
            for dimension, most in limit.most:
                used = running
                if dimension.resource != WORKLOADS:
                    cells = (pair for one in queues.values() for pair in one.used.items())
                    used = sum(amount for cell, amount in cells if _counts(dimension, cell))
                    if dimension.flavor is None:
                        used += sum(_requested(one, dimension.resource) for one in owners)
                found.append((dimension, most - used))
        return found

    def _tree_after(self, queue: QueueState) -> QuotaTree | None:
        if queue.name not in self._later:
            state, tree = self._state, self._state.in_tree_of(queue.name)
            claims, heads = list(_claims(state, tree)), list(_reserving(state, tree))
            later = None
            if claims or heads:
                later = state.tree_with(queue.name, _usage_after(tree, claims, heads))
            self._later |= dict.fromkeys((queue.name, *(one.name for one in tree)), later)
        return self._later[queue.name]


def free_on_nodes(flavor: FlavorCapacity, one: FlavorResourceCapacity) -> int:
    """Return what new pods can have of one resource on the usable nodes of a flavor, in base units.

    These are ready nodes with taints that the flavor tolerates, less what pods use and what is expected on
    them, and less the headroom of the flavor.
    """
    if _is_out(flavor):
        return 0
    return one.free if one.available is None else one.available


def _limit_of_nodes(flavor: FlavorCapacity, resource: str) -> int | None:
    """Return the same where nodes limit admissions; None: they do not."""
    for one in flavor.resources:
        if one.resource == resource and (
            one.mode is CapacityMode.ENFORCE or (one.mode is CapacityMode.ELASTIC and _is_out(flavor))
        ):
            return free_on_nodes(flavor, one)
    return None


def _is_out(flavor: FlavorCapacity) -> bool:
    """Return whether a flavor is not used for a while (M20)."""
    return any(warning.code == WarningCode.STOCKED_OUT for warning in flavor.warnings)


def _is_blocked(queue: QueueState) -> bool:
    strict = queue.queue is not None and queue.queue.queueing_strategy is QueueingStrategy.STRICT_FIFO
    return strict and bool(queue.workloads.order)


def _counts(dimension: Dimension, cell: FlavorResource) -> bool:
    return dimension.resource == cell.resource and dimension.flavor in (None, cell.flavor)


def _requested(one: StoredWorkload, resource: str) -> int:
    return sum(dict(pods.requests).get(resource, 0) * pods.count for pods in one.pod_sets)


class _Claim(NamedTuple):
    """What a preemptor waits for, as far as its reason says it (C7)."""

    owner: StoredWorkload
    cell: FlavorResource
    amount: int
    victims: list[StoredWorkload]


def _claims(state: CommittedState, queues: Iterable[QueueState]) -> Iterator[_Claim]:
    """Yield the claims whose victims hold quota of these ClusterQueues."""
    victims: dict[str, list[StoredWorkload]] = {}
    for queue in queues:
        for holder in queue.holders:
            reason = holder.reason
            if holder.phase is Phase.EVICTING and reason is not None and reason.code is Code.PREEMPTED:
                victims.setdefault(reason.by or "", []).append(holder)
    for by, evicted in victims.items():
        namespace, _, rest = by.partition("/")
        kind, _, name = rest.partition("/")
        owner = state.find(namespace, kind, name)
        reason = owner.reason if owner is not None else None
        if owner is None or owner.attempt is not None or reason is None or not waits_for_victims(reason):
            continue
        if reason.flavor is not None and reason.resource is not None:
            cell = FlavorResource(reason.flavor, reason.resource)
            yield _Claim(owner, cell, reason.requested or 0, evicted)


class _Reservation(NamedTuple):
    """What the head of a StrictFIFO queue keeps from the other queues of its tree (C6)."""

    cluster_queue: str
    cell: FlavorResource
    amount: int


_RESERVING: Final = frozenset(
    {Code.WAITING_FOR_QUOTA, Code.MIN_RUN_TIME_PROTECTED, Code.CAPACITY_MISSING, Code.NO_NODE_FITS}
)


def _reserving(state: CommittedState, queues: Iterable[QueueState]) -> Iterator[_Reservation]:
    for one in queues:
        policy = one.queue
        if policy is None or not _is_blocked(one):
            continue
        head = state.workloads[next(one.workloads.line(0))]
        reason = head.reason
        if policy.preemption.reclaim_within_cohort is PreemptionPolicy.ANY or reason is None:
            continue
        if reason.code in _RESERVING and reason.flavor is not None and reason.resource is not None:
            cell = FlavorResource(reason.flavor, reason.resource)
            own = one.nominal.get(cell, 0) - one.used.get(cell, 0)
            if (reason.requested or 0) <= one.nominal.get(cell, 0):
                yield _Reservation(one.name, cell, max(0, min(own, reason.requested or 0)))


def _usage_after(
    queues: Iterable[QueueState], claims: Iterable[_Claim], heads: Iterable[_Reservation]
) -> Mapping[str, Mapping[FlavorResource, int]]:
    """Return the usage by ClusterQueue once victims are gone, and preemptors and `heads` have their part."""
    usage = {one.name: Counter(one.used) for one in queues}
    for claim in claims:
        for victim in claim.victims:
            assert victim.attempt is not None
            assignment = victim.attempt.assignment
            usage[assignment.cluster_queue].subtract(assignment.usage())
        if claim.owner.cluster_queue in usage:
            usage[claim.owner.cluster_queue][claim.cell] += claim.amount
    for head in heads:
        usage[head.cluster_queue][head.cell] += head.amount
    return usage


def _reserved(claims: Iterable[_Claim]) -> Counter[FlavorResource]:
    """Return what preemptors may take of nodes, by cell: their pods may be placed on any of them (M8)."""
    reserved: Counter[FlavorResource] = Counter()
    for claim in claims:
        reserved[claim.cell] += claim.amount
    return reserved
