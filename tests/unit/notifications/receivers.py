"""An HTTP receiver and a mail server, on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Hook:
    """Answers with the next of `answers`, and then with 200."""

    url: str = ""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append((dict(request.headers), await request.read()))
        self.news.set()
        status, headers = self.answers.pop(0) if self.answers else (200, {})
        return web.Response(status=status, headers=headers)

    async def until(self, number: int) -> None:
        """Wait for so many requests."""
        async with asyncio.timeout(30):
            while len(self.requests) < number:
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def hook() -> AsyncIterator[Hook]:
    found = Hook()
    app = web.Application()
    app.router.add_post("/{path:.*}", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        found.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        yield found
    finally:
        await runner.cleanup()


@dataclass
class MailServer:
    """Enough of SMTP: refuses the receivers in `refuses`; without TLS and passwords."""

    port: int = 0
    refuses: frozenset[str] = frozenset()
    mails: list[bytes] = field(default_factory=list)
    receivers: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while line := (await reader.readline()).decode().strip():
            command = line.upper()
            if command.startswith("RCPT"):
                receiver = line.partition("<")[2].rstrip(">")
                refused = receiver in self.refuses
                self.receivers += [] if refused else [receiver]
                writer.write(b"550 no\r\n" if refused else b"250 ok\r\n")
            elif command == "DATA":
                writer.write(b"354 go on\r\n")
                self.mails.append(await reader.readuntil(b"\r\n.\r\n"))
                writer.write(b"250 ok\r\n")
            elif command == "QUIT":
                writer.write(b"221 bye\r\n")
                break
            else:
                writer.write(b"250 ok\r\n")
        await writer.drain()
        writer.close()


@asynccontextmanager
async def mail_server(*refuses: str) -> AsyncIterator[MailServer]:
    found = MailServer(refuses=frozenset(refuses))
    async with await asyncio.start_server(found.serve, "127.0.0.1", 0) as server:
        found.port = server.sockets[0].getsockname()[1]
        yield found
