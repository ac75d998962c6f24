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


async def main(kubeconfig: str) -> None:
    """Until killed."""
    session = await Session.from_kubeconfig(kubeconfig, "controller")
    waiting: asyncio.Queue[str] = asyncio.Queue()
    known: set[str] = set()
    selected = {"labelSelector": QUEUE_LABEL}

    def look(job: dict[str, Any]) -> None:
        metadata = job["metadata"]
        if job["spec"].get("suspend") and metadata["uid"] not in known:
            known.add(metadata["uid"])
            waiting.put_nowait(f"/apis/batch/v1/namespaces/{metadata['namespace']}/jobs/{metadata['name']}")

    async def let_go() -> None:
        while True:
            await session.patch(await waiting.get(), {"spec": {"suspend": False}})

    async def watch(version: str) -> None:
        query = {**selected, "resourceVersion": version, "timeoutSeconds": "3600"}
        async with session.watch(JOBS, query=query, silence=3600) as batches:
            print(READY, flush=True)
            async for batch in batches:
                for event in batch:
                    look(event["object"])

    try:
        listed = await session.get(JOBS, query=selected)
        for job in listed["items"]:
            look(job)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(let_go())
            tasks.create_task(watch(listed["metadata"]["resourceVersion"]))
    finally:
        await session.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
