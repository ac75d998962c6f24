"""Who asks, and what they may do: three identities by bearer token."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from queuectl.sandbox.kubernetes.wire import ApiError, Json, refusal

CONTROLLER_USER = "system:serviceaccount:queuectl-system:queuectl"
_READ = ("get", "list", "watch")
_OWN_GROUP = "queuectl.dev"
# As the role `edit` of a real cluster: a tenant's own work, not who may do what, and no policy.
_CLOSED_TO_TENANTS = [
    f"{group}.k8s.io"
    for group in (
        "admissionregistration",
        "apiextensions",
        "node",
        "rbac.authorization",
        "scheduling",
        "storage",
    )
]
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
    """What is asked for; empty strings as in a SubjectAccessReview."""

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
    if access.group in ("authorization.k8s.io", "authentication.k8s.io"):
        return access.resource.startswith("self")
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
    """Tokens; with a folder, the same at every start."""

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
        """Raises ApiError 401 for a token nobody has."""
        if not authorization:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        user = self._users.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise ApiError(401, "Unauthorized")
        return user

    def review(self, plural: str, user: User, review: Json) -> Json:
        """Answer a TokenReview, SelfSubjectReview or one of the access reviews, in its status."""
        spec = review.get("spec") or {}
        if plural == "selfsubjectreviews":
            status: Json = {"userInfo": {"username": user.name, "groups": list(user.groups)}}
        elif plural == "tokenreviews":
            found = self._users.get(spec.get("token", ""))
            status = {"authenticated": found is not None}
            if found:
                status["user"] = {"username": found.name, "groups": list(found.groups)}
                status["audiences"] = spec.get("audiences") or []
        else:
            named = User(spec.get("user", ""), tuple(spec.get("groups") or ()))
            asked = spec.get("resourceAttributes") or {}
            names = ("verb", "group", "resource", "subresource", "namespace", "name")
            access = Access(**{name: asked.get(name, "") for name in names})
            status = {"allowed": allowed(user if plural.startswith("self") else named, access)}
        return {**review, "status": status}
