"""What tenants and admins do meanwhile: Jobs and PyTorchJobs of several sizes, holds, edits, deletions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from queuectl.kinds.jobs import PRIORITY_LABEL
from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.players.api import Client
from queuectl.sandbox.players.kubelet import TERMINATE_SECONDS
from tests.acceptance.e2e.site import Json, cluster_queue, flavor, job, local_queue, pod_template, pytorchjob
from tests.acceptance.e2e.world import PATHS

QUOTAS: Final = {"team-a": 8, "team-b": 8, "guests": 0}
"""GPUs of the queue of each namespace; the cohort lends them to all."""
GPUS: Final = sum(QUOTAS.values())
HOLD: Final = "queuectl.dev/hold"
_PRIORITIES: Final = {"low": 1, "mid": 50, "high": 100}
_POLICY: Final = "/apis/queuectl.dev/v1beta1"
_RECENT: Final = 40


def policy() -> list[Json]:
    """Flavor, priorities, namespaces, and a queue for each."""
    found = [flavor("a100", {"example.com/accelerator": "a100"})]
    for name, value in _PRIORITIES.items():
        head = {"apiVersion": "queuectl.dev/v1beta1", "kind": "WorkloadPriorityClass"}
        found.append({**head, "metadata": {"name": name}, "value": value})
    preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    for name, gpus in QUOTAS.items():
        found.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        found.append(cluster_queue(name, gpus, cohortName="research", preemption=preemption))
        found.append(local_queue(name, "main", name))
    return found


class Traffic:
    """`submit` and `disturb` run until `stop` is set."""

    def __init__(self, admin: Client, tenant: Client, random: Random, pause: float) -> None:
        """`pause`: seconds between two workloads, on average."""
        self.stop = asyncio.Event()
        self.made: dict[str, tuple[str, str]] = {}
        """Kind and path of each workload by UID, in order of creation."""
        self._admin = admin
        self._tenant = tenant
        self._random = random
        self._pause = pause

    async def submit(self) -> None:
        random, number = self._random, 0
        while not self.stop.is_set():
            number += 1
            namespace = random.choice(list(QUOTAS))
            body = self._body(number)
            collection = _collection(body["kind"], namespace)
            try:
                made = await self._tenant.request("POST", collection, body)
                path = f"{collection}/{body['metadata']['name']}"
                self.made[made["metadata"]["uid"]] = (body["kind"], path)
            except ApiError as error:
                if not _passes(error):
                    raise
            await self._sleep(random.uniform(0, 2 * self._pause))

    def _body(self, number: int) -> Json:
        random = self._random
        template = pod_template(random.choice([1, 1, 2, 2, 4]), random.choice([1, 2, 3, 6]))
        template["metadata"]["annotations"][TERMINATE_SECONDS] = str(random.choice([0, 0, 1]))
        if random.random() < 0.25:
            body = pytorchjob(f"torch-{number}", workers=1, template=template)
        else:
            pods = random.choice([1, 1, 2])
            body = job(f"job-{number}", template=template, parallelism=pods, completions=pods, suspend=True)
        body["metadata"]["labels"][PRIORITY_LABEL] = random.choice(["low", "low", "mid", "high"])
        return body

    async def disturb(self) -> None:
        random = self._random
        weights: dict[Callable[[], Awaitable[None]], int] = {
            self._hold: 4,
            self._delete: 1,
            self._change_priority: 1,
            self._change_quota: 2,
            self._stop_queue: 1,
            self._stop_local_queue: 1,
        }
        while not self.stop.is_set():
            await self._sleep(random.uniform(0.3, 1.5))
            what = random.choices(list(weights), list(weights.values()))[0]
            try:
                await what()
            except ApiError as error:
                # Jobs end and are deleted meanwhile.
                if not _passes(error) and error.status not in (404, 409):
                    raise

    async def heal(self) -> None:
        """Undo what it disturbed; the API server must answer."""
        for queue, gpus in QUOTAS.items():
            await self._edit(f"clusterqueues/{queue}", {**_quota(gpus), "stopPolicy": "None"})
        await self._edit("namespaces/guests/localqueues/main", {"stopPolicy": "None"})
        for _, path in self.made.values():
            try:
                await self._annotate(path, None)
            except ApiError as error:
                if error.status not in (404, 410):
                    raise

    async def _sleep(self, seconds: float) -> None:
        """Or until it is to stop."""
        try:
            async with asyncio.timeout(seconds):
                await self.stop.wait()
        except TimeoutError:
            pass

    # --- disturbances

    def _recent(self) -> str | None:
        """The path of a workload."""
        recent = list(self.made.values())[-_RECENT:]
        return self._random.choice(recent)[1] if recent else None

    async def _hold(self) -> None:
        if path := self._recent():
            await self._annotate(path, "true")
            await asyncio.sleep(self._random.uniform(0, 1.5))
            await self._annotate(path, None)

    async def _delete(self) -> None:
        if path := self._recent():
            how = self._random.choice(["Background", "Foreground"])
            await self._admin.request("DELETE", path, {"propagationPolicy": how})

    async def _change_priority(self) -> None:
        if path := self._recent():
            labels = {PRIORITY_LABEL: self._random.choice(list(_PRIORITIES))}
            await self._patch(path, {"metadata": {"labels": labels}})

    async def _change_quota(self) -> None:
        queue = self._random.choice(["team-a", "team-b"])
        await self._edit(f"clusterqueues/{queue}", _quota(self._random.choice([4, 6, 8])))

    async def _stop_queue(self) -> None:
        path = f"clusterqueues/{self._random.choice(list(QUOTAS))}"
        await self._edit(path, {"stopPolicy": self._random.choice(["Hold", "HoldAndDrain"])})
        await asyncio.sleep(self._random.uniform(0, 2))
        await self._edit(path, {"stopPolicy": "None"})

    async def _stop_local_queue(self) -> None:
        path = "namespaces/guests/localqueues/main"
        await self._edit(path, {"stopPolicy": "HoldAndDrain"})
        await asyncio.sleep(0.5)
        await self._edit(path, {"stopPolicy": "None"})

    async def _annotate(self, path: str, hold: str | None) -> None:
        await self._patch(path, {"metadata": {"annotations": {HOLD: hold}}})

    async def _edit(self, path: str, spec: Json) -> None:
        await self._patch(f"{_POLICY}/{path}", {"spec": spec})

    async def _patch(self, path: str, patch: Json) -> None:
        await self._admin.request("PATCH", path, patch, content_type=MERGE_PATCH)


def _passes(error: ApiError) -> bool:
    """A server is away, or an API server that has just started has not read its roles yet."""
    return error.status in (0, 403, 429) or error.status >= 500


def _collection(kind: str, namespace: str) -> str:
    return f"{PATHS[kind]}/namespaces/{namespace}/{kind.lower()}s"


def _quota(gpus: int) -> Json:
    return {"resourceGroups": cluster_queue("any", gpus)["spec"]["resourceGroups"]}
