"""Pods of objects in between: of the Jobs of a JobSet or an MPIJob, of the RayCluster of a RayJob."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from queuectl.core.model.workload import ObjectRef
from queuectl.kinds.jobs import JobKind
from queuectl.kinds.reserved_keys import ADMISSION_ANNOTATION, STOPPED_ANNOTATION
from queuectl.kube.session import api_path
from tests.integration.kube.sites import CRDS, NAMESPACE, Site, definition, effect, in_process, job, jobs
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.kind_objects import sample, seen_suspended

pytestmark = pytest.mark.asyncio(loop_scope="module")
KINDS = {"MPIJob": {"Launcher": 1, "Worker": 2}, "JobSet": {"workers": 2}, "RayJob": {}}
ROWS = pytest.mark.parametrize("row", [JOB_KINDS[name] for name in KINDS], ids=lambda row: row.name)
RAY_JOB, RAY_CLUSTER, RAY_SERVICE = (JOB_KINDS[name] for name in ("RayJob", "RayCluster", "RayService"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder: Path = tmp_path_factory.mktemp("jobs")
    async with in_process(folder) as site:
        for name in KINDS:
            await site.create(CRDS, definition(JOB_KINDS[name]))
        for row in (RAY_CLUSTER, RAY_SERVICE):
            await site.create(CRDS, definition(row))
        yield site


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def deadline() -> AsyncIterator[None]:
    async with asyncio.timeout(30):
        yield


@ROWS
async def test_a_pod_of_a_job_of_the_object_keeps_it_alive_until_it_ends(site: Site, row: JobKind) -> None:
    ref = await _suspended(site, row, "owns")
    child = await _job(site, row, ref, ref.uid)
    assert not await site.cluster.anything_alive(ref)
    path = await _pod(site, row, ref, child)
    assert await site.cluster.anything_alive(ref)
    await site.session.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})
    assert not await site.cluster.anything_alive(ref)


@ROWS
async def test_a_pod_of_a_job_of_another_object_does_not_count(site: Site, row: JobKind) -> None:
    ref = await _suspended(site, row, "other")
    await _pod(site, row, ref, await _job(site, row, ref, await _keeper(site)))
    assert not await site.cluster.anything_alive(ref)


@ROWS
async def test_a_pod_counts_where_its_job_is_gone_or_has_a_successor_of_its_name(
    site: Site, row: JobKind
) -> None:
    ref = await _suspended(site, row, "gone")
    path = await _pod(site, row, ref, "uid-of-a-job-that-is-gone", await _keeper(site))
    assert await site.cluster.anything_alive(ref)
    await _job(site, row, ref, await _keeper(site))
    assert await site.cluster.anything_alive(ref)
    await site.session.delete(path)
    assert not await site.cluster.anything_alive(ref)


async def test_a_pod_of_a_job_that_was_orphaned_counts_where_its_label_has_the_uid(site: Site) -> None:
    for name, counts in (("JobSet", True), ("MPIJob", False)):
        row = JOB_KINDS[name]
        ref = await _suspended(site, row, "orphaned")
        await _pod(site, row, ref, await _job(site, row, ref, None))
        assert await site.cluster.anything_alive(ref) is counts


async def test_pods_of_the_cluster_of_a_ray_job_count_until_they_end(site: Site) -> None:
    ref = await _suspended(site, RAY_JOB, "clustered")
    cluster = await _cluster(site, "clustered-x2b7k", _owner("ray.io/v1", "RayJob", ref.name, ref.uid))
    path = await _ray_pod(site, "clustered-x2b7k", cluster)
    # Its status does not name the cluster any more.
    assert await site.cluster.anything_alive(ref)
    await site.session.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})
    assert not await site.cluster.anything_alive(ref)


async def test_a_pod_of_a_cluster_that_is_gone_counts_for_the_ray_job_that_may_have_had_it(
    site: Site,
) -> None:
    ref = await _suspended(site, RAY_JOB, "doubted")
    other = await _suspended(site, RAY_JOB, "undoubted")
    await _ray_pod(site, "doubted-x2b7k", "uid-of-a-cluster-that-is-gone", await _keeper(site))
    assert await site.cluster.anything_alive(ref)
    assert not await site.cluster.anything_alive(other)


async def test_a_pod_of_the_cluster_of_another_ray_job_does_not_count(site: Site) -> None:
    ref, other = [await _suspended(site, RAY_JOB, name) for name in ("tune", "tune-again")]
    cluster = await _cluster(site, "tune-again-x2b7k", _owner("ray.io/v1", "RayJob", other.name, other.uid))
    await _ray_pod(site, "tune-again-x2b7k", cluster)
    assert await site.cluster.anything_alive(other)
    assert not await site.cluster.anything_alive(ref)


async def test_a_ray_service_may_make_pods_until_its_clusters_are_seen_suspended(site: Site) -> None:
    ref = await _suspended(site, RAY_SERVICE, "serves")
    assert not await site.cluster.anything_alive(ref)
    path = await _served_by(site, ref, "serves-x2b7k", {})
    assert await site.cluster.anything_alive(ref)
    await site.session.patch(f"{path}/status", {"status": CLUSTER_SUSPENDED})
    assert not await site.cluster.anything_alive(ref)


async def test_a_ray_service_has_not_seen_a_later_stop(site: Site) -> None:
    ref = await _suspended(site, RAY_SERVICE, "later")
    await _toggle(site, ref)
    assert await site.cluster.anything_alive(ref)


CLUSTER_SUSPENDED = {**seen_suspended(RAY_CLUSTER), "observedGeneration": 1}
STARTED_TWICE, STOPPED_TWICE = {ADMISSION_ANNOTATION: "2"}, {STOPPED_ANNOTATION: "2"}


@pytest.mark.parametrize(
    ("has", "copied", "alive"),
    [
        (STARTED_TWICE | STOPPED_TWICE, STARTED_TWICE | STOPPED_TWICE, False),
        # Its user has suspended it.
        (STARTED_TWICE, STARTED_TWICE, False),
        # It was adopted, with no start.
        (STOPPED_TWICE, STOPPED_TWICE, False),
        # Its controller has not seen that start yet, and may still start its cluster.
        (STARTED_TWICE | STOPPED_TWICE, {ADMISSION_ANNOTATION: "1", STOPPED_ANNOTATION: "1"}, True),
        (STARTED_TWICE, {ADMISSION_ANNOTATION: "1"}, True),
        ({}, {}, True),
    ],
    ids=["stopped", "by its user", "adopted", "an earlier stop", "an earlier start", "neither"],
)
async def test_a_ray_service_has_seen_the_stop_that_its_suspended_cluster_has_a_copy_of(
    site: Site, request: Any, has: dict[str, str], copied: dict[str, str], alive: bool
) -> None:
    """KubeRay does not write into the status of a RayService whose cluster has no head."""
    name = f"told-{request.node.callspec.id.replace(' ', '-')}"
    ref = await _suspended(site, RAY_SERVICE, name)
    await site.session.patch(_path_of(ref), {"metadata": {"annotations": has}})
    await _toggle(site, ref)
    path = await _served_by(site, ref, f"{name}-x2b7k", copied)
    await site.session.patch(f"{path}/status", {"status": CLUSTER_SUSPENDED})
    assert await site.cluster.anything_alive(ref) is alive


async def test_of_a_ray_service_every_cluster_must_be_suspended_as_it_is_now(site: Site) -> None:
    ref = await _suspended(site, RAY_SERVICE, "upgraded")
    await site.session.patch(_path_of(ref), {"metadata": {"annotations": STARTED_TWICE}})
    await _toggle(site, ref)
    new = await _served_by(site, ref, "upgraded-new", STARTED_TWICE)
    old = await _served_by(site, ref, "upgraded-old", {ADMISSION_ANNOTATION: "1"})
    for path in (new, old):
        assert await site.cluster.anything_alive(ref)
        await site.session.patch(f"{path}/status", {"status": CLUSTER_SUSPENDED})
    assert not await site.cluster.anything_alive(ref)
    # What its controller says of it is of an earlier suspension.
    for suspend in (False, True):
        await site.session.patch(old, {"spec": {"suspend": suspend}})
    assert await site.cluster.anything_alive(ref)


async def _toggle(site: Site, ref: ObjectRef) -> None:
    """Start and stop a RayService: its status is of an earlier generation then."""
    for suspend in (False, True):
        await site.session.patch(_path_of(ref), {"spec": {"rayClusterConfig": {"suspend": suspend}}})


def _path_of(ref: ObjectRef) -> str:
    row = JOB_KINDS[ref.kind]
    return api_path(row.group, row.version, row.plural, ref.namespace, ref.name)


async def _served_by(site: Site, ref: ObjectRef, name: str, annotations: dict[str, str]) -> str:
    """A RayCluster of the RayService. Returns its path."""
    owner = _owner("ray.io/v1", "RayService", ref.name, ref.uid)
    await _cluster(site, name, owner, {"ray.io/originated-from-cr-name": ref.name}, annotations)
    return api_path(RAY_CLUSTER.group, RAY_CLUSTER.version, RAY_CLUSTER.plural, NAMESPACE, name)


async def _suspended(site: Site, row: JobKind, name: str) -> ObjectRef:
    """An object that its controller has seen suspended."""
    path = api_path(row.group, row.version, row.plural, NAMESPACE)
    body = sample(row, **KINDS.get(row.name, {}))
    body["metadata"] = {"name": name, "namespace": NAMESPACE, "labels": body["metadata"]["labels"]}
    await site.create(path, body)
    status = {"status": seen_suspended(row)}
    return effect(await site.session.patch(f"{path}/{name}/status", status), row.name).workload.ref


async def _job(site: Site, row: JobKind, ref: ObjectRef, owner: str | None) -> str:
    """A Job, of the object with the UID `owner`. Returns its own."""
    body = job(_name(row, ref))
    del body["metadata"]["labels"]
    if owner is not None:
        body["metadata"]["ownerReferences"] = [_owner(row.api_version, row.kind, ref.name, owner)]
    return str((await site.create(jobs(), body))["metadata"]["uid"])


async def _pod(site: Site, row: JobKind, ref: ObjectRef, job: str, keeper: str | None = None) -> str:
    """A pod of the Job with the UID `job`, labelled as one of the object. Returns its path."""
    label, _, value = next(iter(row.pod_selectors(None, ref.name, ref.uid))).partition("=")
    owners = [_owner("batch/v1", "Job", _name(row, ref), job)]
    if keeper is not None:
        owners.append(_owner("v1", "ConfigMap", "keeper", keeper) | {"controller": False})
    return await _create_pod(site, f"{_name(row, ref)}-0", {label: value}, owners)


async def _cluster(
    site: Site,
    name: str,
    owner: dict[str, Any],
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> str:
    """A RayCluster. Returns its UID."""
    body = sample(RAY_CLUSTER)
    body["metadata"] = {
        "name": name,
        "namespace": NAMESPACE,
        "ownerReferences": [owner],
        "labels": labels or {},
        "annotations": annotations or {},
    }
    path = api_path(RAY_CLUSTER.group, RAY_CLUSTER.version, RAY_CLUSTER.plural, NAMESPACE)
    return str((await site.create(path, body))["metadata"]["uid"])


async def _ray_pod(site: Site, cluster: str, uid: str, keeper: str | None = None) -> str:
    """A pod of the RayCluster with this name and UID. Returns its path."""
    owners = [_owner("ray.io/v1", "RayCluster", cluster, uid)]
    if keeper is not None:
        owners.append(_owner("v1", "ConfigMap", "keeper", keeper) | {"controller": False})
    return await _create_pod(site, f"{cluster}-head", {"ray.io/cluster": cluster}, owners)


async def _create_pod(site: Site, name: str, labels: dict[str, str], owners: list[dict[str, Any]]) -> str:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels, "ownerReferences": owners}
    path = api_path("", "v1", "pods", NAMESPACE)
    container = {"name": "c", "image": "i"}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    await site.create(path, body)
    return f"{path}/{name}"


async def _keeper(site: Site) -> str:
    """UID of an object that exists: what has no owner that exists is deleted at once."""
    path = api_path("", "v1", "configmaps", NAMESPACE)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "keeper-"}}
    return str((await site.create(path, body))["metadata"]["uid"])


def _name(row: JobKind, ref: ObjectRef) -> str:
    return f"{ref.name}-{row.plural}"


def _owner(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}
