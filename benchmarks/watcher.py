"""`python -m benchmarks.watcher KUBECONFIG`: the ceiling of any queue controller with the same HTTP client.

It watches labelled Jobs and starts each with one patch of `suspend: false`: with the same HTTP client, as
the same user, under the same policies. It makes no decisions, records nothing and sends no events.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from benchmarks.following import JOBS, path_of
from queuectl.controller.effects import WORKERS
from queuectl.kinds.jobs import QUEUE_LABEL
from queuectl.kube.session import Session

READY = "watching"


class Watcher:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._known: set[str] = set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._let_go())
            while True:
                await self._list_and_watch()

    async def _list_and_watch(self) -> None:
        """Watch until the resource version is too old, as an API server may report to a slow reader."""
        selected = {"labelSelector": QUEUE_LABEL}
        listed = await self._session.get(JOBS, query=selected)
        for job in listed["items"]:
            self._look(job)
        version = listed["metadata"]["resourceVersion"]
        while True:
            query = {**selected, "resourceVersion": version, "timeoutSeconds": "300"}
            async with self._session.watch(JOBS, query=query, silence=310) as batches:
                print(READY, flush=True)
                async for batch in batches:
                    for event in batch:
                        if event["type"] == "ERROR":
                            return
                        self._look(event["object"])
                        version = event["object"]["metadata"]["resourceVersion"]

    def _look(self, job: dict[str, Any]) -> None:
        metadata = job["metadata"]
        if job["spec"].get("suspend") and metadata["uid"] not in self._known:
            self._known.add(metadata["uid"])
            self._waiting.put_nowait(path_of(job))

    async def _let_go(self) -> None:
        while True:
            await self._session.patch(await self._waiting.get(), {"spec": {"suspend": False}})


async def main(kubeconfig: str) -> None:
    """Runs until it is killed."""
    session = await Session.from_kubeconfig(kubeconfig, "controller")
    try:
        await Watcher(session).run()
    finally:
        await session.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
