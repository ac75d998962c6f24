"""The labels by which people queue their work: our own, and Kueue's where those are honoured too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from queuectl.core.model import Workload
from queuectl.core.queues.requeueing import MAX_RUN
from queuectl.kinds.fields import Json, mapping
from queuectl.kinds.jobs import PRIORITY_LABEL, QUEUE_LABEL

MAX_RUN_LABEL: Final = MAX_RUN
"""Seconds that it may run, all its attempts together."""

KUEUE_QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
KUEUE_PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"


@dataclass(frozen=True, slots=True)
class QueueLabels:
    """Which labels count. Of each two the first that an object has holds, whatever its value."""

    queue: tuple[str, ...]
    priority: tuple[str, ...]

    @property
    def selection(self) -> Mapping[str, str]:
        """What to ask the server for, so that one list and one watch have all queued objects of a kind.

        A label selector knows no "or": with two labels that are all objects, and `observe` looks which of
        them queue (docs/decisions/0007).
        """
        return {"labelSelector": self.queue[0]} if len(self.queue) == 1 else {}


OWN: Final = QueueLabels((QUEUE_LABEL,), (PRIORITY_LABEL,))
KUEUES_TOO: Final = QueueLabels((QUEUE_LABEL, KUEUE_QUEUE_LABEL), (PRIORITY_LABEL, KUEUE_PRIORITY_LABEL))


def first(names: tuple[str, ...], labels: Mapping[str, Any]) -> Any:
    """The value of the first of these that is there; None: there is none of them."""
    return next((labels[name] for name in names if name in labels), None)


def queued_by(workload: Workload) -> str:
    """The label that holds of one that is queued."""
    found = dict(workload.labels)
    return KUEUE_QUEUE_LABEL if KUEUE_QUEUE_LABEL in found and QUEUE_LABEL not in found else QUEUE_LABEL


def may_queue(obj: Json) -> bool:
    """It has a queue label of either sort, whether or not Kueue's is honoured here. Raises BadField."""
    labels = mapping(mapping(obj, "metadata", ""), "labels", "metadata")
    return any(name in labels for name in KUEUES_TOO.queue)
