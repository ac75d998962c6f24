"""What the sandbox's example is to show, found in the decisions of the ledger as REST gives them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

from queuectl.core.decisions import Verdict
from queuectl.core.model.reasons import Code, PreemptionCause

Row = dict[str, Any]

SCAVENGER: Final = "scavenger"
GPU: Final = "nvidia.com/gpu"
NOMINAL: Final = {"a100": 8, "spot": 4}
"""GPUs that each team owns."""


class Sight(StrEnum):
    """One thing that the example shows."""

    BORROWING = "a team borrows"
    RECLAIM = "an owner reclaims from a team"
    PRIORITY = "a higher priority preempts in its queue"
    GANG = "a gang waits, and is admitted as a whole"
    NEVER = "a job can never run, and holds nothing"
    FLAVOR = "a flavor that is full is replaced by the next"
    SHARES = "a team that borrows more loses to one that borrows less"
    SCAVENGER = "the scavenger loses what it borrowed"


class Watcher:
    """Give it all decisions, in order; `seen` counts how often each sight happened."""

    def __init__(self) -> None:
        self.seen: Counter[Sight] = Counter()
        self._held: dict[str, tuple[str, dict[str, int]]] = {}
        """Namespace and GPUs by flavor of what holds quota, by UID."""
        self._waited: set[str] = set()
        """UIDs of gangs that waited for quota."""
        self._never: set[str] = set()
        self.broken: list[str] = []
        """What must not happen, in words."""

    def watch(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if row["uid"] is not None:
                self._watch(row)

    @property
    def holding(self) -> dict[str, int]:
        """GPUs in use by namespace."""
        found: Counter[str] = Counter()
        for namespace, amounts in self._held.values():
            found[namespace] += sum(amounts.values())
        return dict(found)

    def _watch(self, row: Row) -> None:
        match row["verdict"]:
            case Verdict.PENDING:
                self._pending(row)
            case Verdict.ADMITTED:
                self._admitted(row)
            case Verdict.EVICTED:
                self._evicted(row)
            case Verdict.RELEASED | Verdict.RETIRED:
                self._held.pop(row["uid"], None)

    def _pending(self, row: Row) -> None:
        code = row["reason"]["code"]
        if code == Code.EXCEEDS_MAX_QUOTA:
            self._never.add(row["uid"])
            self.seen[Sight.NEVER] += 1
        elif row["kind"] == "PyTorchJob":
            self._waited.add(row["uid"])

    def _admitted(self, row: Row) -> None:
        namespace, uid = row["namespace"], row["uid"]
        if uid in self._never:
            self.broken.append(f"{namespace}/{row['name']} can never run, and was admitted")
        amounts: Counter[str] = Counter()
        for pod_set in row["details"]["podSets"]:
            amounts[pod_set["flavors"][GPU]] += pod_set["count"] * pod_set["requests"][GPU]
        self._held[uid] = (namespace, dict(amounts))
        if namespace != SCAVENGER and any(
            self._used(namespace, flavor) > NOMINAL[flavor] for flavor in amounts
        ):
            self.seen[Sight.BORROWING] += 1
        if namespace == SCAVENGER and "spot" in amounts:
            self.seen[Sight.FLAVOR] += 1  # a100 comes first in its queue
        if uid in self._waited:
            counts = {one["name"]: one["count"] for one in row["details"]["podSets"]}
            if counts == {"master": 1, "worker": 3}:
                self.seen[Sight.GANG] += 1
            else:
                self.broken.append(f"{namespace}/{row['name']} was admitted with {counts}")

    def _used(self, namespace: str, flavor: str) -> int:
        return sum(amounts.get(flavor, 0) for where, amounts in self._held.values() if where == namespace)

    def _evicted(self, row: Row) -> None:
        cause = row["reason"]["cause"]
        if row["namespace"] == SCAVENGER:
            self.seen[Sight.SCAVENGER] += 1
        elif cause == PreemptionCause.IN_COHORT_RECLAMATION:
            self.seen[Sight.RECLAIM] += 1
        elif cause == PreemptionCause.IN_COHORT_FAIR_SHARING:
            self.seen[Sight.SHARES] += 1
        elif cause == PreemptionCause.IN_CLUSTER_QUEUE:
            self.seen[Sight.PRIORITY] += 1


def missing(seen: Counter[Sight], times: int) -> list[Sight]:
    """Sights that happened less often than this."""
    return [sight for sight in Sight if seen[sight] < times]
