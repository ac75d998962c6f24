"""What a test of one kind does: a namespace with a queue of its own, and objects in it."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from queuectl.core.decisions import Verdict
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import ConfigKey, Phase, StoredWorkload, WorkloadId
from queuectl.kinds.workloads import HOLD_ANNOTATION
from queuectl.kube.errors import ApiError, NotFound, Unavailable
from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.players.api import stamp
from queuectl.sandbox.players.kubelet import TERMINATE_SECONDS
from queuectl.sandbox.players.pods import controller_of, controller_uid, ended, pod_path
from tests.acceptance.gate.site import nested
from tests.acceptance.operators.site import POOLS, Site, give_tenant_rights
from tests.acceptance.operators.subjects import GPU, Subject
from tests.job_kinds import JOB_KINDS

Json = dict[str, Any]
COVERED = ("cpu", "memory", GPU, "example.com/nic")


@dataclass
class Cell:
    """A namespace of a site: LocalQueue `main` on a ClusterQueue of the same name as the namespace."""

    site: Site
    subject: Subject
    namespace: str
    _made: list[Work] = field(default_factory=list)

    async def begin(self) -> None:
        namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        await self.site.admin.request("POST", "/api/v1/namespaces", namespace)
        await give_tenant_rights(self.site.admin, self.namespace)
        await self._policy("clusterqueues", self._queue(POOLS[0]))
        queue: Json = {"metadata": {"name": "main"}, "spec": {"clusterQueue": self.namespace}}
        await self._policy(f"namespaces/{self.namespace}/localqueues", {"kind": "LocalQueue", **queue})

    def _queue(self, pool: str) -> Json:
        """All of the quota is of one flavor."""
        flavors = [
            {
                "name": name,
                "resources": [{"name": r, "nominalQuota": "1P" if name == pool else 0} for r in COVERED],
            }
            for name in POOLS
        ]
        groups = [{"coveredResources": list(COVERED), "flavors": flavors}]
        spec = {"namespaceSelector": {}, "resourceGroups": groups}
        return {"kind": "ClusterQueue", "metadata": {"name": self.namespace}, "spec": spec}

    async def _policy(self, path: str, body: Json) -> None:
        body = {"apiVersion": "queuectl.dev/v1beta1", **body}
        await self.site.admin.request("POST", f"/apis/queuectl.dev/v1beta1/{path}", body)

    async def move_quota(self, pool: str) -> None:
        path = f"/apis/queuectl.dev/v1beta1/clusterqueues/{self.namespace}"
        change = {"spec": self._queue(pool)["spec"]}
        configs, key = self.site.store.configs, ConfigKey("ClusterQueue", "", self.namespace)
        before = configs[key]
        await self.site.admin.request("PATCH", path, change, content_type=MERGE_PATCH)
        await self.site.until("the quota has moved", lambda: configs[key] != before)

    async def drain(self) -> None:
        """Evict by the LocalQueue: its objects may refuse every change now."""
        path = f"/apis/queuectl.dev/v1beta1/namespaces/{self.namespace}/localqueues/main"
        change = {"spec": {"stopPolicy": "HoldAndDrain"}}
        await self.site.admin.request("PATCH", path, change, content_type=MERGE_PATCH)

    def workloads(self) -> list[str]:
        """UIDs of the workloads of the namespace in the ledger."""
        known = self.site.store.workloads.values()
        return [one.id for one in known if one.ref.namespace == self.namespace]

    async def end(self) -> None:
        """Delete its objects: what is evicted and held would be looked at for ever."""
        for pod in self.pods():
            if (pod["metadata"].get("annotations") or {}).get(TERMINATE_SECONDS, "0") != "0":
                await end_at_once(self.site, pod)
        for work in self._made:
            if work.seen() is not None:
                with contextlib.suppress(ApiError):  # it may be gone by now
                    await work.delete()

    def path(self, name: str = "", subresource: str = "") -> str:
        row = self.subject.row
        parts = ["apis", row.group, row.version, "namespaces", self.namespace, row.plural, name, subresource]
        return "/" + "/".join(part for part in parts if part)

    async def submit(self, name: str = "w", **how: Any) -> Work:
        """Create an object as the tenant."""
        return await self.create(self.subject.body(name, **how))

    async def create(self, body: Json) -> Work:
        made = await self._post(body)
        self._made.append(Work(self, made["metadata"]["name"], made["metadata"]["uid"], made))
        return self._made[-1]

    async def _post(self, body: Json) -> Json:
        """Create it, once more where a call of its operator's webhook failed: nothing was created then."""
        try:
            return await self.site.tenant.request("POST", self.path(), body)
        except Unavailable as problem:
            if "failed calling webhook" not in str(problem):
                raise
        return await self.site.tenant.request("POST", self.path(), body)

    def pods(self) -> list[Json]:
        """All pods of the namespace that have not ended."""
        return [pod for pod in self.site.pods.by("namespace", self.namespace) if not ended(pod)]


@dataclass
class Work:
    """One object, as its tenant, its operator and the ledger have it."""

    cell: Cell
    name: str
    uid: str
    made: Json
    """As its creation was answered."""

    @property
    def site(self) -> Site:
        return self.cell.site

    # --- the object

    def seen(self) -> Json | None:
        """As last seen; None: it is gone."""
        found = self.site.objects[self.cell.subject.row.name].get(f"{self.cell.namespace}/{self.name}")
        return found if found is not None and found["metadata"]["uid"] == self.uid else None

    @property
    def suspended(self) -> bool:
        found = self.seen()
        return found is not None and self.cell.subject.row.suspended(found)

    async def merge(self, change: Json, subresource: str = "") -> Json:
        """Patch it as its tenant."""
        path = self.cell.path(self.name, subresource)
        return await self.site.tenant.request("PATCH", path, change, content_type=MERGE_PATCH)

    async def start_by_force(self) -> Json:
        return await self.merge(nested(self.cell.subject.row.suspend, False))

    async def hold(self) -> None:
        await self._annotate("true")

    async def let_go(self) -> None:
        await self._annotate(None)

    async def _annotate(self, value: str | None) -> None:
        await self.merge({"metadata": {"annotations": {HOLD_ANNOTATION: value}}})

    async def delete(self, propagation: str = "Background") -> None:
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        await self.site.tenant.request("DELETE", self.cell.path(self.name), options)

    def children(self) -> list[Json]:
        """The objects of queued kinds that it controls."""
        rows = [JOB_KINDS[name] for name in self.cell.subject.row.children]
        stores = [self.site.objects[row.name] for row in rows]
        return [
            one
            for store in stores
            for one in store.values()
            if one["metadata"]["namespace"] == self.cell.namespace and controller_uid(one) == self.uid
        ]

    # --- its pods

    def pods(self) -> list[Json]:
        """Those of the namespace that have not ended and whose topmost owner it is."""
        return [pod for pod in self.cell.pods() if self._owns(pod)]

    def _owns(self, pod: Json) -> bool:
        """By its controllers; a Job or another object between may be gone by now."""
        owner = controller_of(pod)
        if owner is None or owner["uid"] == self.uid:
            return owner is not None
        return bool(re.match(rf"{re.escape(self.name)}(-|$)", owner["name"]))

    def running(self) -> list[Json]:
        return [
            pod
            for pod in self.pods()
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        ]

    async def runs(self, pool: str = POOLS[0]) -> None:
        """Wait until all its pods run, on nodes of this flavor."""
        count = self.cell.subject.pods
        await self.until(f"{count} pods run", lambda: len(self.running()) == count)
        assert {pod["spec"]["nodeName"] for pod in self.running()} == {pool}

    async def fail_a_pod(self, part: str, exit_code: int) -> str:
        """End one pod with this code, as its kubelet would. Returns its UID."""
        pod = next(pod for pod in self.running() if _is_of(pod, part))
        await _finish(self.site, pod, exit_code)
        return str(pod["metadata"]["uid"])

    async def succeed(self, *parts: str) -> None:
        """End all pods of these parts well; of all parts if none is given."""
        for pod in self.running():
            if not parts or any(_is_of(pod, part) for part in parts):
                with contextlib.suppress(NotFound):  # its operator deletes the rest when one has ended
                    await _finish(self.site, pod, 0)

    async def let_pods_end(self) -> None:
        """Those that are being deleted end now."""
        for pod in self.pods():
            await end_at_once(self.site, pod)

    # --- the ledger

    @property
    def stored(self) -> StoredWorkload | None:
        """None: it is over, or was never queued."""
        return self.site.store.workloads.get(WorkloadId(self.uid))

    def waits_for(self, code: Code, detail: str) -> bool:
        """Its reason has this code, and its message names the detail."""
        reason = self.stored.reason if self.stored is not None else None
        return reason is not None and reason.code is code and detail in reason.message

    @property
    def phase(self) -> Phase | None:
        return self.stored.phase if self.stored is not None else None

    @property
    def attempts(self) -> int:
        return self.stored.attempts if self.stored is not None else 0

    def held(self) -> Counter[str]:
        """Amounts by resource."""
        total: Counter[str] = Counter()
        for (uid, _), lines in self.site.store.holds.items():
            if uid == self.uid:
                for line in lines:
                    total[line.resource] += line.pods * line.amount
        return total

    def verdicts(self) -> list[Verdict]:
        kept = (Verdict.ADMITTED, Verdict.EVICTED, Verdict.RELEASED, Verdict.RETIRED)
        return [
            Verdict(row.verdict)
            for row in self.site.store.decisions
            if row.workload == self.uid and row.verdict in kept
        ]

    @property
    def retired(self) -> bool:
        return self.verdicts()[-1:] == [Verdict.RETIRED] and not self.held()

    async def until(self, what: str, condition: Callable[[], object]) -> None:
        try:
            await self.site.until(what, condition)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.told()}") from None

    def told(self) -> str:
        """All that is known of it, for messages."""
        found = self.seen()
        pods = {
            pod["metadata"]["name"]: pod["status"].get("phase")
            for pod in self.site.pods.by("namespace", self.cell.namespace)
        }
        stored = self.stored
        reason = stored.reason.message if stored is not None and stored.reason is not None else None
        status = (found or {}).get("status")
        return (
            f"{self.cell.namespace}/{self.name}: {self.phase}, {reason}, held {dict(self.held())}, "
            f"{self.verdicts()}, suspended {self.suspended}, pods {pods}, status {status}"
        )

    async def admitted(self, attempt: int = 1) -> None:
        await self.until(
            f"attempt {attempt} is admitted",
            lambda: self.attempts == attempt and self.phase is Phase.ADMITTED,
        )

    async def is_over(self) -> None:
        """Wait until the ledger has nothing open of it."""
        await self.until("it is over", lambda: self.stored is None and not self.held())

    async def pending(self) -> None:
        """Wait until it holds nothing and waits."""
        await self.until("it is pending", lambda: self.phase is Phase.PENDING and not self.held())

    async def quiet(self) -> None:
        """Wait until its operator has seen that it is suspended."""
        await self.until(
            "its operator has seen it", lambda: self.cell.subject.row.says_suspended(self.seen() or {})
        )

    async def looked_at(self, times: int = 2) -> None:
        """Wait until the controller has found something of it alive, so many times from now on."""
        looks, before = self.site.cluster.looks, self.site.cluster.looks[self.uid]
        await self.until("its pods are counted", lambda: looks[self.uid] >= before + times)


def _is_of(pod: Json, part: str) -> bool:
    """Every operator puts the part into the name of the pod."""
    return part == "main" or f"-{part.lower()}" in pod["metadata"]["name"]


async def end_at_once(site: Site, pod: Json) -> None:
    change = {"metadata": {"annotations": {TERMINATE_SECONDS: "0"}}}
    with contextlib.suppress(ApiError):
        await site.admin.request("PATCH", pod_path(pod), change, content_type=MERGE_PATCH)


async def _finish(site: Site, pod: Json, exit_code: int) -> None:
    now = stamp(datetime.now(UTC))  # noqa: TID251 (the kubelet's clock)
    state = {"terminated": {"exitCode": exit_code, "reason": "Ended", "startedAt": now, "finishedAt": now}}
    containers = [
        {
            "name": one["name"],
            "image": one["image"],
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": state,
        }
        for one in pod["spec"]["containers"]
    ]
    status = {"phase": "Failed" if exit_code else "Succeeded", "containerStatuses": containers}
    body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
    await site.admin.request("PATCH", pod_path(pod, "/status"), body, content_type=MERGE_PATCH)


@contextlib.asynccontextmanager
async def cell(site: Site, subject: Subject, step: str) -> AsyncIterator[Cell]:
    found = Cell(site, subject, re.sub(r"[^a-z0-9]+", "-", f"{subject}-{step}".lower())[:60].strip("-"))
    await found.begin()
    try:
        yield found
    finally:
        await found.end()


async def refusal(attempt: Awaitable[object]) -> str:
    """The message with which the API server refuses a request."""
    try:
        await attempt
    except ApiError as error:
        return str(error)
    raise AssertionError("it was let through")
