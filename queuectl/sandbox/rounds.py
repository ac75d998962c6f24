"""The example's jobs, round after round: created at their times, and deleted with their pods at the end.

A round begins with nothing of an earlier one: neither hours nor restarts fill the cluster, and each round
shows the same.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import Final

from queuectl.sandbox import example
from queuectl.sandbox.players.api import Api, ApiError, Object

_CLEAR_SECONDS: Final = 30.0
"""A round begins after so long whatever is left: a person may keep a pod with a finalizer."""
_POLL_SECONDS: Final = 0.25
_AT_ONCE: Final = 55
"""Rounds that follow each other: those of an hour. A round adds 200 kB to the ledger."""
_LATER_SECONDS: Final = 240.0
"""The pause after each later round."""
_GROUPS: Final = {"Job": "apis/batch/v1", "PyTorchJob": "apis/kubeflow.org/v1"}

_log = logging.getLogger(__name__)


async def play_rounds(api: Api, pace: float = 1.0) -> None:
    """Play the example until cancelled. `pace`: all times are multiplied by it. `api`: as the tenant."""
    loop = asyncio.get_running_loop()
    for number in itertools.count():
        await _clear(api)
        start = loop.time()
        for at, thing in example.jobs(pace):
            await asyncio.sleep(start + at - loop.time())
            await _create(api, thing)
        pause = _LATER_SECONDS if number >= _AT_ONCE else 0.0
        await asyncio.sleep(start + (example.ROUND_SECONDS + pause) * pace - loop.time())


async def _create(api: Api, thing: Object) -> None:
    metadata = thing["metadata"]
    try:
        await api.request("POST", _path(thing["kind"], metadata["namespace"]), thing)
    except ApiError as error:  # the user may have done anything to the example by now
        _log.warning("%s/%s of the example: %s", metadata["namespace"], metadata["name"], error)


async def _clear(api: Api) -> None:
    """Delete the example's jobs, and wait until they and their pods are gone."""
    try:
        async with asyncio.timeout(_CLEAR_SECONDS):
            while await _delete_left(api):  # noqa: ASYNC110 - what is polled is on the API server
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        _log.warning("objects of the example are there %g s after they were deleted", _CLEAR_SECONDS)


async def _delete_left(api: Api) -> bool:
    """Whether any object of the example is there; each job that is not being deleted is deleted."""
    left = False
    try:
        for namespace in example.NAMESPACES:
            for kind in _GROUPS:
                for name, ending in await _found(api, _path(kind, namespace)):
                    left = True
                    if not ending:
                        path = f"{_path(kind, namespace)}/{name}"
                        await api.request("DELETE", path, {"propagationPolicy": "Background"})
            left = left or bool(await _found(api, f"/api/v1/namespaces/{namespace}/pods"))
    except ApiError as error:
        _log.warning("the example is not cleared: %s", error)
        return True
    return left


async def _found(api: Api, path: str) -> list[tuple[str, bool]]:
    """Name of each object of the example in this collection, and whether it is being deleted."""
    found = await api.request("GET", path, query={"labelSelector": f"{example.EXAMPLE_LABEL}=true"})
    return [
        (thing["metadata"]["name"], bool(thing["metadata"].get("deletionTimestamp")))
        for thing in found["items"]
    ]


def _path(kind: str, namespace: str) -> str:
    return f"/{_GROUPS[kind]}/namespaces/{namespace}/{kind.lower()}s"
