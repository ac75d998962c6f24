"""A transport that holds requests back on their way, as a load balancer or a slow webhook may."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import contextmanager
from typing import Any

from queuectl.kube.errors import Unavailable
from queuectl.kube.session import Session

Held = Callable[[], Awaitable[int]]
"""Lets a request arrive that was held back; returns the status of its answer."""


class Holding:
    """While `hold` is set, patches get no answer, and arrive when they are let go."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.hold = False
        self.held: list[Held] = []

    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, *, stream: bool
    ) -> Any:
        async def arrive() -> int:
            answer = await self._inner.request(method, target, headers, body, stream=stream)
            await answer.close()
            return int(answer.status)

        if self.hold and method == "PATCH":
            self.held.append(arrive)
            raise Unavailable("no answer in time")
        return await self._inner.request(method, target, headers, body, stream=stream)

    async def close(self) -> None:
        await self._inner.close()


@contextmanager
def holding(session: Session) -> Any:
    """Requests of `session` go through a Holding until the block ends."""
    inner = session._transport
    session._transport = found = Holding(inner)
    try:
        yield found
    finally:
        session._transport = inner
