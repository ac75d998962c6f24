"""The client as the controller's own service account, with RBAC and the gate in force."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from queuectl.core.model.events import ContextObserved, Listed, Result
from queuectl.core.model.policy import Condition, Gate, LocalQueueName, ResourceFlavor
from queuectl.core.model.workload import Verb
from queuectl.core.reports import ClusterQueueReport, LocalQueueReport
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.lease import KubeLease
from queuectl.kube.reflectors import reflectors
from queuectl.kube.session import Session
from queuectl.kube.sources import sources
from queuectl.ports.cluster import Notice
from queuectl.sandbox.control_plane import find_assets
from tests.acceptance.gate.site import JOB, KINDS, NAMESPACE, Kind, Site, served
from tests.definitions import PYTORCH
from tests.integration.kube.scripted import QUICK
from tests.integration.kube.sites import AT, effect
from tests.job_kinds import JOB_KINDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

OLD = "1.33"
TIME = "2026-11-21T10:00:00Z"
SUSPENDED = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "lastTransitionTime": TIME}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["today", OLD])
async def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    assets = find_assets()
    if assets is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: the real kube-apiserver tier is skipped")
    emulated = OLD if request.param == OLD else None
    folder = tmp_path_factory.mktemp(f"plane-{request.param}")
    async with served(folder, assets, PYTORCH, emulated=emulated, mutating=False) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def session(site: Site) -> AsyncIterator[Session]:
    """Ours."""
    opened = await Session.from_kubeconfig(str(site.plane.folder / "kubeconfig"), "controller")
    async with asyncio.timeout(60):
        yield opened
    await opened.close()


async def test_the_service_account_may_read_all_watched_kinds(site: Site, session: Session) -> None:
    seen: list[object] = []
    all_of_them = reflectors(session, seen.extend, sources(JOB_KINDS), timings=QUICK)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(all_of_them.run())
        while {event.source for event in seen if isinstance(event, Listed)} != all_of_them.sources:
            await asyncio.sleep(0.01)
        task.cancel()
    assert any(isinstance(event, ContextObserved) and isinstance(event.value, Gate) for event in seen)
    assert not any(status in (401, 403) for _, status in session.requests)


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_the_gate_permits_starts_and_stops_of_the_controller(
    site: Site, session: Session, kind: Kind
) -> None:
    cluster = KubeCluster(session, JOB_KINDS)
    await site.create(kind, "ours")
    for attempt in (1, 2):
        obj = await site.get(kind, "ours")
        settled, _ = await cluster.start(effect(obj, kind.name, attempt=attempt))
        assert settled.result is Result.DONE
        started = await site.get(kind, "ours")
        assert not kind.suspended(started)
        assert await cluster.anything_alive(effect(started, kind.name).workload.ref)
        stopping = effect(started, kind.name, attempt=attempt, verb=Verb.STOP)
        settled, _ = await cluster.stop(stopping)
        assert settled.result is Result.DONE
        assert kind.suspended(await site.get(kind, "ours"))
        assert await cluster.anything_alive(stopping.workload.ref)
        await site.merge(site.admin, kind, "ours", {"status": {"conditions": [SUSPENDED]}}, "status")
        assert not await cluster.anything_alive(stopping.workload.ref)
        # It may ask its controller to say that again.
        again = effect(await site.get(kind, "ours"), kind.name, attempt=attempt, verb=Verb.STOP)
        await cluster.stop(again)
        assert await cluster.anything_alive(stopping.workload.ref)
    await site.admin.request("DELETE", kind.path("ours"))


async def test_a_job_that_ran_before_gets_new_node_selectors_on_old_servers_too(
    site: Site, session: Session
) -> None:
    cluster = KubeCluster(session, JOB_KINDS)
    await site.create(JOB, "ran")
    await cluster.start(effect(await site.get(JOB, "ran")))
    await cluster.stop(effect(await site.get(JOB, "ran"), verb=Verb.STOP))
    # The status as set by the Job controller.
    status = {"status": {"startTime": TIME, "conditions": [SUSPENDED]}}
    await site.merge(site.admin, JOB, "ran", status, "status")
    another = ResourceFlavor(name="spot", node_labels=(("pool", "another"),))
    asked = replace(effect(await site.get(JOB, "ran"), attempt=2), flavors=(another,))
    assert (await cluster.start(asked))[0].result is Result.DONE
    pod = (await site.get(JOB, "ran"))["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "another"}
    assert not pod.get("tolerations")


async def test_the_controller_may_create_events_and_write_status(site: Site, session: Session) -> None:
    cluster = KubeCluster(session, JOB_KINDS)
    await site.create(JOB, "told")
    ref = effect(await site.get(JOB, "told")).workload.ref
    await cluster.announce(Notice(ref, "Pending", "WaitingForQuota", at=AT))
    code, output = await site.kubectl("describe", "job", "told", "-n", NAMESPACE)
    assert code == 0
    assert "WaitingForQuota" in output
    ready = Condition(True, "Ready", "can admit")
    queues = await site.admin.request("GET", "/apis/queuectl.dev/v1beta1/localqueues")
    queue = queues["items"][0]["metadata"]
    name = LocalQueueName(queue["namespace"], queue["name"])
    await cluster.publish_local_queue(
        LocalQueueReport(name=name, cluster_queue="x", condition=ready, pending=3, admitted=0, first=())
    )
    path = f"/apis/queuectl.dev/v1beta1/namespaces/{name.namespace}/localqueues/{name.name}"
    assert (await site.admin.request("GET", path))["status"]["pendingWorkloads"] == 3
    queues = await site.admin.request("GET", "/apis/queuectl.dev/v1beta1/clusterqueues")
    cluster_queue = queues["items"][0]["metadata"]["name"]
    await cluster.publish_cluster_queue(
        ClusterQueueReport(name=cluster_queue, condition=ready, pending=4, admitted=0, nominal=(), used=())
    )
    path = f"/apis/queuectl.dev/v1beta1/clusterqueues/{cluster_queue}"
    assert (await site.admin.request("GET", path))["status"]["pendingWorkloads"] == 4


async def test_the_controller_may_acquire_the_shipped_lease(site: Site) -> None:
    kubeconfig = str(site.plane.folder / "kubeconfig")
    lease = KubeLease(
        lambda: Session.from_kubeconfig(kubeconfig, "controller"),
        name="queuectl-system/queuectl-controller",
        holder="us",
    )
    path = "/apis/coordination.k8s.io/v1/namespaces/queuectl-system/leases/queuectl-controller"
    async with asyncio.timeout(30):
        await lease.acquire()
        assert (await site.admin.request("GET", path))["spec"]["holderIdentity"] == "us"
        await lease.release()
    assert not (await site.admin.request("GET", path))["spec"].get("holderIdentity")
