from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Any, Protocol

import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer

from queuectl.answers.what_if.engines import TriedWhatIfs
from queuectl.api.authorization import Reviewer
from queuectl.api.server import application
from queuectl.api.view import View
from queuectl.app.api import rate_card
from queuectl.kinds.policy import parse_policy
from queuectl.ports.changes import Changes
from tests.job_kinds import JOB_KINDS
from tests.unit.api.canned import CannedReadings, two_teams
from tests.unit.api.reviews import CannedReviews

KEY = b"k" * 32


class Clock:
    """A clock in seconds that a test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Rest:
    """The server on a canned ledger, and its view."""

    def __init__(
        self, client: TestClient[Any, Any], readings: CannedReadings, view: View, reviewer: Reviewer | None
    ) -> None:
        self.client, self.readings, self.view = client, readings, view
        self._reviewer = reviewer

    @property
    def reviewer(self) -> Reviewer:
        assert self._reviewer is not None
        return self._reviewer

    async def get(self, path: str, *, token: str | None = None, **parameters: str) -> Any:
        """The JSON body; the status must be 200."""
        answer = await self.client.get(path, params=parameters, headers=bearer(token))
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "application/json"
        return await answer.json()

    async def status(self, path: str, *, token: str | None = None) -> int:
        return (await self.client.get(path, headers=bearer(token))).status

    async def refused(self, answer: Awaitable[ClientResponse], status: int) -> str:
        """The detail of a problem document."""
        found = await answer
        text = await found.text()
        assert found.status == status, text
        assert found.content_type == "application/problem+json", text
        problem = await found.json(content_type="application/problem+json")
        assert set(problem) - {"audiences"} == {"type", "title", "status", "detail"}
        assert ("audiences" in problem) == (status == 401)
        assert problem["status"] == status
        return str(problem["detail"])


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


class Serve(Protocol):
    async def __call__(
        self,
        readings: CannedReadings,
        reviews: CannedReviews | None = None,
        clock: Clock | None = None,
        changes: Changes | None = None,
    ) -> Rest:
        """Without `reviews` there is no access check."""


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    clients: list[TestClient[Any, Any]] = []

    async def start(
        readings: CannedReadings,
        reviews: CannedReviews | None = None,
        clock: Clock | None = None,
        changes: Changes | None = None,
    ) -> Rest:
        view, clock = View(readings, parse_policy), clock or Clock()
        await view.refresh()
        reviewer = Reviewer(reviews, ["queuectl"], clock) if reviews else None
        app = application(
            view,
            readings,
            kinds=JOB_KINDS,
            cursor_key=KEY,
            identify=reviewer,
            clock=clock,
            what_ifs=TriedWhatIfs(),
            forecasts=readings,
            changes=changes,
            statements=readings.statements,
            card_of=rate_card,
            device_use=readings.device_use,
            budgets=readings.budgets,
            links=readings.links,
        )
        client = TestClient(TestServer(app))
        clients.append(client)
        await client.start_server()
        return Rest(client, readings, view, reviewer)

    yield start
    for client in clients:
        await client.close()


@pytest.fixture
async def rest(serve: Serve) -> Rest:
    return await serve(two_teams())
