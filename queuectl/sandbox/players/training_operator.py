"""The training operator, for PyTorchJobs: pods for the replicas, counted into the status.

A failed pod fails the job: there are no restarts. The job has succeeded when its master has.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from queuectl.sandbox.players.api import Object, moment, stamp
from queuectl.sandbox.players.pods import (
    PodController,
    active,
    holds,
    owner_reference,
    phase_of,
    with_condition,
)

PYTORCHJOBS: Final = "/apis/kubeflow.org/v1/pytorchjobs"
_ROLES: Final = ("Master", "Worker")
_LABELS: Final = "training.kubeflow.org"
_OPERATOR: Final = "kubeflow.org/training-operator"


class TrainingOperator(PodController):
    kind = "PyTorchJob"
    name = "training operator"

    async def reconcile(self, key: str) -> None:
        job = self._jobs.get(key)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return
        policy = job["spec"].get("runPolicy") or {}
        if policy.get("managedBy", _OPERATOR) != _OPERATOR:
            return
        pods = self._pods.by("owner", job["metadata"]["uid"])
        conditions = (job.get("status") or {}).get("conditions") or []
        if holds(conditions, "Succeeded") or holds(conditions, "Failed"):
            await self._clean(policy.get("cleanPodPolicy", "None"), pods)
            await self._report(job)
            seconds, end = policy.get("ttlSecondsAfterFinished"), job["status"].get("completionTime")
            if seconds is not None and end:
                await self._expire(key, job, end, seconds)
            return
        if policy.get("suspend") or _is_late(job, self._clock.now()):
            await self._delete([pod for pod in pods if not pod["metadata"].get("deletionTimestamp")])
        elif not any(phase_of(pod) == "Failed" for pod in pods):
            await self._create_missing(job, pods)
        await self._report(job)

    async def _create_missing(self, job: Object, pods: list[Object]) -> None:
        """Create missing pods; their names are fixed, so an old pod must be gone first."""
        there = {pod["metadata"]["name"] for pod in pods}
        for role, index in _replicas(job):
            pod = _make_pod(job, role, index)
            if pod["metadata"]["name"] not in there:
                await self._create(pod)

    async def _clean(self, policy: str, pods: list[Object]) -> None:
        """Delete the pods of a finished job by its policy."""
        if policy == "All":
            await self._delete([pod for pod in pods if not pod["metadata"].get("deletionTimestamp")])
        elif policy == "Running":
            await self._delete([pod for pod in pods if active(pod)])

    async def _report(self, job: Object) -> None:
        now = self._clock.now()
        pods = self._pods.by("owner", job["metadata"]["uid"])
        before = job.get("status") or {}
        status = _status(job, pods, now)
        changes = {name: value for name, value in status.items() if before.get(name) != value}
        if changes:
            await self._store_status(job, changes | {"lastReconcileTime": stamp(now)})


def _replica_spec(job: Object, role: str) -> Object | None:
    specs: Object = job["spec"].get("pytorchReplicaSpecs") or {}
    return specs.get(role)


def _replicas(job: Object) -> list[tuple[str, int]]:
    """Role and index of each wanted pod."""
    found = []
    for role in _ROLES:
        spec = _replica_spec(job, role)
        if spec is not None:
            count = spec.get("replicas")
            found += [(role, index) for index in range(1 if count is None else count)]
    return found


def _labels(job: Object, role: str) -> dict[str, str]:
    return {
        f"{_LABELS}/job-name": job["metadata"]["name"],
        f"{_LABELS}/operator-name": "pytorchjob-controller",
        f"{_LABELS}/replica-type": role.lower(),
    }


def _make_pod(job: Object, role: str, index: int) -> Object:
    metadata = job["metadata"]
    replica = _replica_spec(job, role) or {}
    template = replica["template"]
    given = template.get("metadata") or {}
    labels = {**(given.get("labels") or {}), **_labels(job, role), f"{_LABELS}/replica-index": str(index)}
    if role == "Master":
        labels[f"{_LABELS}/job-role"] = "master"
    policy = replica.get("restartPolicy") or "OnFailure"
    # Replicas end by themselves, so a pod with restartPolicy Always may still succeed.
    policy = {"ExitCode": "Never", "Always": "OnFailure"}.get(policy, policy)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{metadata['name']}-{role.lower()}-{index}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": dict(given.get("annotations") or {}),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {**template["spec"], "restartPolicy": policy},
    }


def _status(job: Object, pods: list[Object], now: datetime) -> Object:
    """The wanted status; None for a field that must be absent."""
    before = job.get("status") or {}
    name = job["metadata"]["name"]
    conditions: list[Object] = list(before.get("conditions") or ())

    def say(kind: str, value: bool, reason: str, message: str) -> None:
        nonlocal conditions
        conditions = with_condition(
            conditions, now, kind, value, reason, message, clock_field="lastUpdateTime"
        )

    status: Object = {"replicaStatuses": _replica_statuses(job, pods) or None}
    if not conditions:
        say("Created", True, "PyTorchJobCreated", f"PyTorchJob {name} is created.")
    if holds(conditions, "Succeeded") or holds(conditions, "Failed"):
        return status
    leader = "Master" if _replica_spec(job, "Master") else "Worker"
    leaders = [pod for pod in pods if _role(pod) == leader]
    if (job["spec"].get("runPolicy") or {}).get("suspend"):
        if holds(conditions, "Running"):
            say("Running", False, "PyTorchJobSuspended", f"PyTorchJob {name} is suspended.")
        say("Suspended", True, "PyTorchJobSuspended", f"PyTorchJob {name} is suspended.")
        status["startTime"] = None
    else:
        if holds(conditions, "Suspended"):
            say("Suspended", False, "PyTorchJobResumed", f"PyTorchJob {name} is resumed.")
        status["startTime"] = before.get("startTime") or stamp(now)
        failed = next((pod for pod in pods if phase_of(pod) == "Failed"), None)
        if failed is not None or _is_late(job, now):
            why = f"its pod {failed['metadata']['name']} failed" if failed else "its deadline has passed"
            say("Running", False, "PyTorchJobFailed", f"PyTorchJob {name} has failed.")
            say("Failed", True, "PyTorchJobFailed", f"PyTorchJob {name} has failed: {why}.")
            status["completionTime"] = stamp(now)
        elif leaders and all(phase_of(pod) == "Succeeded" for pod in leaders):
            say("Running", False, "PyTorchJobSucceeded", f"PyTorchJob {name} has succeeded.")
            say("Succeeded", True, "PyTorchJobSucceeded", f"PyTorchJob {name} successfully completed.")
            status["completionTime"] = stamp(now)
        elif any(phase_of(pod) == "Running" for pod in leaders):
            say("Running", True, "PyTorchJobRunning", f"PyTorchJob {name} is running.")
    status["conditions"] = conditions
    return status


def _is_late(job: Object, now: datetime) -> bool:
    """As the real one, it looks at the deadline only when job or pods change."""
    limit: int | None = (job["spec"].get("runPolicy") or {}).get("activeDeadlineSeconds")
    start: str | None = (job.get("status") or {}).get("startTime")
    return limit is not None and start is not None and moment(start) + timedelta(seconds=limit) <= now


def _role(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(f"{_LABELS}/replica-type", "")).capitalize()


def _replica_statuses(job: Object, pods: list[Object]) -> Object:
    statuses: Object = {}
    for role in _ROLES:
        if _replica_spec(job, role) is None:
            continue
        mine = [pod for pod in pods if _role(pod) == role]
        counts = {
            "active": sum(active(pod) and phase_of(pod) == "Running" for pod in mine),
            "succeeded": sum(phase_of(pod) == "Succeeded" for pod in mine),
            "failed": sum(phase_of(pod) == "Failed" for pod in mine),
        }
        selector = ",".join(f"{key}={value}" for key, value in sorted(_labels(job, role).items()))
        statuses[role] = {name: count for name, count in counts.items() if count} | {"selector": selector}
    return statuses
