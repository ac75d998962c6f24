"""A namespace of a running site with its own queue, and what tests do with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.players.api import Client
from tests.acceptance.e2e.site import Json, Site, eventually
from tests.job_kinds import JOB_KINDS

PATHS = {"Job": "/apis/batch/v1", "PyTorchJob": "/apis/kubeflow.org/v1", "Pod": "/api/v1"}


@dataclass
class World:
    """All its objects have the name of the test."""

    site: Site
    api: Client
    namespace: str

    def path(self, kind: str, name: str = "") -> str:
        collection = f"{PATHS[kind]}/namespaces/{self.namespace}/{kind.lower()}s"
        return f"{collection}/{name}" if name else collection

    async def policy(self, body: Json) -> Json:
        """Create a policy object, or replace the existing one."""
        metadata = body["metadata"]
        scope = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
        plural = {"Cohort": "cohorts"}.get(body["kind"], f"{body['kind'].lower()}s")
        plural = {"workloadpriorityclasss": "workloadpriorityclasses"}.get(plural, plural)
        path = f"/apis/queuectl.dev/v1beta1{scope}/{plural}"
        try:
            return await self.api.request("POST", path, body)
        except ApiError as error:
            if error.status != 409:
                raise
        return await self.api.request(
            "PATCH", f"{path}/{metadata['name']}", {"spec": body["spec"]}, content_type=MERGE_PATCH
        )

    async def submit(self, body: Json) -> Json:
        return await self.api.request("POST", self.path(body["kind"]), body)

    async def get(self, name: str, kind: str = "Job") -> Json:
        return await self.api.request("GET", self.path(kind, name))

    async def merge(self, name: str, patch: Json, kind: str = "Job") -> Json:
        return await self.api.request("PATCH", self.path(kind, name), patch, content_type=MERGE_PATCH)

    async def annotate(self, name: str, key: str, value: str | None, kind: str = "Job") -> Json:
        return await self.merge(name, {"metadata": {"annotations": {key: value}}}, kind)

    async def delete(self, name: str, kind: str = "Job") -> None:
        """Delete it with all its pods."""
        options = {"propagationPolicy": "Background", "kind": "DeleteOptions"}
        await self.api.request("DELETE", self.path(kind, name), options)

    async def started(self, name: str, kind: str = "Job") -> Json:
        """The object once it is started: `Admitted` is committed before the cluster is changed."""
        await self.phase(name, "Admitted", kind)

        async def look() -> Any:
            found = await self.get(name, kind)
            return None if JOB_KINDS[kind].suspended(found) else found

        found: Json = await eventually(f"{name} is started", look)
        return found

    # --- what queuectl says

    async def workload(self, name: str, kind: str = "Job") -> Json:
        return await self.site.rest(f"/workloads/{self.namespace}/{kind}/{name}")

    async def reason(self, name: str, kind: str = "Job") -> Json:
        """Wait for its reason; returns it."""

        async def look() -> Any:
            found = await self.workload(name, kind)
            return found.get("reason") if found.get("phase") == "Pending" else None

        found: Json = await eventually(f"a reason for {name}", look)
        return found

    async def reason_is(self, name: str, code: str, kind: str = "Job") -> Json:
        async def look() -> Any:
            found = await self.workload(name, kind)
            reason = found.get("reason") or {}
            return reason if found.get("phase") == "Pending" and reason.get("code") == code else None

        found: Json = await eventually(f"{name} waits because of {code}", look)
        return found

    async def phase(self, name: str, phase: str, kind: str = "Job") -> Json:
        async def look() -> Any:
            found = await self.workload(name, kind)
            return found if found.get("phase") == phase else None

        found: Json = await eventually(f"{name} is {phase}", look)
        return found

    async def admitted(self, name: str, kind: str) -> None:
        """What runs was admitted, as REST has it, which may be behind the cluster for a moment."""

        async def look() -> bool:
            return (await self.workload(name, kind)).get("phase") not in (None, "Pending")

        await eventually(f"{name} is no longer pending", look)

    async def used(self, queue: str) -> dict[tuple[str, str], int]:
        """Usage of a ClusterQueue by flavor and resource, once REST has it."""

        async def look() -> Any:
            found = await self.site.rest(f"/clusterqueues/{queue}")
            return found if "flavors" in found else None

        found: Json = await eventually(f"{queue} is in REST", look)
        return {(cell["flavor"], cell["resource"]): cell["used"] for cell in found["flavors"] if cell["used"]}

    async def nothing_used(self, queue: str) -> None:
        async def look() -> bool:
            return not await self.used(queue)

        await eventually(f"{queue} has nothing in use", look)
