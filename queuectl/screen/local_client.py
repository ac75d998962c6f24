"""Requests to a REST server on this machine, without a token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import aiohttp
import orjson

from queuectl.screen.poller import Answer, Ask, Away, RequestRefused

_SECONDS: Final = 5.0
_REFUSALS: Final = (401, 403, 404)


@asynccontextmanager
async def local_client(url: str, clock: Callable[[], datetime]) -> AsyncIterator[Ask]:
    """`clock`: this machine's, for an answer without the header Date."""
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:

        async def ask(path: tuple[str, ...], parameters: Mapping[str, str]) -> Answer:
            try:
                whole = f"{url}/api/v1/{'/'.join(path)}"
                async with session.get(whole, params=parameters, allow_redirects=False) as answer:
                    found = _document(await answer.read())
                    status, date = answer.status, answer.headers.get("Date")
            except TimeoutError:
                raise Away(f"no answer within {_SECONDS:g} s") from None
            except aiohttp.ClientError as error:
                raise Away(f"no answer: {error}") from None
            if status in _REFUSALS:
                raise RequestRefused(f"answers {status}: {_detail(found)}")
            if status != 200 or not isinstance(found, dict):
                raise Away(f"answers {status}: {_detail(found)}")
            return Answer(found, parsedate_to_datetime(date) if date else clock())

        yield ask


def _detail(found: Any) -> str:
    detail = found.get("detail") if isinstance(found, dict) else None
    return str(detail or "no readable text")


def _document(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
