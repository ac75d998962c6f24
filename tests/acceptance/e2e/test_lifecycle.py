"""Run-time limits, ended pods, drained queues, and what is said of pods and nodes, on both control planes."""

from __future__ import annotations

import pytest

from queuectl.kinds.jobs import value_at
from tests.acceptance.e2e.site import (
    GPU,
    Json,
    eventually,
    gpus_only,
    job,
    local_queue,
    pod_template,
    pytorchjob,
)
from tests.acceptance.e2e.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIMIT = "queuectl.dev/max-exec-time-seconds"
HOLD = "queuectl.dev/hold"
STOPPED = "queuectl.dev/reserved-stopped"


async def verdicts(world: World, name: str) -> list[str]:
    history = await world.site.rest(f"/workloads/{world.namespace}/Job/{name}/history")
    return [row["verdict"] for row in history["items"]]


async def label(world: World, name: str, value: str | None) -> None:
    await world.merge(name, {"metadata": {"labels": {LIMIT: value}}})


async def test_a_job_past_its_run_time_limit_is_stopped_and_over(world: World) -> None:
    body = job("long", template=pod_template(8, seconds=600))
    body["metadata"]["labels"][LIMIT] = "2"
    await world.submit(body)
    await world.phase("long", "Finished")
    assert (await world.get("long"))["spec"]["suspend"] is True
    await world.nothing_used(world.namespace)
    assert await verdicts(world, "long") == ["Queued", "Admitted", "Evicted", "Retired"]
    told = await world.site.queuectl("get", "workloads", "--phase", "finished", "-n", world.namespace)
    assert "TimedOut" in told.out
    waited = await world.site.queuectl("wait", "job/long", "-n", world.namespace, "--for", "finished")
    assert waited.code == 1
    assert "TimedOut" in waited.err
    await label(world, "long", "600")
    await world.submit(job("next", template=pod_template(8, seconds=1)))
    await world.phase("next", "Finished")
    assert await verdicts(world, "long") == ["Queued", "Admitted", "Evicted", "Retired"], "it is over"


async def test_a_job_fails_at_its_run_time_limit_where_its_queue_says_so(world: World) -> None:
    queue = local_queue(world.namespace, "main", world.namespace)
    queue["spec"]["maxExecutionTime"] = {"default": 2, "onExceeded": "Fail"}
    await world.policy(queue)
    await world.submit(job("fails", template=pod_template(8, seconds=600)))
    over = await world.phase("fails", "Finished")
    ended = await world.get("fails")
    assert (ended["spec"]["suspend"], ended["spec"]["activeDeadlineSeconds"]) == (False, 1)
    (failed,) = (one for one in ended["status"]["conditions"] if one["type"] == "Failed")
    assert failed["reason"] == "DeadlineExceeded"
    assert over["end"]["outcome"] == "TimedOut"
    assert [one["outcome"] for one in over["end"]["attempts"]] == ["TimedOut"]
    await world.nothing_used(world.namespace)
    assert await verdicts(world, "fails") == ["Queued", "Admitted", "Evicted", "Retired"]
    for line in ("get workloads --phase finished", "history job/fails"):
        told = await world.site.queuectl(*line.split(), "-n", world.namespace)
        assert "TimedOut" in told.out
    waited = await world.site.queuectl("wait", "job/fails", "-n", world.namespace, "--for", "finished")
    assert (waited.code, "TimedOut" in waited.err) == (1, True)


async def test_a_run_time_limit_that_is_no_number_makes_the_job_misconfigured(world: World) -> None:
    body = job("odd", template=pod_template(1))
    body["metadata"]["labels"][LIMIT] = "soon"
    await world.submit(body)
    reason = await world.reason_is("odd", "Misconfigured")
    assert LIMIT in reason["detail"]
    assert "'soon'" in reason["detail"]
    assert "2147483647" in reason["detail"]
    await label(world, "odd", "600")
    await world.started("odd")


async def test_succeeded_pods_free_quota_before_the_job_is_over(world: World) -> None:
    wide = job("wide", template=gpus_only(4, seconds=2), parallelism=2, completions=3)
    await world.submit(wide)
    await world.started("wide")
    await world.submit(job("next", template=pod_template(4, seconds=1)))
    await world.reason_is("next", "WaitingForQuota")
    await world.phase("next", "Finished")
    await world.phase("wide", "Finished")
    assert "Shrunk" in await verdicts(world, "wide")
    await world.nothing_used(world.namespace)


async def test_a_drained_queue_stops_running_jobs_and_continues_after_it_is_resumed(world: World) -> None:
    await world.submit(job("train", template=pod_template(8, seconds=600)))
    await world.started("train")
    found = await world.site.queuectl("stop", f"clusterqueue/{world.namespace}", "--drain")
    assert found.code == 0, found.err
    await world.reason_is("train", "Suspended")
    await world.nothing_used(world.namespace)
    found = await world.site.queuectl("resume", f"clusterqueue/{world.namespace}")
    assert found.code == 0, found.err

    async def again() -> bool:
        return (await world.workload("train")).get("attempt") == 2

    await eventually("it runs again", again)
    assert (await world.used(world.namespace))["a100", GPU] == 8


def _job(name: str) -> Json:
    return job(name, template=pod_template(3, 600), parallelism=4, completions=4)


def _elastic(name: str) -> Json:
    body = pytorchjob(name, workers=4, template=pod_template(2, 600))
    body["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 4}
    return body


@pytest.mark.parametrize(
    ("body", "path", "least", "held"),
    [
        (_job("partly"), ("spec", "parallelism"), "main: 4 x", 2),
        (_elastic("partly"), ("spec", "pytorchReplicaSpecs", "Worker", "replicas"), "worker: 4 x", 3),
    ],
    ids=["Job", "PyTorchJob"],
)
async def test_a_workload_that_allows_it_starts_with_as_many_pods_as_fit(
    world: World, body: Json, path: tuple[str, ...], least: str, held: int
) -> None:
    kind = body["kind"]
    body["metadata"]["annotations"] = {"queuectl.dev/min-parallelism": "1"}
    await world.submit(body)
    running = await world.started("partly", kind)
    assert value_at(running, path) == held
    assert (await world.workload("partly", kind))["pods"] == held + (kind == "PyTorchJob")
    told = await world.site.queuectl("explain", f"{kind.lower()}/partly", "-n", world.namespace)
    assert f"{least} (" in told.out
    assert "at least 1" in told.out

    await world.annotate("partly", HOLD, "true", kind)
    await world.reason_is("partly", "OnHold", kind)
    waiting = await world.get("partly", kind)
    assert value_at(waiting, path) == 4
    assert '"code":"UserHold"' in waiting["metadata"]["annotations"][STOPPED]
    await world.annotate("partly", HOLD, None, kind)
    again = await world.started("partly", kind)
    assert value_at(again, path) == held
    assert STOPPED not in again["metadata"]["annotations"]


async def test_pods_of_no_queue_are_shown_as_unmanaged_use_of_their_namespace(world: World) -> None:
    template = pod_template(3, 600)
    body = {"apiVersion": "v1", "kind": "Pod", **template}
    body["metadata"] = {**template["metadata"], "name": "notebook"}
    body["spec"] = {**template["spec"], "nodeName": "node-3"}
    path = f"/api/v1/namespaces/{world.namespace}/pods"
    await world.api.request("POST", path, body)

    async def shown() -> bool:
        told = await world.site.queuectl("info", "spot", "--unmanaged")
        rows = [line.split() for line in told.out.splitlines()]
        return ["spot", GPU, world.namespace, "3"] in rows

    await eventually("its use is shown", shown)
    await world.api.request("DELETE", f"{path}/notebook", {"kind": "DeleteOptions", "gracePeriodSeconds": 0})


async def test_pods_that_no_node_takes_though_room_was_found_are_said_on_the_job_once(world: World) -> None:
    template = pod_template(1, 600)
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["no-such-node"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    template["spec"]["affinity"] = {"nodeAffinity": required}
    await world.submit(job("nowhere", template=template, parallelism=2, completions=2))
    await world.started("nowhere")
    path = f"/apis/events.k8s.io/v1/namespaces/{world.namespace}/events"

    async def said() -> list[str]:
        found = (await world.api.request("GET", path))["items"]
        about = [one for one in found if one["regarding"].get("name") == "nowhere"]
        return [one["note"] for one in about if one["reason"] == "NotScheduled"]

    [note] = await eventually("it is said", said)
    assert note.startswith("kube-scheduler places pod nowhere-")
    assert "though nodes had room" in note
