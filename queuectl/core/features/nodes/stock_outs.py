"""Flavors whose nodes did not come in time: they are not used for a while (M20)."""

from __future__ import annotations

from datetime import datetime, timedelta

from queuectl.core.model.workload import PastAttempts


class StockOuts:
    """`seconds`: how long a flavor is not used; 0: none is ever left out.

    Of any flavor, whatever its mode: only those whose nodes come on demand are left out for it.
    """

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self.until: dict[str, datetime] = {}
        """By flavor: when it may be used again."""
        self.version = 0
        """Changes with `until`."""
        self._changed: set[str] = set()

    def note(self, past: PastAttempts, now: datetime) -> None:
        """Take from the record of a workload for which flavors nodes did not come, and when."""
        if not self._seconds or past.missed_at is None:
            return
        until = past.missed_at + timedelta(seconds=self._seconds)
        for flavor in past.missed:
            known = self.until.get(flavor)
            if until > max(now, known or now):
                self._set(flavor, until)

    def time_came(self, now: datetime) -> None:
        for flavor in [name for name, until in self.until.items() if until <= now]:
            self._set(flavor, None)

    @property
    def due_at(self) -> datetime | None:
        return min(self.until.values(), default=None)

    def take_changed(self) -> list[str]:
        """Return the flavors that are left out or used again since the last call."""
        changed, self._changed = sorted(self._changed), set()
        return changed

    def _set(self, flavor: str, until: datetime | None) -> None:
        if until is None:
            del self.until[flavor]
        else:
            self.until[flavor] = until
        self.version += 1
        self._changed.add(flavor)
