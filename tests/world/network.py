"""The network between processes and the small API: delays, refusals, answers that are lost, watches that lag.

A request that was sent arrives, whatever becomes of its sender meanwhile. Everything here is within the
contract of a Kubernetes API server and its network.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from functools import lru_cache
from random import Random
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from queuectl.kube.errors import Unavailable
from queuectl.kube.session import rbac_names
from queuectl.sandbox.kubernetes.handler import RequestHandler
from queuectl.sandbox.kubernetes.wire import Request, ServerResponse, StatusError
from tests.world.crash_points import BEFORE, LANDED, LOST, STOPPED, Points
from tests.world.faults import Fault, answer_with, fail, first_met
from tests.world.loop import VirtualLoop
from tests.world.schedule import (
    DISCOVERY_FAULTS,
    INVALID,
    REPLICAS,
    REQUEST_FAULTS,
    STATUS_FAULTS,
    UNAUTHORIZED,
    WATCH_FAULTS,
    WRITE_FAULTS,
)

_CODES: Final = {
    **{"conflict": 409, "forbidden": 403, "denied": 403},
    **{"throttled": 429, "error": 500, "statuses fail": 500},
    **{UNAUTHORIZED: 401, INVALID: 422},
}
_OF_WATCHES: Final = (UNAUTHORIZED, "forbidden", "throttled", "error", "slow", "hang", "late", "away")
"""Faults of the requests that begin watches."""
_LEASES: Final = "leases"
_LONGEST: Final = 40.0
"""Seconds after which a request that hangs or is late arrives."""


@lru_cache(2_048)
def _parts(target: str) -> tuple[str, Mapping[str, str], str]:
    """Path, query and resource of a request."""
    parts = urlsplit(target)
    _, resource = rbac_names("GET", target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return unquote(parts.path), query, resource.partition("/")[0]


@lru_cache(2_048)
def _date(time: datetime) -> str:
    return format_datetime(time, usegmt=True)


@dataclass(eq=False)
class Network:
    loop: VirtualLoop
    api: RequestHandler
    random: Random
    clock: Callable[[], datetime]
    """The API server's."""
    on_request: Callable[[str, Request], None] = lambda client, request: None
    """Called when a request arrives."""
    points: Points = field(default_factory=Points)
    on_fault: Callable[[str, str], None] = lambda kind, resource: None
    """Called when a fault concerns a request for a resource."""

    def __post_init__(self) -> None:
        self.faults: list[Fault] = []
        self.closed = False
        self.sender: str | None = None
        """Whose request is being handled."""
        self.sent = 0
        self.gone_by_status = self.random.random() < 0.5
        """A watch from a version that has expired is refused with 410, not begun with an ERROR event: servers
        do either."""
        self._thread = self.loop.thread("network")

    def fault(self, client: str, resource: str, kinds: tuple[str, ...]) -> str | None:
        """The fault that concerns this request, if any."""
        possible = (one for one in self.faults if one.kind in kinds and (one.leases or resource != _LEASES))
        met = first_met(possible, client, self.loop.time(), self.random)
        if met is None:
            return None
        if client in REPLICAS:
            self.on_fault(met.kind, resource)
        return met.kind

    def close(self) -> None:
        """Nothing is answered from now on."""
        self.closed = True

    def send(  # noqa: C901 (one request, from its sender to its answer)
        self, client: str, request: Request, resource: str, watch: bool
    ) -> asyncio.Future[ServerResponse]:
        """Raises Unavailable, in the future, if there is no answer."""
        answer: asyncio.Future[ServerResponse] = self.loop.create_future()
        own: tuple[str, ...] = ()
        if resource == "discovery":
            own = DISCOVERY_FAULTS
        elif request.path.endswith("/status"):
            own = STATUS_FAULTS
        elif request.method != "GET":
            own = WRITE_FAULTS
        kind = self.fault(client, resource, own) or self.fault(
            client, resource, _OF_WATCHES if watch else (*REQUEST_FAULTS, UNAUTHORIZED)
        )
        self.sent += 1
        uniform, context = self.random.uniform, self._thread.context()
        if self.closed or kind == "away":
            self._later(0.01, lambda: fail(answer, Unavailable("connection refused")), context)
            return answer
        there, back = uniform(0.001, 0.02), uniform(0.001, 0.02)
        crash = self._crash(client, request, resource)
        if crash == BEFORE:
            return answer
        if kind == "slow":
            there, back = uniform(0.0, 6.0), uniform(0.0, 6.0)
        elif kind in ("hang", "late"):
            there = uniform(0.0, _LONGEST)
        if kind == "late":  # its connection breaks, and it is still in the server's queue
            self._later(back, lambda: fail(answer, Unavailable("connection reset by peer")), context)

        def arrive() -> None:
            if self.closed:
                fail(answer, Unavailable("connection refused"))
                return
            response = self._refused(kind, request) or self._handled(client, request)
            if crash == LANDED:
                self.points.kill(client)
            elif kind == "lost" or crash == LOST:
                self._later(back, lambda: fail(answer, Unavailable("connection reset by peer")), context)
            elif kind not in ("hang", "late"):
                self._later(back, lambda: answer_with(answer, response), context)

        self._later(there, arrive, context)
        return answer

    def _crash(self, client: str, request: Request, resource: str) -> str | None:
        if request.method == "GET" or resource == _LEASES or client not in REPLICAS:
            return None
        crash = self.points.meet(client, f"{request.method} {resource}")
        if crash == BEFORE:
            self.points.kill(client)
        elif crash == STOPPED:
            self.points.stop(client)
        return crash

    def _later(self, seconds: float, call: Callable[[], None], context: object) -> None:
        self.loop.call_later(seconds, call, context=context)  # type: ignore[arg-type]

    def _refused(self, kind: str | None, request: Request) -> ServerResponse | None:
        if self.gone_by_status and request.query.get("watch") and kind is None:
            version = request.query.get("resourceVersion", "")
            if version.isdecimal() and 0 < int(version) < self.api.store.floor:
                return StatusError(410, f"too old resource version: {version}").response()
        if kind == "discovery misses" or (kind == "conflict" and request.method in ("PUT", "PATCH")):
            code = 404 if kind == "discovery misses" else 409
            return StatusError(code, f"injected: {kind}").response()
        if kind == "discovery fails":
            return StatusError(503, "injected: discovery fails").response()
        if kind in _CODES and kind != "conflict":
            wait = self.random.choice((1, 3)) if kind == "throttled" else 0
            return StatusError(_CODES[kind], f"injected: {kind}", retry_after=wait).response()
        return None

    def _handled(self, client: str, request: Request) -> ServerResponse:
        self.sender = client
        self.on_request(client, request)
        try:
            self.api.handle(request).send(None)
        except StopIteration as done:
            response: ServerResponse = done.value
            return response
        finally:
            self.sender = None
        raise AssertionError("the small API waits for something")


class WorldResponse:
    """An answer; the chunks of a watch come with its own lag."""

    def __init__(self, network: Network, client: str, resource: str, response: ServerResponse) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = {
            **response.headers,
            "Date": _date(network.clock().replace(microsecond=0)),
        }
        self._network = network
        self._client = client
        self._resource = resource
        self._body = response.body

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        if isinstance(self._body, bytes):
            yield self._body
            return
        network = self._network
        silent = False
        async for chunk in self._body:
            if silent:
                continue
            fault = network.fault(self._client, self._resource, WATCH_FAULTS)
            if fault == "silent":
                silent = True
                continue
            if network.closed or fault == "cut":
                raise Unavailable("the answer broke off")
            most = 20.0 if fault == "lag" else 0.03
            await asyncio.sleep(network.random.uniform(0.0, most))
            yield chunk

    async def close(self) -> None:
        if isinstance(self._body, AsyncGenerator):
            await self._body.aclose()


class WorldTransport:
    """queuectl.kube.transport.Transport of one process."""

    def __init__(self, network: Network, client: str) -> None:
        self._network = network
        self._client = client

    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, *, stream: bool
    ) -> WorldResponse:
        path, query, resource = _parts(target)
        lower = {name.lower(): value for name, value in headers.items()}
        request = Request(method, path, dict(query), lower, body or b"")
        response = await self._network.send(self._client, request, resource, stream)
        return WorldResponse(self._network, self._client, resource, response)

    async def close(self) -> None:
        return None
