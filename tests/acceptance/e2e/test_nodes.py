"""Quota and the nodes that are really there (docs/scheduling.md, M), on a real API server with fake nodes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.example import fake_node
from queuectl.sandbox.players.kubelet import FAILED
from tests.acceptance.e2e.cohort import LONG, decided, end_pods, priority, verdicts
from tests.acceptance.e2e.site import GPU, Json, cluster_queue, eventually, flavor, job, pod_template
from tests.acceptance.e2e.world import World

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.real_api_server]

PREEMPTS = {"withinClusterQueue": "LowerPriority"}
LABEL = "example.com/accelerator"


@dataclass
class Pool:
    """Nodes of a flavor of their own, and queue `main` with more quota than they have."""

    world: World
    name: str

    async def nodes(self, *gpus: int, **others: int) -> None:
        """Add nodes, and wait until the controller counts on them."""
        for number, count in enumerate(gpus):
            await self.add(fake_node(f"{self.name}-{number}", self.name, gpus=count), **others)
        await self.count(len(gpus))

    async def count(self, ready: int, *, gpus: int | None = None) -> None:
        """Wait until the controller has told that so many nodes are ready, with so many free GPUs."""

        async def look() -> bool:
            found = await self.world.site.rest(f"/capacity/{self.name}")
            if found["status"] != 200 or found["nodes"].get("Ready", 0) != ready:
                return False
            free = [one["free"] for one in found["resources"] if one["resource"] == GPU]
            return gpus is None or free == [gpus]

        await eventually(f"{ready} nodes are ready", look)

    async def add(self, body: Json, **others: int) -> None:
        for part in ("capacity", "allocatable"):
            body["status"][part] |= {name: str(amount) for name, amount in others.items()}
        await self.world.api.request("POST", "/api/v1/nodes", body)

    async def publish(self, number: int, generation: int, devices: list[Json]) -> None:
        """A driver publishes the devices of a node, in place of those of an earlier generation."""
        name = f"{self.name}-{number}"
        spec = {
            "driver": "gpu.example.com",
            "nodeName": name,
            "pool": {"name": name, "generation": generation, "resourceSliceCount": 1},
            "devices": devices,
        }
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-{generation}"},
            "spec": spec,
        }
        await self.world.api.request("POST", "/apis/resource.k8s.io/v1/resourceslices", body)

    async def change(self, number: int, change: Json) -> None:
        path = f"/api/v1/nodes/{self.name}-{number}"
        await self.world.api.request("PATCH", path, change, content_type=MERGE_PATCH)

    async def cordon(self, number: int, cordoned: bool = True) -> None:
        await self.change(number, {"spec": {"unschedulable": cordoned}})

    async def fail(self, number: int, failed: bool = True) -> None:
        await self.change(number, {"metadata": {"annotations": {FAILED: "true" if failed else None}}})

    async def remove(self, number: int) -> None:
        await self.world.api.request("DELETE", f"/api/v1/nodes/{self.name}-{number}")

    async def queue(self, gpus: int = 1000, **spec: Any) -> None:
        await self.world.policy(cluster_queue(self.world.namespace, gpus, (self.name,), **spec))

    async def unmanaged(self, number: int, gpus: int) -> str:
        """A pod that no queue knows, on one of the nodes. Returns its path."""
        template = pod_template(gpus, LONG)
        where = f"{self.name}-{number}"
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"other-{number}"}, **template}
        body["metadata"] = {**template["metadata"], "name": f"other-{number}"}
        body["spec"] = {**template["spec"], "nodeName": where}
        path = f"/api/v1/namespaces/{self.world.namespace}/pods"
        await self.world.api.request("POST", path, body)
        return f"{path}/other-{number}"

    async def placed(self, name: str) -> list[str]:
        """The nodes of the running pods of a Job."""
        path = f"/api/v1/namespaces/{self.world.namespace}/pods"
        query = {"labelSelector": f"batch.kubernetes.io/job-name={name}"}
        found = await self.world.api.request("GET", path, query=query)
        running = [pod for pod in found["items"] if pod["status"].get("phase") == "Running"]
        return sorted(
            pod["spec"]["nodeName"] for pod in running if not pod["metadata"].get("deletionTimestamp")
        )

    async def runs(self, body: Json) -> list[str]:
        """Submit it and wait until all its pods run. Returns their nodes."""
        name, pods = body["metadata"]["name"], body["spec"]["parallelism"]
        await self.world.submit(body)
        return await self.run_again(name, pods)

    async def end_pods(self) -> None:
        """Delete its Jobs and pods, and wait until they are gone."""
        path = f"/api/v1/namespaces/{self.world.namespace}/pods"
        at_once = {"kind": "DeleteOptions", "gracePeriodSeconds": 0}
        for work in (await self.world.api.request("GET", self.world.path("Job")))["items"]:
            await self.world.delete(work["metadata"]["name"])

        async def none() -> bool:
            left = (await self.world.api.request("GET", path))["items"]
            for pod in left:
                with contextlib.suppress(ApiError):  # it may be gone by now
                    await self.world.api.request("DELETE", f"{path}/{pod['metadata']['name']}", at_once)
            return not left

        await eventually("its pods are gone", none)

    async def run_again(self, name: str, pods: int) -> list[str]:
        async def look() -> Any:
            found = await self.placed(name)
            return found if len(found) == pods else None

        found: list[str] = await eventually(f"{pods} pods of {name} run", look)
        return found


@pytest_asyncio.fixture(loop_scope="session")
async def pool(world: World) -> AsyncIterator[Pool]:
    found = Pool(world, f"pool-{world.namespace}")
    await world.api.request(
        "POST", "/apis/queuectl.dev/v1beta1/resourceflavors", flavor(found.name, {LABEL: found.name})
    )
    await found.queue()
    yield found
    await found.end_pods()  # else its nodes would be lost under them
    names = (await world.api.request("GET", "/api/v1/nodes"))["items"]
    for one in names:
        if one["metadata"]["name"].startswith(f"{found.name}-"):
            await world.api.request("DELETE", f"/api/v1/nodes/{one['metadata']['name']}")


def gang(name: str, pods: int, gpus: int = 1, *, lingers: bool = False, priority: str | None = None) -> Json:
    template = pod_template(gpus, LONG)
    if lingers:
        template["metadata"]["annotations"]["sandbox.queuectl.dev/terminate-seconds"] = str(LONG)
    body = job(name, template=template, parallelism=pods, completions=pods)
    if priority is not None:
        body["metadata"]["labels"]["queuectl.dev/priority-class"] = priority
    return body


async def test_fragmented_nodes(pool: Pool) -> None:
    await pool.nodes(8, 8)
    await pool.unmanaged(0, 3)
    await pool.unmanaged(1, 3)
    await pool.count(2, gpus=10)
    await pool.world.submit(gang("whole", 1, 8))
    reason = await pool.world.reason_is("whole", "NoNodeFits")
    assert (reason["requested"], reason["available"], reason["podsFit"]) == (8, 10, 0)
    assert {node["free"] for node in reason["nodes"]} == {5}
    assert await pool.runs(gang("small", 2, 5))


async def test_a_gang_of_eight_with_two_free_on_each_of_four_nodes(pool: Pool) -> None:
    await pool.nodes(2, 2, 2, 2)
    assert len(set(await pool.runs(gang("eight", 8, 1)))) == 4
    await pool.world.submit(gang("more", 1, 1))
    await pool.world.reason_is("more", "CapacityMissing")


async def test_a_cordoned_node_takes_no_new_pods_and_keeps_those_that_run(pool: Pool) -> None:
    await pool.nodes(8)
    await pool.runs(gang("runs", 1, 4))
    await pool.cordon(0)
    await pool.count(0)
    await pool.world.submit(gang("waits", 1, 4))
    reason = await pool.world.reason_is("waits", "CapacityMissing")
    assert "cordoned" in reason["message"]
    await pool.cordon(0, False)
    await pool.run_again("waits", 1)
    assert await verdicts(pool.world, "runs") == ["Queued", "Admitted"]


async def test_capacity_that_returns_is_used(pool: Pool) -> None:
    await pool.nodes(2)
    await pool.world.submit(gang("waits", 4, 2))
    reason = await pool.world.reason_is("waits", "CapacityMissing")
    assert (reason["pods"], reason["podsFit"], reason["shortBy"]) == (4, 1, 6)
    for number in (1, 2, 3):
        await pool.add(fake_node(f"{pool.name}-{number}", pool.name, gpus=2))
    await pool.run_again("waits", 4)


async def test_a_node_that_dies_costs_the_gang_on_it_and_no_other(pool: Pool) -> None:
    await pool.nodes(2, 2, 2, 2, 2, 2)
    other = await pool.runs(gang("other", 1, 2))
    where = await pool.runs(gang("gang", 4, 2))
    number = int(where[0].rpartition("-")[2])
    await pool.fail(number)
    lost = (await decided(pool.world, "gang", "Evicted"))["reason"]
    assert (lost["code"], where[0] in lost["message"]) == ("NodeFailures", True)
    again = await pool.run_again("gang", 4)
    assert where[0] not in again
    assert await pool.placed("other") == other
    assert await verdicts(pool.world, "other") == ["Queued", "Admitted"]


async def test_a_node_that_flaps_does_not_count_at_once(pool: Pool) -> None:
    await pool.nodes(8)
    await pool.fail(0)
    await pool.count(0)
    await pool.world.submit(gang("waits", 1, 8))
    reason = await pool.world.reason_is("waits", "CapacityMissing")
    assert "not ready" in reason["message"]
    await pool.fail(0, False)
    await pool.run_again("waits", 1)


async def test_a_flavor_whose_nodes_are_all_gone_is_limited_by_quota_alone(pool: Pool) -> None:
    await pool.nodes(2)
    await pool.world.submit(gang("waits", 1, 8))
    await pool.world.reason_is("waits", "NoNodeCanFit")
    await pool.remove(0)
    await pool.world.started("waits")


async def test_nodes_count_as_they_were_seen_last_while_nothing_new_is_heard(pool: Pool) -> None:
    await pool.nodes(8)
    first = await pool.runs(gang("first", 1, 4))
    await asyncio.gather(pool.world.submit(gang("second", 1, 4)), pool.run_again("second", 1))
    assert await pool.placed("first") == first
    assert await verdicts(pool.world, "first") == ["Queued", "Admitted"]


async def test_unmanaged_pods_that_arrive_take_room_and_evict_nothing(pool: Pool) -> None:
    await pool.nodes(8)
    await pool.runs(gang("runs", 1, 4))
    await pool.unmanaged(0, 4)
    await pool.count(1, gpus=0)
    await pool.world.submit(gang("waits", 1, 4))
    await pool.world.reason_is("waits", "CapacityMissing")
    assert await verdicts(pool.world, "runs") == ["Queued", "Admitted"]


async def test_unmanaged_pods_in_the_way_of_a_queue_are_waited_for(pool: Pool) -> None:
    await pool.nodes(8)
    other = await pool.unmanaged(0, 8)
    await pool.count(1, gpus=0)
    await pool.world.submit(gang("waits", 1, 8))
    await pool.world.reason_is("waits", "CapacityMissing")
    await pool.world.api.request("DELETE", other, {"kind": "DeleteOptions", "gracePeriodSeconds": 0})
    await pool.run_again("waits", 1)


async def test_mig_slices_and_time_sliced_devices_are_devices_of_their_own(pool: Pool) -> None:
    mig, shared = "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared"
    await pool.nodes(0, **{mig: 7, shared: 4, "cpu": 64})
    quotas = [{"name": name, "nominalQuota": 100} for name in ("cpu", mig, shared)]
    group = {"coveredResources": ["cpu", mig, shared], "flavors": [{"name": pool.name, "resources": quotas}]}
    body = cluster_queue(pool.world.namespace, 0, (pool.name,))
    body["spec"]["resourceGroups"] = [group]
    await pool.world.policy(body)
    for name, resource, pods in (("mig", mig, 7), ("shared", shared, 4)):
        work = gang(name, pods)
        work["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {resource: "1"}
        await pool.runs(work)
        late = gang(f"late-{name}", 1)
        late["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {resource: "1"}
        await pool.world.submit(late)
        assert (await pool.world.reason_is(f"late-{name}", "CapacityMissing"))["resource"] == resource


async def test_devices_of_claims_are_capacity_as_their_driver_publishes_them(pool: Pool) -> None:
    """Two of three devices of one node are usable, and one of the other. Then that gets more."""
    world, dra = pool.world, "/apis/resource.k8s.io/v1"
    expression = "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].type == 'gpu'"
    selectors = [{"cel": {"expression": expression}}]
    await _create(world, f"{dra}/deviceclasses", "gpu.example.com", {"selectors": selectors})
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": 2}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    await _create(world, f"{dra}/namespaces/{world.namespace}/resourceclaimtemplates", "two-gpus", spec)
    await pool.nodes(0, 0, cpu=64)
    taint = {"key": "example.com/bad", "effect": "NoSchedule"}
    for number, devices in enumerate(([_gpu(0), _gpu(1), _gpu(2, taints=[taint])], [_gpu(0)])):
        others = {**_gpu(9), "attributes": {"type": {"string": "nic"}}}
        await pool.publish(number, 1, [*devices, others])
    await pool.count(2, gpus=3)
    claims = [{"name": "gpus", "resourceClaimTemplateName": "two-gpus"}]
    for number, name in enumerate(("fits", "waits")):
        # The sandbox's scheduler allocates no devices.
        where = {"kubernetes.io/hostname": f"{pool.name}-{number}"}
        template = pod_template(0, LONG, resourceClaims=claims, nodeSelector=where)
        await world.submit(job(name, parallelism=1, completions=1, template=template))
    await pool.run_again("fits", 1)
    reason = await world.reason_is("waits", "NoNodeCanFit")
    assert (reason["resource"], reason["requested"], reason["available"]) == (GPU, 2, 1)
    bare = pod_template(0, LONG, resourceClaims=claims)
    bare["spec"]["nodeName"] = f"{pool.name}-1"
    path = f"/api/v1/namespaces/{world.namespace}/pods"
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": bare["spec"]}
    await world.api.request("POST", path, body)
    await pool.publish(1, 2, [_gpu(number) for number in range(3)])
    await pool.count(2, gpus=1)
    await world.api.request("DELETE", f"{path}/other")
    await pool.run_again("waits", 1)


def _gpu(number: int, **fields: Any) -> Json:
    return {"name": f"gpu-{number}", "attributes": {"type": {"string": "gpu"}}, **fields}


async def _create(world: World, path: str, name: str, spec: Json) -> None:
    kinds = {"deviceclasses": "DeviceClass", "resourceclaimtemplates": "ResourceClaimTemplate"}
    kind = kinds[path.rpartition("/")[2]]
    body = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    await world.api.request("POST", path, body)


async def test_two_flavors_share_one_node(pool: Pool) -> None:
    await pool.nodes(8)
    second = f"{pool.name}-b"
    await pool.world.policy(flavor(second, {LABEL: pool.name}))
    both = cluster_queue(pool.world.namespace, 12, (pool.name, second))
    await pool.world.policy(both)
    await pool.runs(gang("first", 1, 6))
    await pool.world.submit(gang("second", 1, 4))
    reason = await pool.world.reason_is("second", "CapacityMissing")
    assert {reason["flavor"], *(other["flavor"] for other in reason["others"])} == {pool.name, second}
    await pool.runs(gang("third", 1, 2))


async def test_nodes_of_an_elastic_flavor_limit_nothing(pool: Pool) -> None:
    await pool.nodes(2)
    body = flavor(pool.name, {LABEL: pool.name})
    body["spec"]["nodes"] = {"mode": "Elastic"}
    await pool.world.policy(body)
    await pool.world.submit(gang("grows", 1, 8))
    await pool.world.started("grows")


async def test_quota_that_is_twice_the_nodes(pool: Pool) -> None:
    await pool.nodes(4, 4)
    await pool.queue(16)
    for number in range(4):
        await pool.world.submit(gang(f"w{number}", 1, 4))
    await pool.run_again("w0", 1)
    await pool.run_again("w1", 1)
    for name in ("w2", "w3"):
        await pool.world.reason_is(name, "CapacityMissing")
    assert (await pool.world.used(pool.world.namespace))[pool.name, GPU] == 8


async def test_no_workload_is_evicted_where_that_would_free_quota_and_no_room(pool: Pool) -> None:
    await pool.nodes(8, 8)
    await pool.queue(8, preemption=PREEMPTS)
    await pool.runs(gang("low", 2, 4))
    await pool.unmanaged(0, 1)
    await pool.unmanaged(1, 1)
    await pool.count(2, gpus=7)  # the sandbox's scheduler fills the first node
    urgent = await priority(pool.world, "urgent", 10)
    await pool.world.submit(gang("urgent", 1, 8, priority=urgent))
    reason = await pool.world.reason(name="urgent")
    assert reason["code"] in ("NoNodeFits", "CapacityMissing", "WaitingForQuota"), reason
    assert await verdicts(pool.world, "low") == ["Queued", "Admitted"]


async def test_a_pod_that_ends_slowly_holds_its_room_and_its_quota(pool: Pool) -> None:
    await pool.nodes(8)
    await pool.queue(8, preemption=PREEMPTS)
    await pool.runs(gang("low", 1, 8, lingers=True))
    urgent = await priority(pool.world, "urgent", 10)
    await pool.world.submit(gang("urgent", 1, 8, priority=urgent))
    await pool.world.reason_is("urgent", "WaitingForPreemptedWorkloads")
    assert (await pool.world.workload("low"))["phase"] == "Evicting"
    assert (await pool.world.used(pool.world.namespace))[pool.name, GPU] == 8
    await end_pods(pool.world, "low")
    await pool.run_again("urgent", 1)
    await decided(pool.world, "urgent", "Admitted")
    assert (await verdicts(pool.world, "low")).count("Evicted") == 1
