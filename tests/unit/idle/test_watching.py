"""The task beside the controller: what fails in a check ends neither it nor the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

from queuectl.app import idle
from queuectl.core.model.device_use import UseFinding, UseVerdict
from queuectl.core.model.events import DeviceUseFound
from queuectl.core.model.workload import WorkloadId
from queuectl.ports.ledger import LedgerUnavailable, SchemaMismatch
from queuectl.settings.idle import IdleSettings, PrometheusSettings

NOW = datetime(2026, 1, 2, tzinfo=UTC)
Found = list[tuple[str, DeviceUseFound]]
FOUND: Found = [
    ("team-a", DeviceUseFound(WorkloadId("a"), 1, UseFinding(UseVerdict.IDLE, 1, 1), NOW, NOW)),
]


@pytest.mark.parametrize(
    "failure", [LedgerUnavailable("away"), SchemaMismatch("another version"), KeyError("labels")], ids=repr
)
async def test_a_check_that_fails_is_followed_by_the_next(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    answers: list[Exception | Found] = [failure, FOUND]
    told = asyncio.Queue[Found]()

    async def check(*_: Any) -> Found:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def tell(found: Iterable[tuple[str, DeviceUseFound]]) -> None:
        told.put_nowait(list(found))

    monkeypatch.setattr(idle, "check", check)
    source = PrometheusSettings(url="http://127.0.0.1:1")
    settings = IdleSettings(prometheus=source).model_copy(update={"check_seconds": 0})
    unused: Any = None
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(idle.watch(settings, unused, "c", unused, tell))
        assert await told.get() == FOUND
        watching.cancel()
