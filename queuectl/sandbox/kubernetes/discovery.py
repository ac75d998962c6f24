"""Discovery for kubectl: groups, versions, resources, and OpenAPI v3 documents of them."""

from __future__ import annotations

import orjson

from queuectl.sandbox.kubernetes.resources import Catalog, ServedKind
from queuectl.sandbox.kubernetes.wire import Json, Request, ServerResponse, StatusError

VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.2+queuectl", "platform": "linux/amd64"}
_IDENTITY = "x-kubernetes-group-version-kind"
_TEXT = {"type": "string"}
_PATCH_PARAMETERS = [{"name": name, "in": "query", "schema": _TEXT} for name in ("dryRun", "fieldValidation")]
"""kubectl validates by itself unless a PATCH has `fieldValidation`."""


def discover(catalog: Catalog, request: Request) -> ServerResponse | None:
    """None if the path is not one of discovery."""
    steps = request.path.strip("/").split("/")
    if steps[0] in ("healthz", "livez", "readyz"):
        return ServerResponse(200, b"ok", content_type="text/plain")
    if steps == ["version"]:
        return _json(VERSION)
    if steps == ["api"]:
        return _json({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
    if steps == ["apis"]:
        groups = [_group(group, versions) for group, versions in catalog.versions().items() if group]
        return _json({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    if steps[:2] == ["openapi", "v3"]:
        return _json(_openapi(catalog, steps[2:]) if steps[2:] else _openapi_index(catalog))
    if steps[0] == "apis" and len(steps) == 2 and (versions := catalog.versions().get(steps[1])):
        return _json({"kind": "APIGroup", "apiVersion": "v1", **_group(steps[1], versions)})
    if (steps[0], len(steps)) in (("api", 2), ("apis", 3)):
        return _resources(catalog, "" if steps[0] == "api" else steps[1], steps[-1])
    return None


def _json(content: Json) -> ServerResponse:
    return ServerResponse(200, orjson.dumps(content))


def _group(group: str, versions: list[str]) -> Json:
    served = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": served, "preferredVersion": served[0]}


def _resources(catalog: Catalog, group: str, version: str) -> ServerResponse | None:
    resources = [entry for kind in catalog.of_version(group, version) for entry in _entries(kind)]
    name = f"{group}/{version}" if group else version
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name}
    return _json({**head, "resources": resources}) if resources else None


def _entries(kind: ServedKind) -> list[Json]:
    common = {"singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind}
    known = {"shortNames": kind.short, "categories": kind.categories}
    entry = {"name": kind.plural, "verbs": kind.verbs, **common, **known}
    status = {"name": f"{kind.plural}/status", "verbs": ["get", "patch", "update"], **common}
    return [entry, status] if kind.status else [entry]


def _openapi_index(catalog: Catalog) -> Json:
    """Address of the document of each group and version."""
    paths: Json = {}
    for group, versions in catalog.versions().items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
    return {"paths": paths}


def _openapi(catalog: Catalog, steps: list[str]) -> Json:
    """The document at a path such as apis/batch/v1. Raises StatusError 404."""
    group = steps[1] if steps[0] == "apis" and len(steps) == 3 else ""
    version = steps[-1]
    paths, schemas = {}, {}
    for kind in catalog.of_version(group, version):
        identity = {"group": group, "version": version, "kind": kind.kind}
        where = "/namespaces/{namespace}" if kind.namespaced else ""
        path = f"/{'/'.join(steps)}{where}/{kind.plural}/{{name}}"
        paths[path] = {"patch": {"parameters": _PATCH_PARAMETERS, _IDENTITY: identity}}
        schemas[kind.kind] = {**_schema(kind), _IDENTITY: [identity]}
    if not schemas:
        raise StatusError(404, "the server could not find the requested resource")
    info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _schema(kind: ServedKind) -> Json:
    """What `kubectl explain` shows: of a custom kind its definition, of a built-in one what is checked."""
    schema = kind.schema or {}
    part = "" if kind.custom else ": the fields that this server checks"
    fields = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": {"type": "object"}}
    return {
        "type": "object",
        "description": f"{kind.kind} in {kind.api_version}{part}.",
        **schema,
        "properties": {**(schema.get("properties") or {}), **fields},
    }
