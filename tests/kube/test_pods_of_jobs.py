"""Pods that belong to a Job of an object, such as those of a JobSet and the launcher of an MPIJob."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from queuectl.core.model import ObjectRef
from queuectl.kinds.jobs import JobKind
from queuectl.kube.session import api_path
from tests.job_kinds import JOB_KINDS
from tests.kinds.kind_objects import SUSPENDED, sample
from tests.kube.sites import CRDS, NAMESPACE, PYTORCH_CRD, Site, effect, in_process, job, jobs

pytestmark = pytest.mark.asyncio(loop_scope="module")
KINDS = {"MPIJob": {"Launcher": 1, "Worker": 2}, "JobSet": {"workers": 2}}
ROWS = pytest.mark.parametrize("row", [JOB_KINDS[name] for name in KINDS], ids=lambda row: row.name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder: Path = tmp_path_factory.mktemp("jobs")
    async with in_process(folder) as site:
        for name in KINDS:
            await site.create(CRDS, _definition(JOB_KINDS[name]))
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


def _definition(row: JobKind) -> dict[str, Any]:
    found = copy.deepcopy(PYTORCH_CRD)
    names = {"kind": row.kind, "listKind": f"{row.kind}List", "plural": row.plural}
    found["metadata"]["name"] = row.resource
    found["spec"] |= {"group": row.group, "names": names | {"singular": row.kind.lower()}}
    found["spec"]["versions"][0]["name"] = row.version
    return found


async def _suspended(site: Site, row: JobKind, name: str) -> ObjectRef:
    """An object that its controller has seen suspended."""
    path = api_path(row.group, row.version, row.plural, NAMESPACE)
    body = sample(row, **KINDS[row.name])
    body["metadata"] = {"name": name, "namespace": NAMESPACE, "labels": body["metadata"]["labels"]}
    await site.create(path, body)
    status = {"status": {"conditions": [SUSPENDED]}}
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
    label, _, value = row.pod_selector(ref.name, ref.uid).partition("=")
    owners = [_owner("batch/v1", "Job", _name(row, ref), job)]
    if keeper is not None:
        owners.append(_owner("v1", "ConfigMap", "keeper", keeper) | {"controller": False})
    name = f"{_name(row, ref)}-0"
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {label: value}, "ownerReferences": owners}
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
