"""Reasons without the names of workloads in namespaces that a reader may not read."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace
from typing import Final

from queuectl.core.reasons import Code, Reason, RejectedCandidate

Readable = Container[str]
"""Namespaces whose workloads the reader may read."""
_BY_USERS: Final = frozenset({Code.USER_HOLD, Code.BYPASS})
"""Codes where `by` is a user; for all others it is a workload, written with its namespace first."""


def redacted(value: Reason, readable: Readable) -> Reason:
    """Return the reason without names of workloads that the reader may not read."""
    if value.by is None and not value.victims and not value.others:
        return value
    if all(namespace in readable for namespace in named_in(value)):
        return value
    others = tuple(redacted(other, readable) for other in value.others)
    victims = tuple(
        one if _namespace_of(one) in readable else RejectedCandidate(None, one.why) for one in value.victims
    )
    value = replace(value, others=others, victims=victims)
    namespace = _namespace_named(value)
    if namespace is None or namespace in readable:
        return value
    return replace(value, by=None, detail=None)


def named_in(*reasons: Reason | None) -> Iterator[str]:
    """Yield the namespaces of the workloads that the reasons name."""
    for found in reasons:
        if found is not None:
            if (namespace := _namespace_named(found)) is not None:
                yield namespace
            yield from (_namespace_of(one) for one in found.victims if one.who is not None)
            yield from named_in(*found.others)


def _namespace_named(value: Reason) -> str | None:
    return None if value.by is None or value.code in _BY_USERS else value.by.partition("/")[0]


def _namespace_of(one: RejectedCandidate) -> str:
    return (one.who or "").partition("/")[0]
