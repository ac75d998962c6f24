"""Authentication and authorization of callers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol

from aiohttp import web

from queuectl.api.problems import Refusal, bad_request

WORKLOADS: Final = "workloads"
"""A virtual resource: there are no such objects, but RBAC may grant verbs on them."""
LOCAL_QUEUES: Final = "localqueues"
CLUSTER_QUEUES: Final = "clusterqueues"
COHORTS: Final = "cohorts"
FLAVORS: Final = "resourceflavors"

MAX_TOKEN: Final = 8000
_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9\-._~+/]+=*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Allowed:
    """Names or namespaces that may be read."""

    names: frozenset[str] | None
    """None: all."""

    def __contains__(self, name: object) -> bool:
        return self.names is None or name in self.names


ALL: Final = Allowed(None)


class Caller(Protocol):
    """The rights of one identity, by verbs and resources of RBAC. Raises Refusal if they are unknown."""

    @property
    def name(self) -> str:
        """Unique and stable for each caller."""

    @property
    def tenant(self) -> str:
        """What requests in work are counted by: one for all service accounts of a namespace, else `name`."""

    @property
    def limited(self) -> bool:
        """Do the limits of rates and of requests in work apply to this caller?"""

    async def may(self, verb: str, resource: str, namespace: str = "", name: str = "") -> bool:
        """Empty: everywhere, everything."""

    async def namespaces(self, verb: str, resource: str, among: Iterable[str]) -> Allowed:
        """Those of `among` where the caller has this right."""

    async def names(self, resource: str, among: Iterable[str]) -> Allowed:
        """Those of `among`, of a cluster-scoped resource, that the caller may get."""


class Identify(Protocol):
    async def __call__(self, request: web.Request) -> Caller:
        """Raises Refusal."""


@dataclass(frozen=True, slots=True)
class Unrestricted:
    """Any client on a loopback address without authentication."""

    name: str = "local"
    tenant: str = "local"
    limited: bool = False

    async def may(self, verb: str, resource: str, namespace: str = "", name: str = "") -> bool:
        return True

    async def namespaces(self, verb: str, resource: str, among: Iterable[str]) -> Allowed:
        return ALL

    async def names(self, resource: str, among: Iterable[str]) -> Allowed:
        return ALL


async def unrestricted(request: web.Request) -> Caller:
    return Unrestricted()


def bearer_token(request: web.Request, audiences: Sequence[str]) -> str:
    """The bearer token of a request. Raises Refusal."""
    headers = request.headers.getall("Authorization", [])
    if len(headers) > 1:
        raise bad_request("header Authorization is given twice")
    if not headers:
        raise unauthorized("no token is given", audiences)
    found = _BEARER.fullmatch(headers[0].strip())
    if found is None or len(found[1]) > MAX_TOKEN:
        raise unauthorized("header Authorization must be `Bearer TOKEN`", audiences)
    return found[1]


def given_token(request: web.Request) -> str | None:
    """The bearer token of a request that was identified; None: it has none."""
    found = _BEARER.fullmatch(request.headers.get("Authorization", "").strip())
    return found[1] if found is not None else None


def unauthorized(problem: str, audiences: Sequence[str]) -> Refusal:
    audience = audiences[0]
    return Refusal(
        HTTPStatus.UNAUTHORIZED,
        f"{problem}: send `Authorization: Bearer TOKEN` with a token of this cluster for the audience "
        f"{audience}, such as `kubectl create token SERVICEACCOUNT --audience {audience}` prints",
        audiences=audiences,
        headers={"WWW-Authenticate": 'Bearer realm="queuectl"'},
    )
