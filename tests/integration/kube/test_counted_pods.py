"""Which labels and owners a count of pods relies on, for every kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from queuectl.core.decisions import PodOwnerToRead
from queuectl.core.model.events import PodOwnerRead
from queuectl.core.model.pods import PodOwner
from queuectl.core.model.workload import ObjectRef, WorkloadId
from queuectl.kinds.jobs import JobKind, PodLabel
from queuectl.kinds.reserved_keys import WORKLOAD_LABEL
from queuectl.kube.session import api_path
from tests.integration.kube.sites import NAMESPACE, Site, in_process, job, jobs
from tests.job_kinds import JOB_KINDS

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROWS = pytest.mark.parametrize("row", list(JOB_KINDS), ids=lambda row: row.name)
NUMBERS = count()
SURE = {"TrainJob", "AppWrapper", "SparkApplication"}
"""Their owners do not tell: the label alone does."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder: Path = tmp_path_factory.mktemp("pods")
    async with in_process(folder) as site:
        yield site


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def deadline() -> AsyncIterator[None]:
    async with asyncio.timeout(30):
        yield


async def test_each_kind_has_the_label_of_the_start_and_few_rely_on_labels_alone() -> None:
    assert {row.name for row in JOB_KINDS if any(label.sure for label in row.pods)} == SURE
    assert all(WORKLOAD_LABEL in {label.key for label in row.pods} for row in JOB_KINDS)


@ROWS
async def test_a_pod_that_an_orphaning_delete_left_with_the_label_of_the_start_alone_counts(
    site: Site, row: JobKind
) -> None:
    """All other labels were taken off while it ran: the gate protects the one of the start."""
    ref = await _deleted(site, row)
    assert not await site.cluster.anything_alive(ref)
    path = await _pod(site, {WORKLOAD_LABEL: ref.uid}, [])
    assert await site.cluster.anything_alive(ref)
    await site.session.patch(f"{path}/status", {"status": {"phase": "Failed"}})
    assert not await site.cluster.anything_alive(ref)


@ROWS
async def test_a_pod_of_another_controller_with_the_label_of_the_start_does_not_count(
    site: Site, row: JobKind
) -> None:
    """Any pod template may have the label, such as that of a Deployment."""
    ref = await _deleted(site, row)
    await _pod(site, {WORKLOAD_LABEL: ref.uid}, [await _config_map(site)])
    assert await site.cluster.anything_alive(ref) is (row.name in SURE)


@ROWS
async def test_a_pod_of_another_namespace_with_the_label_of_the_start_does_not_count(
    site: Site, row: JobKind
) -> None:
    ref = await _deleted(site, row)
    await _pod(site, {WORKLOAD_LABEL: ref.uid}, [], namespace="default")
    assert not await site.cluster.anything_alive(ref)


@pytest.mark.parametrize(
    ("row", "label"),
    [
        pytest.param(row, label, id=f"{row.name}, {label.key}")
        for row in JOB_KINDS
        for label in row.pods
        if label.key != WORKLOAD_LABEL and not label.path
    ],
)
async def test_a_pod_of_the_object_counts_by_each_label_of_its_kind_alone(
    site: Site, row: JobKind, label: PodLabel
) -> None:
    """Also without the label of a start: what was adopted has no start."""
    ref = await _deleted(site, row)
    value = ref.uid if label.uid else f"{ref.name}-x" if label.prefix else ref.name
    keeper = await _config_map(site) | {"controller": False}
    owner = {"apiVersion": row.api_version, "kind": row.kind, "name": ref.name, "uid": ref.uid}
    await _pod(site, {label.key: value}, [owner | {"controller": True}, keeper])
    assert await site.cluster.anything_alive(ref)


@ROWS
async def test_the_controller_of_a_pod_proves_whose_it_is(site: Site, row: JobKind) -> None:
    ref = await _deleted(site, row)
    assert await _belongs(site, ref, PodOwner("", "", "", "")) is (row.name in SURE)
    assert await _belongs(site, ref, PodOwner("apps/v1", "ReplicaSet", "x", "y")) is (row.name in SURE)


@pytest.mark.parametrize("name", ["JobSet", "MPIJob", "RayJob", "RayCluster"])
async def test_a_job_in_between_proves_whose_its_pods_are(site: Site, name: str) -> None:
    row = JOB_KINDS[name]
    ref = await _deleted(site, row)
    own = {"apiVersion": row.api_version, "kind": row.kind, "name": ref.name, "uid": ref.uid}
    keeper = await _config_map(site) | {"controller": False}
    for owners, belongs in (([own | {"controller": True}, keeper], True), ([], False)):
        made = job(f"between-{next(NUMBERS)}")
        made["metadata"] |= {"ownerReferences": owners, "labels": {}}
        uid = str((await site.create(jobs(), made))["metadata"]["uid"])
        assert (
            await _belongs(site, ref, PodOwner("batch/v1", "Job", made["metadata"]["name"], uid)) is belongs
        )
        assert not await _belongs(site, ref, PodOwner("batch/v1", "Job", made["metadata"]["name"], "another"))


async def _belongs(site: Site, ref: ObjectRef, owner: PodOwner) -> bool:
    (event,) = await site.cluster.check(PodOwnerToRead(WorkloadId(ref.uid), ref, owner))
    assert isinstance(event, PodOwnerRead)
    assert (event.workload, event.owner) == (ref.uid, owner.uid)
    return event.belongs


async def _deleted(site: Site, row: JobKind) -> ObjectRef:
    """An object of this kind that is gone, with a name and UID of its own."""
    number = next(NUMBERS)
    return ObjectRef(NAMESPACE, row.name, f"work-{number}", f"uid-of-work-{number}")


async def _config_map(site: Site) -> dict[str, Any]:
    """A reference to an object that exists, as a controller: what has no owner that exists is deleted."""
    path = api_path("", "v1", "configmaps", NAMESPACE)
    made = await site.create(
        path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "k-"}}
    )
    name, uid = made["metadata"]["name"], made["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "controller": True}


async def _pod(
    site: Site, labels: dict[str, str], owners: list[dict[str, Any]], namespace: str = NAMESPACE
) -> str:
    """Returns its path."""
    metadata = {"name": f"pod-{next(NUMBERS)}", "labels": labels, "ownerReferences": owners}
    path = api_path("", "v1", "pods", namespace)
    spec = {"containers": [{"name": "c", "image": "i"}]}
    await site.create(path, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return f"{path}/{metadata['name']}"
