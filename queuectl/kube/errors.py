"""How an API server refuses, one exception per meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from queuectl.ports import ClusterUnavailable

MAX_MESSAGE: Final = 500
_MAX_RETRY_AFTER: Final = 300.0
"""Seconds; a server that asks for more is asked again after this."""


class BadKubeconfig(ValueError):
    """Credentials can't be read: no such file or context, or nothing in it to connect with."""


class ApiError(Exception):
    """The server answered, and not with what was asked for. `status` is its HTTP status, 0 without one."""

    def __init__(self, message: str, *, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class BadRequest(ApiError):
    pass


class Unauthorized(ApiError):
    pass


class Forbidden(ApiError):
    pass


class NotFound(ApiError):
    """No such object, or no such kind."""


class Conflict(ApiError):
    """Another resourceVersion, a broken precondition, or a name that is taken."""


class Gone(ApiError):
    """The resourceVersion or page token is too old."""


class Invalid(ApiError):
    """The object would not be valid, or a test of a JSON patch failed."""


class Unavailable(ApiError, ClusterUnavailable):
    """No answer, a broken one, or a server that can't now. Whether a write was done is not known."""

    def __init__(self, message: str, *, status: int = 0, retry_after: float | None = None) -> None:
        Exception.__init__(self, message)
        self.status = status
        self.retry_after = retry_after


class TooManyRequests(Unavailable):
    """Not done: come again later."""


_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def from_answer(request: str, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The exception for an answer of `status`; `body` should be a Status object but may be anything."""
    return from_status(request, status, _message(body), retry_after(headers))


def from_status(request: str, status: int, message: str, wait: float | None = None) -> ApiError:
    """The exception for `status`, as in a Status object inside a watch."""
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 or status < 400 else BadRequest)
    return kind(f"{request}: {status} {message[:MAX_MESSAGE]}", status=status, retry_after=wait)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the server asks to wait; dates, which API servers do not send, count as none."""
    value = headers.get("Retry-After", "")
    return min(float(value), _MAX_RETRY_AFTER) if value.isascii() and value.isdigit() else None


def _message(body: bytes) -> str:
    try:
        status: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[:MAX_MESSAGE].decode(errors="replace")
    message = status.get("message") if isinstance(status, dict) else None
    return message if isinstance(message, str) else ""
