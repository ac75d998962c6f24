"""Pods that have not ended, and those of them that are bound to nodes, by workload."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from queuectl.core.features.nodes.losses import NodeLosses
from queuectl.core.model.pods import Pod
from queuectl.core.model.workload import WorkloadId


class BoundPods:
    def __init__(self, pods: dict[str, Pod], losses: NodeLosses) -> None:
        self._pods = pods
        """Those that have not ended, by UID. Shared with `losses`."""
        self._losses = losses
        self._of: dict[WorkloadId, dict[str, None]] = {}
        """UIDs of the bound pods of workloads, without those that count as gone (M13)."""
        self._leaving: set[str] = set()
        """UIDs of bound pods that are being deleted."""
        self._touched: set[WorkloadId] = set()
        """Workloads whose bound pods, or what they hold, changed since they were last taken."""
        self._moved: set[WorkloadId] = set()
        """The same, for another reader."""

    # --- what is observed

    def add(self, pod: Pod, now: datetime) -> None:
        self._pods[pod.uid] = pod
        self._note_leaving(pod)
        if pod.workload is not None and pod.node is not None:
            self._losses.bind(pod, now)
            self._attach(pod)

    def replace(self, pod: Pod) -> None:
        """It changed, but not its node, its requests and its workload."""
        self._pods[pod.uid] = pod
        self._note_leaving(pod)
        self._attach(pod)

    def forget(self, uid: str) -> Pod | None:
        """Return the pod; None: it is not known."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return None
        self._leaving.discard(uid)
        if pod.workload is not None and pod.node is not None:
            self._losses.unbind(pod)
            self.detach(pod)
        return pod

    def judge(self, node: str, now: datetime) -> None:
        """A node changed, or its time has come: pods on it may count as gone, or not any more."""
        if self._losses.judge(node, now):
            for uid in self._losses.on(node):
                self._attach(self._pods[uid])

    def _attach(self, pod: Pod) -> None:
        """Count it as a bound pod of its workload, unless it counts as gone."""
        owner = pod.workload
        if owner is None or pod.node is None:
            return
        self._losses.terminates(pod)
        if self._losses.counts_as_gone(pod):
            self.detach(pod)
        elif pod.uid not in self._of.get(owner, ()):
            self._of.setdefault(owner, {})[pod.uid] = None
            self.touch(owner)

    def detach(self, pod: Pod) -> None:
        """It does not count as a bound pod of its workload any more."""
        there = self._of.get(pod.workload) if pod.workload is not None else None
        if pod.workload is None or there is None or pod.uid not in there:
            return
        del there[pod.uid]
        if not there:
            del self._of[pod.workload]
        self.touch(pod.workload)

    def touch(self, owner: WorkloadId) -> None:
        """The bound pods of a workload, or what it holds, changed."""
        self._touched.add(owner)
        self._moved.add(owner)

    def touch_all(self, owners: Iterable[WorkloadId]) -> None:
        """What is counted of the pods of these workloads changed."""
        self._touched.update(owners)

    def _note_leaving(self, pod: Pod) -> None:
        leaves = pod.terminating and pod.node is not None
        (self._leaving.add if leaves else self._leaving.discard)(pod.uid)

    # --- what is asked

    def of(self, owner: WorkloadId) -> Iterator[Pod]:
        """Yield the bound pods of a workload, but for those that count as gone."""
        return (self._pods[uid] for uid in self._of.get(owner, ()))

    def count(self, owner: WorkloadId) -> int:
        """Return how many these are."""
        return len(self._of.get(owner, ()))

    def named(self, owner: WorkloadId, most: int = 3) -> tuple[str, ...]:
        """Return the first `most` bound pods of a workload by name, each with its node."""
        pods = sorted(self.of(owner), key=lambda pod: pod.name)
        return tuple(f"{pod.name} on node {pod.node}" for pod in pods[:most])

    def ending(self, orphans: Iterable[WorkloadId]) -> Iterator[Pod]:
        """Yield the bound pods of `orphans`, and all that are being deleted, by UID."""
        uids = {uid for owner in orphans for uid in self._of.get(owner, ())} | self._leaving
        return (self._pods[uid] for uid in sorted(uids))

    def take_touched(self) -> set[WorkloadId]:
        """Return the workloads whose bound pods, or what they hold, changed since the last call."""
        touched, self._touched = self._touched, set()
        return touched

    def take_moved(self) -> list[WorkloadId]:
        """Return the same, sorted, since the last call of this method."""
        moved, self._moved = sorted(self._moved), set()
        return moved
