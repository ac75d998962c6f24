"""Reads YAML and JSON files of users. The cost is bounded by the size of the file, also for a hostile one.

Every error names its place: `FILE: line 3, column 5: …`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import yaml

MAX_NESTING: Final = 32
MAX_BYTES: Final = 64 << 20


class BadFile(ValueError):
    """The file can't be read. The message is one line that names file, line and column."""


class Document(NamedTuple):
    """One document of a file."""

    content: Any
    """Built-in values: dict, list, str, int, float, bool, None."""
    line: int
    """Where it begins, from 1."""


def read(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Content of a file. Raises BadFile, also for one larger than `max_bytes`."""
    try:
        with path.open("rb") as file:
            text = file.read(max_bytes + 1)
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror or error}") from None
    if len(text) > max_bytes:
        raise BadFile(f"{path}: larger than {max_bytes} bytes")
    return text


def documents(text: bytes, name: str) -> list[Document]:
    """All documents in `text` that are not empty. JSON if `name` ends with .json, else YAML.

    Raises BadFile.
    """
    try:
        return _json(text) if name.endswith(".json") else list(_yaml(text))
    except yaml.YAMLError as error:
        raise BadFile(f"{name}: {_problem(error)}") from None
    except json.JSONDecodeError as error:
        raise BadFile(f"{name}: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise BadFile(f"{name}: nested too deep") from None
    except ValueError as error:  # not UTF-8, a number with too many digits, a date that does not exist
        raise BadFile(f"{name}: {error}") from None


def listed(content: Any) -> list[Any]:
    """The objects of a `List`, as `kubectl get -o yaml` prints it; the document itself if it is none."""
    if isinstance(content, dict) and isinstance(content.get("items"), list):
        return list(content["items"])
    return [content]


class Places:
    """Lines and columns of the values in one document of `text`."""

    def __init__(self, text: bytes, document: Document) -> None:
        self._text = text
        self._document = document

    def of(self, path: Sequence[int | str]) -> tuple[int, int]:
        """Line and column, from 1, of the value at `path`; for the value of a key, those of the key.

        If there is no value at `path`, the place of the last step that exists.
        """
        if self._root is None:
            return self._document.line, 1
        mark = _followed(self._root, path).start_mark
        return mark.line + 1, mark.column + 1

    @cached_property
    def _root(self) -> yaml.Node | None:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            for node in yaml.compose_all(_spaced(self._text), Loader=loader):
                if node is not None and node.start_mark.line + 1 >= self._document.line:
                    return node
        except (yaml.YAMLError, RecursionError):
            pass  # JSON that is not valid YAML
        return None


def _followed(node: yaml.Node, path: Sequence[int | str]) -> yaml.Node:
    shown = node
    for step in path:
        if isinstance(node, yaml.MappingNode):
            found = next((pair for pair in node.value if pair[0].value == str(step)), None)
            if found is None:
                break
            shown, node = found
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            shown = node = node.value[step]
        else:
            break
    return shown


def _spaced(text: bytes) -> bytes:
    """Tabs are white space in JSON, but not in YAML."""
    return text.removeprefix(b"\xef\xbb\xbf").replace(b"\t", b" ")


def _json(text: bytes) -> list[Document]:
    try:
        content = json.loads(text.decode("utf-8-sig"), object_pairs_hook=_object, parse_constant=_no_number)
        _refuse_deep(content)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except (ValueError, RecursionError):
        list(_yaml(_spaced(text)))  # parse the same text as YAML: its errors name the place
        raise
    return [] if content is None else [Document(content, 1)]


def _refuse_deep(content: Any) -> None:
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
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        again = next(key for number, key in enumerate(keys) if key in keys[:number])
        raise ValueError(f"key {again!r} is given twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _yaml(text: bytes) -> Iterator[Document]:
    _check_shape(text)
    loader = _UniqueKeys(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node is not None
            content = loader.construct_document(node)
            if content is not None:
                yield Document(content, node.start_mark.line + 1)
    finally:
        loader.dispose()


def _check_shape(text: bytes) -> None:
    """Refuse aliases and deep nesting before any value is built."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            _refuse("aliases are not used here: write the value out", event)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_NESTING:
            _refuse(f"nested deeper than {MAX_NESTING}", event)


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a key that is given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen if isinstance(key, yaml.ScalarNode) else True:
                _refuse(f"key {key.value!r} is given twice or is not text", key)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _refuse(problem: str, at: Any) -> NoReturn:
    """`at`: an event or node of YAML with its place."""
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)


def _problem(error: yaml.YAMLError) -> str:
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    problem = error.problem if isinstance(error, yaml.MarkedYAMLError) else str(error)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    context = error.context if isinstance(error, yaml.MarkedYAMLError) else None
    return where + " ".join(f"{f'{context}: ' if context else ''}{problem}".split())
