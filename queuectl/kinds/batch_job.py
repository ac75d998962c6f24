"""batch/v1 Job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from queuectl.core.model import Outcome
from queuectl.kinds.fields import MAX_COUNT, BadField, Json, integer, mapping
from queuectl.kinds.jobs import JobKind, Pods, Status, conditions, pod_template

_INDEXES: Final = re.compile(r"(?:\d{1,6}(?:-\d{1,6})?,){0,100000}\d{1,6}(?:-\d{1,6})?", re.ASCII)
_INDEX_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)


def _job_pod_sets(obj: Json) -> list[Pods]:
    spec = mapping(obj, "spec", "")
    return [Pods("main", pods_at_once(spec, "spec"), "spec.template", *pod_template(spec, "spec"))]


def pods_at_once(spec: Json, path: str) -> int:
    """How many pods a Job with this spec has at one time. Raises BadField."""
    parallel = integer(spec, "parallelism", path, default=1)
    return min(parallel, integer(spec, "completions", path, default=parallel))


def _job_status(obj: Json) -> Status:
    found = conditions(obj)
    # From 1.31 on these two are set only when all pods have ended.
    if found.get("Complete") == "True":
        return Status(Outcome.SUCCEEDED, True)
    if found.get("Failed") == "True":
        return Status(Outcome.FAILED, True)
    alive = _count(obj, "active") + _count(obj, "terminating")
    return Status(None, False if alive else None, *_job_progress(obj, alive))


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
    over = succeeded + (_failed_indexes(status) if spec.get("backoffLimitPerIndex") is not None else 0)
    # The pods of a suspended Job are terminating: the pods of its next run count.
    left = max(wanted - over, alive if spec.get("suspend") is not True else 0, 0)
    ended = whole - min(whole, left)
    reclaimable = (("main", ended),) if ended else ()
    return None if ready is None else ready + succeeded >= whole, reclaimable, ready


def _failed_indexes(status: Json) -> int:
    """The number of indexes in a list such as `1,3-5`; 0 if it is malformed."""
    listed = status.get("failedIndexes")
    if not isinstance(listed, str) or not _INDEXES.fullmatch(listed):
        return 0
    ranges = _INDEX_RANGE.findall(listed)
    return sum(max(0, int(last or first) - int(first) + 1) for first, last in ranges)


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
    names=(),
    suspend=("spec", "suspend"),
    find=_job_pod_sets,
    template=lambda _, __: ("spec", "template"),
    status=_job_status,
    pod_label="batch.kubernetes.io/controller-uid",
    pod_label_is_uid=True,
    managed_by=(("spec", "managedBy"), ("kubernetes.io/job-controller",)),
    start_time_binds=True,
)
