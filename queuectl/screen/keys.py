"""Keys from the bytes that a terminal sends for them. Pure."""

from __future__ import annotations

import codecs
import re
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
