"""Pods and conditions, and what the controllers of kinds that make pods have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime

from queuectl.kube.errors import NotFound
from queuectl.kube.session import MERGE_PATCH, Session
from queuectl.sandbox.players.api import Clock, Object, moment, stamp
from queuectl.sandbox.players.informer import Informer
from queuectl.sandbox.players.work_queue import WorkQueue

PODS = "/api/v1/pods"


def pod_path(pod: Object, subresource: str = "") -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}{subresource}"


def node_of(pod: Object) -> str | None:
    return pod["spec"].get("nodeName") or None


def phase_of(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase") or "Pending")


def ended(pod: Object) -> bool:
    return phase_of(pod) in ("Succeeded", "Failed")


def terminating(pod: Object) -> bool:
    """Whether it is being deleted and has not ended."""
    return bool(pod["metadata"].get("deletionTimestamp")) and not ended(pod)


def active(pod: Object) -> bool:
    return not pod["metadata"].get("deletionTimestamp") and not ended(pod)


def ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def controller_of(thing: Object) -> Object | None:
    """The owner reference of its controller."""
    for reference in thing["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return None


def controller_uid(thing: Object) -> str | None:
    reference = controller_of(thing)
    return str(reference["uid"]) if reference else None


def owner_reference(owner: Object) -> Object:
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def with_condition(
    conditions: list[Object],
    now: datetime,
    kind: str,
    status: bool,
    reason: str,
    message: str = "",
    *,
    clock_field: str = "lastProbeTime",
) -> list[Object]:
    """The list with this condition replaced or added; its transition time changes only with its status.

    `clock_field` is the kind's name of the condition's other time.
    """
    text = "True" if status else "False"
    made: Object = {"type": kind, "status": text, clock_field: stamp(now), "lastTransitionTime": stamp(now)}
    made |= {key: value for key, value in (("reason", reason), ("message", message)) if value}
    result = []
    for condition in conditions:
        if condition["type"] != kind:
            result.append(condition)
            continue
        if condition["status"] == text:
            if condition.get("reason", "") == reason and condition.get("message", "") == message:
                return conditions
            made["lastTransitionTime"] = condition.get("lastTransitionTime", stamp(now))
        result.append(made)
    return result if made in result else [*result, made]


def holds(conditions: list[Object], kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


def deletion_of(thing: Object) -> Object:
    """The body of a request that deletes this object, and no other one of its name."""
    return {"preconditions": {"uid": thing["metadata"]["uid"]}, "propagationPolicy": "Background"}


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

    async def _create(self, pod: Object) -> None:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
        self._pods.observe(await self._api.create(path, pod))

    async def _delete(self, pods: list[Object]) -> None:
        for pod in pods:
            try:
                answer = await self._api.delete(pod_path(pod), deletion_of(pod))
            except NotFound:
                continue
            if answer.get("kind") == "Pod" and answer["metadata"].get("deletionTimestamp"):
                self._pods.observe(answer)

    async def _store_status(self, job: Object, changes: Object) -> None:
        """Raises ApiError, as the real controllers get it, if the object has changed since it was read."""
        read = {name: job["metadata"][name] for name in ("uid", "resourceVersion")}
        path = self._jobs.path_of(job["metadata"]["namespace"], job["metadata"]["name"])
        body = {"metadata": read, "status": changes}
        self._jobs.observe(await self._api.patch(f"{path}/status", body, content_type=MERGE_PATCH))

    async def _expire(self, key: str, job: Object, end: str, seconds: float) -> None:
        """Delete a finished object `seconds` after its end."""
        left = (moment(end) - self._clock.now()).total_seconds() + seconds
        if left > 0:
            self.queue.add_after(key, left)
            return
        path = self._jobs.path_of(job["metadata"]["namespace"], job["metadata"]["name"])
        await self._api.delete(path, deletion_of(job))
