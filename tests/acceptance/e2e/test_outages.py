"""Outages of one part: running workloads are unchanged, pending ones wait, and both continue afterwards."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.control_plane import find_assets
from queuectl.sandbox.processes import ChildProcess
from tests.acceptance.e2e.conftest import NO_ASSETS
from tests.acceptance.e2e.plant import LEASE, NAMESPACE, Plant, plant
from tests.acceptance.e2e.site import GPU, Json, eventually, job, pod_template
from tests.acceptance.e2e.world import World
from tests.integration.ledger.places import reachable_folder

FOR_EVER = 86_400
ADMISSION = "queuectl.dev/reserved-admission"
LEADS = "leading with epoch"
AWAY = 5.0
"""Seconds that an outage lasts after its effects are visible."""
LET_GO = {
    "metadata": {"annotations": {"queuectl.dev/bypass": "the demo is at noon"}},
    "spec": {"suspend": False},
}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def began() -> AsyncIterator[World]:
    """One site for all tests."""
    if find_assets() is None:
        pytest.skip(NO_ASSETS)
    with reachable_folder() as folder:
        async with plant(folder, "real") as (site, found):
            await site.begin_rest(found.api)
            yield found


@pytest_asyncio.fixture(loop_scope="module")
async def world(began: World) -> AsyncIterator[World]:
    """The site, cleared after each test."""
    yield began
    await _site(began).clear(began)


def _site(world: World) -> Plant:
    assert isinstance(world.site, Plant)
    return world.site


# --- the API server ----------------------------------------------------------------------------------------


async def test_while_the_api_server_is_down_nothing_is_stopped_and_afterwards_work_continues(
    world: World,
) -> None:
    site = _site(world)
    controller = await site.controller()
    await _run_for_ever(world, 2)
    load = [f"load-{number:02}" for number in range(20)]
    for name in load:
        await world.submit(job(name, template=pod_template(1, 0.3)))
    await eventually("some of the load is over", lambda: _finished(world, load[:2]))
    before = await _running_pods(world, "runs")
    async with site.api_server_away():
        await _hold(AWAY)
        rest = await site.rest("/workloads")
        assert rest["status"] == 200
        assert "stale" not in rest
    late = ["late-0", "late-1"]
    for name in late:
        await _submitted(world, job(name))
    await eventually("the load has run, and what came after", lambda: _finished(world, [*load, *late]))
    assert await _running_pods(world, "runs") == before
    assert controller.returncode is None
    await _each_started_once(world, [*load, *late])
    await site.verified()


async def test_while_the_api_server_is_frozen_nothing_is_decided_on_uncertain_state(world: World) -> None:
    site = _site(world)
    controller = await site.controller()
    await _run_for_ever(world, 2)
    await world.submit(job("waits", template=pod_template(3, 0.3)))
    await world.reason_is("waits", "WaitingForQuota")
    before = await _running_pods(world, "runs")
    sequence = await site.ask("SELECT sequence FROM queuectl.leadership")
    with site.server_frozen():
        # Longer than the timeout of any request of queuectl.
        await _hold(15)
        assert await site.ask("SELECT sequence FROM queuectl.leadership") == sequence
    await world.submit(job("late"))
    await eventually("a job made afterwards runs", lambda: _finished(world, ["late"]))
    assert await _running_pods(world, "runs") == before
    assert controller.returncode is None
    await _end_pods(world, "runs-0")
    await eventually("the pending jobs run on its quota", lambda: _finished(world, ["waits"]))
    await site.verified()


# --- Postgres, and the controller --------------------------------------------------------------------------


async def test_without_postgres_and_then_without_a_controller_too_the_gate_is_in_force(
    world: World, figures: list[str]
) -> None:
    """Nothing is admitted, what runs and what has no label runs on, and REST answers what it has read."""
    site = _site(world)
    controller = await site.controller()
    await _run_for_ever(world, 1)
    await world.phase("runs-0", "Admitted")
    before = await _running_pods(world, "runs")
    with site.postgres_frozen():
        stale = await eventually("REST says that it is stale", lambda: _stale(site))
        assert stale["status"] == 200
        assert "runs-0" in {item["name"] for item in stale["items"]}
        assert (await world.submit(job("labelled")))["spec"]["suspend"] is True
        async with asyncio.timeout(45):  # they do not wait one after another
            path = f"/workloads/{NAMESPACE}/Job/absent"
            asked = await asyncio.gather(*(site.rest(path) for _ in range(20)))
        assert {answer["status"] for answer in asked} == {503}
        await world.submit(job("unlabelled", queue=None, template=pod_template(1, 0.3)))
        await eventually("the unlabelled job runs to its end", lambda: _finished(world, ["unlabelled"]))
        await _hold(AWAY)
        assert controller.returncode is None
        older = await site.rest("/workloads")
        assert older["stale"]
        assert older["ageSeconds"] > stale["ageSeconds"]
        assert (await world.get("labelled"))["spec"]["suspend"] is True
        controller.send(signal.SIGKILL)
        await controller.wait()
        await _refused_to_the_tenant(world, "labelled")
        rest = await world.workload("runs-0")
        assert (rest["status"], rest["phase"]) == (200, "Admitted")
        await world.submit(job("urgent", template=pod_template(1, FOR_EVER)))
        await world.merge("urgent", LET_GO)
        await eventually("what an admin lets go runs", lambda: _running_pods(world, "urgent"))
        assert await _running_pods(world, "runs") == before
    await site.controller("next")
    await eventually("the labelled job has run", lambda: _finished(world, ["labelled"]))
    await eventually("REST is up to date again", lambda: _fresh(site))
    await world.phase("urgent", "Admitted")
    assert await _running_pods(world, "runs") == before
    await _each_started_once(world, ["labelled"])
    await site.verified()
    figures.append(f"Postgres frozen: stale was told at {stale['ageSeconds']:.1f} s")


async def test_an_admin_may_bypass_the_gate_in_an_emergency_and_a_tenant_may_not(world: World) -> None:
    site = _site(world)
    await site.controller()
    await _run_for_ever(world, 4)
    await world.submit(job("urgent", template=pod_template(2, 86_400)))
    await world.reason_is("urgent", "WaitingForQuota")
    await _refused_to_the_tenant(world, "urgent")
    assert (await world.workload("urgent"))["phase"] == "Pending"
    await world.merge("urgent", LET_GO)
    await world.phase("urgent", "Admitted")
    assert (await world.used(NAMESPACE))["a100", GPU] == 6
    history = await site.rest(f"/workloads/{NAMESPACE}/Job/urgent/history")
    adopted = next(row for row in history["items"] if row["verdict"] == "Admitted")
    assert "the demo is at noon" in json.dumps(adopted), adopted
    assert "was let past the gate by admin" in json.dumps(adopted), adopted
    await eventually("it runs", lambda: _running_pods(world, "urgent"))
    # Nothing else may start while the quota is in debt, and nothing is stopped because of it.
    await world.submit(job("waits"))
    await world.reason_is("waits", "WaitingForQuota")
    assert len(await _running_pods(world, "")) == 5
    await _end_pods(world, "urgent")
    await world.phase("urgent", "Finished")
    assert (await world.used(NAMESPACE))["a100", GPU] == 4
    assert (await world.workload("waits"))["phase"] == "Pending"
    await _end_pods(world, "runs-0")
    await eventually("the pending jobs have run", lambda: _finished(world, ["waits"]))
    await site.verified()


async def test_with_a_lease_one_leads_and_the_other_takes_over(world: World, figures: list[str]) -> None:
    site = _site(world)
    clock = asyncio.get_running_loop().time
    first = await site.controller("first", lease=LEASE)
    await site.says("first", LEADS)
    second = await site.controller("second", lease=LEASE)
    await _run_for_ever(world, 1)
    before = await _running_pods(world, "runs")
    load = [f"load-{number:02}" for number in range(30)]
    for name in load:
        await world.submit(job(name, template=pod_template(1, 0.2)))
    await eventually("some of the load is over", lambda: _finished(world, load[:2]))
    assert LEADS not in site.log("second")
    begun = clock()
    first.send(signal.SIGTERM)
    await site.says("second", LEADS)
    handed_on = clock() - begun
    async with asyncio.timeout(30):
        assert await first.wait() == 0, first.tail()
    third = await site.controller("third", lease=LEASE)
    await eventually("more of the load is over", lambda: _finished(world, load[:10]))
    assert LEADS not in site.log("third")
    begun = clock()
    second.send(signal.SIGKILL)
    await site.says("third", LEADS)
    taken_over = clock() - begun
    await eventually("all of the load has run", lambda: _finished(world, load))
    assert await _running_pods(world, "runs") == before
    await _each_started_once(world, load)
    await site.verified()
    assert await _stopped(third) == 0, third.tail()
    figures.append(
        f"lease: the next leads {handed_on:.1f} s after SIGTERM of the leader, "
        f"{taken_over:.1f} s after its SIGKILL"
    )


async def test_a_ledger_that_refuses_its_maintenance_is_reported_and_work_continues(world: World) -> None:
    """The last one: a row is left that no cluster has."""
    site = _site(world)
    await _spoil_next_month(site)
    controller = await site.controller()
    await site.says("controller", "partitions not made ahead")
    await world.submit(job("train"))
    await eventually("a job runs all the same", lambda: _finished(world, ["train"]))
    await site.says("controller", "the ledger does not agree with its history: ")
    assert controller.returncode is None


# --- queries and changes -----------------------------------------------------------------------------------


async def _spoil_next_month(site: Plant) -> None:
    """Drop next month's partition, and store a row of another cluster so that it can't be created again."""
    name = await site.ask(
        "SELECT 'queuectl.decision_' || to_char(now() + interval '1 month', 'YYYY_MM')",
    )
    await site.ask(f"DROP TABLE {name}")
    await site.ask(
        "INSERT INTO queuectl.decision (cluster_id, sequence, now, epoch, cycle, verdict, config_version, "
        "payload, payload_version, rules_version) "
        "VALUES ('other', 1, now() + interval '1 month', 1, 1, 'Configured', 1, '{}', 1, 1)"
    )


async def _hold(seconds: float) -> None:
    """Wait: that something does not happen can only be observed over time."""
    await asyncio.sleep(seconds)


async def _run_for_ever(world: World, count: int) -> None:
    for number in range(count):
        await world.submit(job(f"runs-{number}", template=pod_template(1, FOR_EVER)))

    async def look() -> bool:
        return len(await _running_pods(world, "runs")) == count

    await eventually(f"{count} jobs run", look)


async def _jobs(world: World) -> dict[str, Json]:
    listed = (await world.api.request("GET", world.path("Job")))["items"]
    return {item["metadata"]["name"]: item for item in listed}


async def _finished(world: World, names: list[str]) -> bool:
    """Are these Jobs complete in the API?"""
    try:
        jobs = await _jobs(world)
    except ApiError:
        return False
    return all(_complete(jobs[name]) for name in names)


def _complete(found: Json) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)


async def _running_pods(world: World, prefix: str) -> dict[str, str]:
    """UIDs of running pods by name."""
    listed = (await world.api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods"))["items"]
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in listed
        if pod["metadata"]["name"].startswith(prefix) and pod["status"].get("phase") == "Running"
    }


async def _end_pods(world: World, prefix: str) -> None:
    """Set running pods to Succeeded, as their kubelet would."""
    for name in await _running_pods(world, prefix):
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/status"
        done = {"status": {"phase": "Succeeded"}}
        await world.api.request("PATCH", path, done, content_type=MERGE_PATCH)


async def _submitted(world: World, body: Json) -> None:
    """Submit it as soon as the API server accepts it."""

    async def look() -> bool:
        try:
            await world.submit(body)
        except ApiError:
            return False
        return True

    await eventually("the API server serves again", look)


async def _refused_to_the_tenant(world: World, name: str) -> None:
    async with world.site.client("tenant") as tenant:
        with pytest.raises(ApiError) as refusal:
            await tenant.request("PATCH", world.path("Job", name), LET_GO, content_type=MERGE_PATCH)
    assert refusal.value.status in (403, 422)
    assert "queuectl" in str(refusal.value)


async def _stale(site: Plant) -> Json | None:
    found = await site.rest("/workloads")
    return found if found.get("stale") else None


async def _fresh(site: Plant) -> bool:
    found = await site.rest("/workloads")
    return found["status"] == 200 and "stale" not in found


async def _each_started_once(world: World, names: list[str]) -> None:
    """Each Job's spec was changed once, by one attempt, and that attempt is in the ledger."""
    site = _site(world)
    for name, found in (await _jobs(world)).items():
        if name not in names:
            continue
        metadata = found["metadata"]
        assert metadata["generation"] == 2, name
        admission = json.loads(metadata["annotations"][ADMISSION])
        assert admission["attempt"] == 1, name
        question = (
            "SELECT array_agg(sequence) FROM queuectl.decision WHERE workload = $1 AND verdict = 'Admitted'"
        )
        assert await site.ask(question, metadata["uid"]) == [admission["sequence"]], name


async def _stopped(child: ChildProcess) -> int:
    return await child.stop(30)
