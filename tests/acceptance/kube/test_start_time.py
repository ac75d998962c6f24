"""A Job that ran before and gets another flavor: before 1.36 its start time must be removed first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from queuectl.core.model.events import Result
from queuectl.core.model.policy import ResourceFlavor
from queuectl.core.model.workload import Effect, Verb
from queuectl.kinds.jobs import conditions
from queuectl.kinds.workloads import observe
from queuectl.kube.cluster import KubeCluster
from queuectl.sandbox.control_plane import find_assets
from tests.integration.kube.sites import AT, Site, effect, jobs, real
from tests.integration.sandbox.polling import eventually
from tests.job_kinds import JOB_KINDS

STARTED = {
    "startTime": "2026-11-21T10:00:00Z",
    "conditions": [{"type": "Suspended", "status": "True", "lastTransitionTime": "2026-11-21T10:00:00Z"}],
}
ON_DEMAND = ResourceFlavor(name="on-demand", node_labels=(("pool", "on-demand"),))


async def ran(site: Site, cluster: KubeCluster, name: str) -> dict[str, Any]:
    """The Job after it was started on spot and suspended again."""
    settled, _ = await cluster.start(effect(await site.job(name)))
    assert settled.result is Result.DONE
    await site.session.patch(jobs(name), {"spec": {"suspend": True}})
    return await site.session.patch(jobs(name) + "/status", {"status": STARTED})


def elsewhere(obj: dict[str, Any]) -> Effect:
    """The second attempt, on another flavor."""
    second = effect(obj, attempt=2)
    (pods,) = second.attempt.assignment.pod_sets
    moved = replace(pods, flavors=tuple((resource, "on-demand") for resource, _ in pods.flavors))
    assignment = replace(second.attempt.assignment, pod_sets=(moved,))
    attempt = replace(second.attempt, assignment=assignment, admitted_at=AT)
    return replace(second, attempt=attempt, flavors=(ON_DEMAND,))


async def restarted(site: Site, cluster: KubeCluster, name: str) -> list[int]:
    """Statuses of the patches that start it elsewhere; it must run after the last one."""
    again = elsewhere(await ran(site, cluster, name))
    before = site.session.requests.copy()
    settled, event = await cluster.start(again)
    if settled.result is Result.REFUSED:
        assert event is not None
        seen = observe(JOB_KINDS["Job"], await site.session.get(jobs(name)))
        assert seen is not None
        settled, _ = await cluster.start(replace(again, observation=seen.observation))
    assert settled.result is Result.DONE
    obj = await site.session.get(jobs(name))
    assert obj["spec"]["suspend"] is False
    assert obj["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "on-demand"}
    spent = site.session.requests - before
    return sorted(
        status for (method, status), count in spent.items() if method == "PATCH" for _ in range(count)
    )


@pytest.mark.parametrize("version", ["1.33", None])
async def test_the_start_time_of_the_last_run_is_cleared_before_a_start(
    tmp_path: Path, version: str | None
) -> None:
    if find_assets() is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: the real kube-apiserver is not tried")
    async with asyncio.timeout(120), real(tmp_path, emulated=version) as site:
        cluster = site.cluster
        assert await restarted(site, cluster, "first") == [200, 200]
        # Another client may have been faster.
        again = elsewhere(await ran(site, cluster, "second"))
        await site.session.patch(jobs("second") + "/status", {"status": {"startTime": None}})
        settled, _ = await cluster.start(again)
        assert settled.result is Result.DONE


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
