"""Fewer pods than requested: API servers accept the start and the stop, and both may be repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from queuectl.core.model.events import Result
from queuectl.core.model.reasons import Code, PreemptionCause, Reason
from queuectl.core.model.workload import Eviction, Verb
from queuectl.kinds.workloads import observe
from queuectl.kube.cluster import KubeCluster
from tests.integration.kube.sites import AT, Site, effect, in_process, job, jobs
from tests.job_kinds import JOB_KINDS

pytestmark = pytest.mark.asyncio(loop_scope="session")

LEAST = {"queuectl.dev/min-parallelism": "2"}
EQUAL = LEAST | {"queuectl.dev/completions-equal-parallelism": "true"}
WHY = Eviction(Reason(code=Code.PREEMPTED, cause=PreemptionCause.IN_CLUSTER_QUEUE), AT)
STOPPED = "queuectl.dev/reserved-stopped"
Sizes = tuple[int, int]


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def deadline() -> AsyncIterator[None]:
    async with asyncio.timeout(120):
        yield


async def made(site: Site, name: str, annotations: dict[str, str]) -> dict[str, Any]:
    spec = {"parallelism": 8, "completions": 8, "completionMode": "Indexed"}
    return await site.create(jobs(), job(name, annotations=annotations, **spec))


async def sizes(site: Site, name: str) -> Sizes:
    spec = (await site.session.get(jobs(name)))["spec"]
    return spec["parallelism"], spec["completions"]


async def stop(cluster: KubeCluster, obj: dict[str, Any], *, attempt: int, pods: int) -> Result:
    found = effect(obj, attempt=attempt, verb=Verb.STOP, pods=pods)
    return (await cluster.stop(replace(found, eviction=WHY)))[0].result


async def test_a_server_accepts_fewer_pods_at_a_start_and_all_at_the_stop(site: Site) -> None:
    for name, sizing, partly in (("least", LEAST, (4, 8)), ("equal", EQUAL, (4, 4))):
        obj = await made(site, name, sizing)
        for attempt in (1, 2):
            settled, _ = await site.cluster.start(effect(obj, attempt=attempt, pods=4))
            assert settled.result is Result.DONE
            assert await sizes(site, name) == partly
            running = await site.session.get(jobs(name))
            assert STOPPED not in running["metadata"]["annotations"]
            assert await stop(site.cluster, running, attempt=attempt, pods=4) is Result.DONE
            assert await sizes(site, name) == (8, 8)
            obj = await site.session.get(jobs(name))
            assert '"code":"Preempted"' in obj["metadata"]["annotations"][STOPPED]


async def test_the_stop_of_an_object_without_annotations_is_recorded(site: Site) -> None:
    obj = await site.job("adopted-size", suspend=False)
    assert await stop(site.cluster, obj, attempt=1, pods=1) is Result.DONE
    assert list((await site.session.get(jobs("adopted-size")))["metadata"]["annotations"]) == [STOPPED]


async def test_a_stop_after_an_edit_restores_what_was_not_edited(tmp_path: Path) -> None:
    async with in_process(tmp_path) as site:
        obj = await made(site, "edited-size", LEAST)
        await site.cluster.start(effect(obj, pods=4))
        running = await site.session.get(jobs("edited-size"))
        await site.session.patch(jobs("edited-size"), {"spec": {"parallelism": 3}})
        assert await stop(site.cluster, running, attempt=1, pods=4) is Result.DONE
        assert await sizes(site, "edited-size") == (3, 8)


async def test_a_stop_restores_a_job_that_another_client_suspended(tmp_path: Path) -> None:
    async with in_process(tmp_path) as site:
        obj = await made(site, "theirs", LEAST)
        await site.cluster.start(effect(obj, pods=4))
        await site.session.patch(jobs("theirs"), {"spec": {"suspend": True}})
        running = await site.session.get(jobs("theirs"))
        assert await stop(site.cluster, running, attempt=1, pods=4) is Result.DONE
        assert await sizes(site, "theirs") == (8, 8)
        before = site.session.requests.copy()
        assert await stop(site.cluster, running, attempt=1, pods=4) is Result.DONE
        assert not [status for (method, status) in site.session.requests - before if method == "PATCH"]


async def test_a_start_is_not_refused_because_a_user_removed_the_record_of_the_last_stop(
    tmp_path: Path,
) -> None:
    async with in_process(tmp_path) as site:
        obj = await made(site, "removed", LEAST)
        await site.cluster.start(effect(obj, pods=4))
        await stop(site.cluster, await site.session.get(jobs("removed")), attempt=1, pods=4)
        waiting = await site.session.get(jobs("removed"))
        await site.session.patch(jobs("removed"), {"metadata": {"annotations": {STOPPED: None}}})
        again = effect(waiting, attempt=2, pods=4)
        settled, event = await site.cluster.start(again)
        assert settled.result is Result.REFUSED
        seen = observe(JOB_KINDS["Job"], await site.session.get(jobs("removed")))
        assert event == seen
        assert seen is not None
        settled, _ = await site.cluster.start(replace(again, observation=seen.observation))
        assert settled.result is Result.DONE


async def test_annotations_that_leave_no_room_for_the_record_do_not_prevent_the_stop(site: Site) -> None:
    obj = await made(site, "full", LEAST)
    await site.cluster.start(effect(obj, pods=4))
    running = await site.session.get(jobs("full"))
    used = sum(len(text) for pair in running["metadata"]["annotations"].items() for text in pair)
    filled = {"x": "y" * (256 * 1024 - used - 1)}
    await site.session.patch(jobs("full"), {"metadata": {"annotations": filled}})
    assert await stop(site.cluster, running, attempt=1, pods=4) is Result.DONE
    stopped = await site.session.get(jobs("full"))
    assert stopped["spec"]["suspend"] is True
    assert STOPPED not in stopped["metadata"]["annotations"]
    assert await sizes(site, "full") == (8, 8)
