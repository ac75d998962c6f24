"""A child runs by what its owner holds; for one that no owner holds quota for, its user gains nothing."""

from __future__ import annotations

import pytest

from tests.acceptance.e2e.site import Json, eventually, gpus_only, job, pytorchjob
from tests.acceptance.e2e.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")


def owned(name: str, owner: Json, *, gpus: int, seconds: float) -> Json:
    """A Job that runs, as the controller of its owner makes it; admin has the rights of all controllers."""
    body = job(name, template=gpus_only(gpus, seconds), suspend=False)
    about = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True, **about}
    body["metadata"]["ownerReferences"] = [reference]
    return body


async def test_a_child_of_an_admitted_owner_runs_and_is_not_recorded(world: World) -> None:
    await world.submit(pytorchjob("owner", workers=1, template=gpus_only(2, 600)))
    owner = await world.started("owner", "PyTorchJob")
    made = await world.submit(owned("child", owner, gpus=4, seconds=1))
    assert made["spec"]["suspend"] is False

    async def over() -> bool:
        return bool((await world.get("child")).get("status", {}).get("succeeded"))

    await eventually("the child has run", over)
    assert (await world.workload("child"))["status"] == 404


async def test_a_child_of_an_owner_that_waits_is_charged_stopped_and_recorded(world: World) -> None:
    owner = await world.submit(pytorchjob("waits", workers=1, template=gpus_only(1000, 600)))
    await world.reason("waits", "PyTorchJob")
    await world.submit(owned("forged", owner, gpus=4, seconds=600))

    async def released() -> list[Json] | None:
        found = await world.site.rest(f"/workloads/{world.namespace}/Job/forged/history")
        rows: list[Json] = [row for row in found.get("items", ()) if row["verdict"] != "Pending"]
        return rows if [row["verdict"] for row in rows[-2:]] == ["Evicted", "Released"] else None

    queued, admitted, evicted, _ = await eventually("it is stopped", released)
    assert (queued["verdict"], admitted["verdict"]) == ("Queued", "Admitted")
    assert evicted["reason"]["code"] == "Bypass"
    assert "its owner PyTorchJob waits holds no quota" in evicted["reason"]["detail"]
    assert (await world.get("forged"))["spec"]["suspend"] is True
    reason = await world.reason_is("forged", "Misconfigured")
    assert "PyTorchJob waits controls it, and only the topmost object queues" in reason["detail"]
    await world.nothing_used(world.namespace)
