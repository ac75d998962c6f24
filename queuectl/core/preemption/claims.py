"""What preemptors claim while their victims terminate: no other workload is admitted to it (C7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from queuectl.core.model.pods import Pods
from queuectl.core.model.values import value
from queuectl.core.model.workload import Assignment, WorkloadId


class Victim(NamedTuple):
    """An attempt that has to end before the preemptor is admitted."""

    workload: WorkloadId
    attempt: int


class ClaimState(StrEnum):
    """What a claim means for the pending queue of its owner."""

    WAITING = "Waiting"  # victims still hold quota: others in the pending queue start beside the claim only
    GRANTED = "Granted"  # all victims are gone: the owner is nominated first, for what it claims
    FIRST = "First"  # policy changed, or the controller restarted: the owner is nominated first, anew


@value(frozen=True, slots=True, kw_only=True)
class PreemptionClaim:
    """A preemptor's claim on what its victims leave. A ClusterQueue has at most one."""

    owner: WorkloadId
    """The preemptor."""
    cluster_queue: str
    cells: tuple[tuple[int, int], ...] = ()
    """What is reserved for the owner: cell numbers of the quota tree, with amounts in base units."""
    victims: tuple[Victim, ...] = ()
    """Those that still hold quota, as far as they are known."""
    pods: Pods = ()
    """The pods of the owner, for which room is reserved as well."""
    assignment: Assignment | None = None
    """What the owner preempted for; None: it is nominated anew."""

    @property
    def state(self) -> ClaimState:
        if self.assignment is None:
            return ClaimState.FIRST
        return ClaimState.WAITING if self.victims else ClaimState.GRANTED

    def without(self, ended: Set[WorkloadId]) -> PreemptionClaim:
        """Return the claim as it is when the victims `ended` hold nothing any more."""
        if ended.isdisjoint([victim.workload for victim in self.victims]):
            return self
        return replace(self, victims=tuple(v for v in self.victims if v.workload not in ended))


class PreemptionClaims:
    """All claims, by ClusterQueue and by victim."""

    def __init__(self) -> None:
        self.by_queue: dict[str, PreemptionClaim] = {}
        self._by_victim: dict[WorkloadId, dict[str, None]] = {}
        self.expected: dict[WorkloadId, list[Victim]] = {}
        """Preemptors not seen since the controller started, with victims that are being evicted."""
        self.helped: set[str] = set()
        """ClusterQueues with a claim whose owner may fit now, before its victims are gone (C13)."""

    @property
    def waiting(self) -> Iterator[PreemptionClaim]:
        """Those of which victims still hold quota."""
        for claim in self.by_queue.values():
            if claim.state is ClaimState.WAITING:
                yield claim

    def open(self, claim: PreemptionClaim) -> None:
        """Register `claim`. Its ClusterQueue must have no other: `drop` that first."""
        assert claim.cluster_queue not in self.by_queue, claim.cluster_queue
        self.by_queue[claim.cluster_queue] = claim
        for victim in claim.victims:
            self._by_victim.setdefault(victim.workload, {})[claim.cluster_queue] = None

    def drop(self, claim: PreemptionClaim) -> None:
        """Forget a claim."""
        del self.by_queue[claim.cluster_queue]
        self.helped.discard(claim.cluster_queue)
        for victim in claim.victims:
            queues = self._by_victim[victim.workload]
            del queues[claim.cluster_queue]
            if not queues:
                del self._by_victim[victim.workload]

    def ended(self, victim: WorkloadId) -> Iterable[str]:
        """`victim` holds nothing any more. Return the ClusterQueues whose claims wait for no other victim."""
        granted: list[str] = []
        for queue in self._by_victim.pop(victim, ()):
            claim = self.by_queue[queue] = self.by_queue[queue].without({victim})
            if not claim.victims:
                self.helped.discard(queue)
                granted.append(queue)
        self.expect_no_more(victim)
        return granted

    def waiting_for(self, victim: WorkloadId) -> list[str]:
        """Return the ClusterQueues with a claim that waits for `victim`."""
        return list(self._by_victim.get(victim, ()))

    def expect_no_more(self, victim: WorkloadId) -> None:
        """Preemptors that have not been seen since the start do not wait for `victim`."""
        for preemptor, victims in self.expected.items():
            self.expected[preemptor] = [one for one in victims if one.workload != victim]

    def expect(self, preemptor: WorkloadId, *victims: Victim) -> None:
        """By the ledger `preemptor` waits for victims, such as these: it comes first once queued (C7)."""
        self.expected.setdefault(preemptor, []).extend(victims)

    def expected_is_queued(self, workload: WorkloadId, cluster_queue: str) -> None:
        """`workload`, one of `expected`, was added to the pending queue of `cluster_queue`."""
        if cluster_queue not in self.by_queue:
            victims = tuple(self.expected.pop(workload))
            self.open(PreemptionClaim(owner=workload, cluster_queue=cluster_queue, victims=victims))
