"""Removed from a real cluster, in either order, queuectl leaves no objects and no job is stuck."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from queuectl.sandbox.control_plane import find_assets
from queuectl.shipped import shipped
from tests.acceptance.e2e.conftest import NO_ASSETS
from tests.acceptance.e2e.plant import LEASE, NAMESPACE, Plant, furnish, plant
from tests.acceptance.e2e.site import Json, cluster_queue, eventually, job, local_queue, pod_template
from tests.acceptance.e2e.world import World
from tests.integration.ledger.places import reachable_folder

FOR_EVER = 86_400.0
BASE, MUTATING = str(shipped("manifests")), str(shipped("manifests") / "mutating")
INSTALLED = "queuectl-system"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    if find_assets() is None:
        pytest.skip(NO_ASSETS)
    with reachable_folder() as folder:
        async with asyncio.timeout(480), plant(folder, "real", gpus=4) as (site, found):
            await site.begin_rest(found.api)
            yield found


async def test_nothing_is_left_and_no_job_is_stuck(world: World) -> None:
    """As told, and, installed again, the other way."""
    for folders in ((MUTATING, BASE), (BASE, MUTATING)):
        site = _site(world)
        await _installed(world, site)
        await _removed(world, site, folders)
        await site.clear(world)


def _site(world: World) -> Plant:
    assert isinstance(world.site, Plant)
    return world.site


async def _installed(world: World, site: Plant) -> None:
    """By kubectl, with a running controller: one job runs, one is pending, one is unlabelled."""
    await _kubectl(world, "apply", "-k", BASE)
    await _kubectl(world, "apply", "-k", MUTATING)
    await furnish(site, world.api)
    await world.policy(cluster_queue(NAMESPACE, 4))
    await world.policy(local_queue(NAMESPACE, "main", NAMESPACE))
    await site.controller(lease=LEASE)
    for name in ("runs", "waits"):
        await world.submit(job(name, template=pod_template(4, FOR_EVER)))
    await world.submit(job("unlabelled", queue=None, template=pod_template(1, FOR_EVER)))
    await world.started("runs")
    await world.reason_is("waits", "WaitingForQuota")


async def _removed(world: World, site: Plant, folders: tuple[str, str]) -> None:
    before = await eventually("two of them run", lambda: _two(world))
    pods = {pod["metadata"]["uid"] for pod in before}
    for folder in folders:
        # The namespace goes first, and with it what is to be deleted later.
        await _kubectl(world, "delete", "--ignore-not-found", "--timeout=120s", "-k", folder)
    # The controller ends as its pods do when the namespace is deleted; until then it observes every deletion.
    await site.children["controller"].stop(30)
    assert await _left(world) == []

    running = await world.get("runs")
    assert running["spec"]["suspend"] is False
    assert {pod["metadata"]["uid"] for pod in await _running(world)} == pods
    waiting = await world.get("waits")
    assert waiting["spec"]["suspend"] is True
    for found in (running, waiting):
        assert not found["metadata"].get("finalizers")

    # By hand, and by the owner of the job.
    await eventually("its owner lets it go", lambda: _let_go(world, "waits"))
    await eventually("what waited runs", lambda: _runs(world, "waits"))

    # A new job with the label is a job like any other.
    body = json.dumps(job("later", template=pod_template(1, FOR_EVER)))
    create = ("create", "-n", world.namespace, "-o", "json", "-f", "-")

    async def as_it_comes() -> bool:
        """The server caches deleted policies for some seconds."""
        said = await world.site.kubectl(*create, "--dry-run=server", stdin=body, identity="tenant")
        return said.code == 0 and not said.json["spec"].get("suspend")

    await eventually("a labelled job is taken as it comes", as_it_comes)
    made = await world.site.kubectl(*create, stdin=body, identity="tenant")
    assert made.code == 0, made.err
    await eventually("it runs", lambda: _runs(world, "later"))


async def _let_go(world: World, name: str) -> bool:
    """False while the server still enforces its cached copy of the deleted gate."""
    patch = (
        "-n",
        world.namespace,
        "patch",
        "job",
        name,
        "--type=merge",
        '--patch={"spec":{"suspend":false}}',
    )
    return (await world.site.kubectl(*patch, identity="tenant")).code == 0


async def _kubectl(world: World, *arguments: str) -> str:
    said = await world.site.kubectl(*arguments)
    assert said.code == 0, said.out + said.err
    return said.out


async def _running(world: World) -> list[Json]:
    found = await world.api.request("GET", f"/api/v1/namespaces/{world.namespace}/pods")
    return [pod for pod in found["items"] if pod["status"].get("phase") == "Running"]


async def _two(world: World) -> list[Json]:
    found = await _running(world)
    return found if len(found) == 2 else []


async def _runs(world: World, name: str) -> bool:
    return any(pod["metadata"]["labels"].get("job-name") == name for pod in await _running(world))


async def _left(world: World) -> list[str]:
    """All objects of all kinds with queuectl's name, and its own kinds."""
    left = []
    for group, path in await _groups(world):
        if group.endswith("queuectl.dev"):
            left.append(group)
            continue
        for resource in (await world.api.request("GET", path))["resources"]:
            if "/" in resource["name"] or "list" not in resource["verbs"] or resource["kind"] == "Event":
                continue
            items = (await world.api.request("GET", f"{path}/{resource['name']}"))["items"]
            names = [item["metadata"]["name"] for item in items]
            left += [f"{resource['name']}/{name}" for name in names if "queuectl" in name]
    return left


async def _groups(world: World) -> list[tuple[str, str]]:
    found = await world.api.request("GET", "/apis")
    return [
        ("", "/api/v1"),
        *(
            (g["name"], f"/apis/{version['groupVersion']}")
            for g in found["groups"]
            for version in g["versions"]
        ),
    ]
