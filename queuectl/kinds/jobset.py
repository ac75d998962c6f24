"""jobset.x-k8s.io JobSet: a list of groups of Jobs.

While the webhook of its controller is down no client can change a JobSet, also not to suspend it: an eviction
is recorded, quota stays held, and the stop is sent again until it is answered. The same holds for a TrainJob.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from queuectl.core.model.workload import WorkloadOutcome
from queuectl.kinds.jobs import Copies, Ending, JobKind, PodLabel, Sign, Status
from queuectl.kinds.json_fields import MAX_COUNT, BadField, Json, checked, integer, mapping, objects
from queuectl.kinds.podsets import MAX_ENTRIES, Count, Each, PodSetGroup, Templates
from queuectl.kinds.start_patch import LABELLED

_JOBS: Final = Count(("replicas",))
_PODS: Final = Count(("template", "spec", "parallelism"), at_most=("template", "spec", "completions"))
_GROUPS: Final = PodSetGroup(
    at=("spec", "replicatedJobs", Each("name")),
    counts=(_JOBS, _PODS),
    template=("template", "spec", "template"),
)

_IN_ORDER: Final = "InOrder"


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
    told = _told(obj)
    if not told:
        return Status()
    ready, busy, up, over, held_back = True, False, 0, [], 0
    for group in _groups(obj):
        jobs = told.get(group.name, _NO_JOBS)
        if not (jobs.active or jobs.ready or jobs.succeeded) and not _may_start(group, told):
            held_back += group.jobs * group.pods
            continue
        ready = ready and jobs.ready + jobs.succeeded >= group.jobs
        up += min(jobs.ready, group.jobs) * group.pods
        busy = busy or jobs.active > 0
        if jobs.succeeded:
            over.append((group.name, min(jobs.succeeded, group.jobs) * group.pods))
    again = _may_restart(obj)
    return Status(
        False if busy else None,
        ready,
        () if again else tuple(over),
        min(up, MAX_COUNT),
        held_back=held_back,
        ended=sum(pods for _, pods in over) if again else 0,
    )


class _Told(NamedTuple):
    """What the status says of the Jobs of one group."""

    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    active: int = 0


_NO_JOBS: Final = _Told()


def _told(obj: Json) -> dict[str, _Told]:
    """By group. Raises BadField."""
    path = "status.replicatedJobsStatus"
    listed = objects(mapping(obj, "status", ""), "replicatedJobsStatus", "status", MAX_ENTRIES)
    return {
        checked(one.get("name"), path): _Told(*(integer(one, key, path, default=0) for key in _Told._fields))
        for one in listed
    }


class _Group(NamedTuple):
    """One replicated Job."""

    name: str
    jobs: int
    pods: int
    """Of one Job."""
    after: tuple[tuple[str, int, bool], ...]
    """Groups that it starts after: name, number of Jobs, and whether these must have succeeded."""


def _groups(obj: Json) -> list[_Group]:
    """Raises BadField."""
    found: list[_Group] = []
    policy = mapping(mapping(obj, "spec", ""), "startupPolicy", "spec")
    in_order = policy.get("startupPolicyOrder") == _IN_ORDER
    sizes = {name: _JOBS.read(group, where) for name, where, group in _GROUPS.entries(obj)}
    for name, where, group in _GROUPS.entries(obj):
        listed = objects(group, "dependsOn", where, MAX_ENTRIES)
        after = [(str(one.get("name")), one.get("status") == "Complete") for one in listed]
        if in_order:
            after += [(earlier.name, False) for earlier in found]
        awaited = tuple((other, sizes[other], complete) for other, complete in after if other in sizes)
        found.append(_Group(name, sizes[name], _PODS.read(group, where), awaited))
    return found


def _may_start(group: _Group, told: Mapping[str, _Told]) -> bool:
    """Have the groups that it starts after become ready, or succeeded?"""
    for name, jobs, complete in group.after:
        now = told.get(name, _NO_JOBS)
        if (now.succeeded if complete else now.ready + now.succeeded + now.failed) < jobs:
            return False
    return True


def _ordered(obj: Json) -> bool:
    try:
        return any(group.after for group in _groups(obj))
    except BadField:
        return False


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
    ordered=_ordered,
    ends=(
        Ending(Sign("Completed"), WorkloadOutcome.SUCCEEDED),
        Ending(Sign("Failed"), WorkloadOutcome.FAILED),
    ),
    # Old releases of JobSet do not write the UID.
    pods=(
        PodLabel("jobset.sigs.k8s.io/jobset-uid", uid=True),
        PodLabel("jobset.sigs.k8s.io/jobset-name"),
        LABELLED,
    ),
    children=("Job",),
    # It is said to be suspended when its Jobs are: each may have a request for a pod on its way.
    suspends=Copies("Job", "jobset.sigs.k8s.io/jobset-name"),
    managed_by=(("spec", "managedBy"), ("jobset.sigs.k8s.io/jobset-controller",)),
    kept="the webhook of JobSet refuses changes of spec.replicatedJobs but scheduling fields",
)
