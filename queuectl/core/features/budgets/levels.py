"""Which Metered Budgets running attempts take past a level of notifications (Y10)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from queuectl.core.features.budgets.balances import Balances
from queuectl.core.model.budgets import BUDGET_LEVELS, Budget
from queuectl.core.model.workload import WorkloadId
from queuectl.core.subjects import Place, SubjectRules

_PAUSE: Final = timedelta(minutes=1)
"""At least that between an admission and the look that takes account of it."""


class Levels:
    """What running attempts have used is recorded when it passes a level: rows alone tell of levels."""

    def __init__(self, rules: SubjectRules[Budget], balances: Balances) -> None:
        self._rules = rules
        self._balances = balances
        self.look_at: datetime | None = None
        """None: no attempt runs on a Metered Budget."""
        self.to_record: dict[WorkloadId, None] = {}
        """Workloads whose use so far is to be recorded."""

    def changed(self, now: datetime, *, pause: timedelta = _PAUSE) -> None:
        """What runs, or what it may use, has changed: look again after `pause`."""
        when = now + pause
        self.look_at = when if self.look_at is None else min(self.look_at, when)

    def look(self, now: datetime) -> list[WorkloadId]:
        """Return those whose use so far is to be recorded now, and find out when to look again."""
        if self.look_at is None or self.look_at > now:
            return []
        times, found = list[datetime](), dict[WorkloadId, None]()
        for place in self._balances.metered:
            for when in self._of_place(place, now, found):
                times.append(when)
        self.look_at = min(times, default=None)
        self.to_record |= found
        return list(found)

    def _of_place(self, place: Place, now: datetime, found: dict[WorkloadId, None]) -> Iterator[datetime]:
        """Yield when to look at a place again, or add to `found` those that run there."""
        budget = self._rules.limits.get(place.limit)
        period = budget.periods.at(now) if budget is not None else None
        if budget is None or period is None:
            return
        charges = {
            workload: one
            for workload, one in self._balances.metered[place].items()
            if one.resource == budget.resource and workload not in self.to_record
        }
        recorded = self._balances.recorded(place, budget.resource, period)
        amount, rate = budget.allowed(place.subject, period), sum(one.rate for one in charges.values())
        level = next((one for one in BUDGET_LEVELS if 100 * recorded < one * amount), None)
        if not rate or level is None:
            if rate:
                yield period.ends
            return
        used = sum(one.used(period, now) for one in charges.values())
        missing = level * amount - 100 * (recorded + used)
        if missing <= 0:
            found |= dict.fromkeys(charges)
        else:
            yield min(now + timedelta(microseconds=-(-missing // (100 * rate))), period.ends)
