"""Budgets of a Slurm site: GrpTRESMins of QOS and associations.

In Slurm this is what all jobs of an association, or of a QOS, may use together, in minutes of each TRES
(resource_limits in Slurm's documentation). What makes no Budget keeps its note.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from queuectl.importers.slurm_notes import Notes
from queuectl.importers.slurm_site import Pool, SlurmSite
from queuectl.importers.slurm_text import Record
from queuectl.importers.slurm_values import BadValue, SlurmNames, limited, quantity, tres, unset

Json = dict[str, Any]
FIELD: Final = "GrpTRESMins"
_MINUTES: Final = 60
"""Of an hour."""
_MOST_MEBIBYTES: Final = 2**40

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
            yield {
                "apiVersion": "queuectl.dev/v1beta1",
                "kind": "Budget",
                "metadata": {"name": self._names.of(f"{base[:40]}-{short}")},
                "spec": {
                    "target": target,
                    "subject": subject,
                    "resource": resource,
                    "hours": quantity(resource, amount),
                    "period": {"kind": "Month"},
                    "mode": "Metered",
                },
            }

    def _hours(self, minutes: dict[str, int]) -> tuple[dict[str, int], list[str]]:
        """Return the hours by resource, memory in MiB, and notes on what they do not say."""
        hours: dict[str, int] = {}
        told: list[str] = []
        for name, amount in minutes.items():
            found = {resource for pool in self._pools for resource in limited(name, pool.types)}
            if not found or amount > _MOST_MEBIBYTES:
                told.append(f"{name}: {_NO_BUDGET}")
                continue
            if any(_others(name, found, pool) for pool in self._pools):
                told.append(f"{name}: {_ALL_TYPES}")
                continue
            told += [f"{name}: {_EACH_RESOURCE}"] if len(found) > 1 else []
            told += [f"{name}: {_ROUNDED}"] if amount % _MINUTES else []
            for resource in found:
                most = -(-amount // _MINUTES)
                hours[resource] = min(most, hours.get(resource, most))
        return hours, told


def _others(name: str, resources: set[str], pool: Pool) -> bool:
    """Whether a limit of one type of GPU is of a resource that GPUs of other types are too."""
    if ":" not in name:
        return False
    others = (limited(f"gres/gpu:{one}", pool.types) for one in pool.types if f"gres/gpu:{one}" != name)
    return any(resources.intersection(found) for found in others)
