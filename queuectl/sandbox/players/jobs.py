"""The Job controller, for the small API: pods for Jobs, counted into their status.

It implements parallelism, completions (also Indexed), suspend, backoffLimit, activeDeadlineSeconds and
ttlSecondsAfterFinished. It sets no finalizer on pods: a finished pod that is deleted by hand before it was
counted is never counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from queuectl.sandbox.players.api import Object, moment, stamp
from queuectl.sandbox.players.pods import (
    PodController,
    active,
    holds,
    owner_reference,
    ready,
    terminating,
    with_condition,
)

JOBS: Final = "/apis/batch/v1/jobs"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_CONTROLLER: Final = "kubernetes.io/job-controller"
_ENDS: Final = ("Complete", "Failed")
_BACKOFF_SECONDS: Final = 10.0
_MOST_BACKOFF_SECONDS: Final = 600.0


@dataclass
class _View:
    """One Job and its pods at one time."""

    job: Object
    pods: list[Object]
    now: datetime
    spec: Object = field(init=False)
    status: Object = field(init=False)

    def __post_init__(self) -> None:
        self.spec = self.job["spec"]
        self.status = self.job.get("status") or {}

    @property
    def indexed(self) -> bool:
        return bool(self.spec.get("completionMode") == "Indexed")

    @property
    def conditions(self) -> list[Object]:
        return list(self.status.get("conditions") or ())

    def ended_with(self, phase: str) -> list[Object]:
        return [pod for pod in self.pods if pod.get("status", {}).get("phase") == phase]

    @property
    def succeeded(self) -> int:
        done = self.ended_with("Succeeded")
        count = len({index_of(pod) for pod in done}) if self.indexed else len(done)
        return max(count, self.status.get("succeeded") or 0)

    @property
    def failed(self) -> int:
        return max(len(self.ended_with("Failed")), self.status.get("failed") or 0)

    @property
    def completed(self) -> bool:
        """The success criteria are met."""
        if holds(self.conditions, "SuccessCriteriaMet"):
            return True
        wanted = self.spec.get("completions")
        if wanted is None:
            return self.succeeded > 0 and not any(active(pod) for pod in self.pods)
        return bool(self.succeeded >= wanted)

    @property
    def failure(self) -> tuple[str, str] | None:
        """Reason and message if the Job must fail."""
        for condition in self.conditions:
            if condition["type"] == "FailureTarget" and condition["status"] == "True":
                return condition["reason"], condition["message"]
        if self.failed > self.spec.get("backoffLimit", 6):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        left = self.seconds_to_deadline
        if left is not None and left <= 0:
            return "DeadlineExceeded", "Job was active longer than specified deadline"
        return None

    @property
    def seconds_to_deadline(self) -> float | None:
        limit, start = self.spec.get("activeDeadlineSeconds"), self.status.get("startTime")
        if limit is None or not start or self.spec.get("suspend"):
            return None
        return (moment(start) + timedelta(seconds=limit) - self.now).total_seconds()

    @property
    def seconds_to_retry(self) -> float:
        """Seconds after a failure without new pods."""
        ends = [moment(end) for pod in self.ended_with("Failed") if (end := _finished_at(pod))]
        if not ends:
            return 0.0
        pause = min(_BACKOFF_SECONDS * 2 ** min(self.failed - 1, 20), _MOST_BACKOFF_SECONDS)
        return (max(ends) + timedelta(seconds=pause) - self.now).total_seconds()

    @property
    def wanted(self) -> int:
        """Wanted number of active pods while it runs."""
        parallelism = int(self.spec.get("parallelism", 1))
        completions = self.spec.get("completions")
        if completions is None:
            # After the first success of a work queue no more pods are started.
            return sum(map(active, self.pods)) if self.succeeded else parallelism
        return max(0, min(parallelism, int(completions) - self.succeeded))


class JobController(PodController):
    kind = "Job"
    name = "job"

    async def reconcile(self, key: str) -> None:
        job = self._jobs.get(key)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return
        if job["spec"].get("managedBy", _CONTROLLER) != _CONTROLLER:
            return
        view = self._view(job)
        if any(holds(view.conditions, kind) for kind in _ENDS):
            seconds = view.spec.get("ttlSecondsAfterFinished")
            if seconds is not None:
                end = next(c for c in view.conditions if c["type"] in _ENDS and c["status"] == "True")
                await self._expire(key, job, end["lastTransitionTime"], seconds)
            return
        if view.failure or view.completed or view.spec.get("suspend"):
            await self._delete([pod for pod in view.pods if active(pod)])
        else:
            await self._fit(key, view)
        await self._report(job)

    def _view(self, job: Object) -> _View:
        return _View(job, self._pods.by("owner", job["metadata"]["uid"]), self._clock.now())

    async def _fit(self, key: str, view: _View) -> None:
        """Create or delete pods until the wanted number is active."""
        running = [pod for pod in view.pods if active(pod)]
        missing = view.wanted - len(running)
        if missing < 0:
            # Pods with the least progress are deleted first.
            running.sort(key=lambda pod: (ready(pod), bool(pod["spec"].get("nodeName"))))
            await self._delete(running[:-missing])
        elif missing > 0:
            if (pause := view.seconds_to_retry) > 0:
                self.queue.add_after(key, pause)
                return
            indexes = _free_indexes(view, missing) if view.indexed else [None] * missing
            for index in indexes:
                await self._create(make_pod(view.job, index))
        if (left := view.seconds_to_deadline) is not None:
            self.queue.add_after(key, left)

    async def _report(self, job: Object) -> None:
        """Update the status from the pods, including our own writes."""
        view = self._view(job)
        status = _status(view)
        changes = {key: value for key, value in status.items() if view.status.get(key) != value}
        if changes:
            await self._store_status(job, changes)


def index_of(pod: Object) -> str:
    """The completion index of a pod of an Indexed Job."""
    return str((pod["metadata"].get("annotations") or {}).get(COMPLETION_INDEX, ""))


def _free_indexes(view: _View, count: int) -> list[int | None]:
    taken = {index_of(pod) for pod in view.pods if active(pod)}
    taken |= {index_of(pod) for pod in view.ended_with("Succeeded")}
    free: list[int | None] = [i for i in range(view.spec["completions"]) if str(i) not in taken]
    return free[:count]


def make_pod(job: Object, index: int | None) -> Object:
    """A new pod of this Job; the server generates its name."""
    metadata, template = job["metadata"], job["spec"]["template"]
    given = template.get("metadata") or {}
    labels = dict(given.get("labels") or {})
    annotations = dict(given.get("annotations") or {})
    prefix = metadata["name"]
    for group in ("", "batch.kubernetes.io/"):
        labels[f"{group}controller-uid"] = metadata["uid"]
        labels[f"{group}job-name"] = metadata["name"]
    spec: dict[str, Any] = dict(template["spec"])
    if index is not None:
        prefix = f"{prefix}-{index}"
        labels[COMPLETION_INDEX] = annotations[COMPLETION_INDEX] = str(index)
        spec.setdefault("hostname", prefix)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{prefix}-",
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }


def _finished_at(pod: Object) -> str | None:
    for status in pod.get("status", {}).get("containerStatuses") or ():
        end = status.get("state", {}).get("terminated", {}).get("finishedAt")
        if end:
            return str(end)
    return None


def _status(view: _View) -> Object:
    """The wanted status; None for a field that must be absent."""
    running = [pod for pod in view.pods if active(pod)]
    ending = sum(map(terminating, view.pods))
    status: Object = {
        "active": len(running) or None,
        "ready": sum(map(ready, running)),
        "terminating": ending,
        "succeeded": view.succeeded or None,
        "failed": view.failed or None,
        "uncountedTerminatedPods": {},
    }
    if view.indexed:
        status["completedIndexes"] = _ranges(view) or None
    conditions = view.conditions
    quiet = not running and not ending
    if view.completed:
        why = ("CompletionsReached", "Reached expected number of succeeded pods")
        conditions = _condition(conditions, view, "SuccessCriteriaMet", why)
        if quiet:
            conditions = _condition(conditions, view, "Complete", why)
            status["completionTime"] = view.status.get("completionTime") or stamp(view.now)
    elif view.failure:
        conditions = _condition(conditions, view, "FailureTarget", view.failure)
        if quiet:
            conditions = _condition(conditions, view, "Failed", view.failure)
    elif view.spec.get("suspend"):
        conditions = _condition(conditions, view, "Suspended", ("JobSuspended", "Job suspended"))
    else:
        resumed = holds(conditions, "Suspended")
        if resumed:
            why = ("JobResumed", "Job resumed")
            conditions = _condition(conditions, view, "Suspended", why, status=False)
        if resumed or not view.status.get("startTime"):
            status["startTime"] = stamp(view.now)
    status["conditions"] = conditions or None
    return status


def _condition(
    conditions: list[Object], view: _View, kind: str, why: tuple[str, str], *, status: bool = True
) -> list[Object]:
    return with_condition(conditions, view.now, kind, status, *why)


def _ranges(view: _View) -> str:
    """Completed indexes as the API writes them: `0,2-4`."""
    indexes = sorted({int(index_of(pod) or -1) for pod in view.ended_with("Succeeded")})
    ranges: list[list[int]] = []
    for index in indexes:
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
