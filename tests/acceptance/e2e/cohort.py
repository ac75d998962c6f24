"""Queues that share quota: a cohort for one test, and the decisions about workloads in it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.players.kubelet import TERMINATE_SECONDS
from tests.acceptance.e2e.site import GPU, Json, cluster_queue, eventually, job, local_queue, pod_template
from tests.acceptance.e2e.world import World

LONG = 86_400.0
"""Seconds: longer than any test."""
POD_OF = {"Job": "batch.kubernetes.io/job-name", "PyTorchJob": "training.kubeflow.org/job-name"}


async def team(world: World, name: str, gpus: int, **spec: Any) -> str:
    """Create LocalQueue `name` and its ClusterQueue in a cohort named as the namespace. Returns its name."""
    queue = f"{world.namespace}-{name}"
    body = cluster_queue(queue, gpus, **{"cohortName": world.namespace, **spec})
    await world.policy(body)
    await world.policy(local_queue(world.namespace, name, queue))
    return queue


async def priority(world: World, name: str, value: int) -> str:
    """Create a WorkloadPriorityClass. Returns its name."""
    found = f"{world.namespace}-{name}"
    await world.policy(
        {
            "apiVersion": "queuectl.dev/v1beta1",
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": found},
            "value": value,
        }
    )
    return found


def endless(name: str, queue: str, gpus: int, *, lingers: bool = False, priority: str | None = None) -> Json:
    """A Job that runs until it is ended. `lingers`: its pods outlive its eviction, until `end_pods`."""
    template = pod_template(gpus, LONG)
    if lingers:
        template["metadata"]["annotations"][TERMINATE_SECONDS] = str(LONG)
    body = job(name, queue=queue, template=template)
    if priority is not None:
        body["metadata"]["labels"]["queuectl.dev/priority-class"] = priority
    return body


async def runs(world: World, body: Json) -> str:
    """Submit the job and wait until its pods run. Returns its name."""
    name: str = body["metadata"]["name"]
    await world.submit(body)
    await world.started(name, body["kind"])

    async def look() -> bool:
        pods = await _pods(world, name, body["kind"])
        return bool(pods) and all(pod["status"].get("phase") == "Running" for pod in pods)

    await eventually(f"the pods of {name} run", look)
    return name


async def end_pods(world: World, name: str, kind: str = "Job") -> None:
    """Wait until its pods are being deleted, then delete them at once."""

    async def look() -> Any:
        pods = await _pods(world, name, kind)
        return pods if all(pod["metadata"].get("deletionTimestamp") for pod in pods) else None

    at_once = {"kind": "DeleteOptions", "gracePeriodSeconds": 0}
    for pod in await eventually(f"the pods of {name} are asked to end", look):
        path = f"/api/v1/namespaces/{world.namespace}/pods/{pod['metadata']['name']}"
        await world.api.request("DELETE", path, at_once)


async def succeed(world: World, name: str, kind: str = "Job") -> None:
    """Set its pods to Succeeded, as their kubelet would."""
    for pod in await _pods(world, name, kind):
        path = f"/api/v1/namespaces/{world.namespace}/pods/{pod['metadata']['name']}/status"
        await world.api.request("PATCH", path, {"status": {"phase": "Succeeded"}}, content_type=MERGE_PATCH)


async def _pods(world: World, name: str, kind: str) -> list[Json]:
    path = f"/api/v1/namespaces/{world.namespace}/pods"
    found = await world.api.request("GET", path, query={"labelSelector": f"{POD_OF[kind]}={name}"})
    items: list[Json] = found["items"]
    return items


async def gpus(world: World, queue: str) -> int:
    """GPUs of flavor a100 in use."""
    return (await world.used(queue)).get(("a100", GPU), 0)


async def evicted(world: World, name: str, kind: str = "Job") -> Json:
    """Wait for its eviction; returns the reason."""
    found: Json = (await decided(world, name, "Evicted", kind))["reason"]
    return found


async def decided(world: World, name: str, verdict: str, kind: str = "Job") -> Json:
    """Wait for a decision with this verdict about the workload; returns the last one."""

    async def look() -> Any:
        rows = reversed(await history(world, name, kind))
        return next((row for row in rows if row["verdict"] == verdict), None)

    found: Json = await eventually(f"{name} is {verdict}", look)
    return found


async def history(world: World, name: str, kind: str = "Job") -> list[Json]:
    found = await world.site.rest(f"/workloads/{world.namespace}/{kind}/{name}/history")
    items: list[Json] = found["items"]
    return items


async def verdicts(world: World, name: str, kind: str = "Job") -> list[str]:
    """Its verdicts without `Pending`."""
    return [row["verdict"] for row in await history(world, name, kind) if row["verdict"] != "Pending"]


def moment(row: Json) -> datetime:
    return datetime.fromisoformat(row["time"])
