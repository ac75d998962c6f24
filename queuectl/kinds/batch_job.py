"""batch/v1 Job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from queuectl.core.model.workload import WorkloadOutcome
from queuectl.kinds.jobs import CountAnnotations, Elastic, Ending, JobKind, PodLabel, Sign, Status
from queuectl.kinds.json_fields import MAX_COUNT, BadField, Json, integer, mapping, shown
from queuectl.kinds.podsets import Count, PodSetGroup, Templates
from queuectl.kinds.start_patch import LABELLED

_INDEXES: Final = re.compile(r"(?:\d{1,6}(?:-\d{1,6})?,){0,100000}\d{1,6}(?:-\d{1,6})?", re.ASCII)
_WHOLE: Final = re.compile(r"\d{1,10}", re.ASCII)
_INDEX_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)


PODS_AT_ONCE: Final = Count(("parallelism",), at_most=("completions",))
"""How many pods a Job has at one time, by its spec."""


_PARALLELISM: Final = ("spec", "parallelism")
_COMPLETIONS: Final = ("spec", "completions")


def _elastic(obj: Json, names: CountAnnotations) -> Elastic | None:
    """Its annotations allow fewer pods at one time. Raises BadField."""
    annotations = mapping(mapping(obj, "metadata", ""), "annotations", "metadata")
    name = next((name for name in names.least if name in annotations), None)
    if name is None:
        return None
    least = _least(annotations[name], f"metadata.annotations[{name}]", mapping(obj, "spec", ""))
    equal = next((name for name in names.equal if name in annotations), None)
    if equal is None or annotations[equal] == "false":
        return Elastic("main", least, (_PARALLELISM,))
    _refuse_unequal(obj, least, annotations[equal], f"metadata.annotations[{equal}]")
    status = mapping(obj, "status", "")
    if any(status.get(key) for key in ("succeeded", "completedIndexes", "failedIndexes")):
        return None  # with fewer indexes than it had, those that have ended could complete it
    return Elastic("main", least, (_PARALLELISM, _COMPLETIONS))


def _least(value: object, path: str, spec: Json) -> int:
    pods = PODS_AT_ONCE.read(spec, "spec")
    if not isinstance(value, str) or not _WHOLE.fullmatch(value) or not 1 <= int(value) < pods:
        limits = f"1 to {pods - 1}" if pods > 1 else "and with one pod at a time there is none"
        raise BadField(path, f"{shown(value)} is not a whole number of fewer pods, {limits}")
    return int(value)


def _refuse_unequal(obj: Json, least: int, value: object, path: str) -> None:
    """Refuse what the API server would refuse at the start, and what fewer indexes would change."""
    spec = mapping(obj, "spec", "")
    parallel, completions = (integer(spec, key, "spec", default=0) for key in ("parallelism", "completions"))
    if value != "true":
        raise BadField(path, f"{shown(value)} is neither 'true' nor 'false'")
    if spec.get("completionMode") != "Indexed" or parallel != completions:
        mode = spec.get("completionMode") or "NonIndexed"
        held = f"it is {mode}, with parallelism {parallel} and completions {completions}"
        raise BadField(path, f"only for an Indexed Job with completions equal to parallelism: {held}")
    if spec.get("successPolicy") is not None:
        raise BadField("spec.successPolicy", f"names indexes, and {path} makes their number depend on quota")
    if (most := integer(spec, "maxFailedIndexes", "spec", default=0)) > least:
        raise BadField("spec.maxFailedIndexes", f"{most} is more than {least}, the least number of indexes")


def _job_status(obj: Json) -> Status:
    # From 1.31 on an end is said only when all pods have ended.
    if JOB.outcome(obj) is not None:
        return Status(quiet=True)
    alive = _count(obj, "active") + _count(obj, "terminating")
    return Status(False if alive else None, *_job_progress(obj, alive))


def _job_progress(obj: Json, alive: int) -> tuple[bool | None, tuple[tuple[str, int], ...], int | None]:
    """Whether its pods are ready, how many of them have ended for good, and how many are ready."""
    try:
        spec, status = mapping(obj, "spec", ""), mapping(obj, "status", "")
        parallel = integer(spec, "parallelism", "spec", default=1)
        wanted = integer(spec, "completions", "spec", default=parallel)
        ready = integer(status, "ready", "status", default=None) if "ready" in status else None
    except BadField:
        return None, (), None
    succeeded, whole = _count(obj, "succeeded"), min(parallel, wanted)
    over = _ended_indexes(status, wanted) if spec.get("completionMode") == "Indexed" else succeeded
    # The pods of a suspended Job are terminating: the pods of its next run count.
    left = max(wanted - over, alive if spec.get("suspend") is not True else 0, 0)
    ended = whole - min(whole, left)
    reclaimable = (("main", ended),) if ended else ()
    up = None if ready is None else ready + succeeded + _uncounted(status) >= whole
    return up, reclaimable, ready


def _ended_indexes(status: Json, completions: int) -> int:
    """The number of indexes that have succeeded or failed for good.

    Old API servers list an index in both. After a reduction of completions there may be larger ones.
    """
    ended, beyond = 0, 0
    for first, last in sorted((*_ranges(status, "completedIndexes"), *_ranges(status, "failedIndexes"))):
        ended += max(0, min(last + 1, completions) - max(first, beyond))
        beyond = max(beyond, last + 1)
    return ended


def _ranges(status: Json, name: str) -> list[tuple[int, int]]:
    """First and last index of each part of a list such as `1,3-5`; none if it is malformed."""
    listed = status.get(name)
    if not isinstance(listed, str) or not _INDEXES.fullmatch(listed):
        return []
    return [(int(first), int(last or first)) for first, last in _INDEX_RANGE.findall(listed)]


def _uncounted(status: Json) -> int:
    """The number of pods that have succeeded and that `status.succeeded` does not count yet."""
    uncounted = status.get("uncountedTerminatedPods")
    listed = uncounted.get("succeeded") if isinstance(uncounted, Mapping) else None
    return len(listed) if isinstance(listed, list) else 0


def _count(obj: Json, name: str) -> int:
    """A number of its status; 0 if it is missing."""
    status = obj.get("status")
    count = status.get(name) if isinstance(status, Mapping) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 < count <= MAX_COUNT else 0


JOB: Final = JobKind(
    name="Job",
    group="batch",
    version="v1",
    plural="jobs",
    suspend=("spec", "suspend"),
    podsets=Templates(groups=(PodSetGroup(name="main", at=("spec",), counts=(PODS_AT_ONCE,)),)),
    status=_job_status,
    ends=(
        Ending(Sign("Complete"), WorkloadOutcome.SUCCEEDED),
        Ending(Sign("Failed"), WorkloadOutcome.FAILED, deadline=("spec", "activeDeadlineSeconds")),
    ),
    pods=(PodLabel("batch.kubernetes.io/controller-uid", uid=True), LABELLED),
    managed_by=(("spec", "managedBy"), ("kubernetes.io/job-controller",)),
    elastic=_elastic,
    counts=(_PARALLELISM, _COMPLETIONS),
    start_time_binds=True,
)
