"""Whether a request that changes something may come from a page of another server in a browser.

Such a page can send requests with what a proxy or the network adds to them, but no header of its own without
a question by OPTIONS, which this server does not answer (CORS).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from queuectl.api.problems import Refusal

HEADER: Final = "Queuectl-Request"
VALUE: Final = "change"


def check(request: web.Request) -> None:
    """Raises a 403."""
    if request.headers.getall(HEADER, []) != [VALUE]:
        raise _refusal(f"a change needs the header `{HEADER}: {VALUE}`")
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        if site != "same-origin":
            raise _refusal(f"a page of another server sent it (Sec-Fetch-Site: {site[:20]})")
        return
    # Browsers leave it out without TLS. A proxy keeps the host, or its page has Sec-Fetch-Site.
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.host.lower():
        raise _refusal("a page of another server sent it (header Origin)")


def _refusal(why: str) -> Refusal:
    return Refusal(HTTPStatus.FORBIDDEN, f"{why}: nothing is changed")
