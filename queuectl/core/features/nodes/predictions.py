"""Whether kube-scheduler finds room where admissions found it: for readers. Decides nothing."""

from __future__ import annotations

from typing import NamedTuple

from queuectl.core.model.pods import Pod
from queuectl.core.model.workload import ObjectRef, WorkloadId


class Miss(NamedTuple):
    """The first pod of an attempt that kube-scheduler found no node for."""

    ref: ObjectRef
    """Of the workload."""
    workload: WorkloadId
    attempt: int
    pod: str
    message: str
    """What kube-scheduler says."""


class Predicted(NamedTuple):
    """Since the last look."""

    admissions: int
    """Those for which nodes limit something: room was found for all their pods."""
    misses: tuple[Miss, ...]
    """At most one for each of these admissions."""


class Predictions:
    def __init__(self) -> None:
        self._open: dict[WorkloadId, tuple[ObjectRef, int]] = {}
        """Attempts that this process has admitted with room, and that no pod has missed."""
        self._admissions = 0
        self._misses: list[Miss] = []

    def admitted(self, workload: WorkloadId, ref: ObjectRef, attempt: int) -> None:
        """Room was found for all pods of this attempt."""
        self._open[workload] = (ref, attempt)
        self._admissions += 1

    def ended(self, workload: WorkloadId) -> None:
        """The open attempt is over. Nothing happens if it was not admitted with room."""
        self._open.pop(workload, None)

    def observe(self, pod: Pod) -> None:
        if pod.unschedulable is None or pod.workload is None or pod.workload not in self._open:
            return
        ref, attempt = self._open.pop(pod.workload)
        self._misses.append(Miss(ref, pod.workload, attempt, pod.name, pod.unschedulable))

    def take(self) -> Predicted:
        found = Predicted(self._admissions, tuple(self._misses))
        self._admissions, self._misses = 0, []
        return found
