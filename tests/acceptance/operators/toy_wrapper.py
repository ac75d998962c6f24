"""A toy of the AppWrapper operator, for components of one Job.

The phases and their order are those of `internal/controller/appwrapper` of the real operator. Its pauses are
shorter.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any, Final

from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.players.api import Object
from queuectl.sandbox.players.pods import PodController, holds, owner_reference, phase_of, with_condition

_WRAPPER: Final = "workload.codeflare.dev/appwrapper"
_FINALIZER: Final = "workload.codeflare.dev/finalizer"
_DEPLOYED: Final = "ResourcesDeployed"
_READY: Final = "PodsReady"
_AFTER: Final[dict[str, tuple[str, dict[str, bool]]]] = {
    "Suspending": ("Suspended", {_DEPLOYED: False, _READY: False}),
    "Resetting": ("Resuming", {_DEPLOYED: True, _READY: False}),
    "Failed": ("Failed", {_DEPLOYED: False}),
}
"""Phases in which components are deleted: what is said once they are gone."""
_MOST_RETRIES: Final = 3
_LOOKS_AGAIN_SECONDS: Final = 0.2


def wrapper_of(pod: Object) -> str | None:
    """The key of the AppWrapper of a pod."""
    name = (pod["metadata"].get("labels") or {}).get(_WRAPPER)
    return f"{pod['metadata']['namespace']}/{name}" if name else None


class AppWrapperOperator(PodController):
    """Of AppWrappers."""

    kind = "AppWrapper"
    name = "toy AppWrapper operator"

    def _on_pod(self, key: str, before: Object | None, after: Object | None) -> None:
        wrapper = wrapper_of(after or before or {"metadata": {}})
        if wrapper is not None:
            self.queue.add(wrapper)

    async def reconcile(self, key: str) -> None:
        wrapper = self._jobs.get(key)
        if wrapper is None:
            return
        deleted, kept = (wrapper["metadata"].get(name) for name in ("deletionTimestamp", "finalizers"))
        if deleted:
            if kept and await self._gone(key, wrapper):
                await self._patch(wrapper, {"metadata": {"finalizers": None}})
        elif not kept:
            await self._patch(wrapper, {"metadata": {"finalizers": [_FINALIZER]}})
        else:
            await self._go_on(key, wrapper)

    async def _go_on(self, key: str, wrapper: Object) -> None:
        phase, suspend = (wrapper.get("status") or {}).get("phase"), wrapper["spec"].get("suspend")
        if not phase:
            await self._say(wrapper, "Suspended")
        elif phase == "Suspended":
            if not suspend:
                await self._say(wrapper, "Resuming", {_DEPLOYED: True, _READY: False})
        elif suspend and phase in ("Resuming", "Running", "Resetting"):
            await self._say(wrapper, "Suspending")
        elif phase == "Resuming":
            await self._create_components(wrapper)
            await self._say(wrapper, "Running")
        elif phase == "Running":
            await self._observe(key, wrapper)
        elif phase in _AFTER and _deployed(wrapper) and await self._gone(key, wrapper):
            # Also from `Suspending`, if it is to run by now.
            await self._say(wrapper, *_AFTER[phase])

    async def _create_components(self, wrapper: Object) -> None:
        for path, job in _jobs(wrapper):
            try:
                await self._api.request("POST", path, job)
            except ApiError as error:
                if error.status != 409:
                    raise

    async def _gone(self, key: str, wrapper: Object) -> bool:
        """Delete its components. Are they and their pods gone?"""
        remaining = len(self._pods.by("wrapper", key))
        for path, job in _jobs(wrapper):
            try:
                body = {"propagationPolicy": "Background"}
                await self._api.request("DELETE", f"{path}/{job['metadata']['name']}", body)
                remaining += 1
            except ApiError as error:
                if error.status not in (404, 410):
                    raise
        if remaining:
            self.queue.add_after(key, _LOOKS_AGAIN_SECONDS)
        return not remaining

    async def _observe(self, key: str, wrapper: Object) -> None:
        phases = Counter(map(phase_of, self._pods.by("wrapper", key)))
        if await self._has_failed(wrapper) or phases["Failed"]:
            retries = wrapper["status"].get("retries", 0)
            if retries < _MOST_RETRIES:
                await self._say(wrapper, "Resetting", {_READY: False}, retries=retries + 1)
            else:
                await self._say(wrapper, "Failed", {_READY: False})
            return
        wanted = sum(job["spec"]["parallelism"] for _, job in _jobs(wrapper))
        if phases["Succeeded"] >= wanted and not phases["Pending"] + phases["Running"]:
            await self._say(wrapper, "Succeeded", {_DEPLOYED: True})
            return
        ready = phases["Running"] + phases["Succeeded"] >= wanted
        if ready != holds(wrapper["status"]["conditions"], _READY):
            await self._say(wrapper, "Running", {_READY: ready})

    async def _has_failed(self, wrapper: Object) -> bool:
        """Has a component failed, or was it deleted by another?"""
        for path, job in _jobs(wrapper):
            try:
                found = await self._api.request("GET", f"{path}/{job['metadata']['name']}")
            except ApiError as error:
                if error.status not in (404, 410):
                    raise
                return True
            if found["metadata"].get("deletionTimestamp"):
                return True
            if holds((found.get("status") or {}).get("conditions") or [], "Failed"):
                return True
        return False

    async def _say(
        self, wrapper: Object, phase: str, said: dict[str, bool] | None = None, **more: Any
    ) -> None:
        conditions = list((wrapper.get("status") or {}).get("conditions") or ())
        for kind, value in (said or {}).items():
            conditions = with_condition(conditions, self._clock.now(), kind, value, phase)
        status = {"phase": phase, "conditions": conditions, **more}
        await self._patch(wrapper, {"status": status}, "/status")

    async def _patch(self, wrapper: Object, change: Object, subresource: str = "") -> None:
        """Refused if the object has changed since it was read."""
        metadata = wrapper["metadata"]
        read = {key: metadata[key] for key in ("uid", "resourceVersion")}
        body = {**change, "metadata": {**change.get("metadata", {}), **read}}
        base = f"/apis/{wrapper['apiVersion']}/namespaces/{metadata['namespace']}/appwrappers"
        path = f"{base}/{metadata['name']}{subresource}"
        self._jobs.observe(await self._api.request("PATCH", path, body, content_type=MERGE_PATCH))


def _deployed(wrapper: Object) -> bool:
    return holds(wrapper["status"].get("conditions") or [], _DEPLOYED)


def _jobs(wrapper: Object) -> list[tuple[str, Object]]:
    """Its components, each with the path of its collection."""
    namespace = wrapper["metadata"]["namespace"]
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    return [(path, _job(wrapper, component)) for component in wrapper["spec"]["components"]]


def _job(wrapper: Object, component: Object) -> Object:
    """The Job of a component, with what its podSetInfos add to its pods."""
    job: Object = copy.deepcopy(component["template"])
    label = {_WRAPPER: wrapper["metadata"]["name"]}
    metadata, pods = job["metadata"], job["spec"]["template"]
    metadata["labels"] = {**metadata.get("labels", {}), **label}
    metadata["ownerReferences"] = [owner_reference(wrapper)]
    added = (component.get("podSetInfos") or [{}])[0]
    described = pods.setdefault("metadata", {})
    described["labels"] = {**described.get("labels", {}), **added.get("labels", {}), **label}
    spec = pods["spec"]
    spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **added.get("nodeSelector", {})}
    spec["tolerations"] = [*spec.get("tolerations", ()), *added.get("tolerations", ())]
    return job
