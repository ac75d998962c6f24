"""What Budgets and UsageLimits allow holds after each commit: each violation is one sentence.

Use is added up here from the holds and the rows of budgets, not as the core does.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from queuectl.core.decisions import Verdict
from queuectl.core.model.budgets import BudgetEntry, EntryKind, Period, microseconds
from queuectl.core.model.workload import ConfigKey, StoredWorkload, WorkloadId
from queuectl.ports.reader import DecisionRow
from queuectl.sandbox.players.api import Object
from tests.acceptance.e2e.site import GPU
from tests.doubles.ledger import MemoryStore

HOUR: Final = timedelta(hours=1)


class _Balance(NamedTuple):
    budget: str
    subject: str
    resource: str
    period: Period


class _Charge(NamedTuple):
    workload: str
    attempt: int
    budget: str
    subject: str


class Limits:
    """Told of each transaction of the ledger."""

    def __init__(self, ledger: MemoryStore, violated: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._violated = violated
        self._read = 0
        """Rows of budgets that were read."""
        self._reserved: Counter[_Balance] = Counter()
        self._used: Counter[_Balance] = Counter()
        self._open: dict[_Charge, list[BudgetEntry]] = {}
        """What each attempt has reserved, and not settled."""
        self._settled: dict[_Charge, BudgetEntry] = {}
        """What each attempt had reserved that it has settled last."""
        self._held: defaultdict[tuple[_Charge, Period], int] = defaultdict(int)
        """By attempt and period, what it held in its time less what it has used: never below 0."""

    def committed(self, rows: Sequence[DecisionRow]) -> None:
        """Raise nothing: violations are told."""
        new = [entry for *_, entry in self._ledger.budget[self._read :]]
        self._read = len(self._ledger.budget)
        for entry in new:
            self._book(entry)
        closed = {
            (str(row.workload), row.attempt)
            for row in rows
            if row.verdict in (Verdict.RELEASED, Verdict.RETIRED)
        }
        for charge in self._open:
            if (charge.workload, charge.attempt) in closed:
                self._violated(
                    f"attempt {charge.attempt} of {charge.workload} is over and has {charge.budget}"
                )
        changed = max((at for at, _ in self._ledger.configs.values()), default=0)
        if any(row.verdict == Verdict.ADMITTED and row.payload.get("debt") for row in rows):
            return  # what was found running is charged whatever is left
        for row in rows:
            if row.verdict == Verdict.ADMITTED and row.sequence > changed:
                self._admitted(row, new)

    # --- budgets

    def _book(self, entry: BudgetEntry) -> None:
        balance = _Balance(entry.budget, entry.subject, entry.resource, entry.period)
        charge = _Charge(entry.workload, entry.attempt, entry.budget, entry.subject)
        self._reserved[balance] += entry.reserved
        self._used[balance] += entry.used
        if entry.kind is EntryKind.RESERVE:
            self._open.setdefault(charge, []).append(entry)
        elif entry.kind is EntryKind.SETTLE and (known := self._open.pop(charge, None)) is not None:
            self._settled[charge] = known[0]
        left = self._held[charge, entry.period]
        if entry.kind is EntryKind.SETTLE and (begun := self._settled.get(charge)) is not None:
            left += begun.rate * entry.period.overlap(begun.at, entry.at)
        self._held[charge, entry.period] = left = left - entry.used
        if left < 0 and entry.used > 0:
            self._violated(f"{entry.workload} has used more of {entry.budget} than it held in its time")
        for name, amount in (("reserved", self._reserved[balance]), ("used", self._used[balance])):
            if amount < 0:
                self._violated(f"of Budget {entry.budget}, {name} is {amount}")

    def _taken(self, balance: _Balance, now: datetime) -> int:
        """Used, reserved, and of what has no end, an hour in advance."""
        metered = sum(
            one.rate * balance.period.overlap(one.at, now + HOUR)
            for charge, entries in self._open.items()
            for one in entries[:1]
            if one.until is None
            and (charge.budget, charge.subject, one.resource) == (balance.budget, balance.subject, GPU)
        )
        return self._used[balance] + self._reserved[balance] + metered

    # --- admissions

    def _admitted(self, row: DecisionRow, new: Sequence[BudgetEntry]) -> None:
        assert row.workload is not None
        stored = self._ledger.workloads.get(row.workload)
        if stored is None or stored.attempt is None or stored.attempt.number != row.attempt:
            return  # it was over in the same transaction
        for name, spec in self._about("Budget", stored):
            mine = [
                one
                for one in new
                if (one.budget, one.workload, one.attempt) == (name, str(stored.id), row.attempt)
            ]
            # What a Budget lowers is charged to none that lowers (Y8).
            by_any = any(one.policy.startswith("Budget/") for one in stored.past.lowered)
            lowered = by_any and spec.get("onExhausted") == "LowerClass"
            if not mine and spec["period"]["kind"] != "Dates" and self._gpus(stored) and not lowered:
                self._violated(f"{row.ref} was admitted, and reserves nothing of Budget {name}")
            most = round(float(spec["hours"]) * microseconds(HOUR))
            for one in mine:
                balance = _Balance(one.budget, one.subject, one.resource, one.period)
                if (taken := self._taken(balance, row.now)) > most:
                    self._violated(f"{row.ref} was admitted with {taken} of {most} of Budget {name} taken")
        for name, spec in self._about("UsageLimit", stored):
            alike = [one for one in self._holders() if self._is_alike(spec, one, stored)]
            running, gpus = spec.get("running"), (spec.get("resources") or {}).get(GPU)
            if running is not None and len(alike) > int(running):
                self._violated(f"{row.ref} was admitted as one of {len(alike)}, UsageLimit {name}: {running}")
            if gpus is not None and (held := sum(map(self._gpus, alike))) > int(gpus):
                self._violated(f"{row.ref} was admitted to {held} GPUs, UsageLimit {name}: {gpus}")

    def _holders(self) -> Iterator[StoredWorkload]:
        return (one for one in self._ledger.workloads.values() if one.attempt is not None)

    def _gpus(self, stored: StoredWorkload) -> int:
        assert stored.attempt is not None
        lines = self._ledger.holds[stored.id, stored.attempt.number]
        return sum(line.pods * line.amount for line in lines if line.resource == GPU)

    def _about(self, kind: str, stored: StoredWorkload) -> Iterator[tuple[str, Object]]:
        """The policies of a kind in force that a workload with an open attempt counts for."""
        for key, (_, text) in self._ledger.configs.items():
            if key.kind == kind and text is not None:
                spec: Object = json.loads(text)
                user = self._booked(stored).user
                if self._is_in(spec["target"], stored) and (spec["subject"]["kind"] == "All" or user):
                    yield key.name, spec

    def _booked(self, stored: StoredWorkload) -> Any:
        assert stored.attempt is not None
        return self._ledger.booked[WorkloadId(stored.id), stored.attempt.number]

    def _is_alike(self, spec: Object, one: StoredWorkload, other: StoredWorkload) -> bool:
        """Whether the use of `one` counts together with that of `other`."""
        same = spec["subject"]["kind"] == "All" or self._booked(one).user == self._booked(other).user
        return same and self._is_in(spec["target"], one)

    def _is_in(self, target: Object, stored: StoredWorkload) -> bool:
        assert stored.attempt is not None
        booked, queue = self._booked(stored), stored.attempt.assignment.cluster_queue
        names = {
            "ClusterQueue": queue,
            "LocalQueue": booked.queue,
            "WorkloadPriorityClass": booked.priority_class,
            "Cohort": self._cohort(queue),
        }
        namespace = target.get("namespace") or booked.namespace
        return bool(names[target["kind"]] == target["name"] and namespace == booked.namespace)

    def _cohort(self, queue: str) -> str | None:
        _, text = self._ledger.configs.get(ConfigKey("ClusterQueue", "", queue), (0, None))
        found: str | None = json.loads(text).get("cohortName") if text is not None else None
        return found
