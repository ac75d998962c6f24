"""Errors of an API server, one exception per meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from queuectl.ports.cluster import ClusterUnavailable

MAX_MESSAGE: Final = 500
_END: Final = 200
"""Characters of a longer message that are its end."""
_MAX_RETRY_AFTER: Final = 300.0
"""Seconds; a longer Retry-After of a server is cut to this."""


class BadKubeconfig(ValueError):
    """Credentials can't be read: no such file or context, or no server and credentials in it."""


class ApiError(Exception):
    """The request failed. `status` is the HTTP status of the answer, 0 if there was none."""

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
    """No answer, a broken one, or a server error. Whether a write was done is not known."""

    def __init__(self, message: str, *, status: int = 0, retry_after: float | None = None) -> None:
        Exception.__init__(self, message)
        self.status = status
        self.retry_after = retry_after


class TooManyRequests(Unavailable):
    """Not done: repeat it later."""


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
    """The exception for a Status object in a watch."""
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 or status < 400 else BadRequest)
    return kind(f"{request}: {status} {_shortened(message)}", status=status, retry_after=wait)


def _shortened(message: str) -> str:
    """Return the begin and the end of a long message: what is wrong stands behind the value that is."""
    if len(message) <= MAX_MESSAGE:
        return message
    return f"{message[: MAX_MESSAGE - _END]} ... {message[-_END:]}"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds; dates, which API servers do not send, are ignored."""
    value = headers.get("Retry-After", "")
    return min(float(value), _MAX_RETRY_AFTER) if value.isascii() and value.isdigit() else None


def _message(body: bytes) -> str:
    try:
        status: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[:MAX_MESSAGE].decode(errors="replace")
    message = status.get("message") if isinstance(status, dict) else None
    return message if isinstance(message, str) else ""
