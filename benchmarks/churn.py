"""Ends Jobs so that others start at a steady rate; plays the Job controller for evicted ones."""

from __future__ import annotations

import asyncio

from benchmarks.following import follow
from benchmarks.load import over, suspended, tell
from queuectl.sandbox.players.api import Client, Object


class Churn:
    def __init__(self, api: Client, rate: float) -> None:
        """`rate`: starts per second, while enough Jobs run: at most twice as many end.

        Where Jobs preempt others, an end is followed by more than one start.
        """
        self._api = api
        self._rate = rate
        self._running: dict[str, Object] = {}
        """By UID, those started first in front."""
        self._ended: set[str] = set()
        self._some_run = asyncio.Event()
        self._listed = asyncio.Event()
        self._tasks = asyncio.TaskGroup()
        self.started = 0
        """Starts observed, earlier ones and those of evicted Jobs included."""

    async def run(self) -> None:
        """Runs until it is cancelled."""
        async with self._tasks as tasks:
            tasks.create_task(follow(self._api, self._look, self._listed.set))
            await self._listed.wait()
            clock = asyncio.get_running_loop().time
            began, before = clock(), self.started
            while True:
                await asyncio.sleep(0.5 / self._rate)
                ahead = began + (self.started - before) / self._rate - clock()
                # Neither a longer delay than a second is made up for, nor a larger burst of starts.
                began += min(max(ahead, -1.0), 1.0) - ahead
                if ahead < 0:
                    job = await self._first()
                    tasks.create_task(tell(self._api, job, over(job["metadata"]["creationTimestamp"])))

    async def _first(self) -> Object:
        while not self._running:
            self._some_run.clear()
            await self._some_run.wait()
        uid = next(iter(self._running))
        self._ended.add(uid)
        return self._running.pop(uid)

    def _look(self, job: Object) -> None:
        uid, status, at = (
            job["metadata"]["uid"],
            job.get("status") or {},
            job["metadata"]["creationTimestamp"],
        )
        if status.get("completionTime") or uid in self._ended:
            return
        if job["spec"].get("suspend"):
            if self._running.pop(uid, None) is not None:
                self._tasks.create_task(tell(self._api, job, suspended(at, "True")))
        elif uid not in self._running:
            self.started += 1
            self._running[uid] = job
            self._some_run.set()
            if any(one["type"] == "Suspended" for one in status.get("conditions") or ()):
                self._tasks.create_task(tell(self._api, job, suspended(at, "False")))
