"""What callers ask about themselves: who they are and what they may do."""

from __future__ import annotations

from collections.abc import Iterator

from queuectl.sandbox.kubernetes.identities import ResourceAttributes, UserInfo, allowed
from queuectl.sandbox.kubernetes.resources import Catalog, ServedKind
from queuectl.sandbox.kubernetes.wire import Json

_ALL = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
_ALL_URLS = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
_URLS = [{"verbs": ["get"], "nonResourceURLs": ["/api*", "/apis*", "/healthz", "/openapi*", "/version"]}]


def answer(catalog: Catalog, kind: ServedKind, user: UserInfo, body: Json) -> Json:
    """`body` with its status."""
    head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"creationTimestamp": None}}
    spec = body.get("spec") or {}
    status: Json
    if kind.kind == "SelfSubjectReview":
        status = {"userInfo": {"username": user.name, "groups": user.groups}}
    elif kind.kind == "SelfSubjectAccessReview":
        status = {"allowed": _allowed(user, spec)}
    else:
        rules = _ALL if user.is_admin else list(_rules(catalog, user, spec.get("namespace", "")))
        urls = _ALL_URLS if user.is_admin else _URLS
        status = {"resourceRules": rules, "nonResourceRules": urls, "incomplete": False}
    return {**head, "spec": spec, "status": status}


def _allowed(user: UserInfo, spec: Json) -> bool:
    asked = spec.get("resourceAttributes")
    if asked is None:
        # Discovery is open to every caller, other paths are not.
        path = (spec.get("nonResourceAttributes") or {}).get("path", "")
        return user.is_admin or path.startswith(tuple(url.rstrip("*") for url in _URLS[0]["nonResourceURLs"]))
    names = ("verb", "group", "resource", "subresource", "namespace", "name")
    return allowed(user, ResourceAttributes(**{name: asked.get(name, "") for name in names}))


def _rules(catalog: Catalog, user: UserInfo, namespace: str) -> Iterator[Json]:
    for group, versions in catalog.versions().items():
        for kind in catalog.of_version(group, versions[0]):
            where = namespace if kind.namespaced else ""
            verbs = [
                v for v in kind.verbs if allowed(user, ResourceAttributes(v, group, kind.plural, "", where))
            ]
            if verbs:
                yield {"verbs": verbs, "apiGroups": [group], "resources": [kind.plural]}
