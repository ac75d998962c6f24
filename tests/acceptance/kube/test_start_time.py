"""A Job that ran before: before 1.36 its start time must be removed before the next start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from queuectl.core.model.events import Result
from queuectl.core.model.workload import Verb
from queuectl.kinds.jobs import conditions
from queuectl.sandbox.control_plane import find_assets
from tests.integration.kube.sites import Site, effect, jobs, real
from tests.integration.sandbox.polling import eventually
from tests.job_kinds import JOB_KINDS


@pytest.mark.parametrize("version", ["1.33", None])
async def test_the_deadline_of_a_job_begins_again_with_each_start(
    tmp_path: Path, version: str | None
) -> None:
    """It waited for longer than its deadline, between two starts."""
    if find_assets() is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: the real Job controller is not tried")
    async with asyncio.timeout(300), real(tmp_path, emulated=version, controllers=True) as site:
        await site.job("late", activeDeadlineSeconds=6)
        # The Job controller writes this in its own time; a start of the object before it is refused.
        obj = await _once(site, JOB_KINDS["Job"].says_suspended)
        settled, _ = await site.cluster.start(effect(obj))
        assert settled.result is Result.DONE
        obj = await _once(site, lambda job: bool(job["status"].get("active")))
        settled, _ = await site.cluster.stop(effect(obj, verb=Verb.STOP))
        assert settled.result is Result.DONE
        obj = await _once(site, JOB_KINDS["Job"].says_suspended)
        if since := obj["status"].get("startTime"):
            past = datetime.fromisoformat(since) + timedelta(seconds=7)
            await eventually(lambda: site.session.server_time() > past, "its deadline to be over")
        settled, _ = await site.cluster.start(effect(obj, attempt=2))
        assert settled.result is Result.DONE
        await _once(site, lambda job: bool(job["status"].get("active")))


async def _once(site: Site, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The Job as soon as this is true of it. It must not fail."""
    found: dict[str, Any] = {}

    async def true() -> bool:
        found.update(await site.session.get(jobs("late")))
        assert "Failed" not in conditions(found), found["status"]
        return holds(found)

    await eventually(true, "the Job controller", 90)
    return found
