"""Requests, responses, and errors as Kubernetes Status objects."""

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

    @property
    def media(self) -> str:
        """Content type without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip()


@dataclass(frozen=True, slots=True)
class ServerResponse:
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


class StatusCause(NamedTuple):
    """One problem of one field. `reason` is FieldValueInvalid, FieldValueRequired, ..."""

    field: str
    message: str = "Required value"
    reason: str = "FieldValueInvalid"


def required(path: str, message: str = "Required value") -> StatusCause:
    return StatusCause(path, message, "FieldValueRequired")


_REASONS = {
    **{400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed"},
    **{409: "Conflict", 410: "Expired", 413: "RequestEntityTooLarge", 415: "UnsupportedMediaType"},
    **{422: "Invalid", 429: "TooManyRequests", 500: "InternalError", 504: "Timeout"},
}


class StatusError(Exception):
    """A refusal, as sent to the caller."""

    def __init__(
        self, code: int, message: str, reason: str = "", details: Json | None = None, retry_after: int = 0
    ) -> None:
        super().__init__(message)
        self.code = code
        self.headers = {"Retry-After": str(retry_after)} if retry_after else {}
        details = {**(details or {}), **({"retryAfterSeconds": retry_after} if retry_after else {})}
        reason = reason or _REASONS.get(code, "Unknown")
        self.status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        self.status |= {"message": message, "reason": reason, "details": details, "code": code}

    def response(self) -> ServerResponse:
        return ServerResponse(self.code, orjson.dumps(self.status), headers=self.headers)


def refusal(code: int, kind: str, group: str, name: str, message: str, reason: str = "") -> StatusError:
    """A refusal that names its object; `{}` in the message stands for `jobs.batch "name"`."""
    details = {"name": name, "group": group, "kind": kind}
    resource = f"{kind}.{group}" if group else kind
    text = message.replace("{}", f'{resource} "{name}"' if name else resource, 1)
    return StatusError(code, text, reason, {key: value for key, value in details.items() if value})


def invalid(kind: str, group: str, name: str, causes: Sequence[StatusCause]) -> StatusError:
    """422 with the name of each field; one cause as `field: message`, several in brackets."""
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    error = refusal(422, kind, group, name, f"{{}} is invalid: {text}")
    shown = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    error.status["details"]["causes"] = shown
    return error
