"""`queuectl verify --cluster` as a whole: the objects of an API server beside what Postgres holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from queuectl.app import upkeep
from queuectl.kinds import patches
from queuectl.kube.census import admitted, labelled
from queuectl.kube.session import JSON_PATCH, cluster_id
from queuectl.ledger.admin import rebuild as rebuilding
from queuectl.sandbox.postgres import EmbeddedPostgres
from queuectl.settings import Settings
from tests.integration.kube.sites import Site, effect, in_process, jobs
from tests.job_kinds import JOB_KINDS

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def _compared(site: Site, settings: Settings) -> list[tuple[str, str]]:
    found = await upkeep.compared(settings, site.session, pause=0)
    return [(one.code, one.subject) for one in found]


async def _started(site: Site, name: str) -> None:
    """A Job as the start of its first attempt leaves it."""
    made = await site.job(name)
    patch = patches.start(JOB_KINDS["Job"], effect(made))
    await site.session.patch(jobs(name), patch, content_type=JSON_PATCH)


async def _suspended(site: Site, name: str, suspended: bool) -> None:
    patch = [{"op": "add", "path": "/spec/suspend", "value": suspended}]
    await site.session.patch(jobs(name), patch, content_type=JSON_PATCH)


async def _held(site: Site, url: str) -> int:
    """Store what runs as held; returns how many."""
    found = [
        rebuilding.Found(seen.workload, seen.observation, "gpus", 0)
        for seen in await admitted(site.session, JOB_KINDS)
    ]
    return await rebuilding.rebuild(url, await cluster_id(site.session), found)


async def test_objects_and_ledger_are_compared_until_they_agree(
    tmp_path: Path, server: EmbeddedPostgres, migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings.model_validate({"database": {"url": migrated}})
    async with in_process(tmp_path) as site:
        assert await _compared(site, settings) == []
        await _started(site, "runs")
        assert await _compared(site, settings) == [("Unknown", "team-a/Job/runs")]
        assert await _held(site, migrated) == 1
        assert await _compared(site, settings) == []

        await _suspended(site, "runs", True)
        assert await _compared(site, settings) == [("Suspended", "team-a/Job/runs")]

        # What one comparison finds alone is a change on its way, and no difference.
        reads = _after_each_read(monkeypatch, lambda: _suspended(site, "runs", False))
        assert await _compared(site, settings) == []
        assert len(reads) == 2
        monkeypatch.undo()

        await site.session.delete(jobs("runs"))
        assert await _compared(site, settings) == [("Missing", "team-a/Job/runs")]


async def test_a_workload_of_another_cluster_in_the_database_is_no_difference(
    tmp_path: Path, server: EmbeddedPostgres, migrated: str
) -> None:
    settings = Settings.model_validate({"database": {"url": migrated}})
    async with in_process(tmp_path / "one") as one:
        await _started(one, "runs")
        assert await _held(one, migrated) == 1
    async with in_process(tmp_path / "other") as other:
        assert await _compared(other, settings) == []


def _after_each_read(monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any]) -> list[None]:
    """Have `change` made after each read of the objects; returns a list of the reads."""
    reads: list[None] = []

    async def changed(*arguments: Any) -> Any:
        found = await labelled(*arguments)
        reads.append(None)
        await change()
        return found

    monkeypatch.setattr("queuectl.app.upkeep.labelled", changed)
    return reads
