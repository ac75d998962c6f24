"""Pods that wait with a former revision of their StatefulSet: they are deleted, and it makes them anew.

In order, its controller replaces no pod that is not ready (kubernetes#67250), so that a rollout would stand
still until the former revision has had its turn. What is made anew takes the place in the queue (O9).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Final, NamedTuple

from queuectl.core.model.events import Listed
from queuectl.kinds.group_owners import GROUP_OWNERS
from queuectl.kinds.json_fields import Json
from queuectl.kinds.owners import controls
from queuectl.kinds.reserved_keys import GATED_LABEL
from queuectl.kinds.single_pod import POD
from queuectl.kube.errors import ApiError, NotFound
from queuectl.kube.pod_groups import owner_key
from queuectl.kube.reflector import Reflector, Timings
from queuectl.kube.session import Session, api_path
from queuectl.kube.sources import Key, Source

_log: Final = logging.getLogger(__name__)

_REVISION: Final = "controller-revision-hash"
_RETRY: Final = 5.0
"""Seconds."""


class Rollout(NamedTuple):
    """A StatefulSet that replaces its pods."""

    namespace: str
    name: str
    uid: str
    revision: str
    """The new one."""
    first: int
    """The lowest ordinal that gets it."""


def rollout(obj: Json) -> Rollout | None:
    """None: it replaces none, or leaves that to its user."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    strategy, revision = spec.get("updateStrategy") or {}, status.get("updateRevision")
    if not revision or revision == status.get("currentRevision") or strategy.get("type") != "RollingUpdate":
        return None
    partition = (strategy.get("rollingUpdate") or {}).get("partition") or 0
    start = (spec.get("ordinals") or {}).get("start") or 0
    return Rollout(metadata["namespace"], metadata["name"], metadata["uid"], revision, start + partition)


class FormerRevisions:
    """Deletes such pods while it runs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        source: Source[Rollout] = Source(
            name="StatefulSet",
            path=api_path(*GROUP_OWNERS["StatefulSet"].resource),
            key=owner_key,
            seen=rollout,
            gone=self._over,
            optional=True,
        )
        self._reflector = Reflector(session, source, self._take, Random(), Timings())
        self._due: dict[Key, Rollout] = {}
        """The last of each StatefulSet: pods of its revision are not deleted for an earlier one."""
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run())
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._replace_all()
                if self._due:
                    await asyncio.sleep(_RETRY)
                    self._wake.set()

    async def _replace_all(self) -> None:
        """Those that fail stay due."""
        for key, one in list(self._due.items()):
            if self._due.get(key) is not one:
                continue
            try:
                await self._replace(one)
            except ApiError as error:
                _log.warning("pods of a former revision in %s wait on: %s", one.namespace, error)
                continue
            if self._due.get(key) is one:
                del self._due[key]

    def _take(self, events: Sequence[Rollout | Listed]) -> None:
        for event in events:
            if isinstance(event, Rollout):
                self._due[event.namespace, event.name] = event
                self._wake.set()

    def _over(self, key: Key, _: str) -> list[Rollout]:
        self._due.pop(key, None)
        return []

    async def _replace(self, one: Rollout) -> None:
        """Raises ApiError."""
        path = api_path("", "v1", "pods", one.namespace)
        query = {"labelSelector": f"{GATED_LABEL},{_REVISION},{_REVISION}!={one.revision}"}
        async for page in self._session.pages(path, query=query):
            for pod in page.get("items") or ():
                metadata = pod["metadata"]
                ordinal = metadata["name"].rpartition("-")[2]
                if not (ordinal.isdigit() and int(ordinal) >= one.first):
                    continue
                if POD.suspended(pod) and controls(one.uid, pod) and not metadata.get("deletionTimestamp"):
                    # Of this version: not once it has been let past its gate.
                    held = {key: metadata[key] for key in ("uid", "resourceVersion")}
                    with suppress(NotFound):
                        await self._session.delete(f"{path}/{metadata['name']}", {"preconditions": held})
