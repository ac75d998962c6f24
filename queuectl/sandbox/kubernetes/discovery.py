"""Discovery for kubectl: groups, versions, resources."""

from __future__ import annotations

import orjson

from queuectl.sandbox.kubernetes import openapi
from queuectl.sandbox.kubernetes.resources import Catalog, Kind
from queuectl.sandbox.kubernetes.wire import Json, Request, Response

VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.2+queuectl", "platform": "linux/amd64"}


def discover(catalog: Catalog, request: Request) -> Response | None:
    """None if the path is not one of discovery."""
    steps = request.path.strip("/").split("/")
    if steps[0] in ("healthz", "livez", "readyz"):
        return Response(200, b"ok", content_type="text/plain")
    if steps == ["version"]:
        return _json(VERSION)
    if steps == ["api"]:
        return _json({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
    if steps == ["apis"]:
        groups = [_group(group, versions) for group, versions in catalog.versions().items() if group]
        return _json({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    if steps[:2] == ["openapi", "v3"]:
        path = steps[2:]
        return _json(
            openapi.document(catalog, path, VERSION["gitVersion"]) if path else openapi.index(catalog)
        )
    if steps[0] == "apis" and len(steps) == 2 and (versions := catalog.versions().get(steps[1])):
        return _json({"kind": "APIGroup", "apiVersion": "v1", **_group(steps[1], versions)})
    if (steps[0], len(steps)) in (("api", 2), ("apis", 3)):
        return _resources(catalog, "" if steps[0] == "api" else steps[1], steps[-1])
    return None


def _json(content: Json) -> Response:
    return Response(200, orjson.dumps(content))


def _group(group: str, versions: list[str]) -> Json:
    served = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": served, "preferredVersion": served[0]}


def _resources(catalog: Catalog, group: str, version: str) -> Response | None:
    resources = [entry for kind in catalog.of_version(group, version) for entry in _entries(kind)]
    name = f"{group}/{version}" if group else version
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name}
    return _json({**head, "resources": resources}) if resources else None


def _entries(kind: Kind) -> list[Json]:
    common = {"singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind}
    known = {"shortNames": kind.short, "categories": kind.categories}
    entry = {"name": kind.plural, "verbs": kind.verbs, **common, **known}
    status = {"name": f"{kind.plural}/status", "verbs": ["get", "patch", "update"], **common}
    return [entry, status] if kind.status else [entry]
