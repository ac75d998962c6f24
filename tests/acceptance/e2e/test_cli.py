"""The command line on whole sites: what it changes, which users may, and what is recorded afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path

import pytest

from queuectl.kube.errors import ApiError
from queuectl.sandbox.players.kubelet import TERMINATE_SECONDS
from queuectl.sandbox.tenancy import rights
from tests.acceptance.e2e.cohort import end_pods
from tests.acceptance.e2e.site import GPU, Json, Site, eventually, job, pod_template
from tests.acceptance.e2e.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = pod_template(2, seconds=600)


async def verdicts(world: World, name: str) -> list[str]:
    told = await world.site.queuectl("history", f"job/{name}", "-n", world.namespace, "-o", "json")
    assert told.code == 0, told.err
    return [item["verdict"] for item in told.json["items"]]


async def test_a_held_workload_leaves_its_pending_queue_and_a_release_puts_it_back(world: World) -> None:
    site, where = world.site, ("-n", world.namespace)
    await world.submit(job("held", template=LONG))
    await world.started("held")
    told = await site.queuectl("hold", "job/held", *where, "--yes", "--wait")
    assert told.code == 0, told.err
    assert "It runs: it is evicted" in told.out
    assert told.err.endswith(f"Job {world.namespace}/held is on hold\n")
    assert (await world.reason("held"))["code"] == "OnHold"
    again = await site.queuectl("hold", "job/held", *where)
    assert (again.code, "nothing is written" in again.out) == (0, True)

    explained = await site.queuectl("explain", "job/held", *where)
    assert "`queuectl release` lets it queue again" in explained.out

    told = await site.queuectl("release", "job/held", *where, "--wait")
    assert told.code == 0, told.err
    await world.started("held")
    assert [found for found in await verdicts(world, "held") if found != "Pending"] == [
        *("Queued", "Admitted", "Evicted", "Released", "Admitted"),
    ]


async def test_a_workload_that_waits_is_moved_and_one_that_runs_gets_another_priority(world: World) -> None:
    site, where = world.site, ("-n", world.namespace)
    api_version, high = "queuectl.dev/v1beta1", f"{world.namespace}-high"
    second = {"name": "second", "namespace": world.namespace}
    spec = {"clusterQueue": world.namespace}
    await world.policy({"apiVersion": api_version, "kind": "LocalQueue", "metadata": second, "spec": spec})
    urgent: Json = {"apiVersion": api_version, "kind": "WorkloadPriorityClass", "value": 70, "spec": {}}
    await world.policy({**urgent, "metadata": {"name": high}})
    held = job("moves", template=LONG)
    held["metadata"]["annotations"] = {"queuectl.dev/hold": "true"}
    await world.submit(held)
    await world.reason_is("moves", "OnHold")
    told = await site.queuectl("move", "job/moves", "--to", "second", *where)
    assert told.code == 0, told.err
    assert (await site.queuectl("release", "job/moves", *where)).code == 0
    await world.started("moves")
    assert (await world.workload("moves"))["queue"] == "second"

    refused = await site.queuectl("move", "job/moves", "--to", "main", *where)
    assert (refused.code, "only a workload that waits can be moved" in refused.err) == (1, True)
    told = await site.queuectl("priority", "job/moves", "--class", high, *where)
    assert (told.code, "It runs on" in told.out) == (0, True), told.err

    async def amended() -> bool:
        return bool((await world.workload("moves"))["priority"] == 70)

    await eventually("the new priority counts", amended)
    assert (await verdicts(world, "moves"))[-2:] == ["Admitted", "Amended"]


async def test_an_admin_releases_the_quota_of_a_job_whose_pods_do_not_end(world: World) -> None:
    site, where = world.site, ("-n", world.namespace)
    template = pod_template(8, 86_400)
    template["metadata"]["annotations"][TERMINATE_SECONDS] = "86400"
    await world.submit(job("stuck", template=template))
    await world.started("stuck")
    await eventually("its pod runs", lambda: _pods(world, "stuck"))
    told = await site.queuectl("hold", "job/stuck", *where, "--yes")
    assert told.code == 0, told.err
    await world.phase("stuck", "Evicting")
    assert (await world.used(world.namespace))["a100", GPU] == 8
    reason = ("--reason", "its node is scrap")
    told = await site.queuectl("force-release", "job/stuck", *where, *reason, "--yes", "--wait")
    assert told.code == 0, told.err
    await world.reason_is("stuck", "OnHold")
    await world.nothing_used(world.namespace)
    assert await _pods(world, "stuck"), "its pod still exists"
    history = await site.queuectl("history", "job/stuck", *where)
    assert "by force, by admin: its node is scrap" in history.out
    await end_pods(world, "stuck")


async def _pods(world: World, name: str) -> list[str]:
    path = f"/api/v1/namespaces/{world.namespace}/pods"
    query = {"labelSelector": f"batch.kubernetes.io/job-name={name}"}
    found = await world.api.request("GET", path, query=query)
    return [pod["metadata"]["name"] for pod in found["items"] if pod["status"].get("phase") == "Running"]


async def test_a_job_is_submitted_waited_for_and_cancelled(world: World, tmp_path: Path) -> None:
    site, where = world.site, ("-n", world.namespace)
    file = tmp_path / "job.json"
    content = job("typed", template=pod_template(2, seconds=1))
    del content["metadata"]["labels"]
    file.write_text(json.dumps(content))
    told = await site.queuectl("submit", str(file), "-q", "main", *where, "--follow")
    assert told.code == 0, told.err
    assert all(word in told.out for word in ("Queued", "Admitted", "Retired"))
    told = await site.queuectl("wait", "job/typed", *where)
    assert (told.code, told.out) == (0, f"Job {world.namespace}/typed: Succeeded\n")

    await world.submit(job("long", template=LONG))
    told = await site.queuectl("wait", "job/long", *where, "--for", "started", "--timeout", "60s")
    assert told.code == 0, told.err
    assert (await site.queuectl("cancel", "job/long", *where)).code == 2
    told = await site.queuectl("cancel", "job/long", *where, "--yes")
    assert told.code == 0, told.err
    told = await site.queuectl("wait", "job/long", *where, "--timeout", "60s")
    assert told.code == 1
    assert f"Job {world.namespace}/long: Cancelled" in told.err
    await world.nothing_used(world.namespace)


async def test_a_stopped_queue_admits_nothing_until_it_is_resumed(world: World) -> None:
    site, queue = world.site, f"clusterqueue/{world.namespace}"
    await world.submit(job("runs", template=LONG))
    await world.started("runs")
    told = await site.queuectl("stop", queue, "--wait")
    assert told.code == 0, told.err
    await world.submit(job("late", template=LONG))
    await world.reason_is("late", "Suspended")
    assert (await world.workload("runs"))["phase"] == "Admitted"

    told = await site.queuectl("stop", queue, "--drain", "--wait", "--timeout", "90")
    assert told.code == 0, told.err
    assert "stopPolicy Hold -> HoldAndDrain" in told.out
    await world.nothing_used(world.namespace)
    assert (await world.workload("runs"))["phase"] == "Pending"

    told = await site.queuectl("resume", queue, "--wait")
    assert told.code == 0, told.err
    for name in ("runs", "late"):
        await world.started(name)


async def test_kubectl_shows_that_a_queue_is_stopped(world: World, kubectl: Site) -> None:
    told = await world.site.queuectl("stop", "localqueue/main", "-n", world.namespace, "--wait")
    assert told.code == 0, told.err
    shown = await kubectl.kubectl("-n", world.namespace, "get", "localqueues", "-o", "wide")
    head, row = shown.out.splitlines()
    assert (
        head.split()
        == [
            *("NAME", "CLUSTERQUEUE", "PENDING", "ADMITTED", "ACTIVE", "AGE", "STOP", "REASON", "MESSAGE"),
        ]
        or "STOP" in head.split()
    )
    assert {"main", world.namespace, "False", "Hold", "Stopped"} <= set(row.split())


async def test_a_tenant_can_hold_its_own_jobs_and_cannot_stop_a_queue(world: World) -> None:
    for right in rights([world.namespace]):
        scope = f"/namespaces/{world.namespace}" if right["kind"] == "RoleBinding" else ""
        path = f"/apis/rbac.authorization.k8s.io/v1{scope}/{right['kind'].lower()}s"
        with contextlib.suppress(ApiError):  # left by another test, with the same content
            await world.api.request("POST", path, right)
    await world.submit(job("own", template=LONG))
    await world.phase("own", "Admitted")
    where = ("-n", world.namespace, "--context", "tenant")

    async def held() -> bool:
        # A binding takes effect a moment after it is made.
        return (await world.site.queuectl("hold", "job/own", *where, "--yes")).code == 0

    await eventually("the tenant holds its job", held)
    await world.reason_is("own", "OnHold")
    refused = await world.site.queuectl("stop", f"clusterqueue/{world.namespace}", *where)
    assert refused.code == 2
    assert "clusterqueues.queuectl.dev in the cluster (ClusterRole queuectl-admin has it" in refused.err
    found = await world.api.request("GET", f"/apis/queuectl.dev/v1beta1/clusterqueues/{world.namespace}")
    assert found["spec"]["stopPolicy"] == "None"


async def test_events_are_followed_as_they_are_committed(world: World) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-m", "queuectl", "events", "-f", "--since", "0", "-n", world.namespace),
        *("-o", "json", "--server", world.site.endpoints["rest"]),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        await world.submit(job("told", template=pod_template(2, seconds=1)))
        found: list[Json] = []
        async with asyncio.timeout(60):
            while not found or found[-1]["verdict"] != "Retired":
                found.append(json.loads(await process.stdout.readline()))
    finally:
        process.terminate()
        await process.wait()
    assert {item["name"] for item in found} == {"told"}
    assert [item["verdict"] for item in found] == ["Queued", "Admitted", "Retired"]
    sequences = [item["sequence"] for item in found]
    assert sequences == sorted(set(sequences))
