"""What a workload's attempts leave behind: how long it ran, how often it came to nothing, why it is kept out.

Rules L17 to L20 of docs/scheduling.md. The ledger keeps it, so all of it outlives a restart.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from queuectl.core.reasons import Code, Reason
from queuectl.core.rules import Requeueing
from queuectl.core.values import value

MAX_RUN = "queuectl.dev/max-exec-time-seconds"
"""The label that users write, for messages."""
_AGAIN = 'set queuectl.dev/hold to "true" and take it away to queue it again'
_SECOND = timedelta(seconds=1)


@value(frozen=True, slots=True, kw_only=True)
class Past:
    run_ms: int = 0
    """Milliseconds that it ran in attempts that are over, from each admission to its eviction."""
    failures: int = 0
    """Starts that came to nothing, one after another."""
    barred: Reason | None = None
    """Why it is kept out of its line: BackingOff until `until`, or Deactivated until its user acts."""
    until: datetime | None = None
    ready: int = 0
    """Number of the last attempt whose pods were all ready; 0: none was."""


NOTHING = Past()


def ran(past: Past, admitted_at: datetime, now: datetime) -> Past:
    """After an attempt that ends now (L17)."""
    run = max(timedelta(), now - admitted_at) // timedelta(milliseconds=1)
    return replace(past, run_ms=past.run_ms + run, barred=None, until=None)


def run_ends(past: Past, limit: int, admitted_at: datetime) -> datetime:
    """When an attempt has run for what is left of `limit` seconds (L13)."""
    return admitted_at + timedelta(milliseconds=limit * 1000 - past.run_ms)


def failed(past: Past, now: datetime, rules: Requeueing, why: str) -> Past:
    """After a start that came to nothing, `why` in words (L18)."""
    count = past.failures + 1
    if rules.limit is not None and count > rules.limit:
        detail = f"{count} starts came to nothing, at most {rules.limit} may: {why}; {_AGAIN}"
        barred = Reason(code=Code.DEACTIVATED, detail=detail)
        return replace(past, failures=count, barred=barred, until=None)
    # Beyond 2^31 times its base any pause is cut to the most there may be.
    seconds = min(rules.base_seconds << min(count - 1, 31), rules.most_seconds)
    until = now + timedelta(seconds=seconds)
    if until.microsecond:
        until = until.replace(microsecond=0) + _SECOND  # as it is told
    detail = f"until {until:%Y-%m-%dT%H:%M:%SZ}: {why}"
    return replace(past, failures=count, barred=Reason(code=Code.BACKING_OFF, detail=detail), until=until)


def kept_out(past: Past, limit: int | None, now: datetime) -> Reason | None:
    """Why one that waits may not stand in line, `limit` being the seconds that it may run (L19)."""
    if limit is not None and past.run_ms >= limit * 1000:
        detail = f"it has run for the {limit} s that label {MAX_RUN} allows: raise that, or {_AGAIN}"
        return Reason(code=Code.DEACTIVATED, detail=detail)
    if past.until is not None and past.until <= now:
        return None
    return past.barred


def tried_anew(past: Past) -> Past:
    """Its user has edited it: what it came to before says nothing of it (L20)."""
    return replace(past, failures=0, barred=None, until=None)
