"""Bad policy on a whole running site: numbers 1 to 10 of the table in test_bad_inputs."""

from __future__ import annotations

import pytest

from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from tests.acceptance.e2e.site import GPU, Json, cluster_queue, eventually, flavor, job, pod_template
from tests.acceptance.e2e.world import World
from tests.unit.kinds.policy_cases import REFUSED

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUEUES = "/apis/queuectl.dev/v1beta1/clusterqueues"
QUOTA = "spec.resourceGroups[0].flavors[0].resources[0]"


async def refused(world: World, case: str, *words: str) -> None:
    """As a new queue and as an edit of one in use: 422 with `words`; the queue in use is unchanged."""
    body, _, _ = REFUSED[case]
    path = f"{QUEUES}/{world.namespace}"
    before = await world.api.request("GET", path)
    edit: Json = {"spec": body["spec"]}
    for method, where, what, how in (
        ("POST", QUEUES, body, "application/json"),
        ("PATCH", path, edit, MERGE_PATCH),
    ):
        with pytest.raises(ApiError) as caught:
            await world.api.request(method, where, what, content_type=how)
        assert caught.value.status == 422
        for word in words:
            assert word in str(caught.value)
    assert (await world.api.request("GET", path))["spec"] == before["spec"]

    async def in_force() -> object:
        found = await world.site.rest(f"/clusterqueues/{world.namespace}")
        return found["status"] == 200 and found["condition"]["reason"] == "Ready"

    await eventually("the queue is in force", in_force)


@pytest.mark.every_version
@pytest.mark.parametrize("case", ["negative text", "negative number"])
async def test_01_a_negative_quota_is_refused_and_the_field_is_named(world: World, case: str) -> None:
    await refused(world, case, f"{QUOTA}.nominalQuota", "must be at least 0")


@pytest.mark.parametrize("case", ["half a GPU", "500m of a GPU", "a GPU and a bit", "half a pod"])
async def test_03_a_fraction_of_a_gpu_is_refused_and_the_field_is_named(world: World, case: str) -> None:
    await refused(world, case, f"{QUOTA}.nominalQuota", "must be a whole number")


@pytest.mark.parametrize("field", ["borrowingLimit", "lendingLimit"])
async def test_05_a_limit_of_sharing_without_a_cohort_is_refused_and_the_field_is_named(
    world: World, field: str
) -> None:
    case = {
        "borrowingLimit": "borrowing limit without cohort",
        "lendingLimit": "lending limit without cohort",
    }
    await refused(world, case[field], "spec.resourceGroups", field, "needs cohortName")


@pytest.mark.every_version
async def test_05_a_lending_limit_above_the_quota_is_refused_and_both_fields_are_named(world: World) -> None:
    await refused(world, "lends more than it has", "lendingLimit", "nominalQuota")


@pytest.mark.parametrize(
    ("case", "second"),
    [
        ("flavor twice in a group", "spec.resourceGroups[0].flavors[1]"),
        ("flavor in two groups", "resourceGroups[2].flavors"),
        ("resource twice in a group", "spec.resourceGroups[0].coveredResources[1]"),
        ("resource in two groups", "resourceGroups[1].coveredResources"),
    ],
)
async def test_06_a_duplicate_flavor_or_resource_is_refused_and_the_second_list_is_named(
    world: World, case: str, second: str
) -> None:
    await refused(world, case, second)


async def test_09_a_queue_with_a_missing_flavor_is_inactive_until_it_exists_and_then_admits(
    world: World,
) -> None:
    later = f"later-{world.namespace}"
    await world.policy(cluster_queue(world.namespace, 8, (later,)))
    await world.submit(job("early", template=pod_template(1)))
    reason = await world.reason_is("early", "Misconfigured")
    assert reason["node"] == f"ClusterQueue/{world.namespace}"
    assert "FlavorNotFound" in reason["detail"]
    assert later in reason["detail"]
    await _condition(world, "False", "FlavorNotFound", later)
    local = await world.site.rest(f"/localqueues/{world.namespace}/main")
    assert (local["active"], local["condition"]["reason"]) == (False, "ClusterQueueIsInactive")
    await world.policy(flavor(later))
    await world.phase("early", "Finished")
    await _condition(world, "True", "Ready", "")


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("admissionChecksStrategy", {"admissionChecks": [{"name": "budget"}]}),
        ("admissionChecks", ["budget"]),
    ],
)
async def test_a_queue_that_asks_for_admission_checks_is_inactive_until_they_are_gone(
    world: World, field: str, asked: object
) -> None:
    queue = cluster_queue(world.namespace, 8)
    queue["spec"][field] = asked
    await world.policy(queue)
    await world.submit(job("early", template=pod_template(1)))
    reason = await world.reason_is("early", "Misconfigured")
    assert f"Unsupported: spec.{field}: " in reason["detail"]
    await _condition(world, "False", "Unsupported", f"spec.{field}")
    queue["spec"][field] = None
    await world.policy(queue)
    await world.phase("early", "Finished")
    await _condition(world, "True", "Ready", "")


async def _condition(world: World, status: str, reason: str, words: str) -> None:
    """The queue's condition over REST and, within the seconds between two status writes, on the object."""
    found = await world.site.rest(f"/clusterqueues/{world.namespace}")
    assert (str(found["active"]), found["condition"]["reason"]) == (status, reason)
    assert words in found["condition"]["message"]

    async def told() -> bool:
        queue = await world.api.request("GET", f"{QUEUES}/{world.namespace}")
        conditions = queue.get("status", {}).get("conditions", [])
        return any(
            (c["type"], c["status"], c["reason"]) == ("Active", status, reason) and words in c["message"]
            for c in conditions
        )

    await eventually(f"the status of the queue says {reason}", told)


async def test_10_a_quota_cut_below_use_evicts_nothing_and_admits_nothing_until_use_is_back_under_it(
    world: World,
) -> None:
    for name in ("one", "two"):
        await world.submit(job(name, template=pod_template(4, seconds=90)))
        await world.started(name)
    await world.policy(cluster_queue(world.namespace, 5))

    async def cut() -> bool:
        return await _gpus(world) == {"nominal": 5, "used": 8, "free": 0}

    await eventually("the debt is shown", cut)
    await world.submit(job("late", template=pod_template(1)))
    waiting = await world.reason_is("late", "WaitingForQuota")
    assert (waiting["requested"], waiting["available"], waiting["shortBy"]) == (1, 0, 4)
    await world.submit(job("large", template=pod_template(6)))
    assert (await world.reason("large"))["available"] == 5

    async def in_status() -> bool:
        queue = await world.api.request("GET", f"{QUEUES}/{world.namespace}")
        (usage,) = queue.get("status", {}).get("flavorsUsage") or [{"resources": []}]
        return {"name": GPU, "total": "8", "borrowed": "3", "effectiveQuota": "5"} in usage["resources"]

    await eventually("the status shows the debt", in_status)
    for name in ("one", "two"):
        found = await world.workload(name)
        assert (found["phase"], found["attempts"]) == ("Admitted", 1)
        assert (await world.get(name))["spec"]["suspend"] is False
    assert (await world.workload("late"))["attempts"] == 0
    await world.api.request("DELETE", world.path("Job", "one"), {"propagationPolicy": "Background"})
    await world.phase("late", "Finished")
    history = await world.site.rest(f"/workloads/{world.namespace}/Job/two/history")
    assert [row["verdict"] for row in history["items"]] == ["Queued", "Admitted"]


async def _gpus(world: World) -> dict[str, int]:
    found = await world.site.rest(f"/clusterqueues/{world.namespace}")
    (cell,) = [cell for cell in found["flavors"] if cell["resource"] == GPU]
    return {key: cell[key] for key in ("nominal", "used", "free")}
