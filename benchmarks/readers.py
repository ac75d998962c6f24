"""`python -m benchmarks.readers`: callers of REST in a process of their own; what they ask is on stdin.

Each caller asks again and again, with a pause, or once about each namespace. On stdout an empty line when
the process is ready, and at its end, by caller, the seconds of each question.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

import aiohttp
import orjson

PAGE: Final = 500
_AGAIN: Final = 0.05
"""Seconds before another Job is asked about, after one that runs or is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """What is asked, where, with which tokens, and for how long."""

    url: str
    tokens: dict[str, str]
    """By caller: `pages`, `workloads`, `explanations`, or some of these."""
    pauses: dict[str, float]
    """Seconds between two questions of a caller."""
    names: list[tuple[str, str]]
    """(namespace, name) of the Jobs that are asked about."""
    seconds: float
    """0: a caller asks for a page, or for one workload of each namespace, and ends."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(slots=True)
class _Caller:
    session: aiohttp.ClientSession
    url: str
    names: list[tuple[str, str]]
    dice: random.Random
    cursor: str = ""
    incomplete: int = 0
    told: int = 0

    async def page(self) -> bool:
        query = f"?limit={PAGE}{f'&next={self.cursor}' if self.cursor else ''}"
        answer = await self._get(f"/api/v1/workloads{query}")
        assert answer is not None
        self.cursor = answer.get("next") or ""
        return True

    async def workload(self, which: tuple[str, str] | None = None) -> bool:
        namespace, name = which or self.dice.choice(self.names)
        return await self._get(f"/api/v1/workloads/{namespace}/job/{name}") is not None

    async def explanation(self) -> bool:
        """Both requests of `queuectl explain`."""
        namespace, name = self.dice.choice(self.names)
        path = f"/api/v1/workloads/{namespace}/job/{name}"
        workload = await self._get(path)
        if workload is None or workload["phase"] != "Pending":
            return False
        found = await self._get(f"{path}/counterfactuals")
        if found is None:
            return False
        self.incomplete += bool(found["incomplete"])
        self.told += len(found["items"])
        return True

    async def _get(self, path: str) -> dict[str, Any] | None:
        """None: it is over."""
        async with self.session.get(f"{self.url}{path}") as answer:
            content = await answer.read()
            if answer.status == 404:
                return None
            if answer.status != 200:
                raise RuntimeError(f"GET {path}: {answer.status} {content[:500].decode()}")
        found: dict[str, Any] = orjson.loads(content)
        return found


async def _repeat(ask: Callable[[], Awaitable[bool]], pause: float, until: float) -> list[float]:
    """Not counted: the first question, which waits for a review of the token after a pause of the caller."""
    await ask()
    took: list[float] = []
    while time.perf_counter() < until:
        began = time.perf_counter()
        if await ask():
            took.append(time.perf_counter() - began)
            await asyncio.sleep(pause)
        else:
            await asyncio.sleep(_AGAIN)
    return took


async def _first(name: str, caller: _Caller, pause: float) -> list[float]:
    """The first page, or the first question about each namespace, which waits for reviews of its rights."""
    took = []
    last = dict(caller.names)  # those still wait
    for which in (None,) if name == "pages" else last.items():
        began = time.perf_counter()
        await (caller.page() if which is None else caller.workload(which))
        took.append(time.perf_counter() - began)
        await asyncio.sleep(pause)
    return took


async def _run(what: Readers) -> dict[str, Any]:
    until = time.perf_counter() + what.seconds
    sessions = {
        name: aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}, trust_env=False)
        for name, token in what.tokens.items()
    }
    callers = {
        name: _Caller(session, what.url, what.names, random.Random(name))
        for name, session in sessions.items()
    }
    asks = {
        "pages": _Caller.page,
        "workloads": _Caller.workload,
        "explanations": _Caller.explanation,
    }
    try:
        took = await asyncio.gather(
            *(
                _repeat(partial(asks[name], one), what.pauses[name], until)
                if what.seconds
                else _first(name, one, min(what.pauses.values()))
                for name, one in callers.items()
            )
        )
    finally:
        for session in sessions.values():
            await session.close()
    return {
        "took": dict(zip(callers, took, strict=True)),
        "incomplete": sum(one.incomplete for one in callers.values()),
        "told": sum(one.told for one in callers.values()),
    }


if __name__ == "__main__":
    print(flush=True)
    asked = json.load(sys.stdin)
    asked["names"] = [tuple(one) for one in asked["names"]]
    print(json.dumps(asyncio.run(_run(Readers(**asked)))))
