"""Keys from the bytes that a terminal sends for them. Pure."""

from __future__ import annotations

import codecs
from typing import Final

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
        at = 0
        while at < len(text):
            if text[at] != _ESCAPE:
                keys.append(_PLAIN.get(text[at], text[at]))
                at += 1
                continue
            end = _end(text, at)
            if end is None:
                break
            if (key := _SEQUENCES.get(text[at + 1 : end])) is not None:
                keys.append(key)
            at = end
        self._rest = text[at:] if len(text) - at <= _LONGEST else ""
        return keys

    def flush(self) -> list[str]:
        """No bytes followed: the possible beginning of a sequence was the escape key."""
        found = ["escape"] if self._rest == _ESCAPE else []
        self._rest = ""
        return found


def _end(text: str, at: int) -> int | None:
    """The end of the sequence that begins with the escape at `at`; None: it is not in this text."""
    if at + 1 >= len(text):
        return None
    if text[at + 1] == "O":
        return at + 3 if at + 2 < len(text) else None
    if text[at + 1] != "[":
        return at + 2 if text[at + 1] != _ESCAPE else at + 1
    for end in range(at + 2, len(text)):
        if "\x40" <= text[end] <= "\x7e":
            return end + 1
    return None
