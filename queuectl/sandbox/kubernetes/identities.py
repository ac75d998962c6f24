"""Authentication and authorization: three identities by bearer token, and tokens of service accounts."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from queuectl.sandbox.endpoints import write_private
from queuectl.sandbox.kubernetes.wire import StatusError, refusal

CONTROLLER_USER = "system:serviceaccount:queuectl-system:queuectl"
_READ = ("get", "list", "watch")
TENANTS = "sandbox:tenants"
"""Group of users with the rights of `tenant`."""
_OWN_GROUP = "queuectl.dev"
# As the role `edit` of a real cluster: workloads, but no RBAC and no policy.
_CLOSED_TO_TENANTS = {
    *("admissionregistration.k8s.io", "apiextensions.k8s.io", "node.k8s.io"),
    *("rbac.authorization.k8s.io", "scheduling.k8s.io", "storage.k8s.io"),
}
REVIEWS = ("authentication.k8s.io", "authorization.k8s.io")
_SERVICE_ACCOUNT = "system:serviceaccount"
_READ_ONLY_FOR_TENANTS = ("namespaces", "resourcequotas", "limitranges")


@dataclass(frozen=True, slots=True)
class UserInfo:
    name: str
    groups: tuple[str, ...]

    @property
    def is_admin(self) -> bool:
        return "system:masters" in self.groups


USERS = {
    "admin": UserInfo("admin", ("system:masters", "system:authenticated")),
    "tenant": UserInfo("tenant", ("system:authenticated",)),
    "controller": UserInfo(
        CONTROLLER_USER,
        ("system:serviceaccounts", "system:serviceaccounts:queuectl-system", "system:authenticated"),
    ),
}
SYSTEM = UserInfo("system:apiserver", ("system:masters",))
ANONYMOUS = UserInfo("system:anonymous", ("system:unauthenticated",))


@dataclass(frozen=True, slots=True)
class ResourceAttributes:
    """The requested access; empty strings as in a SubjectAccessReview."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


def allowed(user: UserInfo, access: ResourceAttributes) -> bool:
    if user.is_admin or user.name == CONTROLLER_USER:
        return True
    if access.group in REVIEWS:
        return user != ANONYMOUS and access.verb == "create"
    tenant = user.name == USERS["tenant"].name or TENANTS in user.groups
    if not tenant or access.verb == "bypass" or access.group in _CLOSED_TO_TENANTS:
        return False
    if "*" in (access.verb, access.group, access.resource):
        return False
    reads = access.verb in _READ
    if access.resource == "nodes":
        return False
    if access.group == _OWN_GROUP:
        return reads and access.resource == "localqueues"
    if access.resource in _READ_ONLY_FOR_TENANTS or not access.namespace:
        return reads
    return reads or access.subresource in ("", "*", "eviction")


def denial(user: UserInfo, access: ResourceAttributes) -> StatusError:
    resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
    where = f' in the namespace "{access.namespace}"' if access.namespace else " at the cluster scope"
    message = (
        f'{{}} is forbidden: User "{user.name}" cannot {access.verb} resource "{resource}" '
        f'in API group "{access.group}"{where}'
    )
    return refusal(403, access.resource, access.group, access.name, message)


class Identities:
    """Tokens; with a folder, the same at each start."""

    def __init__(self, folder: Path | None) -> None:
        known: dict[str, str] = {}
        path = folder / "tokens.json" if folder else None
        if path and path.exists():
            known = json.loads(path.read_text())
        self.tokens = {name: known.get(name) or secrets.token_urlsafe(24) for name in USERS}
        if path and self.tokens != known:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(path, json.dumps(self.tokens))
        self._users = {token: USERS[name] for name, token in self.tokens.items()}

    def user(self, headers: Mapping[str, str], now: float) -> UserInfo:
        """Who sends a request; `now` in seconds since 1970.

        Raises StatusError 401 for a token that is unknown or expired, 403 where it must not impersonate.
        """
        user, name = self._bearer(headers.get("authorization"), now), headers.get("impersonate-user")
        if name is None:
            return user
        if not user.is_admin:
            raise denial(user, ResourceAttributes("impersonate", "", "users", name=name))
        groups = [group.strip() for group in headers.get("impersonate-group", "").split(",") if group.strip()]
        known = next((known for known in USERS.values() if known.name == name), None)
        return UserInfo(name, (*groups, "system:authenticated")) if groups or known is None else known

    def _bearer(self, authorization: str | None, now: float) -> UserInfo:
        if not authorization:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        user = self._users.get(token) or self._service_account(token, now)
        if user is None or scheme.lower() != "bearer":
            raise StatusError(401, "Unauthorized")
        return user

    def issue(self, namespace: str, name: str, expires: int) -> str:
        """A token of a service account, as a JWT; `expires` in seconds since 1970."""
        claims: dict[str, object] = {"sub": f"{_SERVICE_ACCOUNT}:{namespace}:{name}", "exp": expires}
        signed = f"{_encoded({'alg': 'HS256', 'typ': 'JWT'})}.{_encoded(claims)}"
        return f"{signed}.{self._signature(signed)}"

    def _signature(self, signed: str) -> str:
        digest = hmac.digest(self.tokens["admin"].encode(), signed.encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def _service_account(self, token: str, now: float) -> UserInfo | None:
        signed, _, signature = token.rpartition(".")
        if not signed or not hmac.compare_digest(signature.encode(), self._signature(signed).encode()):
            return None
        text = signed.partition(".")[2]
        claims = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        namespace = claims["sub"].split(":")[2]
        groups = (f"{_SERVICE_ACCOUNT}s", f"{_SERVICE_ACCOUNT}s:{namespace}", "system:authenticated")
        return UserInfo(claims["sub"], groups) if now < claims["exp"] else None


def _encoded(part: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
