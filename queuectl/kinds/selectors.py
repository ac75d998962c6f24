"""Label selectors as text, such as `team=vision,tier in (a, b),!draft`, with the meaning of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

Selects = Callable[[Mapping[str, str]], bool]

_REQUIREMENT: Final = re.compile(
    r"(?P<not>!?)\s*(?P<key>[^!=\s(),]+)"
    r"(?:\s*(?P<op>==|=|!=)\s*(?P<value>[^!=\s(),]*)|\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?"
)
_COMMA: Final = re.compile(r",(?![^(]*\))")


def label_selector(text: str) -> Selects:
    """Whether labels match all requirements of `text`; without any it matches all labels.

    Raises ValueError that names the requirement.
    """
    parts = [_requirement(part.strip()) for part in _COMMA.split(text)] if text.strip() else []
    return lambda labels: all(part(labels) for part in parts)


def _requirement(text: str) -> Selects:
    found = _REQUIREMENT.fullmatch(text)
    operator = found and (found["op"] or found["set"])
    if not found or (found["not"] and operator):
        raise ValueError(f"unable to parse requirement: {text[:80]!r} is not a label selector")
    key = found["key"]
    if not operator:
        wanted = not found["not"]
        return lambda labels: (key in labels) is wanted
    values = {value.strip() for value in found["values"].split(",")} if found["set"] else {found["value"]}
    negative = operator in ("!=", "notin")
    return lambda labels: (labels.get(key) in values) is not negative
