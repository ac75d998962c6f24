"""Registration of the fake nodes: what kubelet and node controller do before the first pod."""

from __future__ import annotations

from typing import Final

from queuectl.kube.session import MERGE_PATCH, Session
from queuectl.sandbox.players.api import Clock, Object
from queuectl.sandbox.players.informer import Informer
from queuectl.sandbox.players.pods import with_condition
from queuectl.sandbox.players.work_queue import WorkQueue

FAKE_NODE: Final = "sandbox.queuectl.dev/fake-node"
"""Label of the fake nodes, whatever its value."""

FAILED: Final = "sandbox.queuectl.dev/failed"
"""Annotation of a fake node that has failed: it is not ready, and its pods neither run nor end."""

_NOT_READY: Final = "node.kubernetes.io/not-ready"
"""Taint that the API server itself sets on a new node."""


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
