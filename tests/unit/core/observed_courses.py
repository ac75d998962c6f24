"""What follows from each observation of an object in each phase (docs/scheduling.md, rules L4 to L31)."""

from __future__ import annotations

from typing import Final, NamedTuple

from queuectl.core.decisions import Verdict
from queuectl.core.model.workload import Verb


class Course(NamedTuple):
    """What follows from an observation: decisions, and a write to the object."""

    text: str
    decisions: tuple[Verdict, ...] = ()
    sends: Verb | None = None
    counts: bool = False
    """Its pods are counted."""


class Observed(NamedTuple):
    """How an object may be observed, and what follows in each phase."""

    suspended: bool
    attempt: str
    """Of its annotation reserved-admission, against the last attempt of the ledger."""
    pending: Course
    starting: Course
    admitted: Course
    stopping: Course
    evicting: Course
    over: Course


_STAYS: Final = Course("stays")
_ANSWER: Final = Course("wait (L11)")
_AGAIN: Final = Course("start again (L7)", sends=Verb.START)
_DEBT: Final = Course("debt (L4)", (Verdict.ADMITTED,))
_BY_IT: Final = Course("debt (L30)", (Verdict.ADMITTED,))
_INSTEAD: Final = Course("release, debt (L30)", (Verdict.RELEASED, Verdict.ADMITTED))
_BYPASSED: Final = Course("evict (L10)", (Verdict.EVICTED,), Verb.STOP)
_REPLACED: Final = Course("evict (L30)", (Verdict.EVICTED,), Verb.STOP)
_LEFT_OVER: Final = Course("debt, count (L30)", (Verdict.ADMITTED, Verdict.EVICTED), Verb.STOP)
_STOPPED: Final = Course("stop again (L31)", sends=Verb.STOP)
_COUNTED: Final = Course("count (L12)", counts=True)

OBSERVED: Final = (
    Observed(False, "none", _DEBT, _AGAIN, _STAYS, _ANSWER, _STOPPED, _DEBT),
    Observed(False, "an older one", _DEBT, _AGAIN, _STAYS, _ANSWER, _STOPPED, _BY_IT),
    Observed(False, "the same", _DEBT, _STAYS, _STAYS, _ANSWER, _STOPPED, _BY_IT),
    Observed(False, "a later one", _BY_IT, _INSTEAD, _INSTEAD, _INSTEAD, _INSTEAD, _BY_IT),
    Observed(True, "none", _STAYS, _AGAIN, _BYPASSED, _ANSWER, _COUNTED, _STAYS),
    Observed(True, "an older one", _STAYS, _AGAIN, _BYPASSED, _ANSWER, _COUNTED, _LEFT_OVER),
    Observed(True, "the same", _STAYS, _AGAIN, _BYPASSED, _ANSWER, _COUNTED, _LEFT_OVER),
    Observed(True, "a later one", _LEFT_OVER, _REPLACED, _REPLACED, _ANSWER, _COUNTED, _LEFT_OVER),
)
