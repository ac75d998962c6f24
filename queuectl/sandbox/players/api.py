"""The Kubernetes API for players: JSON objects by path, and a watch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Final, Protocol

Object = dict[str, Any]
"""A Kubernetes object, or another JSON body of the API."""

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"


class PlayerRequestError(Exception):
    """The server refused the request, or did not answer (status 0)."""

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    @property
    def gone(self) -> bool:
        """There is no such object; of a watch, its version is too old."""
        return self.status in (404, 410)


class Api(Protocol):
    """A client of the API server with one identity."""

    async def request(
        self,
        method: str,
        path: str,
        body: Object | list[Object] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """The body of a 2xx answer. Raises ApiError."""

    def watch(
        self, path: str, *, query: Mapping[str, str]
    ) -> AbstractAsyncContextManager[AsyncIterator[Object]]:
        """The events of a watch, each {type, object}, until the server ends it. Raises ApiError."""


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
