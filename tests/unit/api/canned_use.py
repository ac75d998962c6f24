"""Verdicts about devices of constructed values."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from queuectl.core.model.device_use import DeviceUse, IdleNotice, UseFinding
from queuectl.core.model.workload import StoredWorkload
from queuectl.ports.idle import DeviceCheck


class CannedDeviceUse:
    """Implements UseReadings."""

    def __init__(self) -> None:
        self.found = DeviceCheck(None, None)

    async def device_check(self) -> DeviceCheck:
        return self.found


def judged(
    one: StoredWorkload,
    finding: UseFinding,
    since: datetime,
    wasted: int = 0,
    attempt: int = 1,
    notice: IdleNotice | None = None,
) -> StoredWorkload:
    """`one` with a verdict about an attempt, which has wasted so many seconds of its devices before."""
    use = DeviceUse(attempt=attempt, since=since, finding=finding, wasted_ms=1000 * wasted, notice=notice)
    return replace(one, past=replace(one.past, use=use))
