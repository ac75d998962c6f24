"""Start and end of a controller: it waits for absent servers, reports errors, and commits are atomic."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import aiohttp
import asyncpg
import pytest
import pytest_asyncio

from queuectl.sandbox.control_plane import find_assets
from queuectl.sandbox.processes import ChildProcess
from tests.acceptance.e2e.plant import LEASE, Plant, plant
from tests.acceptance.e2e.site import eventually, job, pod_template
from tests.acceptance.e2e.world import World
from tests.integration.ledger.places import reachable_folder

LEADS = "leading with epoch"
DEADLINE = 200.0
SOON = 10.0
"""Seconds within which a controller that is asked to stop must end, in any state."""


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    """One stand for all tests here: each ends its own controllers and uses its own job names."""
    if find_assets() is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: outages, which take minutes, are not tried either")
    with reachable_folder() as folder:
        async with plant(folder, "small", gpus=1000) as (_, found):
            yield found


def _site(world: World) -> Plant:
    assert isinstance(world.site, Plant)
    return world.site


@pytest.mark.parametrize("part", ["the ledger", "the API server"])
async def test_a_controller_waits_at_its_start_for_a_server_that_is_down_and_says_so(
    world: World, part: str
) -> None:
    site = _site(world)
    async with asyncio.timeout(DEADLINE), _away(site, part):
        impatient = await site.controller("impatient")
        await _says(impatient, f"waiting for {part}")
        assert await impatient.stop(30) == 0, impatient.tail()
        controller = await site.controller()
        await _says(controller, f"waiting for {part}, nothing is decided before")
        await _says(controller, "metrics and probes at")  # neither line is always the first
        assert await _probe(site, "healthz") == (200, "ok\n")
        status, text = await _probe(site, "readyz")
        assert status == 503
        assert text.startswith(f"waiting for {part}: ")
    await eventually("it is ready", lambda: _ready(site))
    name = f"after-{part.rpartition(' ')[2].lower()}"
    await world.submit(job(name, template=pod_template(1, 0.2)))
    await eventually("it admits", lambda: _decided(site, "Admitted", name, 1))
    assert await controller.stop(30) == 0, controller.tail()


def _away(site: Plant, part: str) -> AbstractAsyncContextManager[None]:
    return site.postgres_away() if part == "the ledger" else site.api_server_away()


async def test_a_start_ends_with_a_message_on_what_only_an_operator_can_fix(world: World) -> None:
    site = _site(world)
    empty = site.postgres.database_url("postgres")
    flags = ["--kubeconfig", str(site.kubeconfig), "--context", "controller"]
    refused = await site.queuectl("controller", *flags, "--database-url", empty)
    assert refused.code == 2
    assert "queuectl migrate" in refused.err
    unknown = await site.queuectl("controller", *flags[:3], "nobody", "--database-url", site.postgres.url)
    assert unknown.code == 2
    assert "nobody" in unknown.err


async def test_60_a_second_database_on_one_cluster_is_refused_and_both_ids_are_named(world: World) -> None:
    site = _site(world)
    first = await site.controller("first", lease=LEASE)
    await _says(first, LEADS)
    other = await _another_database(site)
    which = "SELECT id::text FROM queuectl.installation"
    ids = [await _value(url, which) for url in (site.postgres.url, other)]
    config = site.data / "second.yaml"
    config.write_text(f"controller: {{listen: '127.0.0.1:0', lease: {LEASE}}}")
    flags = ["--config", str(config), "--kubeconfig", str(site.kubeconfig), "--context", "controller"]
    refused = await site.queuectl("controller", *flags, "--database-url", other)
    assert refused.code == 2
    assert all(str(one) in refused.err for one in ids), refused.err
    assert await _value(other, "SELECT count(*) FROM queuectl.leadership") == 0
    assert first.returncode is None
    assert await first.stop(30) == 0, first.tail()


async def test_62_a_controller_asked_to_stop_during_a_commit_ends_soon_and_the_commit_is_atomic(
    world: World,
) -> None:
    site = _site(world)
    controller = await site.controller()
    await _says(controller, LEADS)
    count = 40
    clock = asyncio.get_running_loop().time
    with site.postgres_frozen():
        for number in range(count):
            await world.submit(job(f"job-{number:02}", template=pod_template(1, 0.2)))
        await _commits(controller)
        controller.send(signal.SIGTERM)
        await _says(controller, "stopping")
    begun = clock()
    async with asyncio.timeout(3 * SOON):
        assert await controller.wait() == 0, controller.tail()
    assert clock() - begun < SOON
    await site.verified()
    following = await site.controller()
    await eventually("all are over", lambda: _decided(site, "Retired", "job-", count))
    assert await _decided(site, "Admitted", "job-", count)
    assert await following.stop(30) == 0, following.tail()
    await site.verified()


async def test_62_a_second_signal_ends_a_controller_at_once_and_the_next_one_continues(world: World) -> None:
    site = _site(world)
    controller = await site.controller()
    await _says(controller, LEADS)
    clock = asyncio.get_running_loop().time
    with site.postgres_frozen():
        await world.submit(job("late", template=pod_template(1, 0.2)))
        await _commits(controller)
        controller.send(signal.SIGTERM)
        await _says(controller, "stopping")
        assert controller.returncode is None
        begun = clock()
        controller.send(signal.SIGTERM)
        async with asyncio.timeout(SOON):
            assert await controller.wait() == 130
        assert clock() - begun < 3
    following = await site.controller()
    await eventually("what came meanwhile runs", lambda: _decided(site, "Retired", "late", 1))
    assert await following.stop(30) == 0, following.tail()
    await site.verified()


# --- queries -----------------------------------------------------------------------------------------------


async def _says(child: ChildProcess, text: str) -> None:
    """Wait until the process has logged the text."""

    async def look() -> bool:
        assert child.returncode is None, child.tail()
        return text in child.tail(1000)

    await eventually(f"{child.name} says {text!r}", look)


async def _commits(controller: ChildProcess) -> None:
    """Long enough for it to observe what was submitted and then wait for Postgres."""
    await asyncio.sleep(2.0)
    assert controller.returncode is None, controller.tail()


async def _probe(site: Plant, name: str) -> tuple[int, str]:
    base = re.findall(r"metrics and probes at (\S+)", site.log("controller"))[-1]
    async with aiohttp.ClientSession() as session, session.get(f"{base}/{name}") as answer:
        return answer.status, await answer.text()


async def _ready(site: Plant) -> bool:
    return (await _probe(site, "readyz"))[0] == 200


async def _decided(site: Plant, verdict: str, prefix: str, count: int) -> bool:
    """Number of decisions on jobs with names that begin with the prefix."""
    query = "SELECT count(*) FROM queuectl.decision WHERE verdict = $1 AND starts_with(name, $2)"
    return bool(await site.ask(query, verdict, prefix) == count)


async def _another_database(site: Plant) -> str:
    await _value(site.postgres.url, "CREATE DATABASE other")
    url = site.postgres.database_url("other")
    migrated = await site.queuectl("migrate", "--database-url", url)
    assert migrated.code == 0, migrated.err
    return url


async def _value(url: str, query: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()
