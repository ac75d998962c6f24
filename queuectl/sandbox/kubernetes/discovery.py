"""Discovery for kubectl: groups, resources, and the OpenAPI that it needs."""

from __future__ import annotations

import orjson

from queuectl.sandbox.kubernetes.resources import Catalog, Kind
from queuectl.sandbox.kubernetes.wire import ApiError, Json, Request, Response

VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.2+queuectl", "platform": "linux/amd64"}
_IDENTITY = "x-kubernetes-group-version-kind"
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


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
        return _json(_open_api(catalog, steps[2:]))
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
    entry = {"name": kind.plural, "verbs": _VERBS, **common, **known}
    status = {"name": f"{kind.plural}/status", "verbs": ["get", "patch", "update"], **common}
    return [entry, status] if kind.status else [entry]


def _open_api(catalog: Catalog, steps: list[str]) -> Json:
    """Only that PATCH supports `fieldValidation`, which kubectl apply requires; no schemas of bodies."""
    if not steps:
        paths: Json = {}
        for group, versions in catalog.versions().items():
            for version in versions:
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={version}"}
        return {"paths": paths}
    group, version = ("", steps[1]) if steps[0] == "api" else (steps[1], steps[-1])
    kinds = catalog.of_version(group, version)
    if not kinds:
        raise ApiError(404, "the server could not find the requested resource")
    parameters = [
        {"name": n, "in": "query", "schema": {"type": "string"}} for n in ("dryRun", "fieldValidation")
    ]
    described: Json = {}
    schemas: Json = {}
    for kind in kinds:
        identity = {"group": group, "version": version, "kind": kind.kind}
        where = "/namespaces/{namespace}" if kind.namespaced else ""
        path = f"/{'/'.join(steps)}{where}/{kind.plural}/{{name}}"
        described[path] = {"patch": {"parameters": parameters, _IDENTITY: identity}}
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, _IDENTITY: [identity]}
        schemas[f"{group}.{version}.{kind.kind}"] = schema
    info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": described, "components": {"schemas": schemas}}
