"""The scheduler: binds pending pods to nodes that match and have enough free resources.

It checks node selector, required node affinity, taints, readiness and requests, takes the first node that
fits by name, and never preempts. Pods of one shape are pending together: when resources come free the first
of them is tried, and the next only after that one was bound.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from queuectl.core.model.policy import Node, Requirement, Toleration
from queuectl.core.model.resources import Amounts
from queuectl.core.model.selectors import meets, tolerated
from queuectl.kinds.context import CONTEXT_KINDS
from queuectl.kinds.json_fields import BadField
from queuectl.kinds.node_constraints import read_constraints, required_affinity
from queuectl.kinds.requests import RequestProblem, pod_requests
from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH, Session
from queuectl.sandbox.players.api import Clock, Object
from queuectl.sandbox.players.informer import Informer
from queuectl.sandbox.players.pods import ended, node_of, pod_path, with_condition
from queuectl.sandbox.players.work_queue import WorkQueue

_NAME: Final = "default-scheduler"


@dataclass
class _Room:
    """A node, and the requests of the pods bound to it."""

    node: Node
    labels: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)

    def observe(self, node: Node) -> bool:
        """Return whether further pods may fit it now."""
        changed, self.node = node != self.node, node
        self.labels = {**dict(node.labels), "metadata.name": node.name}
        self.allocatable = dict(node.allocatable)
        return changed and self.open

    @property
    def open(self) -> bool:
        """Whether it exists, is ready, and not cordoned."""
        return self.node.ready and not self.node.cordoned

    def has_room(self, requests: Amounts) -> bool:
        return all(
            self.used.get(resource, 0) + amount <= self.allocatable.get(resource, 0)
            for resource, amount in requests
        )

    def charge(self, requests: Amounts, sign: int) -> None:
        for resource, amount in requests:
            self.used[resource] = self.used.get(resource, 0) + sign * amount


@dataclass(frozen=True)
class _Shape:
    """The fields of a pod that decide which nodes it fits."""

    requests: Amounts
    selector: tuple[tuple[str, str], ...]
    affinity: tuple[tuple[Requirement, ...], ...]
    tolerations: tuple[Toleration, ...]

    def misfit(self, room: _Room) -> str | None:
        """Why it can't run on a node, in a few words."""
        if not room.open:
            return "not ready"
        if any(room.labels.get(key) != value for key, value in self.selector):
            return "didn't match the node selector"
        if self.affinity and not any(
            all(meets(requirement, room.labels) for requirement in term) for term in self.affinity
        ):
            return "didn't match the node affinity"
        if not all(tolerated(taint, self.tolerations) for taint in room.node.taints):
            return "had untolerated taints"
        if not room.has_room(self.requests):
            return "had too little free"
        return None


class Scheduler:
    """Give it stores of pods and nodes, and run its queue."""

    def __init__(self, api: Session, pods: Informer, nodes: Informer, clock: Clock) -> None:
        self.queue = WorkQueue("scheduler", self.reconcile, clock)
        self._api = api
        self._pods = pods
        self._nodes = nodes
        self._clock = clock
        self._rooms: dict[str, _Room] = {}
        self._charged: dict[str, tuple[str, Amounts]] = {}
        """Node and requests of each bound pod, by UID; also of pods for which the binding is under way."""
        self._waiting: dict[_Shape, dict[str, None]] = {}
        """Pods that fit no node, in order, by shape."""
        pods.subscribe(self._on_pod)
        nodes.subscribe(self._on_node)

    def _on_pod(self, key: str, before: Object | None, after: Object | None) -> None:
        if after is None or ended(after):
            pod = after or before
            if pod is not None:
                self._forget(pod["metadata"]["uid"])
        elif node := node_of(after):
            self._charge(after, node)
        elif after["spec"].get("schedulerName", _NAME) == _NAME:
            self.queue.add(key)

    def _on_node(self, key: str, before: Object | None, after: Object | None) -> None:
        known = CONTEXT_KINDS["Node"].observe(after) if after is not None else None
        if self._room(key).observe(known if isinstance(known, Node) else Node(key, ready=False)):
            self._try_waiting()

    def _room(self, node: str) -> _Room:
        return self._rooms.setdefault(node, _Room(Node(node, ready=False)))

    async def reconcile(self, key: str) -> None:
        """Bind one pod, or keep it pending with the others of its shape."""
        pod = self._pods.get(key)
        if pod is None or node_of(pod) or ended(pod) or pod["metadata"].get("deletionTimestamp"):
            return
        if pod["spec"].get("schedulingGates"):
            return
        try:
            shape = _shape(pod)
        except (RequestProblem, BadField) as error:
            await self._say(pod, str(error))
            return
        misfits: dict[str, int] = {}
        for name in sorted(key for key in self._rooms if self._nodes.get(key) is not None):
            misfit = shape.misfit(self._rooms[name])
            if misfit is None:
                await self._bind(pod, name, shape)
                self._try_next(shape, key)
                return
            misfits[misfit] = misfits.get(misfit, 0) + 1
        self._waiting.setdefault(shape, {})[key] = None
        counts = ", ".join(f"{count} {why}" for why, count in sorted(misfits.items()))
        await self._say(pod, f"0/{sum(misfits.values())} nodes are available: {counts or 'there are none'}.")

    async def _bind(self, pod: Object, node: str, shape: _Shape) -> None:
        metadata = pod["metadata"]
        self._charge(pod, node, shape.requests)
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {key: metadata[key] for key in ("name", "namespace", "uid")},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._api.request("POST", pod_path(pod, "/binding"), body)
        except ApiError as error:
            if error.status == 409 and "already" in str(error):
                return  # bound before, and the watch has not shown it yet
            self._forget(metadata["uid"])
            raise

    def _try_next(self, shape: _Shape, bound: str) -> None:
        """A pod of this shape was bound: try the next."""
        waiting = self._waiting.get(shape)
        if waiting is None:
            return
        waiting.pop(bound, None)
        following = next(iter(waiting), None)
        if following is None:
            del self._waiting[shape]
        else:
            self.queue.add(following)

    def _try_waiting(self) -> None:
        """Resources came free: try the first pod of each shape."""
        for shape, waiting in list(self._waiting.items()):
            for key in list(waiting):
                if (pod := self._pods.get(key)) is not None and not node_of(pod):
                    self.queue.add(key)
                    break
                del waiting[key]
            if not waiting:
                del self._waiting[shape]

    def _charge(self, pod: Object, name: str, requests: Amounts | None = None) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._charged:
            return
        if requests is None:
            try:
                requests = _requests(pod)
            except (RequestProblem, BadField):
                requests = ()  # bound by another client
        self._charged[uid] = (name, requests)
        self._room(name).charge(requests, 1)

    def _forget(self, uid: str) -> None:
        charged = self._charged.pop(uid, None)
        if charged is not None:
            name, requests = charged
            self._room(name).charge(requests, -1)
            self._try_waiting()

    async def _say(self, pod: Object, message: str) -> None:
        """Write to its condition why it is not scheduled, if that changed."""
        before = list(pod.get("status", {}).get("conditions") or ())
        conditions = with_condition(
            before, self._clock.now(), "PodScheduled", False, "Unschedulable", message
        )
        if conditions != before:
            body: Object = {
                "metadata": {"uid": pod["metadata"]["uid"]},
                "status": {"conditions": conditions},
            }
            path = pod_path(pod, "/status")
            self._pods.observe(await self._api.request("PATCH", path, body, content_type=MERGE_PATCH))


def _requests(pod: Object) -> Amounts:
    return tuple(itertools.chain(pod_requests(pod["spec"], "spec"), [("pods", 1)]))


def _shape(pod: Object) -> _Shape:
    """Raises RequestProblem and BadField."""
    own = read_constraints(pod["spec"], "spec")
    affinity = required_affinity(pod["spec"], "spec", fields=True)
    return _Shape(_requests(pod), own.node_selector, affinity, own.tolerations)
