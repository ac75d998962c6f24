"""Start and stop of pod groups, with requests that fail after each of their writes, and what is watched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from queuectl.core.model.events import Event, Result, WorkloadGone, WorkloadObserved
from queuectl.core.model.workload import Effect, ObjectRef, Verb, WorkloadOutcome
from queuectl.kinds.builtin import OPTIONAL
from queuectl.kinds.jobs import KindRegistry
from queuectl.kinds.labels import OWN
from queuectl.kinds.pod_group import POD_GROUP
from queuectl.kube.census import admitted, labelled
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.objects import read_units
from queuectl.kube.pod_groups import LedgerGroups
from queuectl.kube.reflectors import reflectors
from queuectl.kube.session import JSON_PATCH, MERGE_PATCH, api_path
from queuectl.kube.sources import sources
from queuectl.ports.cluster import ClusterUnavailable, Notice, WriteDenied
from tests.doubles.faults import Action, Fault
from tests.integration.kube.sites import NAMESPACE, SITES, Site, effect
from tests.job_kinds import JOB_KINDS

pytestmark = pytest.mark.asyncio(loop_scope="module")
KINDS = KindRegistry((*JOB_KINDS, *OPTIONAL))
GATE = {"name": "queuectl.dev/admission"}
GROUP = "queuectl.dev/pod-group-name"
SIZE = "queuectl.dev/pod-group-total-count"
EIGHT = 8


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with SITES["in_process"](tmp_path_factory.mktemp("groups")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def deadline(site: Site) -> AsyncIterator[None]:
    assert site.faults is not None
    async with asyncio.timeout(30):
        yield
    site.faults.pending.clear()


def pods(name: str | None = None, part: str = "") -> str:
    return api_path("", "v1", "pods", NAMESPACE, name, part)


async def _pod(site: Site, group: str, number: int, size: int, cpu: str = "1") -> dict[str, Any]:
    return await site.create(pods(), _body(group, number, size, cpu))


def _body(group: str, number: int, size: int, cpu: str = "1") -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    labels = {"queuectl.dev/queue-name": "main", "queuectl.dev/gated": "true", GROUP: group}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{group}-{number}",
            "namespace": NAMESPACE,
            "labels": labels,
            "annotations": {SIZE: str(size)},
        },
        "spec": {"containers": [container], "schedulingGates": [GATE]},
    }


async def _group(site: Site, name: str, size: int = EIGHT) -> Effect:
    """The start of a group that waits."""
    for number in range(size):
        await _pod(site, name, number, size)
    return await _effect(site, name, Verb.START)


async def _effect(site: Site, name: str, verb: Verb) -> Effect:
    ref = ObjectRef(NAMESPACE, "PodGroup", name, "")
    (_, obj), *_ = await read_units(site.session, POD_GROUP, ref)
    return effect(obj, "PodGroup", verb=verb, kinds=KINDS)


async def _running(site: Site, name: str, size: int = EIGHT) -> Effect:
    """A started group on a node; returns the effect that stops it."""
    settled, _ = await KubeCluster(site.session, KINDS).start(await _group(site, name, size))
    assert settled.result is Result.DONE
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    for number in range(size):
        pod = f"{name}-{number}"
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
        await site.session.create(pods(pod, "binding"), binding)
        await _phase(site, pod, "Running")
    return await _effect(site, name, Verb.STOP)


async def _phase(site: Site, name: str, phase: str) -> None:
    body = [{"op": "add", "path": "/status/phase", "value": phase}]
    await site.session.patch(pods(name, "status"), body, content_type=JSON_PATCH)


async def _members(site: Site, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        await site.session.get(pods(), query={"labelSelector": f"{GROUP}={name}"})
    )["items"]
    return found


async def _named(site: Site, name: str, uid: str) -> set[str]:
    members = await _members(site, name)
    return {one["metadata"]["name"] for one in members if one["metadata"]["uid"] == uid}


def _gated(members: list[dict[str, Any]]) -> list[str]:
    return [one["metadata"]["name"] for one in members if one["spec"].get("schedulingGates")]


@pytest.mark.parametrize("action", [Action.REFUSE, Action.LOSE_ANSWER])
@pytest.mark.parametrize("done", range(EIGHT))
async def test_a_start_that_ends_after_any_of_its_writes_is_completed_by_the_next_controller(
    site: Site, done: int, action: Action
) -> None:
    assert site.faults is not None
    name = f"start-{done}-{action.name.lower().replace('_', '-')}"
    start = await _group(site, name)
    for number in range(done, EIGHT):
        site.faults.add(Fault(action, "patch", "pods", f"{name}-{number}", code=503))
    with pytest.raises(ClusterUnavailable):
        await KubeCluster(site.session, KINDS).start(start)
    if action is Action.REFUSE:
        assert len(_gated(await _members(site, name))) == EIGHT - done
    settled, _ = await KubeCluster(site.session, KINDS).start(start)
    assert settled.result is Result.DONE
    members = await _members(site, name)
    assert not _gated(members)
    ids = {one["metadata"]["labels"]["queuectl.dev/workload"] for one in members}
    assert ids == {start.workload.id}
    versions = [one["metadata"]["resourceVersion"] for one in members]
    again, _ = await KubeCluster(site.session, KINDS).start(start)
    assert (again.result, again.generation) == (Result.DONE, max(map(int, versions)))
    assert [one["metadata"]["resourceVersion"] for one in await _members(site, name)] == versions


STOPS = {
    "condition": ("patch", Action.REFUSE),
    "delete": ("delete", Action.REFUSE),
    "answer": ("delete", Action.LOSE_ANSWER),
}


@pytest.mark.parametrize("what", STOPS)
@pytest.mark.parametrize("done", range(EIGHT))
async def test_a_stop_that_ends_after_any_of_its_writes_is_completed_by_the_next_controller(
    site: Site, done: int, what: str
) -> None:
    assert site.faults is not None
    name = f"stop-{done}-{what}"
    stop = await _running(site, name)
    verb, action = STOPS[what]
    for number in range(done, EIGHT):
        site.faults.add(Fault(action, verb, "pods", f"{name}-{number}", code=503))
    with pytest.raises(ClusterUnavailable):
        await KubeCluster(site.session, KINDS).stop(stop)
    settled, _ = await KubeCluster(site.session, KINDS).stop(stop)
    assert settled.result is Result.DONE
    members = await _members(site, name)
    assert all(one["metadata"]["deletionTimestamp"] for one in members)
    for one in members:
        disrupted = [entry for entry in one["status"]["conditions"] if entry["type"] == "DisruptionTarget"]
        assert [entry["status"] for entry in disrupted] == ["True"]
    cluster = KubeCluster(site.session, KINDS)
    assert await cluster.anything_alive(stop.workload.ref)
    for number in range(EIGHT):
        assert await cluster.anything_alive(stop.workload.ref)
        await site.session.delete(pods(f"{name}-{number}"), {"gracePeriodSeconds": 0})
    assert not await cluster.anything_alive(stop.workload.ref)


async def test_a_start_that_arrives_after_the_stop_of_its_attempt_starts_nothing(site: Site) -> None:
    start = await _group(site, "late", 2)
    stop = await _effect(site, "late", Verb.STOP)
    settled, _ = await KubeCluster(site.session, KINDS).stop(stop)
    assert settled.result is Result.DONE
    settled, _ = await KubeCluster(site.session, KINDS).start(start)
    assert settled.result is Result.REFUSED
    assert len(_gated(await _members(site, "late"))) == 2


async def test_a_start_that_was_given_up_starts_nothing(site: Site) -> None:
    start = await _group(site, "given-up", 2)
    settled, event = await KubeCluster(site.session, KINDS).withdraw(start)
    assert settled.result is Result.DENIED
    assert isinstance(event, WorkloadObserved)
    settled, _ = await KubeCluster(site.session, KINDS).start(start)
    assert settled.result is Result.REFUSED
    assert len(_gated(await _members(site, "given-up"))) == 2


@pytest.mark.parametrize("code", [403, 422])
async def test_where_every_write_is_denied_a_start_is_given_up_without_its_record(
    site: Site, code: int
) -> None:
    assert site.faults is not None
    start = await _group(site, f"no-write-{code}", 2)
    for number in range(2):
        site.faults.add(Fault(Action.REFUSE, "patch", "pods", f"no-write-{code}-{number}", code=code))
    assert (await KubeCluster(site.session, KINDS).withdraw(start))[0].result is Result.DENIED


async def test_a_stopped_group_is_read_as_late_as_its_stop_although_its_pods_do_not_change_again(
    site: Site,
) -> None:
    """Else no watch event says that it is as the stop left it, and it is never queued again."""
    await _group(site, "resting", 2)
    stop = await _effect(site, "resting", Verb.STOP)
    await KubeCluster(site.session, KINDS).stop(stop)
    await _pod(site, "unrelated-to-it", 0, 1)
    settled, seen = await KubeCluster(site.session, KINDS).stop(stop)
    versions = [int(one["metadata"]["resourceVersion"]) for one in await _members(site, "resting")]
    assert settled.generation is not None
    assert max(versions) < settled.generation
    assert isinstance(seen, WorkloadObserved)
    assert (seen.workload.id, seen.observation.generation) == (stop.workload.id, settled.generation)
    assert seen.observation.suspended


async def test_a_stop_that_finds_all_pods_of_a_group_ended_says_so(site: Site) -> None:
    """Their ends are older than this read: a watch that is late is not believed, and says nothing later."""
    stop = await _running(site, "over-by-then", 2)
    await _phase(site, "over-by-then-0", "Succeeded")
    await _phase(site, "over-by-then-1", "Failed")
    settled, seen = await KubeCluster(site.session, KINDS).stop(stop)
    assert isinstance(seen, WorkloadObserved)
    assert seen.observation.finished is WorkloadOutcome.FAILED
    assert seen.observation.generation == settled.generation


async def test_a_group_that_misses_a_pod_is_not_started(site: Site) -> None:
    start = await _group(site, "short", 3)
    await site.session.delete(pods("short-2"))
    settled, seen = await KubeCluster(site.session, KINDS).start(start)
    assert settled.result is Result.REFUSED
    assert isinstance(seen, WorkloadObserved)
    assert "2 of 3 pods" in str(seen.workload.problem)
    assert len(_gated(await _members(site, "short"))) == 2


async def test_a_group_whose_pods_request_more_than_was_charged_is_not_started(site: Site) -> None:
    start = await _group(site, "grown", 2)
    (other,) = {"grown-0", "grown-1"} - await _named(site, "grown", start.workload.id)
    await site.session.delete(pods(other))
    await _pod(site, "grown", int(other[-1]), 2, cpu="9")
    settled, _ = await KubeCluster(site.session, KINDS).start(start)
    assert settled.result is Result.REFUSED
    assert len(_gated(await _members(site, "grown"))) == 2


async def test_only_as_many_pods_are_started_as_have_quota(site: Site) -> None:
    start = await _group(site, "excess", 2)
    await _pod(site, "excess", 2, 2)
    await KubeCluster(site.session, KINDS).start(start)
    assert _gated(await _members(site, "excess")) == ["excess-2"]


async def test_a_replacement_is_started_in_its_place_with_the_admission_of_the_others(site: Site) -> None:
    stop = await _running(site, "replaced", 3)
    await site.session.delete(pods("replaced-0"), {"gracePeriodSeconds": 0})
    await _pod(site, "replaced", 3, 3)
    await _pod(site, "replaced", 4, 3)
    start = await _effect(site, "replaced", Verb.START)
    assert start.observation.unstarted
    assert start.workload.id == stop.workload.id
    assert start.workload.pod_sets == stop.workload.pod_sets
    settled, _ = await KubeCluster(site.session, KINDS).start(start)
    assert settled.result is Result.DONE
    members = await _members(site, "replaced")
    assert _gated(members) == ["replaced-4"]
    marks = {
        one["metadata"]["annotations"].get("queuectl.dev/reserved-admission")
        for one in members
        if one["metadata"]["name"] != "replaced-4"
    }
    assert len(marks) == 1


async def test_pods_that_succeeded_and_were_deleted_are_not_replaced(site: Site) -> None:
    await _running(site, "shrunk", 3)
    await site.session.delete(pods("shrunk-0"), {"gracePeriodSeconds": 0})
    await _pod(site, "shrunk", 3, 3)
    (_, obj), *_ = await read_units(site.session, POD_GROUP, ObjectRef(NAMESPACE, "PodGroup", "shrunk", ""))
    start = effect(obj, "PodGroup", kinds=KINDS, pods=2)  # what the ledger holds after the success of one
    settled, _ = await KubeCluster(site.session, KINDS).start(start)
    assert settled.result is Result.DONE
    assert _gated(await _members(site, "shrunk")) == ["shrunk-3"]


async def test_a_start_that_has_nothing_to_do_is_later_than_the_deletion_of_a_pod(site: Site) -> None:
    """Else what the reflector saw of that deletion would ask for the same start again, without end."""
    await _running(site, "full", 2)
    await _phase(site, "full-0", "Succeeded")
    await site.session.delete(pods("full-0"), {"gracePeriodSeconds": 0})
    await _pod(site, "full", 2, 2)
    await _pod(site, "full", 3, 2)
    deleted = await site.session.delete(pods("full-3"), {"gracePeriodSeconds": 0})
    (_, obj), *_ = await read_units(site.session, POD_GROUP, ObjectRef(NAMESPACE, "PodGroup", "full", ""))
    start = effect(obj, "PodGroup", kinds=KINDS, pods=1)
    assert start.observation.unstarted
    settled, _ = await KubeCluster(site.session, KINDS).start(start)
    assert settled.result is Result.DONE
    assert _gated(await _members(site, "full")) == ["full-2"]
    assert settled.generation is not None
    last = await site.create(pods(), _body("unrelated", 0, 1))
    assert int(deleted["metadata"]["resourceVersion"]) <= settled.generation
    assert settled.generation < int(last["metadata"]["resourceVersion"])


async def test_a_start_whose_writes_would_make_pods_invalid_is_given_up(site: Site) -> None:
    assert site.faults is not None
    start = await _group(site, "invalid", 2)
    for number in range(2):
        for _ in range(4):
            site.faults.add(Fault(Action.REFUSE, "patch", "pods", f"invalid-{number}", code=422))
    with pytest.raises(WriteDenied) as denied:
        await KubeCluster(site.session, KINDS).start(start)
    assert denied.value.settled is None
    assert "invalid-0" in str(denied.value)


async def test_a_denied_start_of_which_nothing_runs_is_given_up_and_one_of_which_some_run_is_not(
    site: Site,
) -> None:
    assert site.faults is not None
    start = await _group(site, "denied", 2)
    for number in range(2):
        site.faults.add(Fault(Action.REFUSE, "patch", "pods", f"denied-{number}", code=403))
    with pytest.raises(WriteDenied) as denied:
        await KubeCluster(site.session, KINDS).start(start)
    assert denied.value.settled is None
    site.faults.add(Fault(Action.REFUSE, "patch", "pods", "denied-1", code=403))
    with pytest.raises(WriteDenied) as denied:
        await KubeCluster(site.session, KINDS).start(start)
    assert denied.value.settled is not None
    assert denied.value.settled.result is Result.DONE


async def test_the_quota_of_a_group_waits_for_its_last_pod(site: Site) -> None:
    ref = (await _running(site, "ends", 2)).workload.ref
    cluster = KubeCluster(site.session, KINDS)
    await _phase(site, "ends-0", "Succeeded")
    assert await cluster.anything_alive(ref)
    await _phase(site, "ends-1", "Failed")
    assert not await cluster.anything_alive(ref)


async def test_pods_of_another_group_and_of_none_are_left_alone(site: Site) -> None:
    stop = await _running(site, "mine", 2)
    await _running(site, "yours", 2)
    await KubeCluster(site.session, KINDS).stop(stop)
    assert not any(one["metadata"].get("deletionTimestamp") for one in await _members(site, "yours"))


async def test_a_rebuilt_ledger_finds_the_groups_that_run(site: Site) -> None:
    stop = await _running(site, "found", 2)
    found = {one.workload.id: one for one in await admitted(site.session, KINDS)}
    assert found[stop.workload.id].workload.ref.name == "found"
    assert {one.workload.ref.kind for one in found.values()} == {"PodGroup"}


async def test_a_comparison_finds_a_group_that_waits_by_the_id_that_the_ledger_has(site: Site) -> None:
    """Its controller saw another of the pods that were created within a second first."""
    start = await _group(site, "compared", 3)
    (other, *_) = sorted(
        one["metadata"]["uid"]
        for one in await _members(site, "compared")
        if one["metadata"]["uid"] != start.workload.id
    )
    for known, expected in ((start.workload.id, start.workload.id), (other, other)):
        ledger = LedgerGroups()
        ledger.past = {known: {}}
        found = await labelled(site.session, KINDS, OWN, KINDS, ledger)
        assert [one.workload.id for one in found if one.workload.ref.name == "compared"] == [expected]


async def test_the_reflector_sends_a_group_as_one_workload_until_its_last_pod_is_gone(site: Site) -> None:
    (watched,) = (one for one in sources(KINDS) if one.name == "PodGroup")
    events: list[Event] = []
    changed = asyncio.Event()

    def take(more: Any) -> None:
        events.extend(more)
        changed.set()

    async def until(condition: Any) -> None:
        while not condition():
            changed.clear()
            await changed.wait()

    def last() -> Any:
        ours = [
            one
            for one in events
            if (isinstance(one, WorkloadObserved) and one.workload.ref.name == "watched")
            or isinstance(one, WorkloadGone)
        ]
        return ours[-1] if ours else None

    async with asyncio.TaskGroup() as running:
        task = running.create_task(reflectors(site.session, take, [watched]).run())
        start = await _group(site, "watched", 3)
        await until(lambda: last() and last().workload == start.workload)
        await KubeCluster(site.session, KINDS).start(start)
        await until(lambda: last().observation.admission and not last().observation.unstarted)
        assert last().workload.id == start.workload.id
        for number in range(3):
            await _phase(site, f"watched-{number}", "Succeeded")
            await site.session.delete(pods(f"watched-{number}"), {"gracePeriodSeconds": 0})
        await until(lambda: isinstance(last(), WorkloadGone))
        assert last().workload == start.workload.id
        ours = [one for one in events if isinstance(one, WorkloadObserved)]
        ends = [one.observation.finished for one in ours if one.workload.id == start.workload.id]
        assert ends[-1] is WorkloadOutcome.SUCCEEDED
        assert ends.count(WorkloadOutcome.DELETED) == 0
        task.cancel()


async def test_an_event_about_a_group_is_on_its_first_pod(site: Site) -> None:
    ref = (await _group(site, "told", 2)).workload.ref
    cluster = KubeCluster(site.session, KINDS)
    await cluster.announce(Notice(ref, "Pending", "waits for quota"))
    path = api_path("events.k8s.io", "v1", "events", NAMESPACE)
    found = [one["regarding"] for one in (await site.session.get(path))["items"]]
    assert {(one["kind"], one["uid"]) for one in found} == {("Pod", ref.uid)}
    for number in range(2):
        await site.session.delete(pods(f"told-{number}"))
    await cluster.announce(Notice(ref, "Evicted", "is gone"))
    kinds = {one["regarding"]["kind"] for one in (await site.session.get(path))["items"]}
    assert kinds == {"Pod", "PodGroup"}


async def test_a_user_holds_a_group_by_any_of_its_pods(site: Site) -> None:
    await _group(site, "held", 2)
    body = {"metadata": {"annotations": {"queuectl.dev/hold": "true"}}}
    await site.session.patch(pods("held-1"), body, content_type=MERGE_PATCH)
    assert (await _effect(site, "held", Verb.START)).workload.hold
