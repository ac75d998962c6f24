"""Label and field selectors of a request."""

from __future__ import annotations

import re
from collections.abc import Callable

from queuectl.kinds.selectors import label_selector
from queuectl.sandbox.kubernetes.builtin import to_stored_path
from queuectl.sandbox.kubernetes.resources import ServedKind
from queuectl.sandbox.kubernetes.store import Stored
from queuectl.sandbox.kubernetes.wire import Json, StatusError

Match = Callable[[Stored], bool]

_REQUIREMENT = re.compile(r"([^!=\s(),]+)\s*(==|=|!=)\s*([^!=\s()]*)")


def selection(kind: ServedKind, labels: str, fields: str) -> Match | None:
    """None selects everything. Raises StatusError 400 if it can't be parsed or is not supported."""
    parts = [_labels(labels)] if labels.strip(" ,") else []
    parts += [_field(kind, part.strip()) for part in fields.split(",") if part.strip()]
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else lambda stored: all(part(stored) for part in parts)


def _labels(text: str) -> Match:
    try:
        selects = label_selector(text)
    except ValueError as problem:
        raise StatusError(400, str(problem)) from None
    return lambda stored: selects(stored.labels)


def _field(kind: ServedKind, text: str) -> Match:
    found = _REQUIREMENT.fullmatch(text)
    if not found:
        raise StatusError(400, f"invalid selector: '{text}'; can't understand '{text}'")
    path, value, equal = found[1], found[3], found[2] != "!="
    if path == "metadata.name":
        return lambda stored: (stored.key[1] == value) is equal
    if path == "metadata.namespace":
        return lambda stored: (stored.key[0] == value) is equal
    if path not in kind.fields:
        raise StatusError(400, f"field label not supported: {path}")
    stored_path = to_stored_path(kind, path)
    return lambda stored: (shown(at_path(stored.read(), stored_path)) == value) is equal


def at_path(obj: Json, path: str) -> object:
    """The value at a dotted path, None if there is none."""
    value: object = obj
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def shown(value: object) -> str:
    """The value as in a selector or a table cell."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
