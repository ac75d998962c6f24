"""The sandbox's client of its API server, with the token of one of its identities."""

from __future__ import annotations

import ssl
from types import TracebackType
from typing import Final, Self

from queuectl.kube.account import Bearer
from queuectl.kube.session import Deadlines, Session
from queuectl.kube.transport import HttpTransport

_DEADLINES: Final = Deadlines(unary=30.0)
"""One machine does all the work: answers take longer than in a cluster."""


class Client(Session):
    """`async with Client(url, ssl_context, token) as api:`."""

    def __init__(self, url: str, trust: ssl.SSLContext, token: str) -> None:
        super().__init__(HttpTransport(url, tls=trust), Bearer(token), deadlines=_DEADLINES)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
