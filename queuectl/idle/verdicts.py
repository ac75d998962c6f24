"""What samples of devices say: pure functions.

The thresholds come from one H200 (docs/accounting.md): utilization alone is wrong in both directions, since a
hang shows 100 % and training that waits for data shows 0.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from queuectl.core.model.device_use import UseFinding, UseVerdict
from queuectl.settings.idle import IdleSettings

_MOST: Final = 1.5
"""Activities are 0 to 1. What is above this is one of the blanks of NVML."""


class DeviceSamples(NamedTuple):
    """Means over the window of one device, and over that of a hang; None: not exported."""

    engine: float | None
    samples: float
    """In the window."""
    hang_engine: float | None = None
    hang_samples: float = 0
    multiprocessors: float | None = None
    tensor: float | None = None
    memory: float | None = None
    watts: float | None = None


def finding_of(devices: int, found: Sequence[DeviceSamples], rules: IdleSettings) -> UseFinding:
    """The verdict of an attempt that holds `devices`, from the samples of its pods' devices.

    One busy device makes it busy. It is idle, or hangs, if every device that it holds is known to.
    """
    each = [_verdict(one, rules) for one in found]
    complete = len(found) >= devices and UseVerdict.UNKNOWN not in each
    coverage = min((_coverage(one.samples, rules.window_seconds, rules) for one in found), default=0.0)
    return UseFinding(
        _of_all(each, complete),
        devices,
        min(devices, sum(one in (UseVerdict.IDLE, UseVerdict.HANG) for one in each)) if complete else 0,
        coverage if len(found) >= devices else 0.0,
        _mean([one.engine for one in found]),
        _mean([one.multiprocessors for one in found]),
    )


def _of_all(each: Collection[UseVerdict], complete: bool) -> UseVerdict:
    if UseVerdict.BUSY in each:
        return UseVerdict.BUSY
    if not complete:
        return UseVerdict.UNKNOWN
    if UseVerdict.SPARSE in each:
        return UseVerdict.SPARSE
    if len(set(each)) > 1:
        # Some hang and some are idle: which of the two the whole does is not known.
        return UseVerdict.UNKNOWN
    return next(iter(each), UseVerdict.UNKNOWN)


def _verdict(found: DeviceSamples, rules: IdleSettings) -> UseVerdict:
    if _hangs(found, rules):
        return UseVerdict.HANG
    engine = _activity(found.engine)
    if engine is None or _coverage(found.samples, rules.window_seconds, rules) < rules.coverage:
        return UseVerdict.UNKNOWN
    if engine < rules.idle_below:
        return UseVerdict.IDLE
    return UseVerdict.SPARSE if engine < rules.sparse_below else UseVerdict.BUSY


def _hangs(found: DeviceSamples, rules: IdleSettings) -> bool:
    engine, multiprocessors = _activity(found.hang_engine), _activity(found.multiprocessors)
    hang = rules.hang
    if engine is None or engine <= hang.engine_above:
        return False
    if _coverage(found.hang_samples, hang.window_seconds, rules) < rules.coverage:
        return False
    if multiprocessors is not None:
        return multiprocessors < hang.multiprocessors_below
    tensor, memory, watts = _activity(found.tensor), _activity(found.memory), found.watts
    if tensor is None or memory is None or watts is None:
        return False
    return max(tensor, memory) < hang.pipes_below and watts < hang.watts_below


def _activity(value: float | None) -> float | None:
    return value if value is not None and 0 <= value <= _MOST else None


def _coverage(samples: float, seconds: int, rules: IdleSettings) -> float:
    return min(1.0, samples * rules.sample_seconds / seconds)


def _mean(values: Collection[float | None]) -> float | None:
    known = [value for value in map(_activity, values) if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
