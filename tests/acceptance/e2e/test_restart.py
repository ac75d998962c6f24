"""The sandbox's data survives its end, even by SIGKILL, and none of its processes is left running.

So does a preemption in progress: pods of the victim are still alive, and its quota stays reserved.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.example import fake_node
from queuectl.sandbox.players.api import Client
from tests.acceptance.e2e.cohort import end_pods, endless, runs, team, verdicts
from tests.acceptance.e2e.site import (
    Site,
    cluster_queue,
    eventually,
    flavor,
    job,
    local_queue,
    pod_template,
    pytorchjob,
)
from tests.acceptance.e2e.world import World
from tests.integration.ledger.places import reachable_folder
from tests.integration.sandbox.process_tree import descendants, running

NAMESPACE = "default"
FOR_EVER = 86_400


async def test_after_a_kill_all_is_as_before_and_pending_jobs_run(
    control_plane: str, figures: list[str]
) -> None:
    clock = asyncio.get_running_loop().time
    async with asyncio.timeout(600):
        with reachable_folder() as folder:
            site = Site(folder / "data", control_plane)
            await site.start()
            try:
                async with site.client() as api:
                    before = await _work(World(site, api, NAMESPACE))
                children = await _killed(site)
                begun = clock()
                await site.start()
                up = clock() - begun
                async with site.client() as api:
                    await _goes_on(World(site, api, NAMESPACE), before)
                verified = await site.queuectl("verify")
                assert verified.code == 0, verified.out + verified.err
            finally:
                code = await site.stop()
            assert code == 0
            figures.append(
                f"restart on {control_plane}: {children} processes gone after SIGKILL of their parent; "
                f"up again after {up:.1f} s"
            )


async def _work(world: World) -> dict[str, Any]:
    """One job is over, one and a gang run, three are pending, one is too large, and one is being preempted.
    Returns everything that must stay the same."""
    await world.api.request("POST", "/api/v1/nodes", fake_node("node", "a100", gpus=64))
    await world.policy(flavor("a100", {"example.com/accelerator": "a100"}))
    await world.policy(cluster_queue("team", 4))
    await world.policy(local_queue(NAMESPACE, "main", "team"))
    await world.submit(job("over", template=pod_template(1, 0.2)))
    await world.phase("over", "Finished")
    await world.submit(job("runs", template=pod_template(2, FOR_EVER)))
    await world.submit(pytorchjob("gang", workers=1, template=pod_template(1, FOR_EVER)))
    await world.phase("runs", "Admitted")
    await world.phase("gang", "Admitted", "PyTorchJob")
    for number in range(3):
        await world.submit(job(f"waits-{number}", template=pod_template(4, 0.2)))
        await world.reason_is(f"waits-{number}", "WaitingForQuota")
    await world.submit(job("large", template=pod_template(5)))
    await world.reason_is("large", "ExceedsMaxQuota")
    await eventually("three pods run", lambda: _running_pods(world, 3))
    await _preempt(world)
    return await _state(world)


async def _preempt(world: World) -> None:
    """The guest is evicted, its pods stay; the owner waits, and a job that would fit is not admitted."""
    await team(world, "owners", 5, preemption={"reclaimWithinCohort": "Any"})
    await team(world, "guests", 1)
    await runs(world, endless("guest", "guests", 4, lingers=True))
    await world.submit(endless("owner", "owners", 5))
    await world.reason_is("owner", "WaitingForPreemptedWorkloads")
    await world.submit(endless("thief", "guests", 2))
    await world.reason_is("thief", "WaitingForQuota")

    async def suspended() -> bool:
        return bool((await world.get("guest"))["spec"]["suspend"])

    await eventually("the guest is suspended", suspended)


async def _state(world: World) -> dict[str, Any]:
    """What users see: identities in the API, and what REST shows of each workload."""
    found: dict[str, Any] = {}
    for kind in ("Job", "PyTorchJob"):
        for item in (await world.api.request("GET", world.path(kind)))["items"]:
            name = item["metadata"]["name"]
            history = await world.site.rest(f"/workloads/{NAMESPACE}/{kind}/{name}/history")
            told = await world.workload(name, kind)
            found[name] = {
                "uid": item["metadata"]["uid"],
                "spec": item["spec"],
                "history": [(row["sequence"], row["verdict"]) for row in history["items"]],
                **{field: told[field] for field in ("uid", "phase", "position", "attempts", "reason")},
            }
    pods = (await world.api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods"))["items"]
    found["pods"] = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}
    found["used"] = await world.used("team")
    return found


async def _killed(site: Site) -> int:
    """SIGKILL of the parent; returns how many processes ended with it."""
    assert site.process is not None
    children = running(descendants(site.process.pid))
    assert await site.stop(signal.SIGKILL) == -signal.SIGKILL

    async def gone() -> bool:
        return not running(children)

    await eventually("nothing of it is left running", gone, 20)
    return len(children)


async def _goes_on(world: World, before: dict[str, Any]) -> None:
    async def same() -> bool:
        return await _state(world) == before

    try:
        await eventually("everything is as it was", same, 30)
    except AssertionError:
        assert await _state(world) == before
    await end_pods(world, "guest")
    await world.phase("owner", "Admitted")
    assert await verdicts(world, "guest") == ["Queued", "Admitted", "Evicted", "Released"]
    assert await verdicts(world, "thief") == ["Queued"]
    await _end_pods(world.api)
    for number in range(3):
        await world.phase(f"waits-{number}", "Finished")
    await world.phase("runs", "Finished")
    await world.phase("gang", "Finished", "PyTorchJob")
    assert (await world.workload("large"))["phase"] == "Pending"
    await world.nothing_used("team")


async def _running_pods(world: World, count: int) -> bool:
    pods = (await world.api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods"))["items"]
    return count == sum(1 for pod in pods if pod["status"].get("phase") == "Running")


async def _end_pods(api: Client) -> None:
    """What runs succeeds, as its kubelet would say."""
    collection = f"/api/v1/namespaces/{NAMESPACE}/pods"
    for pod in (await api.request("GET", collection))["items"]:
        if pod["status"].get("phase") == "Running":
            path = f"{collection}/{pod['metadata']['name']}/status"
            await api.request("PATCH", path, {"status": {"phase": "Succeeded"}}, content_type=MERGE_PATCH)
