"""Budgets of a Slurm site: GrpTRESMins of QOS and associations.

In Slurm this is what all jobs of an association, or of a QOS, may use together, in minutes of each TRES
(resource_limits in Slurm's documentation). What makes no Budget keeps its note.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from queuectl.importers.result import policy_object
from queuectl.importers.slurm_notes import Notes
from queuectl.importers.slurm_site import SlurmSite
from queuectl.importers.slurm_text import Record
from queuectl.importers.slurm_values import (
    MOST_MEBIBYTES,
    BadValue,
    SlurmNames,
    limited,
    quantity,
    tres,
    unset,
)

Json = dict[str, Any]
FIELD: Final = "GrpTRESMins"
_MINUTES: Final = 60
"""Of an hour."""

_PERIOD: Final = (
    "a Budget has no decay (PriorityDecayHalfLife): its hours begin anew each month, set spec.period; with "
    "`safe` in AccountingStorageEnforce set spec.mode Safe, for which workloads need a run time limit"
)
_ROUNDED: Final = "rounded up to whole hours"
_EACH_RESOURCE: Final = "counts each kind of GPU by itself, not their sum"
_ALL_TYPES: Final = "a Budget counts GPUs of all types that are the same resource"
_NO_BUDGET: Final = "only cpu, mem and gres/gpu become Budgets"


class SlurmBudgets:
    def __init__(self, site: SlurmSite, notes: Notes) -> None:
        self._pools = site.pools
        self._notes = notes
        self._names = SlurmNames()

    def of(self, record: Record, base: str, target: Json, subject: Json) -> Iterator[Json]:
        """Yield the Budgets of one record. `base`: of their names."""
        text = record.value(FIELD)
        if unset(text):
            return
        try:
            minutes = tres(text)
        except BadValue:
            return
        hours, told = self._hours(minutes)
        if not hours:
            return
        self._notes.carried(record, FIELD)
        self._notes.add(record, FIELD, _PERIOD, left_out=False)
        for note in told:
            self._notes.add(record, FIELD, note)
        for resource, amount in sorted(hours.items()):
            short = resource.rpartition("/")[2]
            spec: Json = {
                "target": target,
                "subject": subject,
                "resource": resource,
                "hours": quantity(resource, amount),
                "period": {"kind": "Month"},
                "mode": "Metered",
            }
            yield policy_object("Budget", self._names.of(f"{base[:40]}-{short}"), spec)

    def _hours(self, minutes: dict[str, int]) -> tuple[dict[str, int], list[str]]:
        """Return the hours by resource, memory in MiB, and notes on what they do not say."""
        hours: dict[str, int] = {}
        told: list[str] = []
        for name, amount in minutes.items():
            found = {resource for pool in self._pools for resource in limited(name, pool.types)}
            if not found or amount > MOST_MEBIBYTES:
                told.append(f"{name}: {_NO_BUDGET}")
                continue
            if any(pool.has_others(name, found) for pool in self._pools):
                told.append(f"{name}: {_ALL_TYPES}")
                continue
            told += [f"{name}: {_EACH_RESOURCE}"] if len(found) > 1 else []
            told += [f"{name}: {_ROUNDED}"] if amount % _MINUTES else []
            for resource in found:
                most = -(-amount // _MINUTES)
                hours[resource] = min(most, hours.get(resource, most))
        return hours, told
