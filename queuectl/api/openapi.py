"""The OpenAPI 3.1 document, made from the table of paths and the schemas of the answers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from queuectl import __version__
from queuectl.api.problems import CONTENT_TYPE
from queuectl.api.query import Parameter
from queuectl.api.routes import Endpoint
from queuectl.api.schemas import Health, Problem

_NAME_IN_PATH: Final = re.compile(r"{(\w+)}")
_ERRORS: Final = {
    "400": "A parameter is unknown or out of its range; the detail names it.",
    "404": "There is no such object, or the caller may not read it.",
    "405": "Only GET and HEAD are known.",
    "503": "The ledger can't be read, and memory has no answer.",
}


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """As plain JSON values."""
    endpoints = tuple(endpoints)
    models: list[type[BaseModel]] = [*(endpoint.model for endpoint in endpoints), Problem, Health]
    references, definitions = models_json_schema(
        [(model, "serialization") for model in dict.fromkeys(models)],
        ref_template="#/components/schemas/{model}",
    )
    problem = {"content": {CONTENT_TYPE: {"schema": references[Problem, "serialization"]}}}
    health = _answer(references[Health, "serialization"], "Good.")
    paths: dict[str, Any] = {
        path: {
            "get": {
                "summary": summary,
                "operationId": path.strip("/"),
                "responses": {"200": health, "503": {"description": "Not yet, or no more.", **problem}},
            }
        }
        for path, summary in (("/healthz", "Is it alive?"), ("/readyz", "Has it an answer to give?"))
    }
    for endpoint in endpoints:
        errors = {code: {"description": text, **problem} for code, text in _ERRORS.items()}
        paths[endpoint.path] = {
            "get": {
                "summary": endpoint.summary,
                "operationId": endpoint.answer.__name__,
                "parameters": [*_in_path(endpoint.path), *map(_in_query, endpoint.parameters)],
                "responses": {
                    "200": _answer(references[endpoint.model, "serialization"], "From one committed state."),
                    **errors,
                },
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "queuectl",
            "version": __version__,
            "summary": "Queues, workloads, and why they wait",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": definitions["$defs"]},
    }


def _answer(schema: Any, description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _in_path(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _NAME_IN_PATH.findall(path)
    ]


def _in_query(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }
