"""Jobs that end at a steady rate, so that as many others start."""

from __future__ import annotations

import asyncio

from benchmarks.load import JOBS, over
from queuectl.sandbox.client import Client
from queuectl.sandbox.players.api import MERGE_PATCH, Object


class Churn:
    def __init__(self, api: Client, rate: float) -> None:
        """`rate`: of Jobs ended a second, as long as so many run."""
        self._api = api
        self._pause = 1 / rate
        self._running: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        """Path and creation time."""
        self._known: set[str] = set()
        self.started = 0
        """Jobs seen to run, those from before included."""

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            while True:
                path, at = await self._running.get()
                tasks.create_task(self._end(path, at))
                await asyncio.sleep(self._pause)

    async def _end(self, path: str, at: str) -> None:
        await self._api.request("PATCH", f"{path}/status", over(at), content_type=MERGE_PATCH)

    async def _watch(self) -> None:
        """All that run, page by page, then what changes; an API server ends the watch of a slow reader."""
        query = {"limit": "500"}
        while True:
            page = await self._api.request("GET", JOBS, query=query)
            for job in page["items"]:
                self._look(job)
            query["continue"] = page["metadata"].get("continue") or ""
            if not query["continue"]:
                break
        version = page["metadata"]["resourceVersion"]
        while True:
            asked = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "3600"}
            async with self._api.watch(JOBS, query=asked) as events:
                async for event in events:
                    if event["type"] == "ERROR":
                        raise RuntimeError(f"watch of Jobs: {event['object'].get('message')}")
                    self._look(event["object"])
                    version = event["object"]["metadata"]["resourceVersion"]

    def _look(self, job: Object) -> None:
        metadata, status = job["metadata"], job.get("status") or {}
        if job["spec"].get("suspend") or status.get("completionTime") or metadata["uid"] in self._known:
            return
        self._known.add(metadata["uid"])
        self.started += 1
        path = f"/apis/batch/v1/namespaces/{metadata['namespace']}/jobs/{metadata['name']}"
        self._running.put_nowait((path, metadata["creationTimestamp"]))
