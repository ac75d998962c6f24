"""Stops right after starts, with the real Job controller, whose pods wait for an admission webhook."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from queuectl.core.model.events import Result
from queuectl.core.model.workload import Verb
from queuectl.kinds.jobs import conditions
from queuectl.kube.errors import NotFound
from queuectl.kube.session import api_path
from queuectl.sandbox.control_plane import ControlPlane, find_assets
from tests.conftest import NEXT, next_assets
from tests.doubles.processes import controllers_stopped
from tests.integration.kube.sites import NAMESPACE, Site, effect, job, jobs, served
from tests.integration.sandbox.polling import eventually
from tests.job_kinds import JOB_KINDS
from tests.unit.certificates.issuing import DAY, issue, key_pem, new_key, pem

pytestmark = pytest.mark.asyncio(loop_scope="module")

PODS = api_path("", "v1", "pods", NAMESPACE)
WEBHOOKS = api_path("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations")


class SlowPods:
    """A webhook that lets pods through while it is `open`."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.asked = asyncio.Event()

    def hold(self) -> None:
        self.open.clear()
        self.asked.clear()

    async def review(self, request: web.Request) -> web.Response:
        review = await request.json()
        self.asked.set()
        await self.open.wait()
        answer = {"uid": review["request"]["uid"], "allowed": True}
        return web.json_response(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
        )


@dataclass
class Cluster:
    site: Site
    plane: ControlPlane
    pods: SlowPods

    async def job(self, name: str) -> dict[str, Any]:
        return await self.site.session.get(jobs(name))

    async def count(self) -> int:
        return len((await self.site.session.get(PODS))["items"])


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=["1.36", NEXT], ids=lambda name: f"site={name}"
)
async def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    assets = next_assets() if request.param == NEXT else find_assets()
    if assets is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: the real Job controller is not tried")
    folder = tmp_path_factory.mktemp("plane")
    async with ControlPlane(folder / "plane", assets, fsync=False) as plane:
        plane.write_kubeconfig(folder / "kubeconfig")
        async with served(folder / "kubeconfig", None) as site:
            slow = SlowPods()
            runner = web.AppRunner(_app(slow), access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=_tls(folder)).start()
            await site.create(WEBHOOKS, _webhook(folder, runner.addresses[0][1]))
            try:
                yield Cluster(site, plane, slow)
            finally:
                slow.open.set()
                await runner.cleanup()


def _app(slow: SlowPods) -> web.Application:
    app = web.Application()
    app.router.add_post("/review", slow.review)
    return app


def _tls(folder: Path) -> ssl.SSLContext:
    key, now = new_key(), datetime.now(UTC)  # noqa: TID251 (the API server checks it by its own clock)
    certificate = issue("localhost", key, begins=now - timedelta(hours=1), ends=now + DAY, authority=True)
    (folder / "tls.crt").write_bytes(pem(certificate))
    (folder / "tls.key").write_bytes(key_pem(key))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


def _webhook(folder: Path, port: int) -> dict[str, Any]:
    authority = base64.b64encode((folder / "tls.crt").read_bytes()).decode()
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    webhook = {
        "name": "slow.example.com",
        "clientConfig": {"url": f"https://localhost:{port}/review", "caBundle": authority},
        "rules": [rule],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 30,
        "failurePolicy": "Fail",
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "slow"},
        "webhooks": [webhook],
    }


async def _started(cluster: Cluster, obj: dict[str, Any]) -> dict[str, Any]:
    """The Job after its start."""
    assert (await cluster.site.cluster.start(effect(obj)))[0].result is Result.DONE
    return await cluster.job(obj["metadata"]["name"])


async def _seen(cluster: Cluster, name: str) -> dict[str, Any]:
    """The Job once its controller has seen it suspended."""

    async def said() -> bool:
        return JOB_KINDS["Job"].says_suspended(await cluster.job(name))

    await eventually(said, "the Job controller to have seen the Job", 60)
    return await cluster.job(name)


async def _stopped_too_early(cluster: Cluster, started: dict[str, Any]) -> None:
    """Stop it; no pod is there yet, and more may come."""
    stop = effect(started, verb=Verb.STOP)
    assert (await cluster.site.cluster.stop(stop))[0].result is Result.DONE
    assert await cluster.count() == 0
    assert await cluster.site.cluster.anything_alive(stop.workload.ref)


async def _comes_to_rest(cluster: Cluster, obj: dict[str, Any]) -> None:
    ref = effect(obj).workload.ref

    async def quiet() -> bool:
        return not await cluster.site.cluster.anything_alive(ref)

    await eventually(quiet, "the Job controller to have seen the stop", 60)
    assert await cluster.count() == 0
    assert JOB_KINDS["Job"].says_suspended(await cluster.job(ref.name))


async def test_a_stop_while_pods_are_being_made_waits_for_them(cluster: Cluster) -> None:
    cluster.pods.hold()
    async with asyncio.timeout(120):
        await cluster.site.job("making", parallelism=2, completions=2)
        started = await _started(cluster, await _seen(cluster, "making"))
        await cluster.pods.asked.wait()
        await _stopped_too_early(cluster, started)
        cluster.pods.open.set()
        await _comes_to_rest(cluster, started)


@pytest.mark.parametrize("equal", [False, True], ids=["parallelism", "parallelism-and-completions"])
async def test_a_job_runs_with_fewer_pods_until_it_is_stopped(cluster: Cluster, equal: bool) -> None:
    cluster.pods.open.set()
    name = f"partly-{str(equal).lower()}"
    annotations = {"queuectl.dev/min-parallelism": "1"}
    if equal:
        annotations["queuectl.dev/completions-equal-parallelism"] = "true"
    obj = job(name, annotations=annotations, parallelism=4, completions=4, completionMode="Indexed")
    async with asyncio.timeout(120):
        waiting = await cluster.site.create(jobs(), obj)
        for attempt, pods in ((1, 2), (2, 3)):
            start = effect(waiting, attempt=attempt, pods=pods)
            assert (await cluster.site.cluster.start(start))[0].result is Result.DONE
            running = await cluster.job(name)
            assert _sizes(running) == (pods, pods if equal else 4)

            async def made(pods: int = pods) -> bool:
                return await cluster.count() == pods

            await eventually(made, f"{pods} pods", 60)
            stop = effect(running, attempt=attempt, verb=Verb.STOP, pods=pods)
            assert (await cluster.site.cluster.stop(stop))[0].result is Result.DONE
            await _comes_to_rest(cluster, running)
            waiting = await cluster.job(name)
            assert _sizes(waiting) == (4, 4)


async def test_pods_count_that_lost_their_labels_while_they_ran_and_whose_job_was_deleted_without_them(
    cluster: Cluster,
) -> None:
    """The Job controller lets a pod go that its selector does not match any more, and makes another one."""
    cluster.pods.open.set()
    session = cluster.site.session
    async with asyncio.timeout(120):
        await cluster.site.job("stripped", parallelism=1, completions=1)
        started = await _started(cluster, await _seen(cluster, "stripped"))
        ref = effect(started).workload.ref

        async def pods() -> list[dict[str, Any]]:
            return (await session.get(PODS))["items"]  # type: ignore[no-any-return]

        await eventually(pods, "a pod", 60)
        (first,) = await pods()
        others = {name: None for name in first["metadata"]["labels"] if not name.startswith("queuectl.dev/")}
        await session.patch(f"{PODS}/{first['metadata']['name']}", {"metadata": {"labels": others}})
        await session.delete(jobs("stripped"), {"propagationPolicy": "Orphan"})

        async def orphaned() -> bool:
            try:
                await cluster.job("stripped")
            except NotFound:
                return all("ownerReferences" not in one["metadata"] for one in await pods())
            return False

        await eventually(orphaned, "the Job to be gone and its pods to be orphans", 60)
        for later in await pods():
            if later["metadata"]["uid"] != first["metadata"]["uid"]:
                await _end(cluster, later)
        assert await cluster.site.cluster.anything_alive(ref)
        await _end(cluster, first)
        assert not await cluster.site.cluster.anything_alive(ref)


async def _end(cluster: Cluster, pod: dict[str, Any]) -> None:
    await cluster.site.session.delete(f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})


def _sizes(obj: dict[str, Any]) -> tuple[int, int]:
    return obj["spec"]["parallelism"], obj["spec"]["completions"]


async def test_each_job_of_a_cron_job_waits_for_itself(cluster: Cluster) -> None:
    """The label of the template queues it: its owner is no kind that queues."""
    cluster.pods.open.set()
    template = job("", parallelism=1)
    body = {"metadata": {"labels": template["metadata"]["labels"]}, "spec": template["spec"]}
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "* * * * *", "suspend": True, "jobTemplate": body},
    }
    path = api_path("batch", "v1", "cronjobs", NAMESPACE)
    last = {"status": {"lastScheduleTime": (datetime.now(UTC) - timedelta(hours=1)).isoformat()}}  # noqa: TID251
    async with asyncio.timeout(120):
        await cluster.site.create(path, cron)
        await cluster.site.session.patch(f"{path}/nightly/status", last)
        await cluster.site.session.patch(f"{path}/nightly", {"spec": {"suspend": False}})

        async def child() -> list[str]:
            listed = (await cluster.site.session.get(jobs()))["items"]
            return [name for one in listed if (name := one["metadata"]["name"]).startswith("nightly-")]

        await eventually(child, "a Job of the CronJob", 60)
        await cluster.site.session.patch(f"{path}/nightly", {"spec": {"suspend": True}})
        started = await _started(cluster, await _seen(cluster, (await child())[0]))

        await eventually(lambda: _one_pod(cluster), "its pod", 60)
        stop = effect(started, verb=Verb.STOP)
        assert (await cluster.site.cluster.stop(stop))[0].result is Result.DONE
        await _comes_to_rest(cluster, started)


async def test_a_stop_is_no_failure_of_a_job(cluster: Cluster) -> None:
    """Its pod fails by the signal, as pods do, and its backoff limit allows no failure."""
    cluster.pods.open.set()
    session = cluster.site.session
    async with asyncio.timeout(120):
        await cluster.site.job("stopped", backoffLimit=0)
        running = await _started(cluster, await _seen(cluster, "stopped"))
        await eventually(lambda: _one_pod(cluster), "its pod", 60)
        name = (await session.get(PODS))["items"][0]["metadata"]["name"]
        pod, node = f"{PODS}/{name}", {"kind": "Node", "name": "gone"}
        await session.create(f"{pod}/binding", {"metadata": {"name": name}, "target": node})
        await session.patch(f"{pod}/status", {"status": {"phase": "Running"}})
        await cluster.site.cluster.stop(effect(running, verb=Verb.STOP))

        async def ends() -> bool:
            return bool((await session.get(pod))["metadata"].get("deletionTimestamp"))

        await eventually(ends, "the Job controller to delete the pod", 60)
        await session.patch(f"{pod}/status", {"status": {"phase": "Failed"}})
        await session.delete(pod, {"gracePeriodSeconds": 0})
        await _comes_to_rest(cluster, running)
        waiting = await cluster.job("stopped")
        assert not waiting["status"].get("failed")
        assert "Failed" not in conditions(waiting)


async def _one_pod(cluster: Cluster) -> bool:
    return await cluster.count() == 1


async def test_a_stop_of_a_job_that_its_controller_first_saw_running_waits_too(cluster: Cluster) -> None:
    cluster.pods.hold()
    async with asyncio.timeout(120):
        async with controllers_stopped(cluster.plane):
            started = await _started(cluster, await cluster.site.job("new", parallelism=2, completions=2))
        await cluster.pods.asked.wait()
        await _stopped_too_early(cluster, started)
        cluster.pods.open.set()
        await _comes_to_rest(cluster, started)


async def test_a_start_and_a_stop_that_its_controller_never_saw_return_quota(cluster: Cluster) -> None:
    cluster.pods.open.set()
    async with asyncio.timeout(120):
        await cluster.site.job("unseen")
        obj = await _seen(cluster, "unseen")
        async with controllers_stopped(cluster.plane):
            started = await _started(cluster, obj)
            await _stopped_too_early(cluster, started)
        await _comes_to_rest(cluster, started)
