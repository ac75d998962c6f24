"""Why a connection failed, in words for people. Libraries add numbers, and names of classes and files."""

from __future__ import annotations

import os
import re
from typing import Final

_CALL: Final = re.compile(r"(?:\[Errno (\d+)\] )?Connect call failed \('([^']*)', (\d+)[^)]*\)")
_CODES: Final = re.compile(r"\[(?:Errno -?\d+|SSL|SSL: \w+|X509|X509: \w+|PEM: \w+)\] | ?\(_ssl\.c:\d+\)")
_WRAPPED: Final = re.compile(r"Cannot connect to host (\S+) ssl:\S+ \[(.*)\]", re.DOTALL)
_ARGUMENTS: Final = re.compile(r"""\w+Error: \(\d+, ['"](.*)['"]\)""", re.DOTALL)
_CLASS: Final = re.compile(r"<\w+Error: |\w+\(")
MOST: Final = 300


def why(error: object) -> str:
    """The reason in an error of a socket, of TLS, of aiohttp or of asyncpg: 1 to `MOST` characters."""
    text = str(error).strip()
    number = getattr(getattr(error, "os_error", None), "errno", None)
    if wrapped := _WRAPPED.fullmatch(text):
        host, text = wrapped.groups()
        if _CALL.fullmatch(text) is None:
            text = f"{host}: {text}"
    text = _CALL.sub(lambda call: _refused(int(call[1] or number or 0), call[2], call[3]), text)
    text = _CODES.sub("", _ARGUMENTS.sub(r"\1", text))
    if not text:
        return "the connection ended"
    if "NO_CERTIFICATE_OR_CRL_FOUND" in str(error):
        return "it has no certificate (PEM)"
    if "Invalid" in type(error).__name__ and "URL" in type(error).__name__.upper():
        return "the URL is not valid"
    if _CLASS.search(text):
        return "the answer is not complete"
    return " ".join(text.split())[:MOST]


def _refused(number: int, host: str, port: str) -> str:
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"{os.strerror(number)} ({address})" if number else f"no connection ({address})"
