"""Amounts of policy objects, and what is raised for one that cannot be obeyed."""

from __future__ import annotations

from typing import Final

from queuectl.core.model.resources import BadQuantity, parse_quantity

_DIVISIBLE: Final = ("cpu", "memory", "ephemeral-storage")


class BadPolicy(ValueError):
    """A policy object breaks a rule. The message names the field, the value and the limit."""


def amount_of(value: int | str, resource: str, path: str) -> int:
    """Return the value of field `path` in base units. Raises BadPolicy."""
    try:
        amount = parse_quantity(value, resource)
    except BadQuantity as problem:
        raise BadPolicy(f"{path}: {problem}") from None
    if amount < 0:
        raise BadPolicy(f"{path}: {value} must be at least 0")
    divisible = resource in _DIVISIBLE or resource.startswith("hugepages-")
    if not divisible and isinstance(value, str) and ("." in value or value.endswith("m")):
        raise BadPolicy(f"{path}: {value} must be a whole number: {resource} can't be divided")
    return amount


def listed_once(seen: dict[tuple[str, str], str], item: tuple[str, str], path: str) -> None:
    """Note that `item` is at field `path`. Raises BadPolicy if it is elsewhere already."""
    first = seen.setdefault(item, path)
    if first != path:
        raise BadPolicy(f"{path}: {item[0]} {item[1]} is at {first} already")
