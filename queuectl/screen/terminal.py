"""Keys from a terminal as they are pressed. The terminal is always restored."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
import tty
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from queuectl.screen.keys import Decoder

_READ_BYTES: Final = 1024
_ESCAPE_SECONDS: Final = 0.05
"""Longest pause inside one escape sequence, on slow connections."""


def can_show() -> bool:
    """Is it an interactive terminal with cursor control, with this program in the foreground?"""
    if not sys.stdout.isatty() or os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        return False
    try:
        # In the background, the first change of the terminal would stop the program.
        return os.tcgetpgrp(sys.stdout.fileno()) == os.getpgrp()
    except OSError:
        return False


class Keyboard:
    """`with Keyboard(fd, pressed):` in a running loop. `pressed` is called with the name of each key.

    Ctrl-C and Ctrl-Z remain signals.
    """

    def __init__(self, descriptor: int, pressed: Callable[[str], None]) -> None:
        self._descriptor = descriptor
        self._pressed = pressed
        self._decoder = Decoder()
        self._before: list[object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self.take()
        asyncio.get_running_loop().add_reader(self._descriptor, self._read)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deaf()
        self.give_back()

    def take(self) -> None:
        """No echo, no line buffering."""
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor, termios.TCSADRAIN)

    def give_back(self) -> None:
        if self._before is not None:
            with contextlib.suppress(termios.error):  # the terminal may be closed
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]
            self._before = None

    def _deaf(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except OSError:
            data = b""
        if not data:  # the terminal was closed
            self._deaf()
            return
        self._tell(self._decoder.feed(data))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._decoder.waiting:
            self._timer = asyncio.get_running_loop().call_later(_ESCAPE_SECONDS, self._flush)

    def _flush(self) -> None:
        self._timer = None
        self._tell(self._decoder.flush())

    def _tell(self, keys: list[str]) -> None:
        for key in keys:
            self._pressed(key)
