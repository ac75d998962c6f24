from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer

from queuectl.api.server import application
from queuectl.api.view import View
from queuectl.kinds.policy import parse_policy
from tests.api.canned import CannedReadings, two_teams

KEY = b"k" * 32


class Rest:
    """The server over a canned ledger, and its view."""

    def __init__(self, client: TestClient[Any, Any], readings: CannedReadings, view: View) -> None:
        self.client, self.readings, self.view = client, readings, view

    async def get(self, path: str, **parameters: str) -> Any:
        """The JSON document of a 200."""
        answer = await self.client.get(path, params=parameters)
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "application/json"
        return await answer.json()

    async def refused(self, answer: Awaitable[ClientResponse], status: int) -> str:
        """The detail of a problem."""
        found = await answer
        text = await found.text()
        assert found.status == status, text
        assert found.content_type == "application/problem+json", text
        problem = await found.json(content_type="application/problem+json")
        assert set(problem) == {"type", "title", "status", "detail"}
        assert problem["status"] == status
        return str(problem["detail"])


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[CannedReadings], Awaitable[Rest]]]:
    clients: list[TestClient[Any, Any]] = []

    async def start(readings: CannedReadings) -> Rest:
        view = View(readings, parse_policy)
        await view.refresh()
        client = TestClient(TestServer(application(view, readings, cursor_key=KEY)))
        clients.append(client)
        await client.start_server()
        return Rest(client, readings, view)

    yield start
    for client in clients:
        await client.close()


@pytest.fixture
async def rest(serve: Callable[[CannedReadings], Awaitable[Rest]]) -> Rest:
    return await serve(two_teams())
