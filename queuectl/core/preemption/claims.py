"""What preemptors are going to be given once their victims are gone: nobody else gets it meanwhile (C7)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from queuectl.core.entries import Entry
from queuectl.core.model import WorkloadId
from queuectl.core.quota.tree import Cells, QuotaNode


@dataclass(slots=True)
class OpenClaim:
    owner: Entry
    node: QuotaNode
    cells: Cells
    victims: dict[WorkloadId, Entry]
    """Those that hold quota still."""


class Claims:
    def __init__(self) -> None:
        self._by_owner: dict[WorkloadId, OpenClaim] = {}
        self._by_victim: dict[WorkloadId, set[WorkloadId]] = {}

    def __iter__(self) -> Iterator[OpenClaim]:
        return iter(list(self._by_owner.values()))

    def open(self, claim: OpenClaim) -> None:
        self.drop(claim.owner.id)
        self._by_owner[claim.owner.id] = claim
        for victim in claim.victims:
            self._by_victim.setdefault(victim, set()).add(claim.owner.id)

    def drop(self, owner: WorkloadId) -> OpenClaim | None:
        claim = self._by_owner.pop(owner, None)
        if claim is not None:
            for victim in claim.victims:
                self._forget(victim, owner)
        return claim

    def gone(self, victim: WorkloadId) -> list[OpenClaim]:
        """It holds nothing any more. Returns the claims that wait for nobody else."""
        settled: list[OpenClaim] = []
        for owner in self._by_victim.pop(victim, ()):
            claim = self._by_owner[owner]
            del claim.victims[victim]
            if not claim.victims:
                settled.append(claim)
        return settled

    def _forget(self, victim: WorkloadId, owner: WorkloadId) -> None:
        owners = self._by_victim.get(victim)
        if owners is not None:
            owners.discard(owner)
            if not owners:
                del self._by_victim[victim]
