"""An API server that gives the answers of a test's script, request by request."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from aiohttp import web

from queuectl.core.model.events import Event, Listed, WorkloadGone, WorkloadObserved
from queuectl.kube.reflector import Timings
from queuectl.kube.reflectors import Reflectors, reflectors
from queuectl.kube.session import Deadlines, Session
from queuectl.kube.sources import Source, sources
from queuectl.kube.transport import HttpTransport
from tests.job_kinds import JOB_KINDS

QUICK = Timings(watch=4, silence=5, relist=600, absent=0.02, backoff=0.004, backoff_limit=0.02)
Body = Callable[[web.StreamResponse], Awaitable[None]]


def job(name: str, version: int) -> dict[str, Any]:
    """A labelled Job whose UID is its name."""
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": name,
            "resourceVersion": str(version),
            "creationTimestamp": "2026-11-21T10:00:00Z",
            "labels": {"queuectl.dev/queue-name": "main"},
        },
        "spec": {"suspend": True, "template": {"spec": {"containers": [{}]}}},
    }


def line(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    return line("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def gone() -> bytes:
    return line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})


class Scripted:
    """Answers from `lists` and `watches`, one by one; after that the last list and an open, silent watch."""

    def __init__(self) -> None:
        self.lists: deque[tuple[int, Any, dict[str, str]]] = deque()
        self.watches: deque[Body | int] = deque()
        self.asked: list[dict[str, str]] = []
        """Queries, in order."""
        self.tokens: list[str | None] = []
        self.url = ""
        self._last: tuple[int, Any, dict[str, str]] = (
            200,
            {"metadata": {"resourceVersion": "1"}, "items": []},
            {},
        )
        self._open = asyncio.Event()

    def listing(self, version: int, *jobs: dict[str, Any], more: str = "") -> None:
        metadata = {"resourceVersion": str(version), "continue": more}
        self.lists.append((200, {"metadata": metadata, "items": list(jobs)}, {}))

    def refuse(self, status: int, message: str = "no", **headers: str) -> None:
        body = {"kind": "Status", "message": message, "code": status}
        self.lists.append((status, body, {name.replace("_", "-"): value for name, value in headers.items()}))

    def watch(self, *chunks: bytes, stay: bool = False) -> None:
        """A watch that sends `chunks` one after another, then ends, or stays open and silent."""

        async def body(response: web.StreamResponse) -> None:
            for chunk in chunks:
                await response.write(chunk)
                await asyncio.sleep(0)
            if stay:
                await self._open.wait()

        self.watches.append(body)

    @property
    def watched(self) -> list[str]:
        """Versions from which watches were requested."""
        return [query["resourceVersion"] for query in self.asked if "watch" in query]

    @property
    def listed(self) -> int:
        return sum("watch" not in query for query in self.asked)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        self.tokens.append(request.headers.get("Authorization"))
        if "watch" not in request.query:
            self._last = self.lists.popleft() if self.lists else self._last
            status, body, headers = self._last
            return web.json_response(body, status=status, headers=headers)
        body = self.watches.popleft() if self.watches else None
        if isinstance(body, int):
            return web.json_response({"message": "no", "code": body}, status=body)
        response = web.StreamResponse()
        await response.prepare(request)
        if body is None:
            await self._open.wait()
        else:
            await body(response)
        return response

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self.url
        finally:
            self._open.set()
            await runner.cleanup()


class Watching:
    """Running reflectors, and the events they sent."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.reflectors: Reflectors | None = None

    async def until(self, condition: Callable[[], bool]) -> None:
        """Raises TimeoutError after 5 seconds."""
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.002)

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def told(seen: Watching) -> list[str]:
    """Events in order: `a@1` seen at that version, `-a` gone, `[a b]` all listed."""
    found = []
    for event in seen.events:
        if isinstance(event, WorkloadObserved):
            found.append(f"{event.workload.id}@{event.observation.resource_version}")
        elif isinstance(event, WorkloadGone):
            found.append(f"-{event.workload}")
        elif isinstance(event, Listed):
            found.append("absent" if event.workloads is None else f"[{' '.join(sorted(event.workloads))}]")
    return found


def source(name: str) -> Source[Event]:
    return next(source for source in sources(JOB_KINDS) if source.name == name)


@asynccontextmanager
async def watching(
    script: Scripted,
    watched: Source[Event] | None = None,
    *,
    timings: Timings = QUICK,
    kind: str = "Job",
    identity: Any = None,
) -> AsyncIterator[Watching]:
    """A reflector of `watched`, else of `kind`, on the scripted server until the block ends."""
    seen = Watching()
    async with script.serve() as url:
        session = Session(HttpTransport(url), identity, deadlines=Deadlines(unary=2, page=2))
        seen.reflectors = reflectors(
            session, seen.events.extend, [watched or source(kind)], random=Random(1), timings=timings
        )
        try:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(seen.reflectors.run())
                yield seen
                task.cancel()
        finally:
            await session.close()
