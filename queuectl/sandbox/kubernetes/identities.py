"""Authentication and authorization: three identities by bearer token."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from queuectl.sandbox.kubernetes.wire import ApiError, refusal

CONTROLLER_USER = "system:serviceaccount:queuectl-system:queuectl"
_READ = ("get", "list", "watch")
_OWN_GROUP = "queuectl.dev"
# As the role `edit` of a real cluster: workloads, but no RBAC and no policy.
_CLOSED_TO_TENANTS = {
    *("admissionregistration.k8s.io", "apiextensions.k8s.io", "node.k8s.io"),
    *("rbac.authorization.k8s.io", "scheduling.k8s.io", "storage.k8s.io"),
}
_READ_ONLY_FOR_TENANTS = ("namespaces", "resourcequotas", "limitranges")


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...]

    @property
    def is_admin(self) -> bool:
        return "system:masters" in self.groups


USERS = {
    "admin": User("admin", ("system:masters", "system:authenticated")),
    "tenant": User("tenant", ("system:authenticated",)),
    "controller": User(
        CONTROLLER_USER,
        ("system:serviceaccounts", "system:serviceaccounts:queuectl-system", "system:authenticated"),
    ),
}
SYSTEM = User("system:apiserver", ("system:masters",))
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


@dataclass(frozen=True, slots=True)
class Access:
    """The requested access; empty strings as in a SubjectAccessReview."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


def allowed(user: User, access: Access) -> bool:
    if user.is_admin or user.name == CONTROLLER_USER:
        return True
    if user is ANONYMOUS or access.verb == "bypass" or access.group in _CLOSED_TO_TENANTS:
        return False
    reads = access.verb in _READ
    if access.resource == "nodes":
        return False
    if access.group == _OWN_GROUP:
        return reads and access.resource == "localqueues"
    if access.resource in _READ_ONLY_FOR_TENANTS or not access.namespace:
        return reads
    return reads or access.subresource in ("", "*", "eviction")


def denial(user: User, access: Access) -> ApiError:
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
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(self.tokens, file)
        self._users = {token: USERS[name] for name, token in self.tokens.items()}

    def user(self, authorization: str | None) -> User:
        """Raises ApiError 401 for an unknown token."""
        if not authorization:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        user = self._users.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise ApiError(401, "Unauthorized")
        return user
