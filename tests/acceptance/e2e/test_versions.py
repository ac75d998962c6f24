"""Differences of older API servers: what suspends jobs, and how a Job moves from one flavor to another."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.kube.errors import ApiError
from tests.acceptance.e2e.site import GPU, Json, cluster_queue, eventually, job, pod_template, pytorchjob
from tests.acceptance.e2e.test_tenant import SUSPEND, nested
from tests.acceptance.e2e.test_tenant import tenant as tenant
from tests.acceptance.e2e.world import World
from tests.job_kinds import JOB_KINDS

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.every_version]

LABEL = "example.com/accelerator"
SUBMITTER = "queuectl.dev/reserved-submitter"
BYPASS = "queuectl.dev/reserved-bypass"
REASONED = {"metadata": {"annotations": {"queuectl.dev/bypass": "the demo is at noon"}}}
FLAVOR_OF_PODS = {"Job": "batch.kubernetes.io/job-name", "PyTorchJob": "training.kubeflow.org/job-name"}


async def _pods_on(world: World, kind: str, name: str, flavor: str) -> None:
    """All its live pods select the flavor's nodes, and run there."""
    selector = {"labelSelector": f"{FLAVOR_OF_PODS[kind]}={name}"}

    async def look() -> Any:
        path = f"/api/v1/namespaces/{world.namespace}/pods"
        pods = (await world.api.request("GET", path, query=selector))["items"]
        alive = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        return alive and all(pod["spec"]["nodeSelector"].get(LABEL) == flavor for pod in alive)

    await eventually(f"pods of {name} run on {flavor}", look)


def _body(kind: str, name: str, gpus: int) -> Json:
    template = pod_template(gpus, 600)
    return job(name, template=template) if kind == "Job" else pytorchjob(name, workers=0, template=template)


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
async def test_a_job_evicted_from_one_flavor_is_started_on_another(world: World, kind: str) -> None:
    await world.policy(cluster_queue(world.namespace, 4, ("a100", "spot")))
    await world.submit(_body(kind, "moves", 3))
    await world.started("moves", kind)
    await _pods_on(world, kind, "moves", "a100")
    await world.annotate("moves", "queuectl.dev/hold", "true", kind)
    await world.reason_is("moves", "OnHold", kind)
    await world.nothing_used(world.namespace)
    await world.submit(job("fills", template=pod_template(4, 600)))
    await world.started("fills")
    await world.annotate("moves", "queuectl.dev/hold", None, kind)
    again = await world.phase("moves", "Admitted", kind)
    assert again["attempt"] == 2
    await world.started("moves", kind)
    await _pods_on(world, kind, "moves", "spot")
    used = await world.used(world.namespace)
    assert (used["a100", GPU], used["spot", GPU]) == (4, 3)
    # And back again, now that the server's behaviour is known.
    await world.annotate("moves", "queuectl.dev/hold", "true", kind)
    await world.reason_is("moves", "OnHold", kind)
    await world.delete("fills")
    await world.nothing_used(world.namespace)
    await world.annotate("moves", "queuectl.dev/hold", None, kind)
    await world.started("moves", kind)
    await _pods_on(world, kind, "moves", "a100")


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
async def test_a_created_job_records_its_submitter_and_is_suspended(
    world: World, tenant: Any, kind: str
) -> None:
    body = _body(kind, "sent", 16)
    body["metadata"]["annotations"] = {"example.com/mine": "kept"}
    made = await tenant.request("POST", world.path(kind), body)
    assert made["metadata"]["annotations"] == {"example.com/mine": "kept", SUBMITTER: "tenant"}
    assert JOB_KINDS[kind].suspended(made)
    eager = {**_body(kind, "eager", 16)}
    eager["spec"] = {
        **eager["spec"],
        SUSPEND[kind][1]: nested(SUSPEND[kind], False)["spec"][SUSPEND[kind][1]],
    }
    assert JOB_KINDS[kind].suspended(await tenant.request("POST", world.path(kind), eager))
    forged = _body(kind, "forged", 16)
    forged["metadata"]["annotations"] = {SUBMITTER: "admin"}
    made = await tenant.request("POST", world.path(kind), forged)
    assert made["metadata"]["annotations"][SUBMITTER] == "tenant"


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
async def test_a_user_that_bypasses_the_queue_is_recorded(world: World, tenant: Any, kind: str) -> None:
    await world.submit(_body(kind, "urgent", 16))
    await world.reason_is("urgent", "ExceedsMaxQuota", kind)
    with pytest.raises(ApiError) as refusal:
        await tenant.request(
            "PATCH",
            world.path(kind, "urgent"),
            nested(SUSPEND[kind], False),
            content_type="application/merge-patch+json",
        )
    assert refusal.value.status == 403
    let_go = await world.merge("urgent", nested(SUSPEND[kind], False) | REASONED, kind)
    assert let_go["metadata"]["annotations"][BYPASS] == "admin"
