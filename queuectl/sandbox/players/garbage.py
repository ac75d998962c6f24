"""What is deleted for the small API: Events after an hour, and pods whose controller was just deleted.

A real API server keeps Events no longer either. The small API itself deletes the dependents of a deleted
object; the garbage collector here deletes those created just after that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from queuectl.kube.errors import ApiError, NotFound
from queuectl.kube.session import Session
from queuectl.sandbox.players.api import Clock, Object, moment
from queuectl.sandbox.players.informer import Informer
from queuectl.sandbox.players.pods import controller_of, deletion_of, pod_path
from queuectl.sandbox.players.work_queue import WorkQueue

_EVENTS: Final = "/api/v1/events"
_KEPT: Final = timedelta(hours=1)
_PAUSE_SECONDS: Final = 300.0

_log = logging.getLogger(__name__)


class Owners:
    """Give it a store of pods with the index `owner`, and the stores of their controllers by kind."""

    def __init__(
        self, api: Session, pods: Informer, controllers: Mapping[str, Informer], clock: Clock
    ) -> None:
        self.queue = WorkQueue("garbage collector", self.reconcile, clock)
        self._api = api
        self._pods = pods
        self._controllers = controllers
        pods.subscribe(self._on_pod)
        for store in controllers.values():
            store.subscribe(self._on_controller)

    def _on_pod(self, key: str, before: Object | None, after: Object | None) -> None:
        # Seen for the first time: its controller may have been deleted before.
        if before is None and after is not None:
            self.queue.add(key)

    def _on_controller(self, key: str, before: Object | None, after: Object | None) -> None:
        if after is None and before is not None:
            for pod in self._pods.by("owner", before["metadata"]["uid"]):
                self.queue.add(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")

    async def reconcile(self, key: str) -> None:
        pod = self._pods.get(key)
        owner = controller_of(pod) if pod else None
        if pod is None or owner is None or pod["metadata"].get("deletionTimestamp"):
            return
        store = self._controllers.get(owner["kind"])
        if store is None or self._is_there(store, pod, owner):
            return
        if not await self._is_really_there(store, pod, owner):
            await self._api.delete(pod_path(pod), deletion_of(pod))

    def _is_there(self, store: Informer, pod: Object, owner: Object) -> bool:
        found = store.get(f"{pod['metadata']['namespace']}/{owner['name']}")
        return found is not None and found["metadata"]["uid"] == owner["uid"]

    async def _is_really_there(self, store: Informer, pod: Object, owner: Object) -> bool:
        """The store may be older than the pod: only a read from the API shows that the owner is gone."""
        path = store.path_of(pod["metadata"]["namespace"], owner["name"])
        try:
            found = await self._api.get(path)
        except NotFound:
            return False
        return bool(found["metadata"]["uid"] == owner["uid"])


async def forget_events(api: Session, clock: Clock) -> None:
    """Delete old Events until cancelled."""
    while True:
        await clock.sleep(_PAUSE_SECONDS)
        try:
            for event in (await api.request("GET", _EVENTS))["items"]:
                if clock.now() - _last(event) > _KEPT:
                    metadata = event["metadata"]
                    path = f"/api/v1/namespaces/{metadata['namespace']}/events/{metadata['name']}"
                    await api.request("DELETE", path)
        except ApiError as error:
            _log.warning("old events: %s", error)


def _last(event: Object) -> datetime:
    """When it last happened."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return moment(next(filter(None, times), event["metadata"]["creationTimestamp"]))
