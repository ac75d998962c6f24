"""The fake nodes, registered and made ready, and their kubelet.

Pods bound to them start, run for the time in their annotation, and end.
A failing pod fails, whatever its restartPolicy; a pod with restartPolicy Always never ends by itself.
"""

from __future__ import annotations

import zlib
from datetime import datetime, timedelta
from typing import Final

from queuectl.kube.session import MERGE_PATCH, Session
from queuectl.sandbox.players.api import Clock, Object, moment, stamp
from queuectl.sandbox.players.informer import Informer
from queuectl.sandbox.players.pods import ended, node_of, phase_of, pod_path, with_condition
from queuectl.sandbox.players.work_queue import WorkQueue

RUN_SECONDS: Final = "sandbox.queuectl.dev/run-seconds"
EXIT_CODE: Final = "sandbox.queuectl.dev/exit-code"
TERMINATE_SECONDS: Final = "sandbox.queuectl.dev/terminate-seconds"
"""Annotation of a pod: time it takes to end when it is deleted; default: at once."""

FAKE_NODE: Final = "sandbox.queuectl.dev/fake-node"
"""Label of the fake nodes, whatever its value."""

FAILED: Final = "sandbox.queuectl.dev/failed"
"""Annotation of a fake node that has failed: it is not ready, and its pods neither run nor end."""

_NOT_READY: Final = "node.kubernetes.io/not-ready"
"""Taint that the API server itself sets on a new node."""
_DEFAULT_RUN_SECONDS: Final = 10.0


def is_fake(node: Object) -> bool:
    return FAKE_NODE in (node["metadata"].get("labels") or {})


def has_failed(node: Object) -> bool:
    return FAILED in (node["metadata"].get("annotations") or {})


class Nodes:
    """Makes each fake node that has not failed ready, with the capacity in its status. Run its queue."""

    def __init__(self, api: Session, nodes: Informer, clock: Clock) -> None:
        self.queue = WorkQueue("nodes", self.reconcile, clock)
        self._api = api
        self._nodes = nodes
        self._clock = clock
        nodes.subscribe(self._on_node)

    def _on_node(self, key: str, before: Object | None, after: Object | None) -> None:
        if after is not None and is_fake(after):
            self.queue.add(key)

    async def reconcile(self, key: str) -> None:
        node = self._nodes.get(key)
        if node is None:
            return
        path = f"/api/v1/nodes/{key}"
        status = node.get("status") or {}
        before = list(status.get("conditions") or ())
        ready = not has_failed(node)
        why = "KubeletReady" if ready else "NodeStatusUnknown"
        after = with_condition(
            before, self._clock.now(), "Ready", ready, why, clock_field="lastHeartbeatTime"
        )
        changes: Object = {}
        if after != before:
            changes["conditions"] = after
        if not status.get("allocatable"):
            changes["allocatable"] = status.get("capacity") or {}
        if changes:
            body: Object = {"metadata": {"uid": node["metadata"]["uid"]}, "status": changes}
            await self._api.request("PATCH", f"{path}/status", body, content_type=MERGE_PATCH)
            return  # the change triggers another call
        taints = (node.get("spec") or {}).get("taints") or []
        kept = [taint for taint in taints if taint["key"] != _NOT_READY]
        if kept != taints:
            # With the version, so that a taint added meanwhile by another client is not lost.
            version = node["metadata"]["resourceVersion"]
            body = {"metadata": {"resourceVersion": version}, "spec": {"taints": kept or None}}
            await self._api.request("PATCH", path, body, content_type=MERGE_PATCH)


class Kubelet:
    """Give it a store of pods with the index `node` and one of nodes, and run its queue."""

    def __init__(self, api: Session, pods: Informer, nodes: Informer, clock: Clock) -> None:
        self.queue = WorkQueue("kubelet", self.reconcile, clock)
        self._api = api
        self._pods = pods
        self._nodes = nodes
        self._clock = clock
        self._ends: dict[str, datetime] = {}
        """End of each running pod, by UID; a timer is set for each of them."""
        pods.subscribe(self._on_pod)
        nodes.subscribe(self._on_node)

    def _on_pod(self, key: str, before: Object | None, after: Object | None) -> None:
        if after is None:
            if before is not None:
                self._ends.pop(before["metadata"]["uid"], None)
        elif node_of(after):
            self.queue.add(key)

    def _on_node(self, key: str, before: Object | None, after: Object | None) -> None:
        if before is None or (after is not None and has_failed(before) and not has_failed(after)):
            for pod in self._pods.by("node", key):
                self.queue.add(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")

    async def reconcile(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None or not self._is_ours(pod):
            return
        if pod["metadata"].get("deletionTimestamp"):
            await self._end_deleted(key, pod)
        elif phase_of(pod) == "Pending":
            await self._start(key, pod)
        elif phase_of(pod) == "Running" and pod["spec"].get("restartPolicy") != "Always":
            await self._finish_in_time(key, pod)

    def _is_ours(self, pod: Object) -> bool:
        node = self._nodes.get(node_of(pod) or "")
        return node is not None and is_fake(node) and not has_failed(node)

    async def _start(self, key: str, pod: Object) -> None:
        now = self._clock.now()
        await self._write(pod, _running(pod, now))
        self._ends[pod["metadata"]["uid"]] = now + timedelta(seconds=_run_seconds(pod))
        self.queue.add_after(key, _run_seconds(pod))

    async def _finish_in_time(self, key: str, pod: Object) -> None:
        now, uid = self._clock.now(), pod["metadata"]["uid"]
        end = self._ends.get(uid)
        if end is None:  # started before this program
            started = pod.get("status", {}).get("startTime")
            end = (moment(started) if started else now) + timedelta(seconds=_run_seconds(pod))
            self._ends[uid] = end
            self.queue.add_after(key, max(0.0, (end - now).total_seconds()))
        if end <= now:
            await self._write(pod, _ended(pod, now, min(int(_seconds(pod, EXIT_CODE, 0)), 255)))

    async def _end_deleted(self, key: str, pod: Object) -> None:
        """Let it end within the grace period, then delete it for good."""
        now = self._clock.now()
        pause = _seconds(pod, TERMINATE_SECONDS, 0.0)
        if pause and not ended(pod):
            end = self._ends.get(f"deleted {pod['metadata']['uid']}")
            if end is None:
                end = now + timedelta(seconds=pause)
                self._ends[f"deleted {pod['metadata']['uid']}"] = end
                self.queue.add_after(key, pause)
            if end > now:
                return
        self._ends.pop(f"deleted {pod['metadata']['uid']}", None)
        if pod["metadata"].get("finalizers") and not ended(pod):
            # A finalizer keeps it: its final status must be seen first.
            await self._write(pod, _ended(pod, now, 137))
        body = {
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod["metadata"]["uid"]},
            "propagationPolicy": "Background",
        }
        if not (pod["metadata"].get("finalizers") and pod["metadata"].get("deletionGracePeriodSeconds") == 0):
            await self._api.request("DELETE", pod_path(pod), body)

    async def _write(self, pod: Object, status: Object) -> None:
        body: Object = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        answer = await self._api.request("PATCH", pod_path(pod, "/status"), body, content_type=MERGE_PATCH)
        self._pods.observe(answer)


def _seconds(pod: Object, annotation: str, default: float) -> float:
    """A duration from an annotation; a value that is not a number is ignored."""
    text = (pod["metadata"].get("annotations") or {}).get(annotation)
    try:
        return max(0.0, float(text)) if text is not None else default
    except ValueError:
        return default


def _run_seconds(pod: Object) -> float:
    return min(_seconds(pod, RUN_SECONDS, _DEFAULT_RUN_SECONDS), 10.0**8)


def _conditions(pod: Object, now: datetime, ready: bool, reason: str = "") -> list[Object]:
    conditions = list(pod.get("status", {}).get("conditions") or ())
    for kind, status, why in (
        ("PodReadyToStartContainers", ready, ""),
        ("Initialized", True, "" if ready else reason),
        ("Ready", ready, reason),
        ("ContainersReady", ready, reason),
        ("PodScheduled", True, ""),
    ):
        conditions = with_condition(conditions, now, kind, status, why)
    return conditions


def _running(pod: Object, now: datetime) -> Object:
    uid = pod["metadata"]["uid"].encode()
    ip = f"10.{64 + zlib.crc32(uid) % 64}.{zlib.crc32(uid) >> 8 & 255}.{zlib.crc32(uid) >> 16 & 255}"
    return {
        "phase": "Running",
        "startTime": stamp(now),
        "hostIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": _conditions(pod, now, True),
        "containerStatuses": [
            _container(c, {"running": {"startedAt": stamp(now)}}, True) for c in pod["spec"]["containers"]
        ],
    }


def _ended(pod: Object, now: datetime, exit_code: int) -> Object:
    good = exit_code == 0
    terminated = {
        "exitCode": exit_code,
        "reason": "Completed" if good else "Error",
        "startedAt": pod.get("status", {}).get("startTime") or stamp(now),
        "finishedAt": stamp(now),
    }
    return {
        "phase": "Succeeded" if good else "Failed",
        "startTime": pod.get("status", {}).get("startTime") or stamp(now),
        "conditions": _conditions(pod, now, False, "PodCompleted" if good else "PodFailed"),
        "containerStatuses": [
            _container(c, {"terminated": terminated}, False) for c in pod["spec"]["containers"]
        ],
    }


def _container(container: Object, state: Object, running: bool) -> Object:
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": running,
        "started": running,
        "restartCount": 0,
        "state": state,
    }
