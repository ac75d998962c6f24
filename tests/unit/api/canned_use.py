"""Verdicts about devices of constructed values."""

from __future__ import annotations

from queuectl.ports.idle import DeviceUse


class CannedDeviceUse:
    """Implements UseReadings."""

    def __init__(self) -> None:
        self.found = DeviceUse(None, None, [])

    async def device_use(self) -> DeviceUse:
        return self.found
