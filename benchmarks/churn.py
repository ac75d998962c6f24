"""Ends Jobs at a steady rate, so that as many others start."""

from __future__ import annotations

import asyncio

from benchmarks.following import follow, path_of
from benchmarks.load import over
from queuectl.sandbox.client import Client
from queuectl.sandbox.players.api import MERGE_PATCH, Object


class Churn:
    def __init__(self, api: Client, rate: float) -> None:
        """`rate`: Jobs ended per second, while enough of them run."""
        self._api = api
        self._pause = 1 / rate
        self._running: asyncio.Queue[Object] = asyncio.Queue()
        self._known: set[str] = set()
        self._listed = asyncio.Event()
        self.started = 0
        """Jobs observed to run, earlier ones included."""

    async def run(self) -> None:
        """Runs until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follow(self._api, self._look, self._listed.set))
            await self._listed.wait()
            clock = asyncio.get_running_loop().time
            due = clock()
            while True:
                tasks.create_task(self._end(await self._running.get()))
                due = max(due + self._pause, clock() - 1.0)  # longer delays are not made up for
                await asyncio.sleep(max(0.0, due - clock()))

    async def _end(self, job: Object) -> None:
        ended = over(job["metadata"]["creationTimestamp"])
        await self._api.request("PATCH", f"{path_of(job)}/status", ended, content_type=MERGE_PATCH)

    def _look(self, job: Object) -> None:
        uid, status = job["metadata"]["uid"], job.get("status") or {}
        if job["spec"].get("suspend") or status.get("completionTime") or uid in self._known:
            return
        self._known.add(uid)
        self.started += 1
        self._running.put_nowait(job)
