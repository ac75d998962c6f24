"""Messages to webhooks and to Slack-compatible URLs."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import ssl
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

import aiohttp

from queuectl import __version__
from queuectl.notifications.delivery import MAX_PAUSE, SinkFailed
from queuectl.notifications.messages import Message

SIGNATURE: Final = "X-Queuectl-Signature-256"
"""Header with `sha256=` and the HMAC-SHA256 of the body in hex, as webhooks of GitHub have it."""
SECONDS: Final = 10.0
"""For one request, from the connection to the status."""
Secret = Callable[[], str]
"""Reads a secret: at each message, so that a changed one counts at once. Raises SinkFailed."""


class HttpSink:
    """POSTs to one URL: TLS is verified, redirects are not followed, proxies of the environment not used."""

    def __init__(self, url: Secret, tls: ssl.SSLContext, secret: Secret | None = None) -> None:
        """`secret`: key of the signature; None: requests are not signed."""
        self._url = url
        self._tls = tls
        self._secret = secret

    async def webhook(self, message: Message) -> None:
        """Raises SinkFailed."""
        await self._post(message, message.body)

    async def slack(self, message: Message) -> None:
        """Raises SinkFailed."""
        await self._post(message, json.dumps({"text": _escaped(message.text)}).encode())

    async def _post(self, message: Message, body: bytes) -> None:
        url = checked(self._url())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"queuectl/{__version__}",
            "Idempotency-Key": message.id,
            "X-Queuectl-Event": message.event,
        }
        if self._secret is not None:
            headers[SIGNATURE] = signature(self._secret(), body)
        try:
            async with (
                asyncio.timeout(SECONDS),
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(ssl=self._tls), cookie_jar=aiohttp.DummyCookieJar()
                ) as session,
                session.post(url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                _accepted(answer.status, answer.headers)
        except TimeoutError:
            raise SinkFailed(f"no answer within {SECONDS:g} s") from None
        except aiohttp.InvalidURL:
            raise SinkFailed("its URL is not valid") from None  # the message would have the URL
        except aiohttp.ClientConnectionError as error:
            raise SinkFailed(f"no connection: {error}") from None
        except aiohttp.ClientError as error:
            raise SinkFailed(type(error).__name__) from None


def signature(secret: str, body: bytes) -> str:
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def checked(url: str) -> str:
    """The URL, if messages may be sent there. Raises SinkFailed, without the URL: it may be a secret."""
    problem = url_problem(url)
    if problem is not None:
        raise SinkFailed(f"its URL {problem}")
    return url


def url_problem(url: str) -> str | None:
    """What is wrong with the URL of a sink; None: nothing."""
    try:
        parts = urlsplit(url)
        known = parts.hostname is not None and parts.port != 0
    except ValueError:
        known = False
    if not known or not url.isascii() or not url.isprintable() or " " in url:
        return "is not a URL"
    if parts.scheme != "https" and not (parts.scheme == "http" and _loopback(parts)):
        return "must start with https://, or with http:// and the name of this machine's loopback"
    return None


def _loopback(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _accepted(status: int, headers: Mapping[str, str]) -> None:
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise SinkFailed(f"answers {status}: redirects are not followed")
    wait = headers.get("Retry-After", "")
    seconds = min(float(wait[:9]), MAX_PAUSE) if wait.isascii() and wait.isdigit() else None
    raise SinkFailed(f"answers {status}", seconds)


def _escaped(text: str) -> str:
    """Slack reads these three characters as its own."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
