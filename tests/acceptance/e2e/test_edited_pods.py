"""Pods that differ, come late or are changed: those of groups, StatefulSets and Deployments."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest

from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from tests.acceptance.e2e import test_single_pods
from tests.acceptance.e2e.conftest import GATE
from tests.acceptance.e2e.site import GPU, Json, eventually, local_queue
from tests.acceptance.e2e.test_pod_groups import _body, _config, _gated, _member, _members, _run
from tests.acceptance.e2e.test_single_pods import EDIT, NO_CONTROLLERS, Owned
from tests.acceptance.e2e.world import World

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.queued_pods]
world = test_single_pods.world
OTHER: Json = {"name": "example.com/other"}
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


async def _verified(world: World) -> None:
    verified = await world.site.queuectl("verify", "--cluster", *_config(world))
    assert verified.code == 0, verified.out + verified.err


async def _says(world: World, group: str, text: str) -> None:
    async def look() -> bool:
        said = await world.site.queuectl("explain", f"podgroup/{group}", "-n", world.namespace)
        return text in said.out

    await eventually(f"{group}: {text}", look)


async def _resize(world: World, name: str, cpu: str) -> None:
    spec: Json = {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}
    path = world.path("Pod", f"{name}/resize")
    await world.api.request("PATCH", path, {"spec": spec}, content_type=STRATEGIC_PATCH)


async def test_a_pod_of_another_queue_keeps_its_group_back_until_it_has_the_same(world: World) -> None:
    await _member(world, "queues", 0, size=2)
    await _member(world, "queues", 1, size=2, **{"queuectl.dev/queue-name": "elsewhere"})
    reason = await world.reason_is("queues", "Misconfigured", "PodGroup")
    assert "pod queues-1: metadata.labels[queuectl.dev/queue-name]" in reason["message"]
    await world.merge("queues-1", {"metadata": {"labels": {"queuectl.dev/queue-name": "main"}}}, "Pod")
    await _run(world, "queues", 2)


async def test_the_number_of_pods_of_a_group_is_lowered_by_pods_that_are_created_anew(world: World) -> None:
    for number in range(2):
        await _member(world, "fewer", number, size=3)
    await world.reason_is("fewer", "PendingEvaluation", "PodGroup")
    size = {"metadata": {"annotations": {"queuectl.dev/pod-group-total-count": "2"}}}
    with pytest.raises(ApiError, match="queuectl-gated-pods"):
        await world.merge("fewer-0", size, "Pod")
    for number, code in ((0, "Misconfigured"), (1, "")):
        await world.delete(f"fewer-{number}", "Pod")
        await _member(world, "fewer", number, size=2)
        if code:
            await world.reason_is("fewer", code, "PodGroup")
    await _run(world, "fewer", 2)
    assert (await world.used(world.namespace))["a100", GPU] == 2


async def test_a_pod_that_comes_after_the_start_waits_and_queues_when_the_group_has_ended(
    world: World,
) -> None:
    for number in range(2):
        await _member(world, "late", number, size=2, seconds=8)
    await _run(world, "late", 2)
    await _member(world, "late", 2, size=2)
    await _says(
        world, "late", "another workload of the group has its 2 places until it has ended: late-2 wait"
    )
    assert (await world.used(world.namespace))["a100", GPU] == 2
    await _says(world, "late", "1 of 2 pods of the group exist (late-2)")
    await world.nothing_used(world.namespace)
    await _member(world, "late", 3, size=2)
    running = await _run(world, "late", 2)
    assert sorted(one["metadata"]["name"] for one in running) == ["late-2", "late-3"]
    await _verified(world)


async def test_a_pod_of_a_group_with_a_gate_of_another_controller_is_charged_and_waits_for_that(
    world: World,
) -> None:
    await _member(world, "gates", 0, size=2)
    body = _body("gates", 1, size=2)
    body["spec"]["schedulingGates"] = [OTHER]
    await test_single_pods._created(world, body)
    (runs,) = await _run(world, "gates", 1)
    assert runs["metadata"]["name"] == "gates-0"
    waits = await world.get("gates-1", "Pod")
    assert waits["spec"]["schedulingGates"] == [OTHER]
    assert (await world.used(world.namespace))["a100", GPU] == 2
    await _verified(world)
    await world.merge("gates-1", {"spec": {"schedulingGates": None}}, "Pod")
    await _run(world, "gates", 2)


async def test_a_running_pod_of_a_group_shrinks_and_does_not_grow_and_its_place_stays_its_own(
    world: World,
) -> None:
    for number in range(2):
        await _member(world, "resized", number, size=2)
    await _run(world, "resized", 2)
    (status,) = (await world.get("resized-0", "Pod"))["status"]["containerStatuses"]
    told = {"status": {"containerStatuses": [{**status, "resources": {"requests": {"cpu": "1"}}}]}}
    path = world.path("Pod", "resized-0/status")  # as a kubelet that resizes pods has it
    await world.api.request("PATCH", path, told, content_type=MERGE_PATCH)
    with pytest.raises(ApiError, match="would become"):
        await _resize(world, "resized-0", "2")
    await _resize(world, "resized-0", "500m")
    before = await world.used(world.namespace)
    await _member(world, "resized", 2, size=2)
    await _says(world, "resized", "has its 2 places until it has ended: resized-2 wait")
    assert await world.used(world.namespace) == before
    assert _gated(await _members(world, "resized")) == ["resized-2"]
    await _verified(world)
    await world.delete("resized-0", "Pod")  # a pod of what was admitted has its place
    await _run(world, "resized", 2)
    assert _gated(await _members(world, "resized")) == []
    assert await world.used(world.namespace) == before


@asynccontextmanager
async def _beside(world: World) -> AsyncIterator[World]:
    """Another namespace with a LocalQueue of the same ClusterQueue."""
    other = World(world.site, world.api, f"{world.namespace}-b")
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other.namespace}}
    await world.api.request("POST", "/api/v1/namespaces", body)
    await other.policy(local_queue(other.namespace, "main", world.namespace))
    try:
        yield other
    finally:
        for one in (await world.api.request("GET", other.path("Pod")))["items"]:
            with suppress(ApiError):  # it may have ended and be gone
                path = other.path("Pod", one["metadata"]["name"])
                await world.api.request("DELETE", path, {"gracePeriodSeconds": 0})


async def test_groups_of_one_name_in_two_namespaces_are_two_workloads(world: World) -> None:
    async with _beside(world) as other:
        for number, where in enumerate((world, other)):
            await _member(where, "same", number, size=2, gpus=3)
        for where in (world, other):
            reason = await where.reason_is("same", "PendingEvaluation", "PodGroup")
            assert "1 of 2 pods" in reason["message"]
        await _member(world, "same", 1, size=2, gpus=3)
        await _run(world, "same", 2)
        await _member(other, "same", 0, size=2, gpus=3)
        assert (await other.reason_is("same", "WaitingForQuota", "PodGroup"))["shortBy"] == 4
        for one in await _members(world, "same"):
            await world.delete(one["metadata"]["name"], "Pod")
        await _run(other, "same", 2)
        await world.phase("same", "Deleted", "PodGroup")


async def _edits(server: Owned) -> dict[str, str | None]:
    """The edit of each pod that runs, by name."""
    return {
        one["metadata"]["name"]: (one["metadata"].get("annotations") or {}).get(EDIT)
        for one in await server.listed()
        if (one.get("status") or {}).get("phase") == "Running"
    }


async def _uses_all(world: World) -> None:
    """The quota is 8 GPUs; REST is behind the cluster for a moment."""

    async def told() -> bool:
        return (await world.used(world.namespace)).get(("a100", GPU)) == 8

    await eventually("8 GPUs are in use", told)


async def _are(server: Owned, edits: dict[str, str | None]) -> bool:
    return await _edits(server) == edits


@NO_CONTROLLERS
async def test_a_rollout_of_a_statefulset_by_partition_keeps_to_its_quota(world: World) -> None:
    def rolling(partition: int) -> Json:
        return {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}}

    body = test_single_pods._owner("StatefulSet", replicas=2, gpus=4, serviceName="server", **rolling(1))
    async with Owned.made(world, body) as server:
        await server.pods(2, 0)
        await server.edit("second")
        for partition, first in ((1, None), (0, "second")):
            await server.merge(rolling(partition))
            await eventually(
                f"the first pod is {first} with partition {partition}",
                partial(_are, server, {"server-0": first, "server-1": "second"}),
            )
            await _uses_all(world)


@NO_CONTROLLERS
async def test_a_deployment_that_is_paused_in_its_rollout_keeps_its_pods_and_ends_it_later(
    world: World,
) -> None:
    async with Owned.made(world, test_single_pods._owner("Deployment", replicas=2, gpus=4)) as server:
        await server.pods(2, 0)
        await server.edit("second")
        await server.pods(2, 1, revision="second")
        await server.merge({"paused": True})
        await server.edit("third")
        first, second = sorted(await _edits(server))
        await world.delete(first, "Pod")  # the surge pod has waited for longer than the one that replaces it

        async def mixed() -> bool:
            edits = await _edits(server)
            return second in edits and sorted(edits.values(), key=str) == [None, "second"]

        await eventually("a pod of each revision runs", mixed)
        await server.pods(2, 1)
        await _uses_all(world)
        await server.merge(
            {"paused": None, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}
        )

        async def ended() -> bool:
            return list((await _edits(server)).values()) == ["third"] * 2

        await eventually("both pods are of the last revision", ended)
        await server.pods(2, 0)


async def test_a_pod_that_grows_while_its_group_waits_for_quota_is_charged_as_it_is_then(
    world: World,
) -> None:
    await _member(world, "before", 0, size=1, gpus=8)
    await _run(world, "before", 1)
    for number in range(2):
        await _member(world, "grown", number, size=2)
    await world.reason_is("grown", "WaitingForQuota", "PodGroup")
    await _resize(world, "grown-1", "3")
    await world.delete("before-0", "Pod")
    running = await _run(world, "grown", 2)
    assert all(GATE not in (one["spec"].get("schedulingGates") or ()) for one in running)
    told = await world.site.rest(f"/workloads/{world.namespace}/PodGroup/grown/history")
    (admitted,) = [row for row in told["items"] if row["verdict"] == "Admitted"]
    cpus = sorted(one["requests"]["cpu"] for one in admitted["details"]["podSets"])
    assert cpus == [1000, 3000]
    await _verified(world)
