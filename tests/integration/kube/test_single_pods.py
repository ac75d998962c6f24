"""Start and stop of a pod that queues by itself, with requests that fail between any two of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from queuectl.core.model.events import Result
from queuectl.core.model.workload import Effect, Verb
from queuectl.kinds.builtin import OPTIONAL
from queuectl.kinds.jobs import KindRegistry
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.errors import NotFound
from queuectl.kube.session import JSON_PATCH, api_path
from queuectl.ports.cluster import ClusterUnavailable, WriteDenied
from tests.doubles.faults import Action, Fault
from tests.integration.kube.sites import NAMESPACE, SITES, Site, effect
from tests.job_kinds import JOB_KINDS

pytestmark = pytest.mark.asyncio(loop_scope="module")
KINDS = KindRegistry((*JOB_KINDS, *OPTIONAL))
GATE = {"name": "queuectl.dev/admission"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with SITES["in_process"](tmp_path_factory.mktemp("pods")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def deadline() -> AsyncIterator[None]:
    async with asyncio.timeout(30):
        yield


def pods(name: str | None = None, part: str = "") -> str:
    return api_path("", "v1", "pods", NAMESPACE, name, part)


async def _created(site: Site, name: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    labels = {"queuectl.dev/queue-name": "main", "queuectl.dev/gated": "true"}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"containers": [container], "schedulingGates": [GATE]},
    }
    return await site.create(pods(), body)


async def _running(site: Site, name: str) -> Effect:
    """A started pod on a node; returns the effect that stops it."""
    await KubeCluster(site.session, KINDS).start(effect(await _created(site, name), "Pod", kinds=KINDS))
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    await site.session.create(pods(name, "binding"), binding)
    started = [{"op": "add", "path": "/status/phase", "value": "Running"}]
    obj = await site.session.patch(pods(name, "status"), started, content_type=JSON_PATCH)
    return effect(obj, "Pod", verb=Verb.STOP, kinds=KINDS)


def _disrupted(obj: dict[str, Any]) -> list[str]:
    conditions = obj["status"].get("conditions") or ()
    return [one["status"] for one in conditions if one["type"] == "DisruptionTarget"]


LOST = [
    Fault(Action.REFUSE, "patch", "pods", code=503),
    Fault(Action.LOSE_ANSWER, "patch", "pods"),
]


@pytest.mark.parametrize("fault", LOST, ids=lambda fault: fault.action)
async def test_a_start_whose_answer_is_lost_is_made_once(site: Site, fault: Fault) -> None:
    assert site.faults is not None
    obj = await _created(site, f"start-{fault.action.name.lower().replace('_', '-')}")
    path, start = pods(obj["metadata"]["name"]), effect(obj, "Pod", kinds=KINDS)
    site.faults.add(Fault(fault.action, fault.verb, fault.resource, code=fault.code))
    done = False
    while not done:  # each try is that of a controller that has just been started
        try:
            settled, _ = await KubeCluster(site.session, KINDS).start(start)
            done = settled.result is Result.DONE
        except ClusterUnavailable:
            continue
    started = await site.session.get(path)
    assert not started["spec"].get("schedulingGates")
    await KubeCluster(site.session, KINDS).start(start)
    again = await site.session.get(path)
    assert again["metadata"]["resourceVersion"] == started["metadata"]["resourceVersion"]


async def test_a_start_of_a_pod_that_is_gone_or_another_starts_nothing(site: Site) -> None:
    start = effect(await _created(site, "again"), "Pod", kinds=KINDS)
    await site.session.delete(pods("again"), {})
    settled, _ = await KubeCluster(site.session, KINDS).start(start)
    assert settled.result is Result.GONE
    await _created(site, "again")
    settled, _ = await KubeCluster(site.session, KINDS).start(start)
    assert settled.result is Result.GONE
    assert (await site.session.get(pods("again")))["spec"]["schedulingGates"] == [GATE]


STOPS = {
    "before the condition": Fault(Action.REFUSE, "patch", "pods", code=503),
    "after the condition": Fault(Action.LOSE_ANSWER, "patch", "pods"),
    "before the delete": Fault(Action.REFUSE, "delete", "pods", code=503),
    "after the delete": Fault(Action.LOSE_ANSWER, "delete", "pods"),
}


@pytest.mark.parametrize("when", STOPS)
async def test_a_stop_that_is_interrupted_is_completed_by_the_next_controller(site: Site, when: str) -> None:
    assert site.faults is not None
    name = f"stop-{when.replace(' ', '-')}"
    stop = await _running(site, name)
    fault = STOPS[when]
    site.faults.add(Fault(fault.action, fault.verb, fault.resource, code=fault.code))
    with pytest.raises(ClusterUnavailable):
        await KubeCluster(site.session, KINDS).stop(stop)
    settled, _ = await KubeCluster(site.session, KINDS).stop(stop)
    assert settled.result is Result.DONE
    stopped = await site.session.get(pods(name))
    assert stopped["metadata"]["deletionTimestamp"]
    assert _disrupted(stopped) == ["True"]
    assert await KubeCluster(site.session, KINDS).anything_alive(stop.workload.ref)


async def test_a_condition_that_is_refused_for_good_does_not_keep_a_pod_running(site: Site) -> None:
    assert site.faults is not None
    stop = await _running(site, "unmarked")
    site.faults.add(Fault(Action.REFUSE, "patch", "pods", code=403, count=2))
    settled, _ = await KubeCluster(site.session, KINDS).stop(stop)
    assert settled.result is Result.DONE
    assert (await site.session.get(pods("unmarked")))["metadata"]["deletionTimestamp"]


async def test_a_record_that_is_denied_for_good_does_not_hold_the_quota_of_a_pod_that_waits(
    site: Site,
) -> None:
    assert site.faults is not None
    stop = effect(await _created(site, "unrecorded"), "Pod", verb=Verb.STOP, kinds=KINDS)
    site.faults.add(Fault(Action.REFUSE, "patch", "pods", code=403))
    with pytest.raises(WriteDenied) as denied:
        await KubeCluster(site.session, KINDS).stop(stop)
    assert denied.value.settled is not None
    assert denied.value.settled.result is Result.DONE
    assert "deletionTimestamp" not in (await site.session.get(pods("unrecorded")))["metadata"]


async def test_a_pod_that_has_the_name_now_is_not_deleted(site: Site) -> None:
    stop = await _running(site, "same")
    await site.session.delete(pods("same"), {"gracePeriodSeconds": 0})
    await _created(site, "same")
    settled, _ = await KubeCluster(site.session, KINDS).stop(stop)
    assert settled.result is Result.GONE
    assert "deletionTimestamp" not in (await site.session.get(pods("same")))["metadata"]


async def test_a_pod_is_written_once_to_start_and_twice_to_stop(site: Site) -> None:
    """Its condition says why it is deleted."""
    obj = await _created(site, "counted")
    before = site.session.requests.copy()
    await KubeCluster(site.session, KINDS).start(effect(obj, "Pod", kinds=KINDS))
    assert _writes(site, before) == {"PATCH": 1}
    stop = effect(await site.session.get(pods("counted")), "Pod", verb=Verb.STOP, kinds=KINDS)
    before = site.session.requests.copy()
    await KubeCluster(site.session, KINDS).stop(stop)
    assert _writes(site, before) == {"PATCH": 1, "DELETE": 1}


def _writes(site: Site, before: Counter[tuple[str, int]]) -> dict[str, int]:
    return {verb: count for (verb, _), count in (site.session.requests - before).items() if verb != "GET"}


async def test_a_pod_counts_as_alive_from_its_start_until_it_has_ended_or_is_gone(site: Site) -> None:
    cluster = KubeCluster(site.session, KINDS)
    waits = effect(await _created(site, "waits"), "Pod", kinds=KINDS)
    assert not await cluster.anything_alive(waits.workload.ref)
    runs = (await _running(site, "runs")).workload.ref
    assert await cluster.anything_alive(runs)
    ended = [{"op": "add", "path": "/status/phase", "value": "Failed"}]
    await site.session.patch(pods("runs", "status"), ended, content_type=JSON_PATCH)
    assert not await cluster.anything_alive(runs)
    await site.session.delete(pods("waits"))
    with pytest.raises(NotFound):
        await site.session.get(pods("waits"))
    assert not await cluster.anything_alive(waits.workload.ref)
