"""What admitted workloads do with their devices: verdicts are recorded when they change (B16 to B18)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final

from queuectl.core.decisions import Decision, Evict
from queuectl.core.directory import AffectedObjects
from queuectl.core.entries import Entry
from queuectl.core.feature import Feature, Kernel
from queuectl.core.model.device_use import DeviceUse, UseFinding, UseVerdict, use_after
from queuectl.core.model.events import DeviceUseFound, Event
from queuectl.core.model.workload import Attempt, LedgerSnapshot, PastAttempts, Phase, WorkloadId

_LAST: Final = datetime.max.replace(tzinfo=UTC)
GRACE: Final = timedelta(hours=1)
"""How long a verdict of the ledger is kept after a start without a check."""


class IdleDevices(Feature):
    """Is active from the first finding on."""

    events: ClassVar = frozenset({DeviceUseFound})

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._found: dict[WorkloadId, DeviceUseFound] = {}
        """The last finding about each open attempt."""
        self._changed: dict[WorkloadId, None] = {}

    def restored(self, snapshot: LedgerSnapshot, entries: Mapping[WorkloadId, Entry]) -> None:
        """Findings are not in the ledger: without another one, what it says holds for `GRACE`."""
        at = self._kernel.clock + GRACE
        for entry in entries.values():
            use = _use_of(entry)
            if use is not None:
                self.active = True
                unknown = _unknown(use.finding.devices)
                self._found.setdefault(entry.id, DeviceUseFound(entry.id, use.attempt, unknown, at, _LAST))

    def observe(self, event: Event, affected: AffectedObjects) -> None:
        match event:
            case DeviceUseFound(workload, attempt):
                entry = self._kernel.entries.get(workload)
                if entry is not None and entry.attempt is not None and entry.attempt.number == attempt:
                    self.active = True
                    self._found[workload] = event
                    self._changed[workload] = None
            case _:
                pass

    def settle(self) -> None:
        changed, self._changed = self._changed, {}
        for workload in changed:
            if (entry := self._kernel.entries.get(workload)) is not None:
                self._kernel.refresh(entry)

    def released(self, entry: Entry, attempt: Attempt, now: datetime) -> None:
        self._found.pop(entry.id, None)

    def noted(self, past: PastAttempts, entry: Entry, now: datetime) -> PastAttempts:
        """Return `past` with the verdict in force about its open attempt."""
        attempt, found = entry.attempt, self._found.get(entry.id)
        if attempt is None or found is None or found.attempt != attempt.number or found.at > now:
            return past
        finding, at = found.finding, found.at
        if found.until <= now:
            finding, at = _unknown(finding.devices), found.until
        use = _use_of(entry)
        if use is not None and (use.since > at or use.finding.says_as(finding)):
            return past
        return replace(past, use=use_after(use, attempt.number, finding, at))

    def next_time(self, entry: Entry, now: datetime) -> datetime | None:
        """Return when its finding begins or ends to say something."""
        found = self._found.get(entry.id)
        if found is None or entry.phase is not Phase.ADMITTED:
            return None
        return found.at if found.at > now else found.until

    def accounted(self, past: PastAttempts, decision: Decision, entry: Entry, now: datetime) -> PastAttempts:
        return replace(past, use=None) if isinstance(decision, Evict) else past


def _use_of(entry: Entry) -> DeviceUse | None:
    """Return the verdict in force about its open attempt."""
    use, attempt = entry.past.use, entry.attempt
    return use if use is not None and attempt is not None and attempt.number == use.attempt else None


def _unknown(devices: int) -> UseFinding:
    return UseFinding(UseVerdict.UNKNOWN, devices)
