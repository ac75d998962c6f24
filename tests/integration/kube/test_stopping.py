"""A stop suspends the attempt that it is meant for, and quota returns only on what was observed after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from queuectl.core.model.events import Result, WorkloadObserved
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import Effect, Eviction, Verb, WorkloadOutcome
from queuectl.kinds.patches import TO_FAIL, stop_after
from queuectl.kinds.reserved_keys import STOPPED_ANNOTATION
from queuectl.kube.cluster import SILENT_SECONDS, UNHEARD_SECONDS, KubeCluster
from queuectl.kube.session import JSON_PATCH
from queuectl.kube.sources import sources
from queuectl.ports.cluster import ClusterUnavailable
from tests.integration.kube.holding import holding
from tests.integration.kube.sites import Site, effect, jobs
from tests.job_kinds import JOB_KINDS

pytestmark = pytest.mark.asyncio(loop_scope="session")

ANNOTATION = "queuectl.dev/reserved-admission"
AT = "2026-11-21T10:00:00Z"


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def deadline() -> AsyncIterator[None]:
    async with asyncio.timeout(30):
        yield


async def _get(site: Site, name: str) -> dict[str, Any]:
    return await site.session.get(jobs(name))


async def _started(site: Site, name: str, attempt: int = 1) -> dict[str, Any]:
    """The Job after its start by this attempt."""
    settled, _ = await site.cluster.start(effect(await _get(site, name), attempt=attempt))
    assert settled.result is Result.DONE
    return await _get(site, name)


async def _says(site: Site, name: str, suspended: bool | None) -> dict[str, Any]:
    """The Job after its controller has written its condition Suspended; None: it has none."""
    condition = {"type": "Suspended", "status": str(suspended), "reason": "Job", "lastTransitionTime": AT}
    status = {"conditions": None if suspended is None else [condition]}
    return await site.session.patch(jobs(name) + "/status", {"status": status})


def _condition(obj: dict[str, Any]) -> str | None:
    found = obj.get("status", {}).get("conditions") or [{"status": None}]
    return str(found[0]["status"]) if found[0]["status"] else None


async def _patches(site: Site, name: str, stopped: dict[str, Any], attempt: int = 1) -> int:
    """Patches that one stop costs, of the object as read earlier."""
    before = site.session.requests.copy()
    settled, event = await site.cluster.stop(effect(stopped, attempt=attempt, verb=Verb.STOP))
    assert (settled.result, event) == (Result.DONE, None)
    spent = site.session.requests - before
    return sum(count for (method, _), count in spent.items() if method == "PATCH")


# --- the fence


async def test_a_stop_held_back_past_the_next_start_is_refused(site: Site) -> None:
    await site.job("held-back")
    first = await _started(site, "held-back")
    stop = effect(first, verb=Verb.STOP)
    with holding(site.session) as wire:
        wire.hold = True
        with pytest.raises(ClusterUnavailable):
            await site.cluster.stop(stop)
        wire.hold = False
        assert (await site.cluster.stop(stop))[0].result is Result.DONE
        second = await _started(site, "held-back", attempt=2)
        assert [await late() for late in wire.held] == [422]
    assert await _get(site, "held-back") == second


async def test_a_stop_of_an_earlier_attempt_is_done_without_a_write(site: Site) -> None:
    await site.job("superseded")
    first = await _started(site, "superseded")
    await site.cluster.stop(effect(first, verb=Verb.STOP))
    second = await _started(site, "superseded", attempt=2)
    assert await _patches(site, "superseded", first) == 1  # refused
    assert await _patches(site, "superseded", second) == 0
    assert await _get(site, "superseded") == second


async def test_a_stop_of_an_adopted_attempt_is_sent_whatever_number_the_object_has(site: Site) -> None:
    """Another ledger started it as its third attempt; this one adopted it later, as its first."""
    await site.job("adopted")
    seen = await _started(site, "adopted", attempt=3)
    stop = effect(seen, attempt=1, verb=Verb.STOP)
    later = replace(stop.attempt, admitted_at=stop.attempt.admitted_at + timedelta(hours=1), debt=True)
    settled, _ = await site.cluster.stop(replace(stop, attempt=later))
    assert settled.result is Result.DONE
    assert (await _get(site, "adopted"))["spec"]["suspend"] is True


async def test_a_stop_is_one_request_where_the_object_was_seen_running(site: Site) -> None:
    await site.job("usual")
    seen = await _started(site, "usual")
    before = site.session.requests.copy()
    await site.cluster.stop(effect(seen, verb=Verb.STOP))
    assert dict(site.session.requests - before) == {("PATCH", 200): 1}


async def test_a_stop_finds_the_attempt_whose_start_was_not_seen_yet(site: Site) -> None:
    pending = await site.job("unseen")
    await _started(site, "unseen")
    assert await _patches(site, "unseen", pending) == 1
    assert (await _get(site, "unseen"))["spec"]["suspend"] is True


async def test_a_stop_that_finds_its_object_over_says_so(site: Site) -> None:
    """Else its quota may return while a watch that is late still says that it runs: it was adopted again."""
    pending = await site.job("over-by-then")
    await _started(site, "over-by-then")
    kinds = ("SuccessCriteriaMet", "Complete")
    ends = [{"type": kind, "status": "True", "reason": "Done", "lastTransitionTime": AT} for kind in kinds]
    status = {"conditions": ends, "startTime": AT, "completionTime": AT, "succeeded": 2}
    await site.session.patch(jobs("over-by-then") + "/status", {"status": status})
    settled, event = await site.cluster.stop(effect(pending, verb=Verb.STOP))
    assert settled.result is Result.DONE
    assert isinstance(event, WorkloadObserved)
    assert event.observation.finished is WorkloadOutcome.SUCCEEDED


async def test_a_stop_after_an_edit_is_sent_with_the_new_generation(site: Site) -> None:
    await site.job("resized", parallelism=3)
    seen = await _started(site, "resized")
    await site.session.patch(jobs("resized"), {"spec": {"parallelism": 2}})
    assert await _patches(site, "resized", seen) == 2
    assert (await _get(site, "resized"))["spec"]["suspend"] is True


async def test_a_started_job_that_lost_its_annotation_is_stopped(site: Site) -> None:
    await site.job("bare")
    seen = await _started(site, "bare")
    await site.session.patch(jobs("bare"), {"metadata": {"annotations": {ANNOTATION: None}}})
    # The first is refused: it adds an annotation to others that are gone.
    assert await _patches(site, "bare", seen) == 2
    assert (await _get(site, "bare"))["spec"]["suspend"] is True


async def test_a_start_of_a_job_that_lost_its_annotations_is_refused_and_not_denied(site: Site) -> None:
    obj = await site.job("lost-all")
    keys = set(obj["metadata"].get("annotations") or ()) | {"own"}
    obj = await site.session.patch(jobs("lost-all"), {"metadata": {"annotations": dict.fromkeys(keys, "1")}})
    patch = [{"op": "remove", "path": "/metadata/annotations"}]
    bare = await site.session.patch(jobs("lost-all"), patch, content_type=JSON_PATCH)
    if bare["metadata"].get("annotations"):
        pytest.skip("this server keeps an annotation of its own")
    settled, event = await site.cluster.start(effect(obj))
    assert settled.result is Result.REFUSED
    assert isinstance(event, WorkloadObserved)
    assert not event.observation.annotated
    assert (await site.cluster.start(effect(bare)))[0].result is Result.DONE


async def test_a_start_is_refused_and_not_denied_where_a_record_too_long_to_compare_changes(
    site: Site,
) -> None:
    obj = await site.job("long", annotations={STOPPED_ANNOTATION: "x" * 5_000})
    now = await site.session.patch(
        jobs("long"), {"metadata": {"annotations": {STOPPED_ANNOTATION: "x" * 5_001}}}
    )
    settled, event = await site.cluster.start(effect(obj))
    assert (settled.result, type(event)) == (Result.REFUSED, WorkloadObserved)
    assert (await site.cluster.start(effect(now)))[0].result is Result.DONE


# --- what counts as quiet


@pytest.mark.parametrize("before", [None, False])
async def test_a_stopped_job_is_alive_until_its_controller_says_that_it_has_seen_it(
    site: Site, before: bool | None
) -> None:
    name = f"unsaid-{before}".lower()
    await site.job(name)
    await _started(site, name)
    seen = await _says(site, name, before)
    ref = effect(seen).workload.ref
    assert await _patches(site, name, seen) == 1
    assert await site.cluster.anything_alive(ref)
    await _says(site, name, True)
    assert not await site.cluster.anything_alive(ref)


async def test_what_was_said_before_the_stop_does_not_count(site: Site) -> None:
    await site.job("stale")
    await _says(site, "stale", True)
    seen = await _started(site, "stale")
    ref = effect(seen).workload.ref
    assert await _patches(site, "stale", seen) == 2
    stopped = await _get(site, "stale")
    assert _condition(stopped) == "Unknown"
    assert await site.cluster.anything_alive(ref)
    # Sent again, it asks nothing that is still to be answered, and asks again once it was answered.
    assert await _patches(site, "stale", stopped) == 0
    await _says(site, "stale", True)
    assert not await site.cluster.anything_alive(ref)
    assert await _patches(site, "stale", stopped) == 1
    assert await site.cluster.anything_alive(ref)


async def test_a_status_written_before_the_question_arrives_too_late(site: Site) -> None:
    await site.job("late-status")
    await _says(site, "late-status", True)
    seen = await _started(site, "late-status")
    await site.cluster.stop(effect(seen, verb=Verb.STOP))
    condition = {"type": "Suspended", "status": "True", "lastTransitionTime": AT}
    late = {
        "metadata": {"resourceVersion": seen["metadata"]["resourceVersion"]},
        "status": {"conditions": [condition]},
    }
    with pytest.raises(Exception, match="409"):
        await site.session.patch(jobs("late-status") + "/status", late)
    assert await site.cluster.anything_alive(effect(seen).workload.ref)


async def test_of_a_controller_that_is_silent_for_too_long_only_pods_count(site: Site) -> None:
    await site.job("silence")
    await _says(site, "silence", True)
    seen = await _started(site, "silence")
    ref = effect(seen).workload.ref
    assert await site.cluster.anything_alive(ref, still=SILENT_SECONDS), "it is not even suspended"
    await site.cluster.stop(effect(seen, verb=Verb.STOP))
    assert await site.cluster.anything_alive(ref, still=SILENT_SECONDS - 1)
    assert not await site.cluster.anything_alive(ref, still=SILENT_SECONDS)


async def test_a_kind_without_a_controller_is_waited_for_some_seconds_only(site: Site) -> None:
    cluster = KubeCluster(site.session, JOB_KINDS)  # as of a new process
    await site.job("without")
    ref = effect(seen := await _get(site, "without")).workload.ref
    await cluster.start(effect(seen))
    await cluster.stop(effect(await _get(site, "without"), verb=Verb.STOP))
    assert await cluster.anything_alive(ref, still=UNHEARD_SECONDS - 1)
    assert not await cluster.anything_alive(ref, still=UNHEARD_SECONDS)

    await site.job("other")
    await _says(site, "other", True)
    await cluster.start(effect(await _get(site, "other")))
    assert await cluster.anything_alive(ref, still=UNHEARD_SECONDS), "it has a controller"


async def test_a_new_leader_hears_of_the_controller_of_a_kind_by_what_it_lists(site: Site) -> None:
    heard: set[str] = set()
    cluster = KubeCluster(site.session, JOB_KINDS, heard=heard)
    (source,) = (one for one in sources(JOB_KINDS, heard=heard) if one.name == "Job")
    await site.job("listed")
    ref = effect(seen := await _get(site, "listed")).workload.ref
    await cluster.start(effect(seen))
    await cluster.stop(effect(await _get(site, "listed"), verb=Verb.STOP))
    source.seen(await _get(site, "listed"))
    assert not await cluster.anything_alive(ref, still=UNHEARD_SECONDS)

    await site.job("spoken")
    source.seen(await _says(site, "spoken", True))
    assert await cluster.anything_alive(ref, still=UNHEARD_SECONDS)


# --- a Job that is to fail


def _to_fail(site: Site, obj: dict[str, Any]) -> Effect:
    reason = Reason(code=Code.MAXIMUM_EXECUTION_TIME_EXCEEDED)
    eviction = Eviction(reason, site.session.server_time(), fails=True)
    return replace(effect(obj, verb=Verb.STOP), eviction=eviction)


async def test_a_stop_that_fails_a_job_is_done_once_its_controller_has_failed_it(site: Site) -> None:
    await site.job("to-fail", activeDeadlineSeconds=9000)
    stop = _to_fail(site, await _started(site, "to-fail"))
    for tried in range(3):
        if tried == 2:  # a tenant wants to run on
            await site.session.patch(jobs("to-fail"), {"spec": {"activeDeadlineSeconds": 9000}})
        before = site.session.requests.copy()
        with pytest.raises(ClusterUnavailable, match="has not failed"):
            await site.cluster.stop(stop)
        assert (site.session.requests - before)["PATCH", 200] == (tried != 1)
        spec = (await _get(site, "to-fail"))["spec"]
        assert (spec["activeDeadlineSeconds"], spec["suspend"]) == (1, False)
    ends = [
        {"type": kind, "status": "True", "reason": "DeadlineExceeded", "lastTransitionTime": AT}
        for kind in ("FailureTarget", "Failed")
    ]
    await site.session.patch(jobs("to-fail") + "/status", {"status": {"conditions": ends, "startTime": AT}})
    settled, event = await site.cluster.stop(stop)
    assert settled.result is Result.DONE
    assert isinstance(event, WorkloadObserved)
    assert event.observation.finished is WorkloadOutcome.FAILED
    assert event.observation.ended_by_stop_of(1) is WorkloadOutcome.TIMED_OUT


async def test_a_job_that_its_controller_does_not_fail_is_suspended(site: Site) -> None:
    await site.job("fails-not")
    stop = _to_fail(site, await _started(site, "fails-not"))
    with pytest.raises(ClusterUnavailable):
        await site.cluster.stop(stop)
    settled, _ = await site.cluster.stop(stop_after(stop, TO_FAIL))
    assert settled.result is Result.DONE
    stopped = await _get(site, "fails-not")
    assert (stopped["spec"]["suspend"], stopped["spec"]["activeDeadlineSeconds"]) == (True, 1)
