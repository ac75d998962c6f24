"""Objects whose podsets a child has: the JobSet of a TrainJob."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from queuectl.core.model.events import Event, Result, WorkloadObserved
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import ObjectRef
from queuectl.kinds.admission import render, rfc3339
from queuectl.kinds.reserved_keys import ADMISSION_ANNOTATION
from queuectl.kinds.start_patch import STARTED
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.errors import Forbidden
from queuectl.kube.reflectors import reflectors
from queuectl.kube.session import Object, Session, api_path
from queuectl.kube.sources import sources
from tests.integration.kube.scripted import QUICK
from tests.integration.kube.sites import CRDS, NAMESPACE, Site, definition, effect, in_process, job, jobs
from tests.integration.sandbox.polling import eventually
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.computed_objects import app_wrapper, its_job_set, train_job
from tests.unit.kinds.kind_objects import SUSPENDED, job_set

pytestmark = pytest.mark.asyncio(loop_scope="module")
TRAIN, JOB_SET = JOB_KINDS["TrainJob"], JOB_KINDS["JobSet"]
TRAIN_JOBS = api_path(TRAIN.group, TRAIN.version, TRAIN.plural, NAMESPACE)
JOB_SETS = api_path(JOB_SET.group, JOB_SET.version, JOB_SET.plural, NAMESPACE)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder: Path = tmp_path_factory.mktemp("children")
    async with in_process(folder) as site:
        for name in ("TrainJob", "JobSet", "AppWrapper"):
            await site.create(CRDS, definition(JOB_KINDS[name]))
        yield site


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def deadline() -> AsyncIterator[None]:
    async with asyncio.timeout(30):
        yield


async def test_a_train_job_has_podsets_once_its_job_set_is_there(site: Site) -> None:
    async with _reflected(site) as seen:
        made = await _train_job(site, "late")
        await eventually(lambda: _problem(seen, made) is Code.PENDING_EVALUATION, "it waits", 20)
        await _job_set(site, made)
        await _told(site, made)  # as Trainer does after it has made the JobSet
        await eventually(lambda: _pods(seen, made) == {"node": 4}, "its pods are known", 20)


async def test_a_job_set_of_another_owner_is_not_its_child(site: Site) -> None:
    async with _reflected(site) as seen:
        made = await _train_job(site, "other")
        await _job_set(site, {**made, "metadata": {**made["metadata"], "uid": "of-another"}})
        await _told(site, made)
        await eventually(lambda: _problem(seen, made) is Code.PENDING_EVALUATION, "it waits", 20)


@pytest.mark.parametrize("strict", [False, True], ids=["Trainer 2.2.1", "Trainer 2.2.0"])
async def test_a_train_job_is_started_in_as_few_writes_as_its_controller_takes(
    site: Site, strict: bool
) -> None:
    session = Strict(site.session, strict)
    cluster = KubeCluster(session, JOB_KINDS)  # type: ignore[arg-type]
    for name, writes in ((f"first-{strict}", 3 if strict else 1), (f"second-{strict}", 2 if strict else 1)):
        made = await _train_job(site, name.lower())
        session.writes = 0
        settled, _ = await cluster.start(effect(made, "TrainJob", child=its_job_set()))
        assert (settled.result, session.writes) == (Result.DONE, writes)
        found = await site.session.get(f"{TRAIN_JOBS}/{name.lower()}")
        assert settled.generation == found["metadata"]["generation"]
        assert found["spec"]["suspend"] is False
        assert len(found["spec"]["runtimePatches"]) == 1


async def test_a_refused_start_reports_the_train_job_with_its_podsets(site: Site) -> None:
    made = await _train_job(site, "edited")
    await _job_set(site, made, nodes=2)
    start = effect(made, "TrainJob", child=its_job_set())
    await site.session.patch(f"{TRAIN_JOBS}/edited", {"spec": {"activeDeadlineSeconds": 60}})
    settled, event = await site.cluster.start(start)
    assert settled.result is Result.REFUSED
    assert isinstance(event, WorkloadObserved)
    assert [(pods.name, pods.count) for pods in event.workload.pod_sets] == [("node", 2)]


async def test_its_job_set_may_make_pods_until_that_is_seen_suspended_too(site: Site) -> None:
    made = await _train_job(site, "stopped")
    child = await _job_set(site, made)
    ref = effect(await _told(site, made), "TrainJob", child=child).workload.ref
    assert await site.cluster.anything_alive(ref)
    status = {"conditions": [SUSPENDED], "replicatedJobsStatus": [{"name": "node", "active": 1}]}
    await site.session.patch(f"{JOB_SETS}/stopped/status", {"status": status})
    assert await site.cluster.anything_alive(ref)
    status["replicatedJobsStatus"] = [{"name": "node", "active": 0}]
    await site.session.patch(f"{JOB_SETS}/stopped/status", {"status": status})
    assert not await site.cluster.anything_alive(ref)


async def test_its_job_set_may_be_on_its_way_to_run_until_it_was_seen_suspended_after_the_start(
    site: Site,
) -> None:
    """Its controller lets the Job go before it writes that the JobSet runs; the Job says meanwhile that it
    waits, as it did before the start."""
    made = await _train_job(site, "slow")
    child = await _job_set(site, made)
    start = effect(await _told(site, made), "TrainJob", child=child)
    annotation = render(start.attempt, "main", start.flavors)
    changes = {"metadata": {"annotations": {ADMISSION_ANNOTATION: annotation}}}
    await site.session.patch(f"{TRAIN_JOBS}/slow", changes)
    for suspend in (False, True):
        await site.session.patch(f"{JOB_SETS}/slow", {"spec": {"suspend": suspend}})
    for after, alive in ((-1, True), (0, True), (1, False)):
        time = rfc3339(start.attempt.admitted_at + timedelta(seconds=after))
        status = {"conditions": [SUSPENDED | {"lastTransitionTime": time}]}
        await site.session.patch(f"{JOB_SETS}/slow/status", {"status": status})
        assert await site.cluster.anything_alive(start.workload.ref, still=59.0) is alive
        assert not await site.cluster.anything_alive(start.workload.ref, still=60.0)


@pytest.mark.parametrize("kind", ["TrainJob", "JobSet"])
async def test_a_job_below_may_have_a_pod_on_its_way_until_it_was_seen_suspended_after_the_start(
    site: Site, kind: str
) -> None:
    """The Job controller makes pods before it writes that the Job runs: until then it says what it said
    before the start, also when the Job is suspended meanwhile."""
    name = f"on-its-way-{kind.lower()}"
    if kind == "TrainJob":
        made = await _train_job(site, name)
        child = top = await _job_set(site, made)
        start = effect(await _told(site, made), kind, child=child)
    else:
        body = job_set(("node", 1, 4))
        labels = body["metadata"]["labels"]
        body["metadata"] = {"name": name, "namespace": NAMESPACE, "labels": labels}
        made = top = await site.create(JOB_SETS, body)
        start = effect(made, kind)
    annotation = render(start.attempt, "main", start.flavors)
    path = f"{TRAIN_JOBS if kind == 'TrainJob' else JOB_SETS}/{name}"
    await site.session.patch(path, {"metadata": {"annotations": {ADMISSION_ANNOTATION: annotation}}})
    await site.session.patch(f"{JOB_SETS}/{name}/status", {"status": {"conditions": [SUSPENDED]}})
    below = job(name)
    below["metadata"]["labels"] = {"jobset.sigs.k8s.io/jobset-name": name}
    owner = {"apiVersion": JOB_SET.api_version, "kind": "JobSet", "name": name, "controller": True}
    below["metadata"]["ownerReferences"] = [owner | {"uid": top["metadata"]["uid"]}]
    await site.create(jobs(), below)

    async def alive(still: float = 0.0) -> bool:
        return await site.cluster.anything_alive(start.workload.ref, still=still)

    async def says(after: timedelta) -> None:
        condition = SUSPENDED | {"lastTransitionTime": rfc3339(start.attempt.admitted_at + after)}
        await site.session.patch(f"{jobs(name)}/status", {"status": {"conditions": [condition]}})

    assert await alive(), "its controller has not seen it"
    await says(timedelta(seconds=-1))
    assert not await alive(), "it was never let go"
    for suspend in (False, True):
        await site.session.patch(jobs(name), {"spec": {"suspend": suspend}})
        assert await alive(59.0)
        assert not await alive(60.0), "no request takes longer"
    await says(timedelta())
    assert await alive(), "in the second of the start, or before"
    await says(timedelta(seconds=1))
    assert not await alive()


@pytest.mark.parametrize("label", ["of a start", "of its operator"])
async def test_a_pod_of_a_wrapped_deployment_keeps_an_app_wrapper_alive(site: Site, label: str) -> None:
    row, name = JOB_KINDS["AppWrapper"], f"wrapped-{label.rpartition(' ')[2]}"
    path = api_path(row.group, row.version, row.plural, NAMESPACE)
    body = app_wrapper()
    body["metadata"] = {"name": name, "namespace": NAMESPACE, "labels": body["metadata"]["labels"]}
    await site.create(path, body)
    made = await site.session.patch(f"{path}/{name}/status", {"status": {"phase": "Suspended"}})
    ref = effect(made, "AppWrapper").workload.ref
    assert not await site.cluster.anything_alive(ref)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": True}
    labels = {STARTED.key: ref.uid} if label == "of a start" else {"workload.codeflare.dev/appwrapper": name}
    pod = await _pod(site, ref, labels, owner)
    assert await site.cluster.anything_alive(ref)
    await site.session.delete(pod)
    assert not await site.cluster.anything_alive(ref)


class Strict:
    """A session. If it is strict, runtimePatches change only while the object stays suspended."""

    def __init__(self, session: Session, strict: bool) -> None:
        self._session = session
        self._strict = strict
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def patch(self, path: str, body: Any, **more: Any) -> Object:
        self.writes += 1
        paths = [one["path"] for one in body]
        if self._strict and "/spec/suspend" in paths and any("runtimePatches" in one for one in paths):
            raise Forbidden("RuntimePatches can only be modified when the TrainJob is suspended")
        return await self._session.patch(path, body, **more)


@asynccontextmanager
async def _reflected(site: Site) -> AsyncIterator[dict[str, WorkloadObserved]]:
    """What is last observed, by UID."""
    seen: dict[str, WorkloadObserved] = {}

    def emit(events: Any) -> None:
        found: list[Event] = list(events)
        seen.update({one.workload.id: one for one in found if isinstance(one, WorkloadObserved)})

    watched = [source for source in sources(JOB_KINDS) if source.name == "TrainJob"]
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reflectors(site.session, emit, watched, timings=QUICK).run())
        yield seen
        task.cancel()


def _problem(seen: dict[str, WorkloadObserved], made: Object) -> Code | None:
    found = seen.get(made["metadata"]["uid"])
    return found.workload.problem.code if found is not None and found.workload.problem is not None else None


def _pods(seen: dict[str, WorkloadObserved], made: Object) -> dict[str, int]:
    return {pods.name: pods.count for pods in seen[made["metadata"]["uid"]].workload.pod_sets}


async def _train_job(site: Site, name: str) -> Object:
    body = train_job()
    body["metadata"] = {"name": name, "namespace": NAMESPACE, "labels": body["metadata"]["labels"]}
    return await site.create(TRAIN_JOBS, body)


async def _job_set(site: Site, owner: Object, nodes: int = 4) -> Object:
    body = its_job_set(nodes)
    (reference,) = body["metadata"]["ownerReferences"]
    metadata = owner["metadata"]
    reference |= {"name": metadata["name"], "uid": metadata["uid"]}
    body["metadata"] = {"name": metadata["name"], "namespace": NAMESPACE, "ownerReferences": [reference]}
    return await site.create(JOB_SETS, body)


async def _told(site: Site, made: Object) -> Object:
    """Its controller has seen it suspended."""
    path = f"{TRAIN_JOBS}/{made['metadata']['name']}/status"
    return await site.session.patch(path, {"status": {"conditions": [SUSPENDED]}})


async def _pod(site: Site, ref: ObjectRef, labels: dict[str, str], owner: dict[str, Any]) -> str:
    """A running pod. Returns its path."""
    pods = api_path("", "v1", "pods", NAMESPACE)
    # What has no owner that exists is deleted at once.
    keepers = api_path("", "v1", "configmaps", NAMESPACE)
    kept = {"apiVersion": "v1", "kind": "ConfigMap"}
    keeper = (await site.create(keepers, {**kept, "metadata": {"generateName": "keeper-"}}))["metadata"]
    kept |= {"name": keeper["name"], "uid": keeper["uid"]}
    metadata: Object = {"namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner, kept]}
    metadata["name"] = f"pod-of-{ref.name}"
    spec = {"containers": [{"name": "c", "image": "i"}]}
    await site.create(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return f"{pods}/pod-of-{ref.name}"
