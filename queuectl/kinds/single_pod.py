"""v1 Pod: a pod that queues by itself, held back by a scheduling gate.

The gate is added at its creation and removed by its start. No gate can be added later, so a stop deletes the
pod; what its owner makes in its place is another workload.
"""

from __future__ import annotations

from typing import Final

from queuectl.core.model.workload import Effect, WorkloadOutcome
from queuectl.kinds.jobs import Ending, JobKind, Sign, Status, SuspensionSeen, conditions, value_at
from queuectl.kinds.json_fields import BadField, Json, mapping
from queuectl.kinds.labels import given_by_kueue
from queuectl.kinds.leader_worker_set import group_of
from queuectl.kinds.owners import controller
from queuectl.kinds.podsets import STEERED, Computed, Operation, Own, Path, Pods
from queuectl.kinds.reserved_keys import (
    GATED_LABEL,
    GROUP_LABEL,
    GROUP_SIZE,
    SCHEDULING_GATE,
)
from queuectl.kinds.start_patch import STARTED, add, admission_labels, directives, pointer

_GATES: Final = ("spec", "schedulingGates")
_PHASE: Final = ("status", "phase")


def _find(obj: Json, child: Json | None) -> list[Pods]:
    spec = mapping(obj, "spec", "")
    if not spec:
        raise BadField("spec", "no pod spec")
    return [Pods("main", 1, "", spec, mapping(obj, "metadata", ""))]


def _steer(effect: Effect) -> list[Operation]:
    """Node selector, tolerations and label; and the gate is removed, at the place where it was seen."""
    patch = []
    for pod_set in effect.attempt.assignment.steered():
        patch += directives(pod_set, ("spec",), effect)
        for label, value in admission_labels(effect, pod_set).items():
            patch.append(add(("metadata", "labels", label), value))
    place = effect.observation.own_entry
    if place is not None and place >= 0:
        gate: Path = (*_GATES, place)
        patch.append({"op": "test", "path": pointer((*gate, "name")), "value": SCHEDULING_GATE})
        patch.append({"op": "remove", "path": pointer(gate)})
    return patch


def maker(obj: Json) -> tuple[object, ...] | None:
    """What creates a pod again in place of this one: its Deployment, whatever its revision, or its other
    controller; None: nothing."""
    try:
        metadata = mapping(obj, "metadata", "")
        found, labels = controller(obj), mapping(metadata, "labels", "metadata")
    except BadField:
        return None
    if found is None:
        return None
    name, revision = str(found.get("name")), f"-{labels.get('pod-template-hash')}"
    of_deployment = found.get("kind") == "ReplicaSet" and name.endswith(revision)
    which = name.removesuffix(revision) if of_deployment else found.get("uid")
    return metadata.get("namespace"), found.get("kind"), str(which)


def _status(obj: Json) -> Status:
    if POD.outcome(obj) is not None:
        return Status(quiet=True, ready=value_at(obj, _PHASE) == "Succeeded", pods_ready=0)
    if POD.suspended(obj):
        return Status(quiet=True, ready=False, pods_ready=0)
    ready = conditions(obj).get("Ready") == "True"
    return Status(quiet=False, ready=ready, pods_ready=int(ready))


def gate_operations(obj: Json) -> list[Operation]:
    """What a webhook adds to a pod that is created: the scheduling gate, the label, what Kueue's names give
    it, and to one of a LeaderWorkerSet its group. Raises BadField.

    Nothing to one that is bound already: the API server accepts no gate on it.
    """
    spec, metadata = mapping(obj, "spec", ""), mapping(obj, "metadata", "")
    if spec.get("nodeName"):
        return []
    kueues = given_by_kueue(metadata)
    patch = [add(("metadata", *key), value) for key, value in kueues.items()]
    if not POD.suspended(obj):
        gate = {"name": SCHEDULING_GATE}
        patch.append(add((*_GATES, "-"), gate) if spec.get("schedulingGates") else add(_GATES, [gate]))
    if mapping(metadata, "labels", "metadata").get(GATED_LABEL) != "true":
        patch.append(add(("metadata", "labels", GATED_LABEL), "true"))
    group = group_of(metadata)
    if group is not None and not (GROUP_LABEL in metadata["labels"] or ("labels", GROUP_LABEL) in kueues):
        patch.append(add(("metadata", "labels", GROUP_LABEL), group[0]))
        patch.append(add(("metadata", "annotations", GROUP_SIZE), group[1]))
    return patch


POD: Final = JobKind(
    name="Pod",
    group="",
    version="v1",
    plural="pods",
    names=("po",),
    suspend=_GATES,
    podsets=Computed(
        find=_find,
        steer=_steer,
        scheduling_gate=SCHEDULING_GATE,
        writes=((*_GATES, Own("name", SCHEDULING_GATE, ())), *(("spec", key) for key in STEERED)),
    ),
    status=_status,
    # While it is gated its phase is Pending, and nothing makes other pods for it.
    seen=SuspensionSeen(Sign(_PHASE, "Pending")),
    ends=(
        Ending(Sign(_PHASE, "Succeeded"), WorkloadOutcome.SUCCEEDED),
        Ending(Sign(_PHASE, "Failed"), WorkloadOutcome.FAILED),
    ),
    pods=(STARTED,),
)
