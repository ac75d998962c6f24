"""Rights on a real API server: its authorizer learns of a binding by a watch, and refuses until then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from queuectl.sandbox.players.api import Client
from tests.integration.sandbox.polling import eventually

Json = dict[str, Any]
_GROUP = "rbac.authorization.k8s.io"
_SECONDS = 60.0
EVERYTHING: Json = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}


async def grant(admin: Client, user: str, name: str, *rules: Json, namespace: str | None = None) -> str:
    """Give a user these rules, by a role of this name; without a namespace, in all of them.

    Returns once the API server knows, with the path of the binding.
    """
    role = "Role" if namespace else "ClusterRole"
    body = {"metadata": {"name": name}, "rules": list(rules)}
    await admin.request("POST", _path(role, namespace), body)
    return await bind(admin, user, role, name, rules[0], namespace=namespace)


async def bind(
    admin: Client, user: str, kind: str, role: str, rule: Json, *, namespace: str | None = None
) -> str:
    """As `grant`, by a role that is there; `rule`: one of its own, which no other role gives to the user."""
    name = f"{role}-{user.replace(':', '-')}"
    body = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": role},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": user}],
    }
    path = _path("RoleBinding" if namespace else "ClusterRoleBinding", namespace)
    await admin.request("POST", path, body)
    await eventually(lambda: _has(admin, user, rule, namespace), f"{role} of {user}", _SECONDS)
    return f"{path}/{name}"


@asynccontextmanager
async def all_rights(admin: Client, user: str, namespace: str) -> AsyncIterator[None]:
    """All verbs on everything in the namespace, as its owner often has."""
    binding = await grant(admin, user, "owner", EVERYTHING, namespace=namespace)
    try:
        yield
    finally:
        await admin.request("DELETE", binding)
        await admin.request("DELETE", f"{_path('Role', namespace)}/owner")


def _path(kind: str, namespace: str | None) -> str:
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{_GROUP}/v1{scope}/{kind.lower()}s"


async def _has(admin: Client, user: str, rule: Json, namespace: str | None) -> bool:
    """Whether the user has the first right of the rule."""
    resource, _, subresource = rule["resources"][0].partition("/")
    asked = {
        "group": rule["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "verb": rule["verbs"][0],
        "namespace": namespace or "",
    }
    review = {"spec": {"user": user, "resourceAttributes": asked}}
    answer = await admin.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])
