"""The base class of the models of what an admin writes, and what models refuse, as messages of this project.

It is the one place that reads errors of pydantic.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from queuectl.kinds.json_fields import clean, kind_of

Path = tuple[int | str, ...]

_SHOWN: Final = 60
_MOST_FIELDS: Final = 100
"""Of an object in which a mistyped field is looked for."""
_KEY: Final = "[key]"
_SECRET: Final = re.compile(r"(?i)url|password|token|secret|key$")
# By type of error; the names in braces are those of its context.
_MESSAGES: Final[Mapping[str, str]] = {
    "missing": "is missing",
    "extra_forbidden": "there is no such field",
    "none_required": "must be null",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "finite_number": "must be a finite number",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "invalid_key": "a key must be text",
}
# By the first words of the type of error.
_EXPECTED: Final = (
    (("int",), "a whole number"),
    (("float", "decimal"), "a number"),
    (("bool",), "true or false"),
    (("string", "bytes"), "text"),
    (("list", "tuple", "set", "frozen_set", "iterable"), "a list"),
    (("dict", "mapping", "model", "dataclass"), "an object"),
    (("date", "time", "timezone"), "a time such as 2026-01-01T10:00:00Z"),
    (("url",), "a URL"),
    (("union", "tagged"), "one of the forms that are allowed here"),
)


class InvalidValue(NamedTuple):
    """One value that is refused."""

    path: Path
    """Of the field, as in the text that was read."""
    text: str
    """What is expected, after the value where that helps."""
    type: str
    """Type of the error, for those that treat some alike."""


def problems_of(error: ValidationError) -> list[InvalidValue]:
    """All of them, in the order of the models. Branches of a union are one problem of the field."""
    merged: dict[Path, list[Any]] = {}
    for one in error.errors(include_url=False):
        merged.setdefault(_field(one["loc"]), []).append(one)
    return [
        InvalidValue(path, _union(found) if len(found) > 1 else _text(found[0]), found[0]["type"])
        for path, found in merged.items()
    ]


def dotted(path: Sequence[int | str]) -> str:
    """`spec.resourceGroups[0].flavors`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return clean(text.removeprefix("."), 200)


def shown(value: object) -> str:
    """The value in a message: text and numbers as they are, others in words."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return clean(repr(value)[:_SHOWN], _SHOWN)
    return kind_of(value)


def _field(location: Path) -> Path:
    """Without the names of a union's branches, such as `int` and `function-after[check(), str]`, and without
    the mark of a key."""
    return tuple(step for step in location if not (isinstance(step, str) and _BRANCH.fullmatch(step)))


_BRANCH: Final = re.compile(
    r"\[key\]|int|str|float|bool|none|list\[.*|dict\[.*|tuple\[.*|(?:function-|constrained-|literal\[|is-instance|lax-or).*"
    r"|json-or-python.*|nullable.*|[A-Z][A-Za-z]*(?:Object|Spec|Section|Settings|Document)"
)


def _union(found: list[Any]) -> str:
    """Where the value has the form of one branch, the problem of that one."""
    own = [one for one in found if not one["type"].endswith(("_type", "_parsing", "_from_float"))]
    if own:
        return _text(own[0])
    expected = dict.fromkeys(_expected(one["type"]) for one in found)
    return f"{_value(found[0])}must be {' or '.join(expected)}"


def _text(error: Any) -> str:
    kind, context = error["type"], error.get("ctx") or {}
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", "is not allowed here"))
    if kind == "missing":
        return _MESSAGES[kind] + _mistyped(error)
    if kind == "extra_forbidden":
        return _MESSAGES[kind]
    if kind == "too_short" and context.get("min_length") == 1:
        return "must not be empty"
    if kind in _MESSAGES:
        limits = {name: _whole(limit) for name, limit in context.items()}
        return f"{_value(error)}{_MESSAGES[kind].format(**limits)}"
    return f"{_value(error)}must be {_expected(kind)}"


def _whole(limit: object) -> object:
    """A limit of the form `0.0` as `0`."""
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def _mistyped(error: Any) -> str:
    """The field of a similar name in the object that lacks this one; empty if there is none."""
    name, holder = error["loc"][-1], error["input"]
    if not isinstance(holder, Mapping) or len(holder) > _MOST_FIELDS:
        return ""
    written = {str(key)[:_SHOWN].lower(): str(key)[:_SHOWN] for key in holder}
    near = get_close_matches(str(name).lower(), written, n=1, cutoff=0.8)
    return f" ({clean(written[near[0]], _SHOWN)} is given: did you mean {name}?)" if near else ""


def _value(error: Any) -> str:
    """The value of an error and a colon; nothing for what may be a secret."""
    name = next((step for step in reversed(error["loc"]) if isinstance(step, str)), "")
    if name == _KEY:
        return f"the key {shown(error['input'])} "
    return "" if _SECRET.search(name) else f"{shown(error['input'])}: "


def _expected(kind: str) -> str:
    return next((word for starts, word in _EXPECTED if kind.startswith(starts)), "of another form")


class Section(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,
    )
