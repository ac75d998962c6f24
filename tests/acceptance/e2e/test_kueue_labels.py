"""Jobs with Kueue's labels are queued, run and finish as ours do, but not while Kueue itself is installed."""

from __future__ import annotations

import asyncio

from queuectl.kube.kueue import LEASE
from tests.acceptance.e2e.site import Json, eventually, job, pod_template
from tests.acceptance.e2e.stand import Stand, ended, stand
from tests.acceptance.manifests.kueue_labels import put_in_force
from tests.integration.ledger.places import reachable_folder

KUEUES = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"
HONOURED = "compatibility: {kueueLabels: true}"


async def test_jobs_with_kueue_labels_wait_run_and_finish_and_kueue_itself_is_refused() -> None:
    async with asyncio.timeout(240):
        with reachable_folder() as folder:
            async with stand(folder, "small", gpus=2) as site:
                await put_in_force(site.api)
                await _by_priority(site)
                await _not_beside_kueue(site)


def _kueues(name: str, **labels: str) -> Json:
    made = job(name, queue=None, template=pod_template(2, 1.0))
    made["metadata"]["labels"] = {KUEUES: "main", **labels}
    return made


async def _by_priority(site: Stand) -> None:
    """One after another, as each needs both GPUs: the later one has the higher priority and is first."""
    path = "/apis/queuectl.dev/v1beta1/workloadpriorityclasses"
    body = {"apiVersion": "queuectl.dev/v1beta1", "kind": "WorkloadPriorityClass", "value": 10}
    await site.api.request("POST", path, {**body, "metadata": {"name": "high"}})
    await site.submit([_kueues("first")])
    await site.submit([_kueues("second", **{PRIORITY: "high"}), job("never", queue=None, suspend=True)])
    assert not await site.running_pods()
    controller = await site.controller(config=HONOURED)

    async def finished() -> bool:
        return await site.unfinished() == ["never"]

    await eventually("both have run", finished)
    found = {item["metadata"]["name"]: item for item in await site.items("jobs")}
    begun = {name: found[name]["status"]["startTime"] for name in ("first", "second")}
    assert begun["second"] <= begun["first"]
    assert await site.ask("SELECT count(*) FROM workload") == 2
    await ended(controller)


async def _not_beside_kueue(site: Stand) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
    made = await site.api.request("POST", "/api/v1/namespaces", namespace)
    now = made["metadata"]["creationTimestamp"]
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": "kueue-system"},
        "spec": {"holderIdentity": "kueue-0", "leaseDurationSeconds": 15, "renewTime": now},
    }
    await site.api.request("POST", "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases", lease)
    controller = await site.controller(config=HONOURED)
    async with asyncio.timeout(50):
        assert await controller.wait() == 2, controller.tail()
    assert "compatibility.kueueLabels: Kueue's own controller runs (Lease kueue-system/" in controller.tail()
