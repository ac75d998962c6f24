"""trainer.kubeflow.org TrainJob: its pods are those of the JobSet that Trainer makes from its runtime.

That JobSet exists while the TrainJob waits. A start adds scheduling fields by an entry of its own in
`spec.runtimePatches`, which Trainer merges into the JobSet.
"""

from __future__ import annotations

from typing import Any, Final

from queuectl.core.model.workload import Effect, PodSetAssignment, WorkloadId, WorkloadOutcome
from queuectl.kinds.admission import additions, parse
from queuectl.kinds.jobs import Ending, JobKind, PodLabel, Sign
from queuectl.kinds.jobset import JOB_SET
from queuectl.kinds.json_fields import Json, checked, mapping, objects
from queuectl.kinds.node_constraints import NodeConstraints, toleration_json
from queuectl.kinds.podsets import STEERED, Computed, Each, NotYet, Operation, Own, Pods
from queuectl.kinds.reserved_keys import ADMISSION_ANNOTATION, POD_LABELS
from queuectl.kinds.start_patch import STARTED, add, pod_labels, pointer

MANAGER: Final = "queuectl.dev/manager"
_PATCHES: Final = ("spec", "runtimePatches")
_JOBS: Final = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
_TEMPLATE: Final = ("template", "spec", "template")
_MAX_PATCHES: Final = 64
_POD: Final[tuple[tuple[str, ...], ...]] = (
    *((*_TEMPLATE, "spec", key) for key in STEERED),
    *((*_TEMPLATE, "metadata", "labels", label) for label in POD_LABELS),
)
_HELD: Final = (("time",), *((*_JOBS, Each("name"), *place) for place in (("name",), *_POD)))
"""What our entry may hold. Trainer's webhook sets the time."""


def _pod_sets(obj: Json, child: Json | None) -> list[Pods]:
    """Those of its JobSet, with the user's own scheduling fields."""
    if child is None:
        raise NotYet("Trainer has not made its JobSet yet")
    ours = _added(obj)
    metadata = mapping(obj, "metadata", "")
    annotation = mapping(metadata, "annotations", "metadata").get(ADMISSION_ANNOTATION)
    admission = parse(annotation, WorkloadId(str(metadata.get("uid"))))
    return [
        pods._replace(path=f"JobSet.{pods.path}", spec=_own(pods, ours.get(pods.name), before))
        for pods in JOB_SET.podsets.find(child, None)
        for before in (admission.before.get(pods.name) if admission else None,)
    ]


def _own(pods: Pods, added: Json | None, before: NodeConstraints | None) -> Json:
    """The pod spec without what the entry of a former start added: labels, and all tolerations instead."""
    if added is None:
        return pods.spec
    selector = {
        key: value
        for key, value in mapping(pods.spec, "nodeSelector", pods.path).items()
        if mapping(added, "nodeSelector", pods.path).get(key) != value
    }
    tolerations = pods.spec.get("tolerations")
    if before is not None and added.get("tolerations"):
        tolerations = [toleration_json(one) for one in before.tolerations]
    return {**pods.spec, "nodeSelector": selector, "tolerations": tolerations}


def _added(obj: Json) -> dict[str, Json]:
    """By podset, the pod spec in our entry. Raises BadField."""
    path = ".".join(_PATCHES)
    for entry in objects(mapping(obj, "spec", ""), _PATCHES[-1], "spec", _MAX_PATCHES):
        if entry.get("manager") == MANAGER:
            holder = entry
            for key in _JOBS[:-1]:
                holder = mapping(holder, key, path)
            return {
                checked(job.get("name"), path): mapping(_template(job, path), "spec", path)
                for job in objects(holder, _JOBS[-1], path, _MAX_PATCHES * 8)
            }
    return {}


def _template(job: Json, path: str) -> Json:
    for key in _TEMPLATE:
        job = mapping(job, key, path)
    return job


def _steer(effect: Effect) -> list[Operation]:
    """Our entry, in the place of that of a former start."""
    jobs = [
        {
            "name": pod_set.name,
            **_nested(_TEMPLATE, {"metadata": {"labels": pod_labels(effect, pod_set)}} | patch),
        }
        for pod_set in effect.attempt.assignment.steered()
        for patch in (_patch(pod_set, effect),)
    ]
    entry = {"manager": MANAGER, **_nested(_JOBS, jobs)}
    place = effect.observation.own_entry
    if place is None:
        return [add(_PATCHES, [entry])]
    if place < 0:
        return [add((*_PATCHES, "-"), entry)]
    return [{"op": "replace", "path": pointer((*_PATCHES, place)), "value": entry}]


def _patch(pod_set: PodSetAssignment, effect: Effect) -> dict[str, Any]:
    """Trainer merges node selectors, and replaces tolerations."""
    own, added = (
        NodeConstraints(pod_set.node_selector, pod_set.tolerations),
        additions(pod_set, effect.flavors),
    )
    spec: dict[str, Any] = {}
    if added.node_selector:
        spec["nodeSelector"] = dict(added.node_selector)
    if added.tolerations:
        spec["tolerations"] = [toleration_json(item) for item in own.steered(added).tolerations]
    return {"spec": spec} if spec else {}


def _nested(keys: tuple[str, ...], value: object) -> dict[str, Any]:
    for key in reversed(keys[1:]):
        value = {key: value}
    return {keys[0]: value}


TRAIN_JOB: Final = JobKind(
    name="TrainJob",
    group="trainer.kubeflow.org",
    version="v1alpha1",
    plural="trainjobs",
    suspend=("spec", "suspend"),
    podsets=Computed(
        find=_pod_sets,
        steer=_steer,
        writes=((*_PATCHES, Own("manager", MANAGER, _HELD)),),
        child=JOB_SET.name,
    ),
    # What it tells is that of its JobSet.
    status=JOB_SET.status,
    ends=(
        Ending(Sign("Complete"), WorkloadOutcome.SUCCEEDED),
        Ending(Sign("Failed"), WorkloadOutcome.FAILED),
    ),
    # Another TrainJob of its name takes over its JobSet and the pods of that. Only a label tells then.
    pods=(STARTED, PodLabel("jobset.sigs.k8s.io/jobset-name")),
    children=(JOB_SET.name,),
    managed_by=(("spec", "managedBy"), ("trainer.kubeflow.org/trainjob-controller",)),
)
