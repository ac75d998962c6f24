"""Signals to and in the processes of tests and benchmarks."""

from __future__ import annotations

import signal

from queuectl.sandbox.control_plane import ControlPlane


def signal_controllers(plane: ControlPlane, number: signal.Signals) -> None:
    """Signal kube-controller-manager: SIGSTOP for an outage of the controllers, SIGCONT for its end."""
    for child in plane._children:
        if child.name == "kube-controller-manager":
            child.send(number)


def interrupt_on_sigterm() -> None:
    """SIGTERM does what Ctrl-C does, also in a process that was started with Ctrl-C ignored.

    asyncio.run cancels its task then. An exception raised by a handler of SIGTERM could come in the middle of
    any step, and be lost in a finalizer.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
