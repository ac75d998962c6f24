"""Pages as answers are made of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count

import pytest

from queuectl.answers.state import CommittedState
from queuectl.api import schemas, view
from queuectl.api.requests import Caller, Question, Unrestricted
from queuectl.api.view import Sight

NOW = datetime(2026, 11, 24, tzinfo=UTC)
ITEMS = 500


async def test_other_requests_are_answered_while_a_long_page_is_made() -> None:
    answered, seen = 0, list[int]()

    async def other() -> None:
        nonlocal answered
        while True:
            answered += 1
            await asyncio.sleep(0)

    def items() -> Iterator[schemas.FlavorResource]:
        for number in range(ITEMS):
            seen.append(answered)
            yield schemas.FlavorResource(resource=f"r-{number}", nominal=number, used=0)

    sight = Sight(CommittedState(), age_seconds=0.0, committed_at=NOW, silent_seconds=0.0, stale=False)
    async with asyncio.TaskGroup() as tasks:
        others = tasks.create_task(other())
        made = await view.page(schemas.FlavorResource, items(), None, sight)
        others.cancel()
    assert [one.nominal for one in made.items] == list(range(ITEMS))
    assert len(set(seen)) >= 10


@pytest.mark.parametrize("gone_after", [1, 3])
async def test_work_ends_once_its_client_is_gone(monkeypatch: pytest.MonkeyPatch, gone_after: int) -> None:
    monkeypatch.setattr(view, "HEARTBEAT_SECONDS", 0.001)
    looks, ended = count(1), list[str]()

    async def answer() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")
        return "never"

    async def again() -> Caller:
        return Unrestricted()

    question = Question(Unrestricted(), {}, {}, "", again, gone=lambda: next(looks) >= gone_after)
    async with asyncio.timeout(30):
        with pytest.raises(TimeoutError):
            await view.while_asked(question, answer())
    assert ended == ["ended"]
    assert next(looks) == gone_after + 1
