"""Signals to and in the processes of tests and benchmarks."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from queuectl.sandbox.control_plane import ControlPlane


@asynccontextmanager
async def controllers_stopped(plane: ControlPlane) -> AsyncIterator[None]:
    """An outage of kube-controller-manager: no thread of it runs meanwhile."""
    children = [child for child in plane._children if child.name == "kube-controller-manager"]
    try:
        for child in children:
            child.send(signal.SIGSTOP)
        async with asyncio.timeout(30):
            while not all(_stopped(child.pid) for child in children):
                await asyncio.sleep(0.005)
        yield
    finally:
        for child in children:
            child.send(signal.SIGCONT)


def _stopped(pid: int) -> bool:
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)


def interrupt_on_sigterm() -> None:
    """SIGTERM does what Ctrl-C does, also in a process that was started with Ctrl-C ignored.

    asyncio.run cancels its task then. An exception raised by a handler of SIGTERM could come in the middle of
    any step, and be lost in a finalizer.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
