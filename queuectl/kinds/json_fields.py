"""Reading fields of untrusted raw JSON, each at a bounded cost.

Errors name the field by its path, such as `spec.template.spec.nodeSelector`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

Json = Mapping[str, Any]
"""An object as the JSON library decodes it."""

MAX_COUNT: Final = 2**31 - 1
"""Largest number of pods in an API object (int32)."""

MAX_TEXT: Final = 512
"""Longest key or value of a map that is read."""

_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)")


class BadField(ValueError):
    """A field is malformed. The message names its path, the value and the limit."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(clean(f"{path}: {problem}", 300))


def clean(text: str, limit: int) -> str:
    """`text` safe for a terminal and for Postgres: no control characters, at most `limit` characters."""
    return _UNPRINTABLE.sub("\ufffd", text[:limit])


def mapping(parent: Json, key: str, path: str) -> Json:
    """The object at `key`; absent and null are empty. Raises BadField."""
    value = parent.get(key)
    if value is None:
        return {}
    if type(value) is not dict and not isinstance(value, Mapping):
        raise BadField(f"{path}.{key}", f"{shown(value)} is not an object")
    return value


def array(parent: Json, key: str, path: str, limit: int) -> Sequence[Any]:
    """The list at `key`; absent and null are empty. Raises BadField, also above `limit` items."""
    value = parent.get(key)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise BadField(f"{path}.{key}", f"{shown(value)} is not a list")
    if len(value) > limit:
        raise BadField(f"{path}.{key}", f"{len(value)} items, at most {limit} are read")
    return value


def objects(parent: Json, key: str, path: str, limit: int) -> Sequence[Json]:
    """The list of objects at `key`. Raises BadField."""
    found = array(parent, key, path, limit)
    for index, value in enumerate(found):
        if not isinstance(value, Mapping):
            raise BadField(f"{path}.{key}[{index}]", f"{shown(value)} is not an object")
    return found


def integer(
    parent: Json, key: str, path: str, *, default: int | None, low: int = 0, high: int = MAX_COUNT
) -> int:
    """The whole number at `key`, `default` if absent or null; without a default it is required.

    Raises BadField, also outside low..high.
    """
    value = parent.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadField(f"{path}.{key}", f"{shown(value)} is not a whole number")
    if not low <= value <= high:
        raise BadField(f"{path}.{key}", f"{shown(value)} is outside {low} to {high}")
    return value


def text(parent: Json, key: str, path: str, *, limit: int = MAX_TEXT) -> str | None:
    """The text at `key`, None if absent, null or empty. Raises BadField, also for unprintable text."""
    value = parent.get(key)
    return checked(value, f"{path}.{key}", limit) or None if value is not None else None


def checked(value: object, path: str, limit: int = MAX_TEXT) -> str:
    """`value`, if it is printable text of at most `limit` characters. Raises BadField."""
    if not isinstance(value, str):
        raise BadField(path, f"{shown(value)} is not text")
    if len(value) > limit:
        raise BadField(path, f"{len(value)} characters, at most {limit} are read")
    if _UNPRINTABLE.search(value):
        raise BadField(path, f"{shown(value)} holds control characters")
    return value


def pairs(parent: Json, key: str, path: str, limit: int) -> tuple[tuple[str, str], ...]:
    """The map of text to text at `key`, sorted. Raises BadField."""
    found = mapping(parent, key, path)
    if len(found) > limit:
        raise BadField(f"{path}.{key}", f"{len(found)} entries, at most {limit} are read")
    where = f"{path}.{key}"
    return tuple(sorted((checked(name, where), checked(value, where)) for name, value in found.items()))


def timestamp(value: object, path: str) -> datetime:
    """An RFC 3339 time, in UTC. Raises BadField."""
    if isinstance(value, str) and _TIMESTAMP.fullmatch(value):
        try:
            return datetime.fromisoformat(value).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise BadField(path, f"{shown(value)} is not a time")


def time_or_none(value: object) -> datetime | None:
    """An RFC 3339 time, in UTC; None for anything else."""
    try:
        return timestamp(value, "")
    except BadField:
        return None


def shown(value: object) -> str:
    """A short form of `value`, whatever its size."""
    if isinstance(value, str):
        return repr(value[:40])
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    return kind_of(value) if not isinstance(value, bool) else str(value).lower()


_KINDS: Final[tuple[tuple[type, str], ...]] = (
    (bool, "a boolean"),
    (str, "text"),
    (int, "a number"),
    (float, "a number"),
    (type(None), "null"),
    (Sequence, "a list"),
    (Mapping, "an object"),
)


def kind_of(value: object) -> str:
    """What a value of JSON is, in words: `text`, `a list`."""
    return next((word for kind, word in _KINDS if isinstance(value, kind)), "a value")


def object_name(obj: Json) -> str:
    """The name of a cluster-scoped object. Raises BadField."""
    return checked(mapping(obj, "metadata", "").get("name"), "metadata.name")


def namespaced_name(obj: Json) -> str:
    """`namespace/name` of an object. Raises BadField."""
    metadata = mapping(obj, "metadata", "")
    return "/".join(checked(metadata.get(key), f"metadata.{key}") for key in ("namespace", "name"))
