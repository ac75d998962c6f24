"""What goes in and out: requests, responses, and errors as Kubernetes Status objects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; `path` decoded, header names in lower case."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    """`body` is an iterator for a watch: one chunk holds whole lines."""

    status: int
    body: bytes | AsyncIterator[bytes]
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    def json(self) -> Json:
        """The decoded body. Raises TypeError for a watch."""
        if not isinstance(self.body, bytes):
            raise TypeError("a watch has no single JSON body")
        return dict(orjson.loads(self.body))


class Cause(NamedTuple):
    """One thing wrong with one field. `reason` is FieldValueInvalid, FieldValueRequired, ..."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    504: "Timeout",
}


class ApiError(Exception):
    """A refusal, as the caller will read it."""

    def __init__(
        self,
        code: int,
        message: str,
        reason: str | None = None,
        details: Json | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.headers = dict(headers or {})
        self.status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason or _REASONS.get(code, "Unknown"),
            **({"details": details} if details else {}),
            "code": code,
        }

    def response(self) -> Response:
        return Response(self.code, orjson.dumps(self.status), headers=self.headers)


def qualified(plural: str, group: str) -> str:
    """`jobs.batch`, or `pods` for the core group."""
    return f"{plural}.{group}" if group else plural


def not_found(plural: str, group: str, name: str) -> ApiError:
    details = {"name": name, **({"group": group} if group else {}), "kind": plural}
    return ApiError(404, f'{qualified(plural, group)} "{name}" not found', details=details)


def conflict(plural: str, group: str, name: str, message: str) -> ApiError:
    details = {"name": name, **({"group": group} if group else {}), "kind": plural}
    text = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {message}'
    return ApiError(409, text, details=details)


def forbidden(plural: str, group: str, name: str, message: str) -> ApiError:
    details = {"name": name, **({"group": group} if group else {}), "kind": plural}
    return ApiError(403, f'{qualified(plural, group)} "{name}" is forbidden: {message}', details=details)


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """422 naming each field; one cause reads `field: message`, several are bracketed."""
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = {
        "name": name,
        **({"group": group} if group else {}),
        "kind": kind,
        "causes": [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes],
    }
    return ApiError(422, f'{qualified(kind, group)} "{name}" is invalid: {text}', details=details)
