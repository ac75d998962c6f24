"""Keys from a terminal as they are pressed. The terminal is always restored."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import sys
import termios
import tty
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

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


_ESCAPE: Final = "\x1b"
_SEQUENCES: Final = {
    "": "escape",  # another escape follows at once
    "[A": "up",
    "[B": "down",
    "[C": "right",
    "[D": "left",
    "OA": "up",
    "OB": "down",
    "OC": "right",
    "OD": "left",
    "[H": "home",
    "[F": "end",
    "OH": "home",
    "OF": "end",
    "[1~": "home",
    "[4~": "end",
    "[7~": "home",
    "[8~": "end",
    "[5~": "pageup",
    "[6~": "pagedown",
    "[Z": "backtab",
}
_PLAIN: Final = {
    "\t": "tab",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x04": "q",  # end of input
    "\x06": "pagedown",
    "\x02": "pageup",
}
_KEY: Final = re.compile(
    r"(?P<character>[^\x1b]) | \x1b (?: \[ [^\x40-\x7e]* [\x40-\x7e] | O . | (?=\x1b) | [^\x1b\[O] )",
    re.DOTALL | re.VERBOSE,
)
"""A character, or a sequence that is complete."""
_LONGEST: Final = 32
"""An escape sequence that does not end within this number of characters is dropped."""


class Decoder:
    """From chunks of bytes to keys, by name or as the character itself."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    @property
    def waiting(self) -> bool:
        """Do the last bytes end inside a possible sequence?"""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        text = self._rest + self._decode(data)
        keys: list[str] = []
        end = 0
        while match := _KEY.match(text, end):
            end = match.end()
            if match["character"] is not None:
                keys.append(_PLAIN.get(match[0], match[0]))
            elif (key := _SEQUENCES.get(match[0][1:])) is not None:
                keys.append(key)
        self._rest = text[end:] if len(text) - end <= _LONGEST else ""
        return keys

    def flush(self) -> list[str]:
        """No bytes followed: the possible beginning of a sequence was the escape key."""
        keys = ["escape"] if self._rest == _ESCAPE else []
        self._rest = ""
        return keys
