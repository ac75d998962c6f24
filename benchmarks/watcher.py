"""`python -m benchmarks.watcher KUBECONFIG`: the ceiling of any queue controller written like this one.

It watches labelled Jobs and lets each go with one patch of `suspend: false`: over the same HTTP session, as
the same user, under the same policies. It decides nothing, records nothing, tells nobody.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from queuectl.controller.effects import WORKERS
from queuectl.kinds.jobs import QUEUE_LABEL
from queuectl.kube.session import Session

JOBS = "/apis/batch/v1/jobs"
READY = "watching"


class Watcher:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._known: set[str] = set()

    async def run(self) -> None:
        selected = {"labelSelector": QUEUE_LABEL}
        listed = await self._session.get(JOBS, query=selected)
        for job in listed["items"]:
            self._look(job)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._let_go())
            query = {**selected, "resourceVersion": listed["metadata"]["resourceVersion"]}
            while True:
                query["resourceVersion"] = await self._watch(query)

    async def _watch(self, query: dict[str, str]) -> str:
        """Until the server ends it. Returns the version up to which all was seen."""
        version = query["resourceVersion"]
        asked = {**query, "timeoutSeconds": "3600"}
        async with self._session.watch(JOBS, query=asked, silence=3600) as batches:
            print(READY, flush=True)
            async for batch in batches:
                for event in batch:
                    self._look(event["object"])
                    version = event["object"]["metadata"]["resourceVersion"]
        return version

    def _look(self, job: dict[str, Any]) -> None:
        metadata = job["metadata"]
        if job["spec"].get("suspend") and metadata["uid"] not in self._known:
            self._known.add(metadata["uid"])
            path = f"/apis/batch/v1/namespaces/{metadata['namespace']}/jobs/{metadata['name']}"
            self._waiting.put_nowait(path)

    async def _let_go(self) -> None:
        while True:
            await self._session.patch(await self._waiting.get(), {"spec": {"suspend": False}})


async def main(kubeconfig: str) -> None:
    """Until killed."""
    session = await Session.from_kubeconfig(kubeconfig, "controller")
    try:
        await Watcher(session).run()
    finally:
        await session.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
