"""The state of a controller, as tests read it."""

from __future__ import annotations

from queuectl.controller.loop import Controller


def is_asleep(controller: Controller) -> bool:
    """Whether its loop waits to be woken although there are events that it has not handled."""
    wake = controller._wake
    return bool(controller._inbox) and not wake.is_set() and bool(wake._waiters)
