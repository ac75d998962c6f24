"""The labels that queue a workload: queuectl's own, and Kueue's with its annotations if they are honoured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from queuectl.core.features.run_time.limits import MAX_RUN
from queuectl.core.model.start_conditions import ARRAY
from queuectl.core.model.workload import Workload
from queuectl.kinds.jobs import PRIORITY_LABEL, QUEUE_LABEL, CountAnnotations, JobKind
from queuectl.kinds.json_fields import Json, mapping
from queuectl.kinds.reserved_keys import GATED_LABEL, GROUP_INDEX, GROUP_LABEL, GROUP_SIZE

MAX_RUN_LABEL: Final = MAX_RUN
"""Seconds that it may run, summed over all attempts."""
ARRAY_LABEL: Final = ARRAY
"""Name of the array that a Job was submitted with: a label to select by, and what `max-running` counts."""

KUEUE_QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
KUEUE_PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
_KUEUE_GROUP: Final = "kueue.x-k8s.io/pod-group-name"

MetadataKey = tuple[str, str]
"""`labels` or `annotations`, and a key."""
KUEUES_OF_PODS: Final[Mapping[MetadataKey, tuple[MetadataKey, ...]]] = {
    ("labels", QUEUE_LABEL): (("labels", KUEUE_QUEUE_LABEL),),
    ("labels", PRIORITY_LABEL): (("labels", KUEUE_PRIORITY_LABEL),),
    ("labels", GROUP_LABEL): (("annotations", _KUEUE_GROUP), ("labels", _KUEUE_GROUP)),
    ("labels", GROUP_INDEX): (("labels", "kueue.x-k8s.io/pod-group-pod-index"),),
    ("annotations", GROUP_SIZE): (("annotations", "kueue.x-k8s.io/pod-group-total-count"),),
}
"""Where our keys come from at the creation of a pod without our queue label: from the first that it has.
Nothing reads Kueue's later: of a pod that exists our keys alone count."""


@dataclass(frozen=True, slots=True)
class QueueLabels:
    """The labels that count. Of each pair the first that an object has is used, whatever its value."""

    queue: tuple[str, ...]
    priority: tuple[str, ...]
    counts: CountAnnotations
    topology: frozenset[str] = frozenset()
    """Annotations of pod templates: each requires that its pods are placed in one domain of a topology."""
    default: str | None = None
    """LocalQueue of objects without a queue label, pods apart. Of an observed cluster only."""

    @property
    def selection(self) -> Mapping[str, str]:
        """Label selector for the server, so that one list and one watch have all queued objects of a kind.

        A label selector has no "or": with two labels it selects all objects, and `observe` filters those
        that are queued. Two watches would report a change from one label to the other in either order.
        """
        return {"labelSelector": self.queue[0]} if len(self.queue) == 1 and self.default is None else {}


_OWN_COUNTS: Final = CountAnnotations(
    ("queuectl.dev/min-parallelism",), ("queuectl.dev/completions-equal-parallelism",)
)
_KUEUES_COUNTS: Final = CountAnnotations(
    (*_OWN_COUNTS.least, "kueue.x-k8s.io/job-min-parallelism"),
    (*_OWN_COUNTS.equal, "kueue.x-k8s.io/job-completions-equal-parallelism"),
)

OWN: Final = QueueLabels((QUEUE_LABEL,), (PRIORITY_LABEL,), _OWN_COUNTS)
KUEUES_TOO: Final = QueueLabels(
    (QUEUE_LABEL, KUEUE_QUEUE_LABEL),
    (PRIORITY_LABEL, KUEUE_PRIORITY_LABEL),
    _KUEUES_COUNTS,
    frozenset({"kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-slice-required-topology"}),
)


KUEUE_MARKS: Final = frozenset(
    name
    for name in (
        *(*KUEUES_TOO.queue, *KUEUES_TOO.priority),
        *(*KUEUES_TOO.counts.least, *KUEUES_TOO.counts.equal, *KUEUES_TOO.topology),
    )
    if "kueue.x-k8s.io/" in name
)
"""Kueue's labels and annotations that have an effect. Its others have none: the API server warns of them."""


def first(names: tuple[str, ...], labels: Mapping[str, Any]) -> Any:
    """The value of the first of these labels that is present; None: none is."""
    return next((labels[name] for name in names if name in labels), None)


def given_by_kueue(metadata: Json) -> dict[MetadataKey, Any]:
    """Our keys that Kueue's give a pod that is created. Raises BadField."""
    there = {field: mapping(metadata, field, "metadata") for field in ("labels", "annotations")}
    if QUEUE_LABEL in there["labels"]:
        return {}
    return {
        (field, key): next(there[of][name] for of, name in sources if name in there[of])
        for (field, key), sources in KUEUES_OF_PODS.items()
        if key not in there[field] and any(name in there[of] for of, name in sources)
    }


def selection(kind: JobKind, honoured: QueueLabels) -> Mapping[str, str]:
    """Label selector for the server of the objects of a kind that may queue.

    Of pods, those that queue by themselves or as a group: pods of other workloads have a queue label too.
    """
    if kind.scheduling_gate:
        return {"labelSelector": f"{GATED_LABEL},{'' if kind.composed_of else '!'}{GROUP_LABEL}"}
    return honoured.selection


def queued_by(workload: Workload) -> str:
    """The label that queues a workload."""
    found = dict(workload.labels)
    return KUEUE_QUEUE_LABEL if KUEUE_QUEUE_LABEL in found and QUEUE_LABEL not in found else QUEUE_LABEL


def may_queue(obj: Json) -> bool:
    """Does it have a queue label, queuectl's or Kueue's, honoured or not? Raises BadField."""
    labels = mapping(mapping(obj, "metadata", ""), "labels", "metadata")
    return any(name in labels for name in KUEUES_TOO.queue)
