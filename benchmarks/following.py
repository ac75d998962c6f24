"""Lists and watches Jobs, again whenever an API server ends the watch of a slow reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from queuectl.kinds.jobs import QUEUE_LABEL
from queuectl.kube.errors import ApiError, from_status
from queuectl.sandbox.players.api import Client, Object

JOBS: Final = "/apis/batch/v1/jobs"
_SELECTED: Final = {"labelSelector": QUEUE_LABEL}


def path_of(job: Object) -> str:
    metadata = job["metadata"]
    return f"/apis/batch/v1/namespaces/{metadata['namespace']}/jobs/{metadata['name']}"


async def follow(api: Client, look: Callable[[Object], None], listed: Callable[[], None]) -> None:
    """Runs until cancelled. `look` may get the same Job again; `listed` is called after the first list."""
    while True:
        version = await _list(api, look)
        listed()
        try:
            while True:
                version = await _watch(api, version, look)
        except ApiError as error:
            if error.status not in (404, 410):
                raise


async def _list(api: Client, look: Callable[[Object], None]) -> str:
    query = {**_SELECTED, "limit": "500"}
    while True:
        page = await api.request("GET", JOBS, query=query)
        for job in page["items"]:
            look(job)
        query["continue"] = page["metadata"].get("continue") or ""
        if not query["continue"]:
            return str(page["metadata"]["resourceVersion"])


async def _watch(api: Client, version: str, look: Callable[[Object], None]) -> str:
    """Watch until the server ends it. Returns the last resource version that was read. Raises ApiError."""
    asked = {**_SELECTED, "resourceVersion": version, "timeoutSeconds": "300"}
    async with api.watch(JOBS, query=asked) as batches:
        async for event in (event async for batch in batches for event in batch):
            if event["type"] == "ERROR":
                status = event["object"]
                raise from_status(JOBS, int(status.get("code") or 0), str(status.get("message")))
            look(event["object"])
            version = event["object"]["metadata"]["resourceVersion"]
    return version
