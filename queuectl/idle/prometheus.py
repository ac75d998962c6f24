"""Instant queries over the HTTP API of a Prometheus server."""

from __future__ import annotations

import asyncio
import json
import math
import re
import ssl
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

from queuectl.net.failures import why

DEADLINE: Final = 30.0
"""Seconds of one query."""
MOST_BYTES: Final = 16 << 20
"""Of one answer: some 60,000 devices."""
MOST_SAMPLES: Final = 100_000
"""Of one answer. Memory of the controller grows with both."""
_MOST_WORDS: Final = 300
_TOKEN: Final = re.compile(rb"[!-~]+")


class PrometheusFailed(Exception):
    """No answer, an error, or an answer that is not whole. The message names the query's fault."""


class Sample(NamedTuple):
    labels: dict[str, str]
    value: float


class Prometheus:
    """A client of one server.

    `token`: a file with a bearer token, read for each query, as Kubernetes rotates it.
    """

    def __init__(self, url: str, *, token: Path | None = None, ca: Path | None = None) -> None:
        self._url = f"{url.rstrip('/')}/api/v1/query"
        self._token = token
        self._ca = ca

    async def query(self, expression: str) -> list[Sample]:
        """The samples of a vector now; those that are no number are left out. Raises PrometheusFailed."""
        try:
            async with asyncio.timeout(DEADLINE):
                status, body = await self._answer(expression)
        except TimeoutError:
            raise PrometheusFailed(f"no answer within {DEADLINE:.0f} s") from None
        except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
            raise PrometheusFailed(why(error)) from error
        # In a thread: the answer about many devices is large.
        return await asyncio.to_thread(_samples, status, body)

    async def _answer(self, expression: str) -> tuple[int, bytes]:
        headers = {}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {_bearer_token(self._token)}"
        context = ssl.create_default_context(cafile=self._ca) if self._ca is not None else True
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(self._url, data={"query": expression}, ssl=context) as response,
        ):
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MOST_BYTES:
                    raise PrometheusFailed(f"an answer is over {MOST_BYTES >> 20} MiB")
            return response.status, bytes(body)


def _bearer_token(file: Path) -> str:
    """Raises PrometheusFailed, which does not show its content, and OSError."""
    content = file.read_bytes().strip()
    if _TOKEN.fullmatch(content) is None:
        raise PrometheusFailed(_short(f"{file} is not a bearer token"))
    return content.decode("ascii")


def _samples(status: int, body: bytes) -> list[Sample]:
    if body.count(b'"value"') > MOST_SAMPLES:
        raise PrometheusFailed(f"an answer has over {MOST_SAMPLES} samples")
    try:
        answer: Any = json.loads(body)
        if not isinstance(answer, dict):
            raise TypeError
        if status != 200 or answer.get("status") != "success":
            raise PrometheusFailed(_short(f"HTTP {status}: {answer.get('error') or 'no reason given'}"))
        if answer.get("warnings"):
            raise PrometheusFailed(_short(f"the answer is not whole: {answer['warnings'][0]}"))
        if answer["data"]["resultType"] != "vector":
            raise TypeError
        found = [
            Sample({str(name): str(text) for name, text in one["metric"].items()}, float(one["value"][1]))
            for one in answer["data"]["result"]
        ]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError):
        raise PrometheusFailed(f"HTTP {status}: not an answer of Prometheus") from None
    return [one for one in found if math.isfinite(one.value)]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_WORDS else f"{line[: _MOST_WORDS - 1]}…"
