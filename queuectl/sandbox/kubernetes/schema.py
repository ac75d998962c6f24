"""Structural schemas: prune, default, validate. CEL, anyOf, allOf, oneOf and not are not evaluated."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import orjson

from queuectl.sandbox.kubernetes.wire import Json, StatusCause, required

_ROOT_FIELDS = ("apiVersion", "kind", "metadata")
_TYPES: dict[str, tuple[type, ...]] = {
    **{"object": (dict,), "array": (list,), "string": (str,)},
    **{"boolean": (bool,), "integer": (int,), "number": (int, float)},
}
_INTEGERS = {"int32": 31, "int64": 63}


def prune(value: Any, schema: Json, path: str = "") -> list[str]:
    """Drop fields that are not in the schema, in place; returns their paths."""
    dropped: list[str] = []
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return dropped
    if isinstance(value, dict):
        kept = _ROOT_FIELDS if not path or schema.get("x-kubernetes-embedded-resource") else ()
        for name in [name for name in value if name not in kept]:
            below = f"{path}.{name}" if path else name
            if (child := _child(schema, name)) is not None:
                dropped += prune(value[name], child, below)
            else:
                del value[name]
                dropped.append(below)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            dropped += prune(item, schema["items"], f"{path}[{index}]")
    return dropped


def default(value: Any, schema: Json) -> None:
    """Fill in defaults, in place. A null where null is not allowed counts as absent."""
    if isinstance(value, dict):
        for name, child in (schema.get("properties") or {}).items():
            absent = name not in value or (value[name] is None and not child.get("nullable"))
            if "default" in child and absent:
                value[name] = deepcopy(child["default"])
            elif name in value and absent:
                del value[name]
        for name, item in value.items():
            if isinstance(item, dict | list) and (child := _child(schema, name)):
                default(item, child)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            default(item, schema["items"])


def validate(value: Any, schema: Json, path: str = "", old: Any = None) -> Iterator[StatusCause]:
    """All problems of `value`, each with the path of its field. What is as in `old`, the stored object, is
    not validated again: ratcheting validation of Kubernetes."""
    if (value is None and schema.get("nullable")) or (old is not None and _same(value, old)):
        return
    if not _has_type(value, schema):
        wanted = schema.get("type", "integer or string")
        found = next((name for name, types in _TYPES.items() if isinstance(value, types)), "null")
        message = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
        yield StatusCause(path, message, "FieldValueTypeInvalid")
        return
    if "enum" in schema and value not in schema["enum"]:
        known = ", ".join(map(_shown, schema["enum"]))
        message = f"Unsupported value: {_shown(value)}: supported values: {known}"
        yield StatusCause(path, message, "FieldValueNotSupported")
    if isinstance(value, dict):
        yield from _object(value, schema, path, old if isinstance(old, dict) else {})
    elif isinstance(value, list):
        yield from _array(value, schema, path)
    elif isinstance(value, str):
        yield from _size(len(value), schema, path, "Length", "chars long")
        pattern = schema.get("pattern")
        if pattern is not None and not re.search(pattern, value):
            yield _body(path, value, f"should match '{pattern}'")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number(value, schema, path)


def _object(value: Json, schema: Json, path: str, old: Json) -> Iterator[StatusCause]:
    for name in schema.get("required") or ():
        if name not in value:
            yield required(f"{path}.{name}" if path else name)
    yield from _size(len(value), schema, path, "Properties", "properties")
    for name, item in value.items():
        child = _child(schema, name) if path or name not in _ROOT_FIELDS else None
        if child is not None:
            yield from validate(item, child, f"{path}.{name}" if path else name, old.get(name))


def _array(value: list[Any], schema: Json, path: str) -> Iterator[StatusCause]:
    yield from _size(len(value), schema, path, "Items", "items")
    for index, item in enumerate(value):
        yield from validate(item, schema.get("items") or {}, f"{path}[{index}]")
    keys = schema.get("x-kubernetes-list-map-keys")
    seen: list[Any] = []
    for index, item in enumerate(value if schema.get("x-kubernetes-list-type") in ("set", "map") else ()):
        identity = [item.get(key) for key in keys] if keys and isinstance(item, dict) else item
        if identity in seen:
            yield StatusCause(
                f"{path}[{index}]", f"Duplicate value: {_shown(identity)}", "FieldValueDuplicate"
            )
        seen.append(identity)


def _number(value: float, schema: Json, path: str) -> Iterator[StatusCause]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and value < low:
        yield _body(path, value, f"should be greater than or equal to {low}")
    if high is not None and value > high:
        yield _body(path, value, f"should be less than or equal to {high}")
    bits = _INTEGERS.get(schema.get("format", ""))
    if bits and not -(2**bits) <= value < 2**bits:
        yield _body(path, value, f"must be of type {schema['format']}")


def _size(count: int, schema: Json, path: str, keyword: str, noun: str) -> Iterator[StatusCause]:
    low, high = schema.get(f"min{keyword}"), schema.get(f"max{keyword}")
    if low is not None and count < low:
        yield _body(path, count, f"should have at least {low} {noun}")
    if high is not None and count > high:
        reason = "FieldValueTooLong" if keyword == "Length" else "FieldValueTooMany"
        yield StatusCause(path, f"Too many: {count}: must have at most {high} {noun}", reason)


def _child(schema: Json, name: str) -> Json | None:
    known: Json | None = (schema.get("properties") or {}).get(name)
    if known is not None:
        return known
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        return extra
    return {"x-kubernetes-preserve-unknown-fields": True} if extra is True else None


def _same(value: Any, other: Any) -> bool:
    """In Python, 1 and True are equal."""
    return bool(value == other) and orjson.dumps(value) == orjson.dumps(other)


def _has_type(value: Any, schema: Json) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, int | str) and not isinstance(value, bool)
    wanted = schema.get("type")
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    known = value is not None if not wanted else isinstance(value, _TYPES[wanted])
    return known and (wanted in (None, "boolean") or not isinstance(value, bool))


def _body(path: str, value: object, message: str) -> StatusCause:
    return StatusCause(path, f"Invalid value: {_shown(value)}: {path} in body {message}")


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
