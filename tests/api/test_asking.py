"""Pages as answers are made of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

from queuectl.api import asking, schemas
from queuectl.api.state import State
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

    def items() -> Iterator[schemas.NodeFinding]:
        for number in range(ITEMS):
            seen.append(answered)
            yield schemas.NodeFinding(name=f"node-{number}", free=number)

    sight = Sight(State(), age_seconds=0.0, committed_at=NOW, silent_seconds=0.0, stale=False)
    async with asyncio.TaskGroup() as tasks:
        others = tasks.create_task(other())
        made = await asking.page(schemas.NodeFinding, items(), None, sight)
        others.cancel()
    assert [one.free for one in made.items] == list(range(ITEMS))
    assert len(set(seen)) >= 10
