"""Writes to a cluster, on the small API with and without sockets, and on a real kube-apiserver."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from queuectl.core.decisions import PodsToCount
from queuectl.core.model.events import (
    EffectSettled,
    PodsCounted,
    PolicyObserved,
    Result,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.model.policy import Condition, LocalQueueName
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import Verb, WorkloadId
from queuectl.core.reports import ClusterQueueReport, LocalQueueReport, Waiting
from queuectl.idle.check import pods_by_workload
from queuectl.kinds.jobs import QUEUE_LABEL
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.errors import NotFound, TooManyRequests
from queuectl.kube.session import MERGE_PATCH, api_path, cluster_id
from queuectl.kube.sources import sources
from queuectl.kube.statuses import QueueStatuses
from queuectl.ports.cluster import ClusterUnavailable, Notice, WriteDenied
from tests.doubles.faults import Action, Fault, Faults
from tests.integration.kube.sites import (
    AT,
    CRDS,
    NAMESPACE,
    PYTORCH_CRD,
    SITES,
    Site,
    effect,
    job,
    jobs,
    pytorch_job,
    pytorch_jobs,
)
from tests.job_kinds import JOB_KINDS

pytestmark = pytest.mark.asyncio(loop_scope="session")

ANNOTATION = "queuectl.dev/reserved-admission"


Flawed = tuple[Site, Faults]


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["in_process", "small"])
async def flawed(request: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Flawed]:
    """A server with injected faults."""
    async with SITES[request.param](tmp_path_factory.mktemp("flawed")) as site:
        yield site, site.faults


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def deadline() -> AsyncIterator[None]:
    async with asyncio.timeout(30):
        yield


async def _patch(site: Site, path: str, body: dict[str, Any]) -> dict[str, Any]:
    return await site.session.patch(path, body)


async def test_a_start_unsuspends_the_job_with_one_request(site: Site) -> None:
    obj = await site.job("start", parallelism=2)
    patches = site.session.requests["PATCH", 200]
    reads = sum(count for (method, _), count in site.session.requests.items() if method == "GET")
    settled, event = await site.cluster.start(effect(obj))
    after = await site.session.get(jobs("start"))
    assert (settled.result, settled.generation, event) == (Result.DONE, after["metadata"]["generation"], None)
    assert after["spec"]["suspend"] is False
    pod = after["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "spot"}
    assert pod["tolerations"] == [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}]
    assert json.loads(after["metadata"]["annotations"][ANNOTATION])["attempt"] == 1
    assert site.session.requests["PATCH", 200] == patches + 1
    assert sum(n for (method, _), n in site.session.requests.items() if method == "GET") == reads + 1


async def test_a_start_sent_again_is_done_and_changes_nothing(site: Site) -> None:
    obj = await site.job("again")
    await site.cluster.start(effect(obj))
    started = await site.session.get(jobs("again"))
    settled, _ = await site.cluster.start(effect(obj))
    assert (settled.result, settled.generation) == (Result.DONE, started["metadata"]["generation"])
    seen, _ = await site.cluster.start(effect(started))
    assert (seen.result, seen.generation) == (Result.DONE, started["metadata"]["generation"])
    after = await site.session.get(jobs("again"))
    assert after["metadata"]["resourceVersion"] == started["metadata"]["resourceVersion"]


async def test_a_start_after_an_edit_of_the_spec_is_refused_with_the_current_object(site: Site) -> None:
    obj = await site.job("edited")
    await _patch(site, jobs("edited"), {"spec": {"parallelism": 7}})
    settled, event = await site.cluster.start(effect(obj))
    assert settled.result is Result.REFUSED
    assert isinstance(event, WorkloadObserved)
    assert event.workload.pod_sets[0].count == 1
    assert event.observation.generation == obj["metadata"]["generation"] + 1
    assert (await site.session.get(jobs("edited")))["spec"]["suspend"] is True


async def test_an_annotation_of_another_client_does_not_prevent_a_start(site: Site) -> None:
    obj = await site.create(jobs(), job("noted", annotations={"a": "1"}))
    await _patch(site, jobs("noted"), {"metadata": {"annotations": {"b": "2"}}})
    settled, _ = await site.cluster.start(effect(obj))
    after = await site.session.get(jobs("noted"))
    assert settled.result is Result.DONE
    assert set(after["metadata"]["annotations"]) >= {"a", "b", ANNOTATION}


async def test_a_first_annotation_is_not_overwritten_by_a_start(site: Site) -> None:
    obj = await site.job("first")
    while not obj["metadata"].get("annotations"):
        obj = await _patch(site, jobs("first"), {"metadata": {"annotations": {"a": "1"}}})
    before = json.loads(json.dumps(obj))
    del before["metadata"]["annotations"]
    before["metadata"]["resourceVersion"] = "1"
    settled, event = await site.cluster.start(effect(before))
    assert settled.result is Result.REFUSED
    assert isinstance(event, WorkloadObserved)
    assert event.observation.annotated
    settled, _ = await site.cluster.start(effect(await site.session.get(jobs("first"))))
    assert settled.result is Result.DONE
    assert "a" in (await site.session.get(jobs("first")))["metadata"]["annotations"]


async def test_a_job_that_changed_queues_is_not_started(site: Site) -> None:
    obj = await site.job("moved")
    await _patch(site, jobs("moved"), {"metadata": {"labels": {"queuectl.dev/queue-name": "other"}}})
    settled, event = await site.cluster.start(effect(obj))
    assert settled.result is Result.REFUSED
    assert isinstance(event, WorkloadObserved)
    assert event.workload.queue == "other"


async def test_a_deleted_object_can_be_neither_started_nor_stopped(site: Site) -> None:
    obj = await site.job("gone")
    await site.session.delete(jobs("gone"), {"propagationPolicy": "Background"})
    for verb in (Verb.START, Verb.STOP):
        asked = effect(obj, verb=verb)
        act = site.cluster.start if verb is Verb.START else site.cluster.stop
        settled, event = await act(asked)
        assert settled.result is Result.GONE
        assert event == WorkloadGone(asked.workload.id)


async def test_another_object_of_the_same_name_is_left_alone(site: Site) -> None:
    obj = await site.job("twin")
    await site.session.delete(jobs("twin"), {"propagationPolicy": "Background"})
    twin = await site.job("twin")
    assert (await site.cluster.start(effect(obj)))[0].result is Result.GONE
    await _patch(site, jobs("twin"), {"spec": {"suspend": False}})
    assert (await site.cluster.stop(effect(obj, verb=Verb.STOP)))[0].result is Result.GONE
    after = await site.session.get(jobs("twin"))
    assert after["metadata"]["uid"] == twin["metadata"]["uid"]
    assert after["spec"]["suspend"] is False


async def test_a_stop_suspends_and_the_next_start_sets_new_node_selectors(site: Site) -> None:
    obj = await site.job("cycle")
    await site.cluster.start(effect(obj))
    started = await site.session.get(jobs("cycle"))
    settled, _ = await site.cluster.stop(effect(started, verb=Verb.STOP))
    stopped = await site.session.get(jobs("cycle"))
    assert (settled.result, settled.generation) == (Result.DONE, stopped["metadata"]["generation"])
    assert stopped["spec"]["suspend"] is True
    assert (await site.cluster.stop(effect(stopped, verb=Verb.STOP)))[0].result is Result.DONE
    settled, _ = await site.cluster.start(effect(stopped, attempt=2))
    after = await site.session.get(jobs("cycle"))
    assert settled.result is Result.DONE
    assert after["spec"]["suspend"] is False
    assert json.loads(after["metadata"]["annotations"][ANNOTATION])["attempt"] == 2
    assert after["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "spot"}


async def test_a_late_start_of_an_earlier_attempt_is_refused(site: Site) -> None:
    obj = await site.job("late")
    await site.cluster.start(effect(obj))
    await site.cluster.stop(effect(await site.session.get(jobs("late")), verb=Verb.STOP))
    settled, event = await site.cluster.start(effect(obj))
    assert settled.result is Result.REFUSED
    assert isinstance(event, WorkloadObserved)
    assert (await site.session.get(jobs("late")))["spec"]["suspend"] is True


async def test_a_start_that_was_given_up_is_refused_and_the_next_one_is_not(site: Site) -> None:
    start = effect(await site.job("given-up"))
    settled, event = await site.cluster.withdraw(start)
    assert settled.result is Result.DENIED
    assert isinstance(event, WorkloadObserved)
    assert (await site.cluster.start(start))[0].result is Result.REFUSED
    after = await site.session.get(jobs("given-up"))
    assert after["spec"]["suspend"] is True
    assert event.observation.resource_version == after["metadata"]["resourceVersion"]
    assert (await site.cluster.start(effect(after, attempt=2)))[0].result is Result.DONE


async def test_a_start_that_its_queue_label_refuses_is_refused_when_the_label_is_back(site: Site) -> None:
    """A former leader that stood still may send it then: its quota was released."""
    obj, path = await site.job("moved-and-back"), jobs("moved-and-back")
    note = {"metadata": {"annotations": {"example.com/note": "its own"}}}
    start = effect(await site.session.patch(path, note, content_type=MERGE_PATCH))
    before = obj["metadata"]["labels"][QUEUE_LABEL]
    await _label(site, path, "other")
    settled, event = await site.cluster.start(start)
    assert settled.result is Result.REFUSED
    assert isinstance(event, WorkloadObserved)
    assert event.workload.queue == "other"
    await _label(site, path, before)
    assert (await site.cluster.start(start))[0].result is Result.REFUSED
    after = await site.session.get(path)
    assert after["spec"]["suspend"] is True
    assert (await site.cluster.start(effect(after, attempt=2)))[0].result is Result.DONE


async def _label(site: Site, path: str, queue: str) -> None:
    body = {"metadata": {"labels": {QUEUE_LABEL: queue}}}
    await site.session.patch(path, body, content_type=MERGE_PATCH)


async def test_a_start_that_was_done_is_not_given_up(site: Site) -> None:
    start = effect(await site.job("done"))
    await site.cluster.start(start)
    assert (await site.cluster.withdraw(start))[0].result is Result.DONE
    assert (await site.session.get(jobs("done")))["spec"]["suspend"] is False


async def test_a_pytorch_job_starts_and_stops_likewise(site: Site) -> None:
    await _pytorch(site)
    obj = await site.create(pytorch_jobs(), pytorch_job("torch"))
    settled, _ = await site.cluster.start(effect(obj, "PyTorchJob"))
    after = await site.session.get(pytorch_jobs("torch"))
    assert settled.result is Result.DONE
    assert after["spec"]["runPolicy"]["suspend"] is False
    for replica in after["spec"]["pytorchReplicaSpecs"].values():
        assert replica["template"]["spec"]["nodeSelector"] == {"pool": "spot"}
    settled, _ = await site.cluster.stop(effect(after, "PyTorchJob", verb=Verb.STOP))
    assert settled.result is Result.DONE
    assert (await site.session.get(pytorch_jobs("torch")))["spec"]["runPolicy"]["suspend"] is True


async def test_a_pytorch_job_without_a_run_policy_can_be_stopped(site: Site) -> None:
    await _pytorch(site)
    obj = await site.create(pytorch_jobs(), pytorch_job("wild", runPolicy=None))
    settled, _ = await site.cluster.stop(effect(obj, "PyTorchJob", verb=Verb.STOP))
    assert settled.result is Result.DONE
    assert (await site.session.get(pytorch_jobs("wild")))["spec"]["runPolicy"] == {"suspend": True}


async def test_a_pod_that_is_being_deleted_on_an_unreachable_node_does_not_keep_a_stopped_job_alive(
    site: Site,
) -> None:
    obj = await _suspended(site, "lost")
    uid, ref = obj["metadata"]["uid"], effect(obj).workload.ref
    await _pod(site, "lost-0", {"batch.kubernetes.io/controller-uid": uid}, uid, node="dead", finalizer=True)
    assert await site.cluster.anything_alive(ref, unreachable={"dead"}), "nothing has deleted it"
    await site.session.delete(f"{api_path('', 'v1', 'pods', NAMESPACE)}/lost-0", {})
    await _patch(site, f"{jobs('lost')}/status", {"status": {"terminating": 1}})
    assert await site.cluster.anything_alive(ref, unreachable={"another"})
    assert not await site.cluster.anything_alive(ref, unreachable={"dead"})


async def test_pods_keep_a_stopped_job_alive_until_they_end(site: Site) -> None:
    obj = await _suspended(site, "alive")
    uid = obj["metadata"]["uid"]
    ref = effect(obj).workload.ref
    assert not await site.cluster.anything_alive(ref)
    label = {"batch.kubernetes.io/controller-uid": uid}
    await _pod(site, "alive-0", label, uid)
    await _pod(site, "stranger", label, "another-uid")
    assert await site.cluster.anything_alive(ref)
    pods = api_path("", "v1", "pods", NAMESPACE)
    await _patch(site, f"{pods}/alive-0/status", {"status": {"phase": "Failed"}})
    assert not await site.cluster.anything_alive(ref)
    await _patch(site, jobs("alive"), {"spec": {"suspend": False}})
    assert await site.cluster.anything_alive(ref)
    await site.session.delete(jobs("alive"), {"propagationPolicy": "Background"})
    assert not await site.cluster.anything_alive(ref)
    await _pod(site, "orphan", label, None)
    assert await site.cluster.anything_alive(ref)


def _count(obj: dict[str, Any], at_most: int) -> PodsToCount:
    ref = effect(obj).workload.ref
    return PodsToCount(WorkloadId(ref.uid), ref, 1, at_most, obj["metadata"]["generation"])


def _admitted_pods(obj: dict[str, Any]) -> int:
    count: int = json.loads(obj["metadata"]["annotations"][ANNOTATION])["podSets"][0]["count"]
    return count


async def test_fewer_pods_are_admitted_once_no_more_are_alive(site: Site) -> None:
    await site.cluster.start(effect(await site.job("fewer", parallelism=3)))
    obj = await _patch(site, jobs("fewer"), {"spec": {"parallelism": 2}})
    uid = obj["metadata"]["uid"]
    for number in range(3):
        await _pod(site, f"fewer-{number}", {"batch.kubernetes.io/controller-uid": uid}, uid)
    await _pod(site, "another", {"batch.kubernetes.io/controller-uid": uid}, "another-uid")
    assert await site.cluster.count_fewer(_count(obj, 2)) == []
    assert _admitted_pods(await site.session.get(jobs("fewer"))) == 3
    ended = api_path("", "v1", "pods", NAMESPACE, "fewer-0")
    await _patch(site, f"{ended}/status", {"status": {"phase": "Failed"}})
    seen, counted = await site.cluster.count_fewer(_count(obj, 2))
    assert isinstance(seen, WorkloadObserved)
    assert seen.observation.admission is not None
    assert [pods.count for pods in seen.observation.admission.assignment.pod_sets] == [2]
    assert counted == PodsCounted(WorkloadId(uid), 1, alive=False, at_most=2)
    assert _admitted_pods(await site.session.get(jobs("fewer"))) == 2
    written = site.session.requests["PATCH", 200]
    assert (await site.cluster.count_fewer(_count(obj, 2)))[-1] == counted
    assert site.session.requests["PATCH", 200] == written


async def test_pods_of_an_object_that_was_edited_since_are_not_counted(site: Site) -> None:
    await site.cluster.start(effect(await site.job("regrown", parallelism=3)))
    obj = await _patch(site, jobs("regrown"), {"spec": {"parallelism": 2}})
    await _patch(site, jobs("regrown"), {"spec": {"parallelism": 3}})
    seen, counted = await site.cluster.count_fewer(_count(obj, 2))
    assert isinstance(seen, WorkloadObserved)
    assert seen.workload.pod_sets[0].count == 3
    assert counted == PodsCounted(WorkloadId(obj["metadata"]["uid"]), 1, alive=True, at_most=2)
    assert _admitted_pods(await site.session.get(jobs("regrown"))) == 3


async def test_an_edit_between_the_count_and_the_write_of_the_admission_ends_the_count(
    flawed: Flawed,
) -> None:
    site, faults = flawed
    await site.cluster.start(effect(await site.job("races", parallelism=3)))
    obj = await _patch(site, jobs("races"), {"spec": {"parallelism": 2}})
    faults.add(Fault(Action.REFUSE, verb="patch", name="races", code=409))
    *_, counted = await site.cluster.count_fewer(_count(obj, 2))
    assert isinstance(counted, PodsCounted)
    assert not counted.alive
    assert _admitted_pods(await site.session.get(jobs("races"))) == 2


async def test_an_announcement_made_twice_is_one_event(site: Site) -> None:
    ref = effect(await site.job("told")).workload.ref
    notice = Notice(ref, "Pending", "WaitingForQuota: requests 8 gpu, short by 3", key="5", at=AT)
    await site.cluster.announce(notice)
    await site.cluster.announce(notice)
    events = await site.session.get(
        api_path("", "v1", "events", NAMESPACE), query={"fieldSelector": "involvedObject.name=told"}
    )
    assert [(item["reason"], item["message"]) for item in events["items"]] == [("Pending", notice.message)]
    await site.cluster.announce(Notice(ref._replace(namespace="no-such"), "Pending", "m"))


async def test_a_status_is_written_when_it_changes_and_only_then(site: Site) -> None:
    await site.create(
        api_path("queuectl.dev", "v1beta1", "localqueues", NAMESPACE),
        {
            "apiVersion": "queuectl.dev/v1beta1",
            "kind": "LocalQueue",
            "metadata": {"name": "main", "namespace": NAMESPACE},
            "spec": {"clusterQueue": "gpus"},
        },
    )
    ref = effect(await site.job("waits")).workload.ref
    waiting = Waiting(ref, 1, Reason(code=Code.WAITING_FOR_QUOTA))
    report = LocalQueueReport(
        name=LocalQueueName(NAMESPACE, "main"),
        cluster_queue="gpus",
        condition=Condition(True, "Ready", "can admit"),
        pending=1,
        admitted=0,
        first=(waiting,),
    )
    cluster = site.cluster
    await cluster.publish_local_queue(report)
    before = site.session.requests["PATCH", 200]
    await cluster.publish_local_queue(report)
    assert site.session.requests["PATCH", 200] == before
    queue = await site.session.get(api_path("queuectl.dev", "v1beta1", "localqueues", NAMESPACE, "main"))
    assert queue["status"]["pendingWorkloads"] == 1
    assert queue["status"]["waiting"][0]["reason"]["code"] == "WaitingForQuota"
    assert queue["status"]["conditions"][0]["status"] == "True"


@pytest.mark.parametrize("how", ["made again", "written later"])
async def test_a_status_that_was_lost_is_written_again_and_only_then(site: Site, how: str) -> None:
    name, queues = how.replace(" ", "-"), api_path("queuectl.dev", "v1beta1", "localqueues", NAMESPACE)
    body = {
        "apiVersion": "queuectl.dev/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"clusterQueue": "gpus"},
    }
    report = LocalQueueReport(
        name=LocalQueueName(NAMESPACE, name),
        cluster_queue="gpus",
        condition=Condition(True, "Ready", "can admit"),
        pending=0,
        admitted=0,
        first=(),
    )
    statuses = QueueStatuses()
    cluster = KubeCluster(site.session, JOB_KINDS, statuses=statuses)
    source = next(one for one in sources(JOB_KINDS, statuses=statuses) if one.name == "LocalQueue")

    async def seen() -> PolicyObserved:
        event = source.seen(await site.session.get(f"{queues}/{name}"))
        assert isinstance(event, PolicyObserved)
        return event

    await site.create(queues, body)
    await cluster.publish_local_queue(report)
    assert not (await seen()).status_lost
    if how == "made again":
        await site.session.delete(f"{queues}/{name}")
        await site.create(queues, body)
    else:  # such as a write without an answer that arrives after the one that replaced it
        await site.session.patch(f"{queues}/{name}/status", {"status": {"pendingWorkloads": 7}})
    assert (await seen()).status_lost
    await cluster.publish_local_queue(report)
    queue = await site.session.get(f"{queues}/{name}")
    assert queue["status"]["pendingWorkloads"] == 0
    assert not (await seen()).status_lost


async def test_a_queue_that_is_gone_is_no_error(site: Site) -> None:
    await site.cluster.publish_cluster_queue(
        ClusterQueueReport(
            name="no-such",
            condition=Condition(True, "Ready", "can admit"),
            pending=0,
            admitted=0,
            nominal=((FlavorResource("spot", "gpu"), 8),),
            used=(),
        )
    )


async def test_a_cluster_is_known_by_the_uid_of_kube_system(site: Site) -> None:
    namespace = await site.session.get(api_path("", "v1", "namespaces", name="kube-system"))
    assert await cluster_id(site.session) == namespace["metadata"]["uid"]


# --- with injected faults, on the small API only --------------------------------------------------------


async def test_a_start_whose_answer_is_lost_is_found_done(flawed: Flawed) -> None:
    site, faults = flawed
    obj = await site.job("lost")
    faults.add(Fault(Action.LOSE_ANSWER, verb="patch", name="lost"))
    settled, _ = await site.cluster.start(effect(obj))
    assert settled.result is Result.DONE
    faults.add(Fault(Action.LOSE_ANSWER, verb="patch", name="lost"))
    started = await site.session.get(jobs("lost"))
    assert (await site.cluster.stop(effect(started, verb=Verb.STOP)))[0].result is Result.DONE


@pytest.mark.parametrize("code", [409, 429, 500, 503])
async def test_a_write_is_retried_later_after_a_server_error(flawed: Flawed, code: int) -> None:
    site, faults = flawed
    obj = await site.job(f"trouble-{code}")
    faults.add(Fault(Action.REFUSE, verb="patch", code=code, retry_after=7 if code == 429 else 0))
    with pytest.raises(ClusterUnavailable) as caught:
        await site.cluster.start(effect(obj))
    assert caught.value.retry_after == (7 if code == 429 else None)
    assert (await site.cluster.start(effect(obj)))[0].result is Result.DONE


async def test_a_stop_does_not_need_the_record_on_an_object_that_is_suspended(flawed: Flawed) -> None:
    """A policy that denies its start denies that too: its quota must not be held until the policy changes."""
    site, faults = flawed
    stop = effect(await site.job("unrecorded"), verb=Verb.STOP)
    faults.add(Fault(Action.REFUSE, verb="patch", name="unrecorded", code=403))
    with pytest.raises(WriteDenied) as denied:
        await site.cluster.stop(stop)
    assert denied.value.settled == EffectSettled(stop.key, Result.DONE, 1)
    assert (await site.cluster.stop(stop))[0].result is Result.DONE


@pytest.mark.parametrize("code", [409, 503])
async def test_a_start_is_not_given_up_before_that_is_recorded(flawed: Flawed, code: int) -> None:
    site, faults = flawed
    start = effect(await site.job(f"to-be-given-up-{code}"))
    faults.add(Fault(Action.REFUSE, verb="patch", name=f"to-be-given-up-{code}", code=code))
    with pytest.raises(ClusterUnavailable):
        await site.cluster.withdraw(start)
    assert (await site.cluster.withdraw(start))[0].result is Result.DENIED


async def test_where_every_write_is_denied_a_start_is_given_up_without_its_record(flawed: Flawed) -> None:
    site, faults = flawed
    start = effect(await site.job("no-write"))
    faults.add(Fault(Action.REFUSE, verb="patch", name="no-write", code=403))
    assert (await site.cluster.withdraw(start))[0].result is Result.DENIED


async def test_a_stop_of_an_object_that_runs_needs_its_write(flawed: Flawed) -> None:
    site, faults = flawed
    await site.cluster.start(effect(await site.job("needed")))
    stop = effect(await site.session.get(jobs("needed")), verb=Verb.STOP)
    faults.add(Fault(Action.REFUSE, verb="patch", name="needed", code=403))
    with pytest.raises(ClusterUnavailable) as denied:
        await site.cluster.stop(stop)
    assert not isinstance(denied.value, WriteDenied)


async def test_a_stop_that_is_denied_is_done_once_its_object_has_finished(flawed: Flawed) -> None:
    site, faults = flawed
    await site.cluster.start(effect(await site.job("denied")))
    stop = effect(await site.session.get(jobs("denied")), verb=Verb.STOP)
    complete = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-11-21T10:00:00Z"}
    status = {
        "conditions": [complete],
        "startTime": "2026-11-21T09:00:00Z",
        "completionTime": "2026-11-21T10:00:00Z",
    }
    await _patch(site, f"{jobs('denied')}/status", {"status": status})
    faults.add(Fault(Action.REFUSE, verb="patch", name="denied", code=403))
    assert (await site.cluster.stop(stop))[0].result is Result.DONE


async def test_nothing_counts_as_dead_while_reads_fail(flawed: Flawed) -> None:
    site, faults = flawed
    ref = effect(await _suspended(site, "unsaid")).workload.ref
    for resource in ("jobs", "pods"):
        faults.add(Fault(Action.REFUSE, resource=resource, code=503))
        with pytest.raises(ClusterUnavailable):
            await site.cluster.anything_alive(ref)


async def _suspended(site: Site, name: str) -> dict[str, Any]:
    """A Job whose controller has seen that it is suspended."""
    await site.job(name)
    condition = {"type": "Suspended", "status": "True", "lastTransitionTime": "2026-11-21T10:00:00Z"}
    return await _patch(site, f"{jobs(name)}/status", {"status": {"conditions": [condition]}})


async def _pytorch(site: Site) -> None:
    """Install the kind, and wait until it is served."""
    try:
        await site.session.get(f"{CRDS}/{PYTORCH_CRD['metadata']['name']}")
    except NotFound:
        await site.create(CRDS, PYTORCH_CRD)
    while True:
        try:
            await site.session.get(pytorch_jobs())
            return
        except (NotFound, TooManyRequests):  # not served yet, or its storage is not ready
            await asyncio.sleep(0.02)


async def _pod(
    site: Site,
    name: str,
    labels: dict[str, str],
    owner: str | None,
    *,
    node: str | None = None,
    finalizer: bool = False,
) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "alive", "controller": True}
    await site.create(
        api_path("", "v1", "pods", NAMESPACE),
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": labels,
                "ownerReferences": [job | {"uid": owner}] if owner else [],
                **({"finalizers": ["example.com/held"]} if finalizer else {}),
            },
            "spec": {"containers": [{"name": "c", "image": "i"}], **({"nodeName": node} if node else {})},
        },
    )


async def test_the_pods_of_workloads_are_listed_by_the_label_of_their_start(site: Site) -> None:
    """By their metadata alone, for what reads their GPUs."""
    containers = [{"name": "main", "image": "registry.example/none"}]
    for name, labels in (("uses-0", "use"), ("uses-1", "use"), ("other", "other-use"), ("unlabelled", None)):
        metadata: dict[str, Any] = {"name": name}
        if labels is not None:
            metadata["labels"] = {"queuectl.dev/workload": labels}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
        await site.create(api_path("", "v1", "pods", NAMESPACE), pod)
    found = await pods_by_workload(site.session)
    assert sorted(found[WorkloadId("use")]) == [(NAMESPACE, "uses-0"), (NAMESPACE, "uses-1")]
    assert found[WorkloadId("other-use")] == [(NAMESPACE, "other")]
    assert "unlabelled" not in [name for pods in found.values() for _, name in pods]
