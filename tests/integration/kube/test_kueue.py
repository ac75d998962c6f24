"""Kueue's labels on an API server, and detection of Kueue's own controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from queuectl.app.kueue import check, watch
from queuectl.core.model.events import Listed, Result, WorkloadGone, WorkloadObserved
from queuectl.kinds.admission import rfc3339
from queuectl.kinds.labels import KUEUES_TOO
from queuectl.kinds.workloads import observe
from queuectl.kube.census import admitted
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.kueue import LEASE, gated, running
from queuectl.kube.reflectors import reflectors
from queuectl.kube.session import api_path, cluster_id
from queuectl.kube.sources import sources
from queuectl.settings import ConfigurationError, Settings
from tests.integration.kube.scripted import QUICK
from tests.integration.kube.sites import CRDS, PYTORCH_CRD, Site, effect, in_process, job, jobs
from tests.job_kinds import JOB_KINDS

OURS = "queuectl.dev/queue-name"
KUEUES = "kueue.x-k8s.io/queue-name"
LEASES = api_path("coordination.k8s.io", "v1", "leases", "kueue-system")
POLICIES = api_path("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies")
HONOURED = Settings.model_validate({"compatibility": {"kueueLabels": True}})


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with in_process(tmp_path) as found:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
        await found.create(api_path("", "v1", "namespaces"), namespace)
        await cluster_id(found.session)  # the first answer has the server's time
        yield found


def kueues(name: str, queue: str = "main", **labels: str) -> dict[str, Any]:
    body = job(name)
    body["metadata"]["labels"] = {KUEUES: queue, **labels}
    return body


def lease(site: Site, age: float, holder: str | None = "kueue-controller-manager-0") -> dict[str, Any]:
    renewed = rfc3339(site.session.server_time() - timedelta(seconds=age))
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": "kueue-system"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
    }


def pod(name: str, labels: dict[str, str]) -> dict[str, Any]:
    spec = {"containers": [{"name": "manager", "image": "kueue"}], "nodeName": "n"}
    metadata = {"name": name, "namespace": "kueue-system", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def test_one_watch_follows_an_object_from_label_to_label(site: Site) -> None:
    seen: list[Any] = []
    watched = [source for source in sources(JOB_KINDS, KUEUES_TOO) if source.name == "Job"]
    following = reflectors(site.session, seen.extend, watched, timings=QUICK)

    async def until(told: list[str]) -> None:
        def told_so_far() -> list[str]:
            return [
                event.workload.queue if isinstance(event, WorkloadObserved) else "gone"
                for event in seen
                if isinstance(event, WorkloadObserved | WorkloadGone)
            ]

        async with asyncio.timeout(30):
            while told_so_far() != told:
                await asyncio.sleep(0.01)

    plain = job("plain")
    del plain["metadata"]["labels"]
    await site.create(jobs(), plain)
    await site.create(jobs(), kueues("train"))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(following.run())
        told = ["main"]
        await until(told)
        (listed,) = [event for event in seen if isinstance(event, Listed)]
        assert listed.workloads is not None
        assert len(listed.workloads) == 1
        for labels, queue in (({OURS: "ours"}, "ours"), ({OURS: None}, "main"), ({KUEUES: None}, "gone")):
            await site.session.patch(jobs("train"), {"metadata": {"labels": labels}})
            told.append(queue)
            await until(told)
        task.cancel()


async def test_a_start_goes_by_the_label_that_held_and_is_refused_when_another_does(site: Site) -> None:
    cluster = KubeCluster(site.session, JOB_KINDS, honoured=KUEUES_TOO)

    body = kueues("train")
    body["metadata"]["annotations"] = {"a": "b"}  # else the resourceVersion is tested too
    await site.create(jobs(), body)
    before = effect(await site.session.get(jobs("train")), honoured=KUEUES_TOO)
    # The same name in our label: the decision is still right, but the patch tests the label of the decision.
    await site.session.patch(jobs("train"), {"metadata": {"labels": {OURS: "main"}}})
    settled, event = await cluster.start(before)
    assert settled.result is Result.REFUSED
    assert isinstance(event, WorkloadObserved)
    assert event.observation.suspended
    again = effect(await site.session.get(jobs("train")), honoured=KUEUES_TOO)
    settled, _ = await cluster.start(again)
    assert settled.result is Result.DONE


async def test_an_object_without_both_labels_is_no_longer_managed(site: Site) -> None:
    await site.create(jobs(), kueues("train"))
    before = effect(await site.session.get(jobs("train")), honoured=KUEUES_TOO)
    await site.session.patch(jobs("train"), {"metadata": {"labels": None}})
    settled, event = await KubeCluster(site.session, JOB_KINDS, honoured=KUEUES_TOO).start(before)
    assert settled.result is Result.REFUSED
    assert isinstance(event, WorkloadGone)


async def test_running_work_with_kueues_label_is_found_for_a_rebuild(site: Site) -> None:

    await site.create(jobs(), kueues("train"))
    obj = await site.session.get(jobs("train"))
    await KubeCluster(site.session, JOB_KINDS, honoured=KUEUES_TOO).start(effect(obj, honoured=KUEUES_TOO))
    assert [seen.workload.queue for seen in await admitted(site.session, JOB_KINDS, KUEUES_TOO)] == ["main"]
    assert await admitted(site.session, JOB_KINDS) == []
    assert observe(JOB_KINDS["Job"], obj) is None


async def test_crds_of_kueue_alone_do_not_mean_that_it_runs(site: Site) -> None:
    names = {"kind": "Workload", "listKind": "WorkloadList", "plural": "workloads", "singular": "workload"}
    definition = {
        **PYTORCH_CRD,
        "metadata": {"name": "workloads.kueue.x-k8s.io"},
        "spec": {**PYTORCH_CRD["spec"], "group": "kueue.x-k8s.io", "names": names},
    }
    await site.create(CRDS, definition)
    assert await running(site.session) is None
    await check(HONOURED, site.session)


@pytest.mark.parametrize(
    ("age", "holder", "runs"),
    [(0, "a", True), (45, "a", True), (3600, "a", False), (0, "", False), (0, None, False), (-30, "a", True)],
)
async def test_a_lease_shows_kueue_only_if_it_was_renewed_recently(
    site: Site, age: float, holder: str | None, runs: bool
) -> None:
    await site.create(LEASES, lease(site, age, holder))
    found = await running(site.session)
    assert (found is not None) is runs
    if found:
        assert found.startswith(f"Lease kueue-system/{LEASE} was renewed ")


async def test_a_lease_of_another_name_does_not_show_kueue(site: Site) -> None:
    body = lease(site, 0)
    body["metadata"]["name"] = "another"
    await site.create(LEASES, body)
    assert await running(site.session) is None


async def test_pods_show_kueue_without_leader_election(site: Site) -> None:
    pods = api_path("", "v1", "pods", "kueue-system")
    labels = {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
    await site.create(pods, pod("kueue-0", labels))
    await site.create(pods, pod("kueueviz", {"app.kubernetes.io/name": "kueue"}))
    for name in ("kueueviz", "kueue-0"):
        assert await running(site.session) is None
        await site.session.patch(f"{pods}/{name}/status", {"status": {"phase": "Running"}})
    assert await running(site.session) == "pod kueue-system/kueue-0 runs"


async def test_kueues_labels_are_refused_beside_kueue_with_instructions(site: Site) -> None:
    await check(HONOURED, site.session)
    await site.create(LEASES, lease(site, 2))
    with pytest.raises(ConfigurationError, match=r"compatibility\.kueueLabels: Kueue's own controller runs"):
        await check(HONOURED, site.session)
    await check(Settings(), site.session)


async def test_a_leader_detects_that_kueue_was_started(site: Site) -> None:
    async def come() -> None:
        await asyncio.sleep(0.05)
        await site.create(LEASES, lease(site, 0))

    async with asyncio.TaskGroup() as group:
        group.create_task(come())
        with pytest.raises(ConfigurationError):
            async with asyncio.timeout(30):
                await watch(site.session, every=0.01)


async def test_gate_and_configuration_must_agree(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    assert await gated(site.session) is None
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "queuectl-jobs"},
        "spec": {"matchConditions": [{"name": "a", "expression": "true"}]},
    }
    await site.create(POLICIES, policy)
    with pytest.raises(ConfigurationError, match="the gate does not cover Kueue's label"):
        await check(HONOURED, site.session)
    await check(Settings(), site.session)
    assert not caplog.records
    wide = {"spec": {"matchConditions": [{"name": "queued", "expression": f"'{KUEUES}' in x"}]}}
    await site.session.patch(f"{POLICIES}/queuectl-jobs", wide)
    await check(HONOURED, site.session)
    await check(Settings(), site.session)
    assert "nothing starts it" in caplog.text
