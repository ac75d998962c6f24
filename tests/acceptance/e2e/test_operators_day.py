"""A day of who operates queuectl: controllers die, an alert fires, and nothing is lost or started twice."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest_asyncio
import yaml

from queuectl.sandbox.processes import ChildProcess
from queuectl.shipped import shipped
from tests.acceptance.e2e.cohort import LONG
from tests.acceptance.e2e.plant import Plant, plant
from tests.acceptance.e2e.site import eventually, job, pod_template
from tests.acceptance.e2e.world import World
from tests.acceptance.idle.server import served
from tests.integration.ledger.places import reachable_folder

NO_LEADER = "QueuectlNoLeader"


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    with reachable_folder() as folder:
        async with plant(folder, "small") as (site, found):
            await site.begin_rest(found.api)
            yield found


def _rules(folder: Path) -> Path:
    """The shipped rules, which fire after a second."""
    rules = yaml.safe_load((shipped("manifests") / "monitoring" / "rules.yaml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["for"] = "1s"
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump(rules))
    return file


async def _address(site: Plant, name: str) -> str:
    """Where a controller serves its metrics."""
    await site.says(name, "metrics and probes at")
    found: str = re.findall(r"metrics and probes at http://(\S+)", site.log(name))[-1]
    return found


async def _kill(child: ChildProcess) -> None:
    child.send(signal.SIGKILL)
    await child.wait()


async def _firing(url: str) -> set[str]:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/api/v1/alerts") as answer:
        alerts: list[Any] = (await answer.json())["data"]["alerts"]
    return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}


async def test_an_operators_day(world: World, tmp_path: Path) -> None:
    """The leader dies and the other controller leads; both die and the alert fires until one leads again."""
    site = world.site
    assert isinstance(site, Plant)
    first = await site.controller("one")
    await site.says("one", "leading with epoch")
    second = await site.controller("two")
    await world.submit(job("first", template=pod_template(1, LONG)))
    await world.started("first")
    addresses = [await _address(site, name) for name in ("one", "two")]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(_rules(tmp_path))],
        "scrape_configs": [{"job_name": "queuectl", "static_configs": [{"targets": addresses}]}],
    }
    async with asyncio.timeout(300), served(tmp_path, config) as url:
        await eventually("a controller leads, as Prometheus sees it", lambda: _leads(url))
        await _kill(first)
        await site.says("two", "leading with epoch", 60)
        await world.submit(job("second", template=pod_template(1, LONG)))
        await world.started("second")
        await _kill(second)
        await eventually(f"{NO_LEADER} fires", lambda: _fires(url))
        waiting = await world.submit(job("third", template=pod_template(1, LONG)))
        assert waiting["spec"]["suspend"] is True, "the gate keeps it suspended while no controller leads"
        for name in ("first", "second"):
            assert (await world.get(name))["spec"]["suspend"] is False
        # On the address that is scraped.
        third = await site.controller("three", listen=addresses[0])
        await world.started("third")
        await eventually(f"{NO_LEADER} is over", lambda: _is_over(url))
        await site.verified()
        assert third.returncode is None


async def _leads(url: str) -> bool:
    query = {"query": "queuectl_leading == 1"}
    async with aiohttp.ClientSession() as session, session.get(f"{url}/api/v1/query", params=query) as answer:
        return bool((await answer.json())["data"]["result"])


async def _fires(url: str) -> bool:
    return NO_LEADER in await _firing(url)


async def _is_over(url: str) -> bool:
    return NO_LEADER not in await _firing(url) and await _leads(url)
