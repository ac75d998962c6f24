"""The client of the sandbox, objects as players see them, and their clock."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Protocol, Self

from queuectl.kube.account import Bearer
from queuectl.kube.session import Deadlines, Session
from queuectl.kube.transport import HttpResponse, HttpTransport

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


_DEADLINES: Final = Deadlines(unary=30.0)
"""One machine does all the work: answers take longer than in a cluster."""


class _Impersonating(HttpTransport):
    def __init__(self, url: str, trust: ssl.SSLContext, user: str, group: str) -> None:
        super().__init__(url, tls=trust)
        self._as = {"Impersonate-User": user, "Impersonate-Group": group}

    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, *, stream: bool
    ) -> HttpResponse:
        return await super().request(method, target, {**headers, **self._as}, body, stream=stream)


class Client(Session):
    """`async with Client(url, ssl_context, token) as api:`."""

    def __init__(
        self, url: str, trust: ssl.SSLContext, token: str, *, user: str | None = None, group: str = ""
    ) -> None:
        """`user`, `group`: whom the owner of the token impersonates."""
        transport = HttpTransport(url, tls=trust) if user is None else _Impersonating(url, trust, user, group)
        super().__init__(transport, Bearer(token), deadlines=_DEADLINES)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
