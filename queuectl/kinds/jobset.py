"""jobset.x-k8s.io JobSet: a list of groups of Jobs."""

from __future__ import annotations

from typing import Final

from queuectl.core.model import Outcome
from queuectl.kinds.fields import MAX_COUNT, BadField, Json, checked, integer, mapping, objects
from queuectl.kinds.jobs import Ending, JobKind, PodLabel, Sign, Status
from queuectl.kinds.podsets import MAX_ENTRIES, Count, Each, PodGroup, Templates
from queuectl.kinds.steering import LABELLED

_JOBS: Final = Count(("replicas",))
_PODS: Final = Count(("template", "spec", "parallelism"), at_most=("template", "spec", "completions"))
_GROUPS: Final = PodGroup(
    at=("spec", "replicatedJobs", Each("name")),
    counts=(_JOBS, _PODS),
    template=("template", "spec", "template"),
)


def _status(obj: Json) -> Status:
    # Its Jobs may still have pods that are being deleted: only the pods themselves show it.
    if JOB_SET.outcome(obj) is not None:
        return Status()
    try:
        return _progress(obj)
    except BadField:
        return Status()


def _progress(obj: Json) -> Status:
    """Its status counts Jobs: a Job is ready if all its pods are ready or have succeeded. Raises BadField."""
    path = "status.replicatedJobsStatus"
    listed = objects(mapping(obj, "status", ""), "replicatedJobsStatus", "status", MAX_ENTRIES)
    told = {checked(one.get("name"), path): one for one in listed}
    if not told:
        return Status()
    ready, busy, up, over = True, False, 0, []
    for name, where, group in _GROUPS.entries(obj):
        jobs, pods = _JOBS.read(group, where), _PODS.read(group, where)
        running, succeeded = (
            integer(told.get(name, {}), key, path, default=0) for key in ("ready", "succeeded")
        )
        ready, up = ready and running + succeeded >= jobs, up + min(running, jobs) * pods
        busy = busy or integer(told.get(name, {}), "active", path, default=0) > 0
        if succeeded:
            over.append((name, min(succeeded, jobs) * pods))
    return Status(
        False if busy else None, ready, () if _may_restart(obj) else tuple(over), min(up, MAX_COUNT)
    )


def _may_restart(obj: Json) -> bool:
    """A restart makes also those Jobs again that have succeeded."""
    policy = mapping(mapping(obj, "spec", ""), "failurePolicy", "spec")
    return bool(policy.get("rules") or policy.get("maxRestarts"))


JOB_SET: Final = JobKind(
    name="JobSet",
    group="jobset.x-k8s.io",
    version="v1alpha2",
    plural="jobsets",
    suspend=("spec", "suspend"),
    podsets=Templates(groups=(_GROUPS,)),
    status=_status,
    ends=(
        Ending(Sign("Completed"), Outcome.SUCCEEDED),
        Ending(Sign("Failed"), Outcome.FAILED),
    ),
    # Old releases of JobSet do not write the UID.
    pods=(
        PodLabel("jobset.sigs.k8s.io/jobset-uid", uid=True),
        PodLabel("jobset.sigs.k8s.io/jobset-name"),
        LABELLED,
    ),
    children=("Job",),
    managed_by=(("spec", "managedBy"), ("jobset.sigs.k8s.io/jobset-controller",)),
    kept="the webhook of JobSet refuses changes of spec.replicatedJobs but scheduling fields",
)
