"""What controllers of one kind of object that makes pods have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod

from queuectl.kube.errors import NotFound
from queuectl.kube.session import Session
from queuectl.sandbox.players.api import Clock, Object
from queuectl.sandbox.players.informer import Informer
from queuectl.sandbox.players.pods import controller_of, pod_path
from queuectl.sandbox.players.work_queue import WorkQueue


class PodController(ABC):
    """Give it a store of its objects and one of pods with the index `owner`, and run its queue."""

    kind: str
    name: str
    """In the log."""

    def __init__(self, api: Session, jobs: Informer, pods: Informer, clock: Clock) -> None:
        self.queue = WorkQueue(self.name, self.reconcile, clock)
        self._api = api
        self._jobs = jobs
        self._pods = pods
        self._clock = clock
        jobs.subscribe(self._on_job)
        pods.subscribe(self._on_pod)

    @abstractmethod
    async def reconcile(self, key: str) -> None:
        """Bring the pods and the status of the object `key` up to date."""

    def _on_job(self, key: str, before: Object | None, after: Object | None) -> None:
        if after is not None:
            self.queue.add(key)

    def _on_pod(self, key: str, before: Object | None, after: Object | None) -> None:
        owner = controller_of(after or before or {"metadata": {}})
        if owner is not None and owner["kind"] == self.kind:
            self.queue.add(f"{key.split('/')[0]}/{owner['name']}")

    async def _delete(self, pods: list[Object]) -> None:
        for pod in pods:
            body = {"preconditions": {"uid": pod["metadata"]["uid"]}, "propagationPolicy": "Background"}
            try:
                answer = await self._api.request("DELETE", pod_path(pod), body)
            except NotFound:
                continue
            if answer.get("kind") == "Pod" and answer["metadata"].get("deletionTimestamp"):
                self._pods.observe(answer)
