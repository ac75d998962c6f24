"""A program on a pseudo-terminal, and the content of its screen."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

DEADLINE_SECONDS: Final = 45.0
_SETTINGS: Final = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_HOME: Final = "\x1b[H"
_TAKE_TERMINAL: Final = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """Use `terminal()`."""

    def __init__(self, near: int, far: int, process: subprocess.Popen[bytes]) -> None:
        self._near = near
        self._far = far
        self.process = process
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.output = ""
        """All that was ever written to it."""

    def settings(self) -> list[Any]:
        """Echo, line mode and the like."""
        return termios.tcgetattr(self._far)

    def send(self, keys: str) -> None:
        os.write(self._near, keys.encode())

    def resize(self, width: int, height: int) -> None:
        _resize(self._near, width, height)

    @property
    def frame(self) -> str:
        """What a full-screen program has drawn last, without colours."""
        frames = self.output.split(_HOME)
        # The last may be on its way still.
        return _SETTINGS.sub("", frames[-1]).replace("\r", "")

    def until(self, good: Callable[[str], object], what: str, *, seconds: float = DEADLINE_SECONDS) -> str:
        """The first frame that is good."""
        deadline = time.monotonic() + seconds
        while not good(self.frame):
            left = deadline - time.monotonic()
            if left <= 0 or not self._read(left):
                raise AssertionError(f"waited in vain for {what}; on the screen:\n{self.frame}")
        return self.frame

    def ended(self) -> int:
        """Its exit code, once it has ended; then all of its output has been read."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it goes on; on the screen:\n{self.frame}"
            self._read(0.05)
        while self._read(0.05):
            pass
        return self.process.returncode

    def _read(self, seconds: float) -> bool:
        """Did anything come?"""
        ready, _, _ = select.select([self._near], [], [], seconds)
        if ready:
            self.output += self._decode(os.read(self._near, 1 << 16))
        return bool(ready)


@contextmanager
def terminal(
    arguments: Sequence[str], width: int = 120, height: int = 40, **environment: str
) -> Iterator[Terminal]:
    """`python -m queuectl` with these arguments; killed at the end if it still runs."""
    near, far = pty.openpty()
    _resize(near, width, height)
    dropped = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
    inherited = {name: value for name, value in os.environ.items() if name not in dropped}
    process = subprocess.Popen(
        # The terminal is to be its controlling one, as a shell has it.
        [sys.executable, "-c", _TAKE_TERMINAL, sys.executable, "-m", "queuectl", *arguments],
        stdin=far,
        stdout=far,
        stderr=far,
        start_new_session=True,
        env={**inherited, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **environment},
    )
    try:
        yield Terminal(near, far, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(DEADLINE_SECONDS)
        os.close(near)
        os.close(far)


def _resize(descriptor: int, width: int, height: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
