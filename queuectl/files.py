"""Reads YAML and JSON files of users. The cost is bounded by the size of the file, also for a hostile one.

Every error names its place: `FILE: line 3, column 5: …`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, NoReturn

from queuectl.kubernetes_yaml import MAX_NESTING, BadYaml, composed, json_number, load, place

MAX_BYTES: Final = 64 << 20


class BadFile(ValueError):
    """The file can't be read. The message is one line that names file, line and column."""


class FileDocument(NamedTuple):
    """One document of a file."""

    content: Any
    """Built-in values: dict, list, str, int, float, bool, None."""
    line: int
    """Where it begins, from 1."""


def read(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Content of a file. Raises BadFile, also for one larger than `max_bytes`."""
    try:
        with path.open("rb") as file:
            return read_open(file, str(path), max_bytes)
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror or error}") from None


def read_open(file: BinaryIO, name: str, max_bytes: int = MAX_BYTES) -> bytes:
    """What is left of an open file, such as standard input. Raises BadFile if it is more than `max_bytes`."""
    text = file.read(max_bytes + 1)
    if len(text) > max_bytes:
        raise BadFile(f"{name}: larger than {max_bytes} bytes")
    return text


def documents(text: bytes, name: str) -> list[FileDocument]:
    """All documents in `text` that are not empty. JSON if `name` ends with .json, else as kubectl reads it.

    Raises BadFile.
    """
    try:
        if name.endswith(".json"):
            return [document for document in _json(text, several=False) if document.content is not None]
        if text.lstrip().startswith(b"{"):
            with suppress(_BadJson):
                return _json(text, several=True)
        return [FileDocument(content, line) for content, line in load(text)]
    except BadYaml as error:
        raise BadFile(f"{name}: line {error.line}, column {error.column}: {error}") from None
    except _BadJson as error:
        raise BadFile(f"{name}: {error}") from None


def listed(content: Any) -> list[Any]:
    """The objects of a `List`, as `kubectl get -o yaml` prints it; the document itself if it is none."""
    if isinstance(content, dict) and isinstance(content.get("items"), list):
        return list(content["items"])
    return [content]


class Places:
    """Lines and columns of the values in one document of `text`."""

    def __init__(self, text: bytes, document: FileDocument) -> None:
        self._text = text
        self._document = document

    def of(self, path: Sequence[int | str]) -> tuple[int, int]:
        """Line and column, from 1, of the value at `path`; for the value of a key, those of the key.

        If there is no value at `path`, the place of the last step that exists.
        """
        return place(self._root, path) if self._root is not None else (self._document.line, 1)

    @cached_property
    def _root(self) -> Any:
        return composed(self._text, self._document.line)


# --- JSON -----------------------------------------------------------------------------------------------


def json_value(text: bytes) -> Any:
    """The only value in a text of JSON, as strict as a file: UTF-8, each key once, numbers that fit.

    Raises ValueError that says what is wrong. It has no place for what is JSON: finding it costs more.
    """
    try:
        content = _DECODER.decode(text.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"byte 0x{text[error.start]:02x} at {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_NESTING}") from None
    refuse_deep(content)
    return content


class _BadJson(ValueError):
    """The message has the place, as far as it is known."""


def _json(text: bytes, *, several: bool) -> list[FileDocument]:
    """The values in a text of JSON, one after another if there may be `several`. Raises _BadJson."""
    found: list[FileDocument] = []
    try:
        shown = text.decode("utf-8-sig")
        at = len(shown) - len(shown.lstrip())
        while at < len(shown) or not found:
            line = shown.count("\n", 0, at) + 1
            content, at = _DECODER.raw_decode(shown, at)
            refuse_deep(content)
            found.append(FileDocument(content, line))
            rest = shown[at:]
            at += len(rest) - len(rest.lstrip())
            if rest.strip() and not several:
                raise json.JSONDecodeError("the file goes on after the end of the value", shown, at)
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise _BadJson(f"line {line}: byte 0x{text[error.start]:02x} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise _BadJson(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        _refuse_as_yaml(text)
        problem = str(error) if type(error) is ValueError else f"nested deeper than {MAX_NESTING}"
        raise _BadJson(problem) from None
    return found


def _refuse_as_yaml(text: bytes) -> None:
    """Refuse the same text as YAML if it can be: that error names the place. Raises _BadJson."""
    try:
        for _ in load(text.replace(b"\t", b" ")):
            pass
    except BadYaml as error:
        raise _BadJson(f"line {error.line}, column {error.column}: {error}") from None


def refuse_deep(content: Any) -> None:
    """Raises ValueError for more than MAX_NESTING levels of lists and objects: what reads them recurses."""
    level = [content]
    for _ in range(MAX_NESTING):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
    if any(isinstance(value, dict | list) for value in level):
        raise ValueError(f"nested deeper than {MAX_NESTING}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        again = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"key {again[:80]!r} is given twice")
    return content


def _number(text: str) -> int | float:
    whole = text.removeprefix("-").isdigit() and len(text) <= 20
    try:
        return json_number(int(text) if whole else float(text))
    except ValueError:
        return _no_number(text)


def _no_number(text: str) -> NoReturn:
    shown = text if len(text) <= 40 else f"{text[:40]}…, of {len(text)} characters,"
    raise ValueError(f"{shown} is not a number that is read here")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_no_number, parse_int=_number, parse_float=_number
)
