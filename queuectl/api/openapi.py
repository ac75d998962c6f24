"""The OpenAPI 3.1 document, made from the table of paths and the schemas of the answers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from queuectl import __version__
from queuectl.api.http import CONTENT_TYPE, OWN_PAGE_HEADER, OWN_PAGE_VALUE
from queuectl.api.requests import Endpoint, Parameter
from queuectl.api.schemas import Health, Problem

_NAME_IN_PATH: Final = re.compile(r"{(\w+)}")
_ERRORS: Final = {
    "400": "A parameter is unknown or out of its range, or the request has a body; the detail says which.",
    "401": "No token is given, or it is not valid here.",
    "403": "The caller may not do this; the detail says why.",
    "404": "There is no such object, or the caller may not read it.",
    "405": "The path does not support this method.",
    "409": "The object is in another state, or was replaced: nothing was changed.",
    "411": "The length of the body is not given.",
    "413": "The body is too long.",
    "415": "The body is not of a type that the path takes.",
    "422": "The API server refuses the change; the detail has its words.",
    "429": "Too many requests of one caller; Retry-After says when to retry.",
    "431": "The request line or a header is too long.",
    "503": "The ledger cannot be read and memory has no answer, or the API server does not review callers.",
}
_RETRY: Final = {
    "Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}},
}
_OWN_PAGE: Final = {
    "name": OWN_PAGE_HEADER,
    "in": "header",
    "required": True,
    "description": "A page of another server in a browser cannot send it.",
    "schema": {"type": "string", "enum": [OWN_PAGE_VALUE]},
}
_TEXT: Final = """\
It reads, but for paths that end in a verb, such as `hold`: these change one object of Kubernetes with the
rights of the caller, where `api.changes` allows it. Authenticate by a token of the cluster:
`Authorization: Bearer TOKEN`, made by `kubectl create token SERVICEACCOUNT --audience queuectl`. For a change
it must be one for the API server, and the request has the header `Queuectl-Request: change`. What you may
read is what RBAC lets you `get` and `list` in the group `queuectl.dev`: `workloads` (virtual) and
`localqueues`, by namespace;
`clusterqueues`, `cohorts` and `resourceflavors` by name. Other workloads are counted, never named.
Lists have pages: pass `next` as the parameter `next`, with the same filters, as long as it is not null.
Every answer comes from one committed state of the ledger and has its `sequence` and its age."""


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """As plain JSON values."""
    endpoints = tuple(endpoints)
    models: list[type[BaseModel]] = [*(endpoint.model for endpoint in endpoints), Problem, Health]
    references, definitions = _schemas(tuple(dict.fromkeys(models)))
    problem = {"content": {CONTENT_TYPE: {"schema": references[Problem, "serialization"]}}}
    paths = _probe_paths(_answer(references[Health, "serialization"], "Good."), problem)
    for endpoint in endpoints:
        paths[endpoint.path] = {
            "post" if endpoint.body else "get": {
                "summary": endpoint.summary,
                **({"description": endpoint.notes} if endpoint.notes else {}),
                "operationId": endpoint.answer.__name__,
                "parameters": [
                    *_in_path(endpoint.path),
                    *map(_in_query, endpoint.parameters),
                    *((_OWN_PAGE,) if endpoint.changes else ()),
                ],
                **({"requestBody": _body(endpoint)} if endpoint.body else {}),
                "responses": {
                    "200": _answer(references[endpoint.model, "serialization"], "From one committed state."),
                    **{code: _error(code, text, problem) for code, text in _ERRORS.items()},
                },
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "queuectl",
            "version": __version__,
            "summary": "Queues, workloads, and why workloads are pending",
            "description": _TEXT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of the cluster for the audience that the server requires. With "
                    "api.identity: local no token is needed.",
                }
            },
        },
    }


def _probe_paths(health: dict[str, Any], problem: dict[str, Any]) -> dict[str, Any]:
    """The paths that kubelets ask."""
    return {
        path: {
            "get": {
                "summary": summary,
                "operationId": path.strip("/"),
                "security": [],
                "responses": {"200": health, "503": {"description": "Not ready, or not alive.", **problem}},
            }
        }
        for path, summary in (
            ("/healthz", "Whether it is alive"),
            ("/readyz", "Whether it has an answer to give"),
        )
    }


@cache
def _schemas(models: tuple[type[BaseModel], ...]) -> tuple[dict[Any, dict[str, Any]], dict[str, Any]]:
    """References by model and mode, and the definitions that they refer to: most work of a document."""
    return models_json_schema(
        [(model, "serialization") for model in models],
        ref_template="#/components/schemas/{model}",
    )


def _body(endpoint: Endpoint) -> dict[str, Any]:
    types = ("application/json", *(("application/yaml",) if endpoint.yaml else ()))
    return {"required": True, "content": {name: {"schema": {"type": "object"}} for name in types}}


def _error(code: str, text: str, problem: dict[str, Any]) -> dict[str, Any]:
    retry = {"headers": _RETRY} if code in ("429", "503") else {}
    return {"description": text, **retry, **problem}


def _answer(schema: Any, description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _in_path(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _NAME_IN_PATH.findall(path)
    ]


def _in_query(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }
