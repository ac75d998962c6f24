"""When a user lets a workload start: after others, from a time on, few of its array at a time (V)."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from queuectl.core.model.values import value

AFTER: Final = "queuectl.dev/after"
"""Annotation with the workloads that have to end first, separated by commas: `ok:Job/prepare`."""
BEGIN: Final = "queuectl.dev/begin"
"""Annotation with the earliest time of the start, RFC 3339."""
MAX_RUNNING: Final = "queuectl.dev/max-running"
"""Annotation with the most workloads of an array that queue or run at a time."""
ARRAY: Final = "queuectl.dev/array"
"""Label with the name of an array, in its namespace."""
MOST_AFTER: Final = 16
"""Workloads that one may name in AFTER."""
MOST_RUNNING: Final = 1000


class AfterOutcome(StrEnum):
    """How a workload that is waited for has to end."""

    OK = "ok"
    """Succeeded."""
    ANY = "any"
    FAILED = "failed"
    """Not succeeded: failed, timed out, or deleted."""


class NamedWorkload(NamedTuple):
    """Names the workloads that had this name one after another."""

    namespace: str
    kind: str
    """In the table of job kinds."""
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


class AfterWorkload(NamedTuple):
    outcome: AfterOutcome
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.outcome}:{self.kind}/{self.name}"


@value(frozen=True, slots=True, kw_only=True)
class StartConditions:
    """The conditions of one workload; each is optional."""

    after: tuple[AfterWorkload, ...] = ()
    begin_at: datetime | None = None
    max_running: int | None = None
    array: str | None = None
    """Name of the array that `max_running` is about."""
