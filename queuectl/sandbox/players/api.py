"""Objects of the API as players see them, and their clock."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

Object = dict[str, Any]
"""A Kubernetes object, or another JSON body of the API."""


class Clock(Protocol):
    """The clock of players."""

    def now(self) -> datetime:
        """Aware, UTC."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock."""


def stamp(moment: datetime) -> str:
    """A time in the form of the API: RFC 3339, whole seconds, Z."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> datetime:
    """The time of an object's field."""
    return datetime.fromisoformat(text)


def key_of(thing: Object) -> str:
    """`namespace/name`, or `name` for a cluster-scoped object."""
    metadata = thing["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def version_of(thing: Object) -> int:
    """resourceVersion as a number."""
    return int(thing["metadata"].get("resourceVersion") or 0)
