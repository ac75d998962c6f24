"""A toy of the Spark operator, and of a driver of Spark.

The states and their order are those of `internal/controller/sparkapplication` of the real operator: a change
of the spec beyond `suspend` makes it start anew, and `SUSPENDED` is said before the pods are gone.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any, Final

from queuectl.kube.errors import ApiError
from queuectl.sandbox.players.api import Object, moment, stamp
from queuectl.sandbox.players.pods import PodController, active, ended, owner_reference, phase_of, terminating

_APP: Final = "sparkoperator.k8s.io/app-name"
_ROLE: Final = "spark-role"
_EXECUTORS: Final = "toy.example.com/executors"
"""Annotation of a driver: the pods of its executors, as the properties of a submission tell it."""
_ENDED: Final = ("COMPLETED", "FAILED")
_BY_PHASE: Final = {
    "Pending": "SUBMITTED",
    "Running": "RUNNING",
    "Succeeded": "SUCCEEDING",
    "Failed": "FAILING",
}
_EXECUTOR_BY_PHASE: Final = {**_BY_PHASE, "Pending": "PENDING", "Succeeded": "COMPLETED", "Failed": "FAILED"}
_FORGOTTEN: Final[Object] = {"driverInfo": None, "executorState": None}
_LEAST_OVERHEAD: Final = 384
"""MiB."""


class SparkOperator(PodController):
    """Of SparkApplications."""

    kind = "SparkApplication"
    name = "toy Spark operator"
    _edited: set[str]
    """Keys of objects whose spec has changed since they were last looked at."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._edited = set()
        self._submissions = itertools.count(1)

    def _on_job(self, key: str, before: Object | None, after: Object | None) -> None:
        same = before and after and before["metadata"]["uid"] == after["metadata"]["uid"]
        if same and _submitted_part(before) != _submitted_part(after):
            self._edited.add(key)
        super()._on_job(key, before, after)

    def _on_pod(self, key: str, before: Object | None, after: Object | None) -> None:
        labels = (after or before or {"metadata": {}})["metadata"].get("labels") or {}
        if _APP in labels:
            self.queue.add(f"{key.split('/')[0]}/{labels[_APP]}")

    async def reconcile(self, key: str) -> None:
        app = self._jobs.get(key)
        if app is None or app["metadata"].get("deletionTimestamp"):
            self._edited.discard(key)  # its driver has an owner reference
            return
        state = ((app.get("status") or {}).get("applicationState") or {}).get("state", "")
        if key in self._edited:
            await self._say(app, "INVALIDATING")
            self._edited.discard(key)
        elif app["spec"].get("suspend") and state not in (*_ENDED, "SUSPENDED", "SUSPENDING"):
            await self._say(app, "SUSPENDING")
        else:
            await self._go_on(key, app, state)

    async def _go_on(self, key: str, app: Object, state: str) -> None:
        if state in ("", "RESUMING") or (state == "PENDING_RERUN" and self._driver(app) is None):
            await self._submit(app)
        elif state in ("SUBMITTED", "RUNNING"):
            await self._observe(key, app, state)
        elif state == "SUCCEEDING":
            await self._say(app, "COMPLETED")
        elif state in ("FAILING", "FAILED_SUBMISSION"):
            await self._retry(key, app, state)
        elif state == "INVALIDATING":
            await self._delete_driver(app)
            await self._say(app, "PENDING_RERUN", submissionAttempts=0, executionAttempts=0, **_FORGOTTEN)
        elif state == "SUSPENDING":
            await self._delete_driver(app)
            await self._say(app, "SUSPENDED", **_FORGOTTEN)
        elif state == "SUSPENDED" and not app["spec"].get("suspend") and self._driver(app) is None:
            await self._say(app, "RESUMING")
        elif state in _ENDED and (seconds := app["spec"].get("timeToLiveSeconds")) is not None:
            await self._expire(key, app, app["status"]["terminationTime"], seconds)

    def _driver(self, app: Object) -> Object | None:
        metadata = app["metadata"]
        return self._pods.get(f"{metadata['namespace']}/{metadata['name']}-driver")

    async def _delete_driver(self, app: Object) -> None:
        driver = self._driver(app)
        await self._delete([driver] if driver is not None else [])

    async def _submit(self, app: Object) -> None:
        status = app.get("status") or {}
        told = {
            "submissionAttempts": status.get("submissionAttempts", 0) + 1,
            "lastSubmissionAttemptTime": stamp(self._clock.now()),
        }
        path = f"/api/v1/namespaces/{app['metadata']['namespace']}/pods"
        try:
            driver = await self._api.request("POST", path, _driver_pod(app, next(self._submissions)))
        except ApiError as error:
            if error.status != 409:
                raise
            await self._say(app, "FAILED_SUBMISSION", **told)
            return
        self._pods.observe(driver)
        info = {"podName": driver["metadata"]["name"]}
        runs = status.get("executionAttempts", 0) + 1
        await self._say(app, "SUBMITTED", executionAttempts=runs, driverInfo=info, **told)

    async def _observe(self, key: str, app: Object, state: str) -> None:
        driver = self._driver(app)
        if driver is None:
            await self._say(app, "FAILING", terminationTime=stamp(self._clock.now()))
            return
        executors = self._pods.by("owner", driver["metadata"]["uid"])
        states = {pod["metadata"]["name"]: _EXECUTOR_BY_PHASE[phase_of(pod)] for pod in executors}
        found = _BY_PHASE[phase_of(driver)]
        told: Object = {"executorState": states}
        if ended(driver):
            told["terminationTime"] = stamp(self._clock.now())
        if found != state or states != ((app["status"]).get("executorState") or {}):
            await self._say(app, found, **told)

    async def _retry(self, key: str, app: Object, state: str) -> None:
        """By its restart policy, after a time that grows with the number of attempts."""
        of = "Submission" if state == "FAILED_SUBMISSION" else ""
        policy, status = app["spec"].get("restartPolicy") or {}, app["status"]
        attempts = status.get("submissionAttempts" if of else "executionAttempts", 0)
        if attempts > policy.get(f"on{of}FailureRetries", 0):
            await self._say(app, "FAILED", terminationTime=stamp(self._clock.now()))
            return
        since = (self._clock.now() - moment(status["lastSubmissionAttemptTime"])).total_seconds()
        left = policy[f"on{of}FailureRetryInterval"] * attempts - since
        if left > 0:
            self.queue.add_after(key, left)
        elif of and self._driver(app) is None:
            await self._submit(app)
        else:
            await self._delete_driver(app)
            if not of:
                await self._say(app, "PENDING_RERUN", terminationTime=None, **_FORGOTTEN)

    async def _say(self, app: Object, state: str, **more: Any) -> None:
        await self._store_status(app, {"applicationState": {"state": state}, **more})


class SparkDriver(PodController):
    """What the program in a driver does: it makes its executors, and deletes them when it ends.

    The objects whose pods it makes are pods themselves.
    """

    kind = "Pod"
    name = "toy Spark driver"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._numbers = itertools.count(1)

    async def reconcile(self, key: str) -> None:
        driver = self._pods.get(key)
        told = (driver or {"metadata": {}})["metadata"].get("annotations", {}).get(_EXECUTORS)
        if driver is None or told is None:
            return
        executors = [pod for pod in self._pods.by("owner", driver["metadata"]["uid"]) if active(pod)]
        if ended(driver) or terminating(driver):
            await self._delete(executors)
        elif phase_of(driver) == "Running":
            wanted = json.loads(told)
            for _ in range(wanted["instances"] - len(executors)):
                await self._make(driver, wanted["pod"])

    async def _make(self, driver: Object, pod: Object) -> None:
        metadata = driver["metadata"]
        name = f"{metadata['labels'][_APP]}-{metadata['uid'][:8]}-exec-{next(self._numbers)}"
        owner = owner_reference({"apiVersion": "v1", "kind": "Pod", **driver})
        pod = {**pod, "metadata": {**pod["metadata"], "name": name, "ownerReferences": [owner]}}
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods"
        self._pods.observe(await self._api.request("POST", path, pod))


def _submitted_part(app: Object | None) -> Object:
    """The spec without the fields whose change lets a run go on."""
    spec = (app or {})["spec"]
    return {key: value for key, value in spec.items() if key not in ("suspend", "timeToLiveSeconds")}


def _driver_pod(app: Object, submission: int) -> Object:
    pod = _pod(app, "driver", submission)
    instances = app["spec"]["executor"]["instances"]
    executors = {"instances": instances, "pod": _pod(app, "executor", submission)}
    metadata = pod["metadata"]
    metadata["annotations"] = {**metadata["annotations"], _EXECUTORS: json.dumps(executors)}
    metadata |= {"name": f"{app['metadata']['name']}-driver", "ownerReferences": [owner_reference(app)]}
    return pod


def _pod(app: Object, role: str, submission: int) -> Object:
    """A pod of this role, without a name."""
    own: Mapping[str, Any] = app["spec"][role]
    memory = int(own["memory"].removesuffix("m"))
    size = f"{memory + max(memory // 10, _LEAST_OVERHEAD)}Mi"
    gpu = {own["gpu"]["name"]: str(own["gpu"]["quantity"])}
    resources = {"requests": {"cpu": str(own["cores"]), "memory": size}, "limits": {"memory": size, **gpu}}
    container = {"name": f"spark-kubernetes-{role}", "image": "none", "resources": resources}
    labels = {
        _APP: app["metadata"]["name"],
        _ROLE: role,
        "sparkoperator.k8s.io/submission-id": str(submission),
    }
    scheduling = {key: own[key] for key in ("nodeSelector", "tolerations") if key in own}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "labels": {**(own.get("labels") or {}), **labels},
            "annotations": dict(own.get("annotations") or {}),
        },
        "spec": {"containers": [container], "restartPolicy": "Never", **scheduling},
    }
