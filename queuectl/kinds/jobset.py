"""jobset.x-k8s.io JobSet: a list of groups of Jobs."""

from __future__ import annotations

from collections import Counter
from typing import Final

from queuectl.core.model import Outcome
from queuectl.kinds.batch_job import pods_at_once
from queuectl.kinds.fields import MAX_COUNT, BadField, Json, checked, integer, mapping, objects
from queuectl.kinds.jobs import JobKind, Pods, Replicas, Status, conditions, pod_template

MAX_GROUPS: Final = 512
"""Entries of spec.replicatedJobs that are read."""
_FIELD: Final = "replicatedJobs"


def _pod_sets(obj: Json) -> list[Pods]:
    found = [_pods(group, path) for path, group in _groups(obj)]
    if not found:
        raise BadField(f"spec.{_FIELD}", "no jobs")
    twice = next((name for name, times in Counter(one.name for one in found).items() if times > 1), None)
    if twice is not None:
        raise BadField(f"spec.{_FIELD}", f"two groups have the name {twice}")
    return found


def _pods(group: Json, path: str) -> Pods:
    jobs, pods = _size(group, path)
    spec, inner = _job_spec(group, path)
    return Pods(_name(group, path), jobs * pods, f"{inner}.template", *pod_template(spec, inner))


def _groups(obj: Json) -> list[tuple[str, Json]]:
    """Groups of equal Jobs, each with its path. Raises BadField."""
    found = objects(mapping(obj, "spec", ""), _FIELD, "spec", MAX_GROUPS)
    return [(f"spec.{_FIELD}[{place}]", group) for place, group in enumerate(found)]


def _size(group: Json, path: str) -> tuple[int, int]:
    """The number of its Jobs, and of the pods of each. Raises BadField."""
    jobs, pods = integer(group, "replicas", path, default=1), pods_at_once(*_job_spec(group, path))
    if jobs * pods > MAX_COUNT:
        raise BadField(f"{path}.replicas", f"{jobs} Jobs of {pods} pods are more than {MAX_COUNT} pods")
    return jobs, pods


def _job_spec(group: Json, path: str) -> tuple[Json, str]:
    """The spec of its Jobs, and the path of that. Raises BadField."""
    return mapping(mapping(group, "template", path), "spec", f"{path}.template"), f"{path}.template.spec"


def _name(group: Json, path: str) -> str:
    return checked(group.get("name"), f"{path}.name")


def _status(obj: Json) -> Status:
    found = conditions(obj)
    # Its Jobs may still have pods that are being deleted: only the pods themselves show it.
    if found.get("Completed") == "True":
        return Status(Outcome.SUCCEEDED, None)
    if found.get("Failed") == "True":
        return Status(Outcome.FAILED, None)
    try:
        return _progress(obj)
    except BadField:
        return Status(None, None)


def _progress(obj: Json) -> Status:
    """Its status counts Jobs: a Job is ready if all its pods are ready or have succeeded. Raises BadField."""
    listed = objects(mapping(obj, "status", ""), "replicatedJobsStatus", "status", MAX_GROUPS)
    told = {_name(one, "status.replicatedJobsStatus"): one for one in listed}
    if not told:
        return Status(None, None)
    ready, up, over = True, 0, []
    for path, group in _groups(obj):
        name, (jobs, pods) = _name(group, path), _size(group, path)
        running, succeeded = (
            integer(told.get(name, {}), key, "status", default=0) for key in ("ready", "succeeded")
        )
        ready, up = ready and running + succeeded >= jobs, up + min(running, jobs) * pods
        if succeeded:
            over.append((name, min(succeeded, jobs) * pods))
    return Status(None, None, ready, () if _may_restart(obj) else tuple(over), min(up, MAX_COUNT))


def _may_restart(obj: Json) -> bool:
    """A restart makes also those Jobs again that have succeeded."""
    policy = mapping(mapping(obj, "spec", ""), "failurePolicy", "spec")
    return bool(policy.get("rules") or policy.get("maxRestarts"))


JOB_SET: Final = JobKind(
    name="JobSet",
    group="jobset.x-k8s.io",
    version="v1alpha2",
    plural="jobsets",
    names=(),
    suspend=("spec", "suspend"),
    find=_pod_sets,
    template=lambda _, place: ("spec", _FIELD, place, "template", "spec", "template"),
    status=_status,
    pod_label="jobset.sigs.k8s.io/jobset-uid",
    pod_label_is_uid=True,
    managed_by=(("spec", "managedBy"), ("jobset.sigs.k8s.io/jobset-controller",)),
    replicas=Replicas(_FIELD, listed=True),
    has_jobs=True,
)
