"""Past usage, by which ClusterQueues and Cohorts may order what they admit (U1 to U7)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from queuectl.core.entries import Entry
from queuectl.core.feature import Feature
from queuectl.core.features.usage_history.decay import UsageHistory, counted_from
from queuectl.core.model.policy import AdmissionFairSharing
from queuectl.core.model.workload import Attempt, Attribution, LedgerSnapshot, WorkloadId, usage_accounts


class PastUsage(Feature):
    def __init__(self, sharing: AdmissionFairSharing | None) -> None:
        """`sharing`: how usage decays; None: past usage does not count."""
        self._sharing = sharing
        self.history = UsageHistory(sharing) if sharing is not None else None
        self.active = sharing is not None

    @property
    def usage(self) -> UsageHistory | None:
        return self.history

    def restored(self, snapshot: LedgerSnapshot, entries: Mapping[WorkloadId, Entry]) -> None:
        """Compute past usage anew, from the ledger and from what is held now (U5)."""
        if self._sharing is None:
            return
        self.history = UsageHistory(self._sharing)
        self.history.restore(snapshot.past_usage)
        booked = {one.id: one.attribution for one in snapshot.workloads}
        for entry in entries.values():
            if (attempt := entry.attempt) is not None:
                begun = counted_from(attempt.admitted_at, snapshot.now or attempt.admitted_at)
                self._opened(entry, attempt, booked.get(entry.id), begun)

    def charged(self, entry: Entry, attempt: Attempt, now: datetime) -> None:
        """Count an attempt from now on: one that was found running may have been admitted before (U5)."""
        booked = Attribution.of(entry.workload) if entry.workload is not None else None
        self._opened(entry, attempt, booked, now)

    def _opened(self, entry: Entry, attempt: Attempt, booked: Attribution | None, begun: datetime) -> None:
        if self.history is not None:
            accounts = usage_accounts(attempt.assignment.cluster_queue, booked)
            key, resources = (entry.id, attempt.number), attempt.assignment.resources()
            self.history.opened(accounts, key, resources, begun, found=attempt.debt)

    def resized(self, entry: Entry, attempt: Attempt, now: datetime) -> None:
        if self.history is not None:
            key, resources = (entry.id, attempt.number), attempt.assignment.resources()
            self.history.resized(key, resources, now)

    def released(self, entry: Entry, attempt: Attempt, now: datetime) -> None:
        if self.history is not None:
            self.history.closed((entry.id, attempt.number), now)
