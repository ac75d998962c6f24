"""How REST answers on one connection: a deadline for each answer, and every refusal as problem+json."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from queuectl.api.problems import Refusal, respond

WRITE_SECONDS: Final = 60.0
"""How long a client may take to read one answer."""

log = logging.getLogger(__name__)


class Answering(web.RequestHandler):
    """The requests of one connection."""

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                return await super().finish_response(request, resp, start_time)
        except TimeoutError:
            if self.transport is not None:
                self.transport.abort()
            return resp, True

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """For what cannot be parsed as a request, and for defects outside all handlers."""
        if isinstance(exc, LineTooLong):
            refusal = Refusal(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request line or a header is too long"
            )
        elif status < HTTPStatus.INTERNAL_SERVER_ERROR:
            refusal = Refusal(HTTPStatus.BAD_REQUEST, "this is not a valid HTTP/1.1 request")
        else:
            log.error("a request failed", exc_info=exc)
            refusal = Refusal(
                HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; the server's log has the details"
            )
        answer = respond(refusal)
        answer.force_close()
        return answer
