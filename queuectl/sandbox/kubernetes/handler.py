"""Handles requests, without sockets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from queuectl.sandbox.kubernetes import (
    applies,
    discovery,
    patches,
    protobuf,
    reads,
    subresources,
)
from queuectl.sandbox.kubernetes.admission import AdmissionPolicies
from queuectl.sandbox.kubernetes.identities import (
    REVIEWS,
    SYSTEM,
    Identities,
    ResourceAttributes,
    UserInfo,
    allowed,
    denial,
)
from queuectl.sandbox.kubernetes.resources import CRDS, NAMESPACES, PODS, Catalog, ServedKind
from queuectl.sandbox.kubernetes.store import ObjectStore, Stored
from queuectl.sandbox.kubernetes.wire import Json, Request, ServerResponse, StatusError
from queuectl.sandbox.kubernetes.writes import Author, Check, Writes

_FIRST_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", "default")
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_CONNECTIONS = ("attach", "exec", "portforward")
_SUBRESOURCES = {PODS: ("binding", "log", *_CONNECTIONS), "serviceaccounts": ("token",)}
_SUBRESOURCE_VERBS = {"binding": ["create"], "log": ["get"], "token": ["create"]}
_SUBRESOURCE_VERBS |= {"status": ["get", "update", "patch"]} | {
    name: ["get", "create"] for name in _CONNECTIONS
}
_UNKNOWN = "the server could not find the requested resource"


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """The target of a path."""

    kind: ServedKind
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace if self.kind.namespaced else "", self.name)


class RequestHandler:
    """`check` returns problems of an object of a custom kind beyond its schema."""

    def __init__(
        self,
        store: ObjectStore,
        identities: Identities,
        *,
        clock: Callable[[], datetime],
        check: Check | None = None,
        bookmark_seconds: float = 60.0,
    ) -> None:
        self.store = store
        self.identities = identities
        self._clock = clock
        self._catalog = Catalog()
        self._writes = Writes(store, self._catalog, AdmissionPolicies(store, self._catalog), clock, check)
        self._bookmark_seconds = bookmark_seconds
        for stored in store.collection(CRDS).values():
            self._catalog.define(stored.read())
        namespaces = self._catalog.find("", "v1", NAMESPACES)
        assert namespaces is not None
        for name in _FIRST_NAMESPACES:
            if ("", name) not in store.collection(NAMESPACES):
                self._writes.create(namespaces, "", {"metadata": {"name": name}}, Author(SYSTEM))
        store.forget()

    async def handle(self, request: Request) -> ServerResponse:
        """Never raises StatusError: a refusal is a response."""
        try:
            user = self.identities.user(request.headers, self._clock().timestamp())
            if request.method == "GET" and (found := discovery.discover(self._catalog, request)) is not None:
                return found
            return self._resource(request, user)
        except StatusError as error:
            return error.response()

    def _resource(self, request: Request, user: UserInfo) -> ServerResponse:
        target = self._target(request.path)
        verb = _verb(request, target)
        kind = target.kind
        access = ResourceAttributes(
            verb, kind.group, kind.plural, target.subresource, target.namespace, target.name
        )
        if not allowed(user, access):
            raise denial(user, access)
        return self._answer(verb, target, request, user)

    def _target(self, path: str) -> RequestInfo:
        steps = path.strip("/").split("/")
        skip = 2 if steps[0] == "api" else 3
        if steps[0] not in ("api", "apis") or len(steps) <= skip:
            raise StatusError(404, _UNKNOWN)
        group, version, rest = "" if skip == 2 else steps[1], steps[skip - 1], steps[skip:]
        namespace = ""
        if rest[0] == NAMESPACES and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        kind = self._catalog.find(group, version, rest[0])
        if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
            raise StatusError(404, _UNKNOWN)
        name, subresource = [*rest[1:], "", ""][:2]
        served = ["", *(["status"] if kind.status else []), *_SUBRESOURCES.get(kind.collection, ())]
        if subresource not in served or (name and kind.namespaced and not namespace):
            raise StatusError(404, _UNKNOWN)
        if kind.plural == NAMESPACES and not kind.group:
            namespace = name
        return RequestInfo(kind, namespace, name, subresource)

    def _answer(self, verb: str, target: RequestInfo, request: Request, user: UserInfo) -> ServerResponse:
        view = reads.Representation.of(target.kind, request, self._clock)
        writes, kind = self._writes, target.kind
        if verb == "watch":
            name, seconds = target.name, self._bookmark_seconds
            return reads.watch(self.store, view, target.namespace, name, request, seconds)
        if verb == "list":
            return reads.list_objects(self.store, view, target.namespace, request)
        if target.subresource in _CONNECTIONS:
            raise subresources.connect(writes.find(kind, target.key).read())
        if target.subresource == "log":
            line = subresources.log(writes.find(kind, target.key).read(), request.query.get("container", ""))
            return ServerResponse(200, line, content_type="text/plain")
        if verb == "get":
            return ServerResponse(200, view.show(writes.find(kind, target.key)))
        body = {} if verb == "patch" else _body(request)
        strict = request.query.get("fieldValidation") == "Strict"
        author = Author(user, bool(request.query.get("dryRun") or body.get("dryRun")), strict)
        if verb == "delete":
            return _deleted(view, *writes.delete(kind, target.key, body, author))
        if verb == "create":
            return self._create(view, target, body, author)
        if verb == "patch":
            return self._patch(view, target, request, author)
        return ServerResponse(
            200, view.show(writes.replace(kind, target.key, body, author, target.subresource))
        )

    def _create(
        self, view: reads.Representation, target: RequestInfo, body: Json, author: Author
    ) -> ServerResponse:
        writes, kind = self._writes, target.kind
        if target.subresource == "binding":
            writes.bind(kind, target.key, body)
            return _success(201, {})
        if target.subresource == "token":
            account = writes.find(kind, target.key).read()
            made = subresources.token(kind, account, body, self.identities, self._clock())
            return ServerResponse(201, orjson.dumps(made))
        if kind.group in REVIEWS:
            return ServerResponse(
                201, orjson.dumps(subresources.review(self._catalog, kind, author.user, body))
            )
        return ServerResponse(201, view.show(writes.create(kind, target.namespace, body, author)))

    def _patch(
        self, view: reads.Representation, target: RequestInfo, request: Request, author: Author
    ) -> ServerResponse:
        writes, kind, subresource = self._writes, target.kind, target.subresource
        transform: Callable[[Json], Json]
        if request.media == applies.MEDIA:
            apply = applies.Apply.of(kind, request, subresource, writes.timestamp())
            if target.key not in self.store.collection(kind.collection) and not subresource:
                made = writes.create(kind, target.namespace, apply.created(target.name), author)
                return ServerResponse(201, view.show(made))
            transform = apply.merge
        else:
            transform = patches.Patch(request.media, request.body, custom=kind.custom).apply
        stored = writes.update(kind, target.key, transform, author, subresource)
        return ServerResponse(200, view.show(stored))


def _deleted(view: reads.Representation, stored: Stored, gone: bool) -> ServerResponse:
    """The answer is the object for pods and objects that are not gone yet, else a Status."""
    kind = view.kind
    if not gone or kind.collection == PODS:
        return ServerResponse(200, view.show(stored))
    details = {"name": stored.key[1], "group": kind.group, "kind": kind.plural, "uid": stored.uid}
    return _success(200, {name: value for name, value in details.items() if value})


def _success(code: int, details: Json) -> ServerResponse:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return ServerResponse(code, orjson.dumps(status))


def _verb(request: Request, target: RequestInfo) -> str:
    verb = _VERBS.get(request.method, "")
    if verb == "get" and request.query.get("watch") in ("1", "true") and not target.subresource:
        return "watch"
    if not target.name:
        verb = {"get": "list", "create": "create"}.get(verb, "")
    homeless = target.kind.namespaced and not target.namespace
    if target.subresource:
        served = _SUBRESOURCE_VERBS[target.subresource]
    else:
        served = [v for v in target.kind.verbs if v != "create" or not (homeless or target.name)]
    if verb not in served:
        raise StatusError(405, "the server does not allow this method on the requested resource")
    return verb


def _body(request: Request) -> Json:
    """The body as a JSON object, empty if there is none. Raises StatusError 400 or 415."""
    media = request.media or "application/json"
    if media == protobuf.MEDIA and request.body:
        return protobuf.decode(request.body)
    if request.body and media not in ("application/json", "application/octet-stream"):
        message = (
            f"the body of the request was in an unknown format ({media}) - accepted media types include: "
        )
        raise StatusError(415, f"{message}application/json, {protobuf.MEDIA}")
    try:
        body: Any = orjson.loads(request.body) if request.body else {}
    except orjson.JSONDecodeError as error:
        raise StatusError(400, f"the object provided is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise StatusError(400, "the object provided is not a JSON object")
    return body
