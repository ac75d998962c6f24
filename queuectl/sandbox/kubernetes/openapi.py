"""OpenAPI v3 documents of the served kinds, for `kubectl explain` and `kubectl apply`."""

from __future__ import annotations

from queuectl.sandbox.kubernetes import models
from queuectl.sandbox.kubernetes.resources import Catalog, Kind
from queuectl.sandbox.kubernetes.wire import ApiError, Json

_IDENTITY = "x-kubernetes-group-version-kind"
_TEXT = {"type": "string"}
# A PATCH with `fieldValidation`: kubectl apply requires it.
_PARAMETERS = [{"name": name, "in": "query", "schema": _TEXT} for name in ("dryRun", "fieldValidation")]


def index(catalog: Catalog) -> Json:
    """Address of the document of each group and version."""
    paths: Json = {}
    for group, versions in catalog.versions().items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
    return {"paths": paths}


def document(catalog: Catalog, steps: list[str], release: str) -> Json:
    """The document at a path such as apis/batch/v1. Raises ApiError 404."""
    group = steps[1] if steps[0] == "apis" and len(steps) == 3 else ""
    version = steps[-1]
    kinds = catalog.of_version(group, version)
    if not kinds:
        raise ApiError(404, "the server could not find the requested resource")
    described: Json = {}
    schemas: Json = models.with_references(
        models.OBJECT_META, *(models.name_of(kind) for kind in kinds if not kind.custom)
    )
    for kind in kinds:
        identity = {"group": group, "version": version, "kind": kind.kind}
        where = "/namespaces/{namespace}" if kind.namespaced else ""
        path = f"/{'/'.join(steps)}{where}/{kind.plural}/{{name}}"
        described[path] = {"patch": {"parameters": _PARAMETERS, _IDENTITY: identity}}
        name = kind.kind if kind.custom else models.component(models.name_of(kind))
        schema = _custom(kind) if kind.custom else schemas[name]
        text = {"description": f"{kind.kind} in {kind.api_version}."}
        schemas[name] = {**text, **schema, _IDENTITY: [identity]}
    info = {"title": "Kubernetes", "version": release}
    return {"openapi": "3.0.0", "info": info, "paths": described, "components": {"schemas": schemas}}


def _custom(kind: Kind) -> Json:
    """The schema of its definition, with the fields of every object."""
    schema = kind.schema or {}
    metadata = {"metadata": models.reference(models.OBJECT_META)}
    fields = {"apiVersion": _TEXT, "kind": _TEXT, **(schema.get("properties") or {}), **metadata}
    return {"type": "object", **schema, "properties": fields}
