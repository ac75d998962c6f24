"""Events of the small API end after an hour."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from queuectl.sandbox.kubernetes.server import SmallApi
from queuectl.sandbox.players.api import Client, Object, stamp
from queuectl.sandbox.players.old_events import forget_events

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PATH = "/api/v1/namespaces/default/events"


class Clock:
    """Its time stands still; its first pause ends at once, and no other."""

    def __init__(self) -> None:
        self.paused_again = asyncio.Event()
        self._pauses = 0

    def now(self) -> datetime:
        return NOW

    async def sleep(self, seconds: float) -> None:
        self._pauses += 1
        if self._pauses > 1:
            self.paused_again.set()
            await asyncio.Event().wait()


def event(name: str, age: timedelta) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Job", "namespace": "default", "name": "train"},
        "lastTimestamp": stamp(NOW - age),
    }


async def test_events_of_the_last_hour_stay_and_older_ones_are_deleted(tmp_path: Path) -> None:
    async with (
        SmallApi(tmp_path) as server,
        Client(server.url, server.ssl_context(), server.tokens["admin"]) as api,
    ):
        for name, minutes in (("new", 0), ("older", 59), ("old", 61)):
            await api.request("POST", PATH, event(name, timedelta(minutes=minutes)))
        clock = Clock()
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            forgetting = tasks.create_task(forget_events(api, clock))
            await clock.paused_again.wait()
            forgetting.cancel()
        left = {item["metadata"]["name"] for item in (await api.request("GET", PATH))["items"]}
        assert left == {"new", "older"}
