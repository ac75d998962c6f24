"""Requests to one API server: a deadline for each wait, one exception per kind of error, refreshed tokens."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

import orjson

from queuectl.kube import account
from queuectl.kube.errors import BadKubeconfig, Unauthorized, Unavailable, from_answer
from queuectl.kube.transport import HttpTransport, Response, Transport

JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
PAGE: Final = 500
"""Objects per page of a list."""
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""Accept header for objects without spec and status. Servers that do not know it send whole objects."""
METADATA_LIST: Final = METADATA.replace("Metadata;", "MetadataList;")
MAX_EVENT: Final = 64 * 2**20
"""Bytes of one watch event; etcd's own limit for an object is far below."""

Object = dict[str, Any]
Answered = Callable[[str, str, int, float], None]
"""Called for each answer: verb and resource as RBAC names them, status (0: no answer), seconds it took."""
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Longest waits, in seconds."""

    unary: float = 10.0
    page: float = 60.0
    """One page of a list."""
    silence: float = 75.0
    """A watch without a byte for this long fails: bookmarks come every minute."""


class Identity(Protocol):
    """Authenticates requests."""

    async def authorization(self) -> str | None: ...

    async def refresh(self, refused: str | None) -> None: ...


def api_path(
    group: str,
    version: str,
    plural: str,
    namespace: str | None = None,
    name: str | None = None,
    sub: str = "",
) -> str:
    """Path of a collection or an object; the core group is the empty one."""
    parts = ["apis", group, version] if group else ["api", version]
    parts += ["namespaces", namespace] if namespace else []
    parts += [part for part in (plural, name, sub) if part]
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def rbac_names(method: str, target: str, *, stream: bool = False) -> tuple[str, str]:
    """Verb and resource of a request, as in a role: `list`, `jobs`; a subresource as `jobs/status`."""
    parts = target.partition("?")[0].strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if len(parts) > 2 and parts[0] == "namespaces" and parts[2] != "status":
        parts = parts[2:]
    resource = "/".join(parts[::2][:2]) or "discovery"
    if stream:
        return "watch", resource
    return _VERBS.get(method) or ("get" if len(parts) > 1 else "list"), resource


class Session:
    """A connection to one API server with one identity."""

    def __init__(
        self,
        transport: Transport,
        identity: Identity | None = None,
        *,
        deadlines: Deadlines | None = None,
        dry_run: bool = False,
    ) -> None:
        """`dry_run`: patches and deletions are checked by the API server, and write nothing."""
        self._transport = transport
        self._identity = identity
        self._dry_run = dry_run
        self.deadlines = deadlines or Deadlines()
        self.requests: Counter[tuple[str, int]] = Counter()
        """Number of requests by method and status; status 0: no answer."""
        self.answered: Answered | None = None
        """Called for each answer, on the thread that uses this session."""
        self.newest: dict[str, int] = {}
        """The newest resourceVersion of an answered object, by kind."""
        self.heard_at = float("-inf")
        """When the last answer to any request came, by the clock of the loop."""
        self._date = ("", 0.0)

    @classmethod
    async def from_kubeconfig(cls, path: str | None = None, context: str | None = None) -> Session:
        """Raises BadKubeconfig, naming file and context."""
        return cls.of(await account.from_kubeconfig(path, context))

    @classmethod
    async def in_cluster(cls) -> Session:
        """As the service account of this pod. Raises BadKubeconfig."""
        return cls.of(await account.in_cluster())

    @classmethod
    def of(cls, identity: account.Account, *, dry_run: bool = False) -> Session:
        transport = HttpTransport(
            identity.server, tls=identity.tls, server_name=identity.server_name, proxy=identity.proxy
        )
        return cls(transport, identity, dry_run=dry_run)

    async def close(self) -> None:
        await self._transport.close()

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        deadline: float | None = None,
    ) -> Object:
        """The decoded answer. Raises ApiError; Unavailable if the outcome is not known."""
        target = f"{path}?{urlencode(query)}" if query else path
        data = None if body is None else orjson.dumps(body)
        request = f"{method} {path}"
        try:
            async with asyncio.timeout(deadline or self.deadlines.unary):
                response = await self._send(method, target, content_type, data, accept, stream=False)
                try:
                    content = b"".join([chunk async for chunk in response.chunks()])
                finally:
                    await response.close()
        except TimeoutError as error:
            self.requests[method, 0] += 1
            self._tell(method, target, 0, deadline or self.deadlines.unary, stream=False)
            raise Unavailable(f"{request}: no answer in time") from error
        if response.status >= 300:
            raise from_answer(request, response.status, response.headers, content)
        answer = _decoded(request, content)
        kind, version = answer.get("kind"), number_of((answer.get("metadata") or {}).get("resourceVersion"))
        if isinstance(kind, str) and version is not None:
            self.newest[kind] = max(version, self.newest.get(kind, 0))
        return answer

    async def get(self, path: str, *, query: Mapping[str, str] | None = None) -> Object:
        """A consistent read."""
        return await self.request("GET", path, query=query)

    async def pages(
        self, path: str, *, query: Mapping[str, str] | None = None, accept: str = JSON
    ) -> AsyncIterator[Object]:
        """A consistent list, page by page. Raises Gone when it took too long: start again."""
        asked = {**(query or {}), "limit": str(PAGE)}
        while True:
            page = await self.request("GET", path, query=asked, accept=accept, deadline=self.deadlines.page)
            yield page
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            asked["continue"] = token

    async def create(self, path: str, body: Object) -> Object:
        return await self.request("POST", path, body)

    async def patch(self, path: str, body: object, *, content_type: str = MERGE_PATCH) -> Object:
        query = {"dryRun": "All"} if self._dry_run else None
        return await self.request("PATCH", path, body, content_type=content_type, query=query)

    async def delete(self, path: str, body: Object | None = None) -> Object:
        # In the body: where there is one, the API server does not read the query.
        dry_run = {"dryRun": ["All"]} if self._dry_run else {}
        return await self.request("DELETE", path, {**(body or {}), **dry_run} or None)

    @asynccontextmanager
    async def watch(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, silence: float | None = None
    ) -> AsyncIterator[AsyncIterator[list[Object]]]:
        """Events {type, object} as they arrive, those of one chunk together, until the server ends it.

        Raises ApiError; Unavailable after `silence` seconds without a byte, or when an event can't be read.
        """
        target = f"{path}?{urlencode({**query, 'watch': 'true'})}"
        request = f"watch {path}"
        try:
            async with asyncio.timeout(self.deadlines.unary):
                response = await self._send("GET", target, JSON, None, accept, stream=True)
        except TimeoutError as error:
            self.requests["GET", 0] += 1
            self._tell("GET", target, 0, self.deadlines.unary, stream=True)
            raise Unavailable(f"{request}: no answer in time") from error
        try:
            if response.status >= 300:
                content = await self._rest(response, request)
                raise from_answer(request, response.status, response.headers, content)
            async with aclosing(_events(response, request, silence or self.deadlines.silence)) as events:
                yield events
        finally:
            await response.close()

    async def _rest(self, response: Response, request: str) -> bytes:
        try:
            async with asyncio.timeout(self.deadlines.unary):
                return b"".join([chunk async for chunk in response.chunks()])
        except TimeoutError as error:
            raise Unavailable(f"{request}: no answer in time") from error

    async def _send(
        self, method: str, target: str, content_type: str, body: bytes | None, accept: str, *, stream: bool
    ) -> Response:
        """One request; if it is refused as unauthorized, once more with credentials read anew."""
        token = await self.authorization()
        response = await self._once(method, target, content_type, body, accept, token, stream=stream)
        if response.status == 401 and self._identity is not None:
            await response.close()
            try:
                await self._identity.refresh(token)
            except BadKubeconfig as error:
                raise Unauthorized(str(error), status=401) from error
            token = await self.authorization()
            response = await self._once(method, target, content_type, body, accept, token, stream=stream)
        return response

    async def authorization(self) -> str | None:
        """The header that this session sends; None if a client certificate suffices. Raises Unavailable."""
        try:
            return await self._identity.authorization() if self._identity else None
        except BadKubeconfig as error:
            raise Unavailable(str(error)) from error  # nothing was sent; the next try may find them

    async def _once(
        self,
        method: str,
        target: str,
        content_type: str,
        body: bytes | None,
        accept: str,
        token: str | None,
        *,
        stream: bool,
    ) -> Response:
        headers = {"Accept": accept, "Accept-Encoding": "identity", "User-Agent": "queuectl"}
        if body is not None:
            headers["Content-Type"] = content_type
        if token:
            headers["Authorization"] = token
        now = asyncio.get_running_loop().time
        begun = now()
        try:
            response = await self._transport.request(method, target, headers, body, stream=stream)
        except Unavailable:
            self.requests[method, 0] += 1
            self._tell(method, target, 0, now() - begun, stream=stream)
            raise
        self.requests[method, response.status] += 1
        self._tell(method, target, response.status, now() - begun, stream=stream)
        self.heard_at = now()
        date = response.headers.get("Date")
        if date:
            self._date = (date, self.heard_at)
        return response

    def _tell(self, method: str, target: str, status: int, seconds: float, *, stream: bool) -> None:
        if self.answered is not None:
            self.answered(*rbac_names(method, target, stream=stream), status, seconds)

    def server_time(self) -> datetime:
        """The API server's clock, to the second: date of its last answer plus the time since, or 1970."""
        date, heard = self._date
        if not date:
            return datetime(1970, 1, 1, tzinfo=UTC)
        passed = asyncio.get_running_loop().time() - heard
        return parsedate_to_datetime(date).astimezone(UTC) + timedelta(seconds=passed)


async def _events(response: Response, request: str, silence: float) -> AsyncGenerator[list[Object], None]:
    async with aclosing(_lines(response, request, silence)) as batches:
        async for lines in batches:
            yield [_decoded(request, line) for line in lines]


async def _lines(response: Response, request: str, silence: float) -> AsyncGenerator[list[bytes], None]:
    """Whole lines of any length, those that end in one chunk together."""
    parts: list[bytes] = []
    held = 0
    async for chunk in _heard(response, request, silence):
        head, *tails = chunk.split(b"\n")
        parts.append(head)
        held += len(head)
        if held > MAX_EVENT:
            raise Unavailable(f"{request}: an event of more than {MAX_EVENT} bytes")
        if tails:
            lines = [b"".join(parts), *tails[:-1]]
            parts, held = [tails[-1]], len(tails[-1])
            yield [line for line in lines if line.strip()]
    if any(part.strip() for part in parts):
        raise Unavailable(f"{request}: ended inside an event")


async def _heard(response: Response, request: str, silence: float) -> AsyncGenerator[bytes, None]:
    async with aclosing(response.chunks()) as chunks:
        while True:
            try:
                async with asyncio.timeout(silence):
                    chunk = await anext(chunks)
            except TimeoutError as error:
                raise Unavailable(f"{request}: silent for {silence:g} s") from error
            except StopAsyncIteration:
                return
            yield chunk


def _decoded(request: str, content: bytes) -> Object:
    try:
        decoded = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise Unavailable(f"{request}: an answer that is no JSON: {content[:80]!r}") from error
    if not isinstance(decoded, dict):
        raise Unavailable(f"{request}: an answer that is no object: {content[:80]!r}")
    return decoded


def number_of(version: object) -> int | None:
    """A resourceVersion as a number, which are ordered; None: it is none."""
    digits = isinstance(version, str) and version.isascii() and version.isdigit() and len(version) < 20
    return int(str(version)) if digits else None


async def cluster_id(session: Session) -> str:
    """UID of namespace kube-system: the identity of a cluster. Raises ApiError."""
    namespace = await session.get(api_path("", "v1", "namespaces", name="kube-system"))
    return str(namespace["metadata"]["uid"])
