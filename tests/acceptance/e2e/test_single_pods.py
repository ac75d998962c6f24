"""Pods that queue by themselves, where the configuration names the kind: start, end, preemption, deletion."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from queuectl.kinds.reserved_keys import GATED_LABEL, GROUP_LABEL
from queuectl.kube.errors import ApiError, Conflict
from queuectl.kube.session import MERGE_PATCH
from tests.acceptance.e2e.cohort import priority
from tests.acceptance.e2e.conftest import GATE, TODAY
from tests.acceptance.e2e.site import (
    GPU,
    Json,
    Site,
    cluster_queue,
    eventually,
    local_queue,
    pod,
    pod_template,
)
from tests.acceptance.e2e.world import World

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.queued_pods]

LABEL = "example.com/accelerator"


@pytest_asyncio.fixture(loop_scope="session")
async def world(site: Site, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    name = f"t-{abs(hash(request.node.nodeid)) % 10**8}"
    async with site.client() as api:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await api.request("POST", "/api/v1/namespaces", body)
        found = World(site, api, name)
        await found.policy(cluster_queue(name, 8, preemption={"withinClusterQueue": "LowerPriority"}))
        await found.policy(local_queue(name, "main", name))
        yield found
    async with site.client() as api:
        for item in (await api.request("GET", found.path("Pod")))["items"]:
            with contextlib.suppress(ApiError):  # it may have ended and be gone
                path = found.path("Pod", item["metadata"]["name"])
                await api.request("DELETE", path, {"gracePeriodSeconds": 0})


async def _created(world: World, body: Json) -> Json:
    """The pod, once the service account of its namespace is there."""

    async def made() -> Json | None:
        try:
            return await world.submit(body)
        except ApiError as error:
            if "serviceaccount" not in str(error):
                raise
            return None

    found: Json = await eventually("the pod is created", made)
    return found


async def a_second_after(world: World, earlier: Json) -> None:
    """Creation is known in whole seconds."""

    async def later() -> bool:
        body = pod("clock", gpus=1)
        made = await world.api.request("POST", world.path("Pod"), body, query={"dryRun": "All"})
        return bool(made["metadata"]["creationTimestamp"] > earlier["metadata"]["creationTimestamp"])

    await eventually("a second has passed", later)


async def _runs(world: World, name: str) -> Json:
    async def look() -> Json | None:
        found = await world.get(name, "Pod")
        return found if (found.get("status") or {}).get("phase") == "Running" else None

    found: Json = await eventually(f"{name} runs", look)
    labels = found["metadata"].get("labels", {})
    if GATED_LABEL in labels and GROUP_LABEL not in labels:
        await world.admitted(name, "Pod")
    return found


async def _verdicts(world: World, name: str) -> list[str]:
    found = await world.site.rest(f"/workloads/{world.namespace}/Pod/{name}/history")
    return [row["verdict"] for row in found["items"] if row["verdict"] != "Pending"]


async def test_a_pod_waits_gated_starts_on_its_flavor_and_ends(world: World) -> None:
    made = await _created(world, pod("train", gpus=2, seconds=2))
    assert GATE in made["spec"]["schedulingGates"]
    running = await _runs(world, "train")
    assert not running["spec"].get("schedulingGates")
    assert running["spec"]["nodeSelector"] == {LABEL: "a100"}
    assert running["metadata"]["labels"]["queuectl.dev/workload"] == running["metadata"]["uid"]
    await world.phase("train", "Finished", "Pod")
    await world.nothing_used(world.namespace)
    await world.delete("train", "Pod")
    await _created(world, pod("later", gpus=1))
    await _runs(world, "later")
    assert (await world.workload("train", "Pod"))["phase"] == "Finished"


async def test_in_a_full_queue_a_pod_says_why_it_waits_and_leaves_no_trace_when_it_is_deleted(
    world: World,
) -> None:
    await _created(world, pod("first", gpus=8))
    await _runs(world, "first")
    await _created(world, pod("second", gpus=1))
    reason = await world.reason_is("second", "WaitingForQuota", "Pod")
    assert reason["shortBy"] == 1
    told = await world.site.queuectl("explain", "pod/second", "-n", world.namespace)
    assert told.code == 0, told.err
    assert "WaitingForQuota" in told.out
    listed = (await world.site.queuectl("get", "workloads", "-n", world.namespace, "-o", "json")).json
    assert {(item["kind"], item["name"], item["phase"]) for item in listed["items"]} == {
        ("Pod", "first", "Admitted"),
        ("Pod", "second", "Pending"),
    }
    config = str(world.site.data.parent / "queuectl.yaml")
    kinds = (await world.site.queuectl("kinds", "-o", "json", "--config", config)).json["items"]
    (row,) = (one for one in kinds if one["name"] == "Pod")
    assert (row["served"], row["problem"]) == (["v1"], None)
    await world.delete("second", "Pod")
    await world.phase("second", "Deleted", "Pod")
    await world.delete("first", "Pod")
    await world.nothing_used(world.namespace)


async def test_a_pod_of_lower_priority_is_deleted_with_the_reason_and_its_quota_waits_for_its_end(
    world: World,
) -> None:
    high = await priority(world, "high", 1000)
    body = pod("low", gpus=8)
    body["metadata"]["annotations"]["sandbox.queuectl.dev/terminate-seconds"] = "3"
    uid = (await _created(world, body))["metadata"]["uid"]
    await _runs(world, "low")
    await _created(world, pod("high", gpus=8, labels={"queuectl.dev/priority-class": high}))

    async def marked() -> Json | None:
        found = await world.get("low", "Pod")
        conditions = found["status"].get("conditions") or ()
        going = found["metadata"].get("deletionTimestamp")
        return next((one for one in conditions if going and one["type"] == "DisruptionTarget"), None)

    condition = await eventually("it is deleted, with a reason", marked)
    assert (condition["status"], condition["reason"]) == ("True", "QueuectlPreempted")
    assert GATE in (await world.get("high", "Pod"))["spec"]["schedulingGates"]  # until the other has ended

    running = await _runs(world, "high")
    assert running["spec"]["nodeSelector"] == {LABEL: "a100"}
    with pytest.raises(ApiError, match="not found"):
        await world.get("low", "Pod")
    assert "Evicted" in await _verdicts(world, "low")
    found = await world.workload("low", "Pod")
    assert (found["uid"], found["attempts"]) == (uid, 1)


async def test_a_pod_that_is_held_stays_gated_and_starts_when_it_is_released(world: World) -> None:
    body = pod("held", gpus=1)
    body["metadata"]["annotations"]["queuectl.dev/hold"] = "true"
    await _created(world, body)
    await world.reason_is("held", "OnHold", "Pod")
    assert GATE in (await world.get("held", "Pod"))["spec"]["schedulingGates"]
    await world.annotate("held", "queuectl.dev/hold", None, "Pod")
    await _runs(world, "held")


async def test_a_time_limit_ends_a_pod(world: World) -> None:
    await _created(world, pod("limited", gpus=1, labels={"queuectl.dev/max-exec-time-seconds": "2"}))

    async def gone() -> bool:
        try:
            await world.get("limited", "Pod")
        except ApiError as error:
            return error.status == 404
        return False

    await eventually("it is deleted", gone)
    await world.phase("limited", "Deleted", "Pod")
    history = await world.site.rest(f"/workloads/{world.namespace}/Pod/limited/history")
    evicted = [row["reason"]["code"] for row in history["items"] if row["verdict"] == "Evicted"]
    assert evicted == ["MaximumExecutionTimeExceeded"]


async def test_a_pod_without_a_queue_label_runs_at_once_and_is_no_workload(world: World) -> None:
    await _created(world, pod("free", gpus=1, queue=None))
    await _runs(world, "free")
    assert (await world.workload("free", "Pod"))["status"] == 404


async def test_a_job_and_its_pods_are_one_workload(world: World) -> None:
    template = pod_template(1, 600)
    template["metadata"]["labels"] = {"queuectl.dev/queue-name": "main"}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job", "labels": {"queuectl.dev/queue-name": "main"}},
        "spec": {"template": template, "parallelism": 2, "completions": 2},
    }
    await world.submit(body)

    async def run() -> bool:
        pods = (await world.api.request("GET", world.path("Pod")))["items"]
        return [one["status"].get("phase") for one in pods] == ["Running", "Running"]

    await eventually("both pods run", run)
    await world.phase("job", "Admitted")
    items = (await world.site.rest(f"/workloads?namespace={world.namespace}"))["items"]
    assert [(item["kind"], item["name"]) for item in items] == [("Job", "job")]
    await world.delete("job")


NO_CONTROLLERS = pytest.mark.skipif(TODAY == "small", reason="the small API has no controllers of apps/v1")
EDIT = "example.com/edit"


def _owner(kind: str, *, replicas: int | None, gpus: int, **spec: Any) -> Json:
    """A Deployment, StatefulSet, ReplicaSet or DaemonSet `server`, with the queue label on its template."""
    template = {
        "metadata": {"labels": {"app": "server", "queuectl.dev/queue-name": "main"}},
        "spec": {**pod("unused", gpus=gpus)["spec"], "restartPolicy": "Always"},
    }
    numbers = {} if replicas is None else {"replicas": replicas}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "server"},
        "spec": {"selector": {"matchLabels": {"app": "server"}}, "template": template, **numbers, **spec},
    }


@dataclass
class Owned:
    """An object of apps/v1 and its pods, made by its real controller."""

    world: World
    path: str

    @classmethod
    @asynccontextmanager
    async def made(cls, world: World, body: Json) -> AsyncIterator[Owned]:
        collection = f"/apis/apps/v1/namespaces/{world.namespace}/{body['kind'].lower()}s"
        await world.api.request("POST", collection, body)
        found = cls(world, f"{collection}/{body['metadata']['name']}")
        try:
            yield found
        finally:  # its pods would count in the tests after this one
            await world.api.request("DELETE", found.path, {"propagationPolicy": "Background"})
        await found.pods(0, 0, app=body["metadata"]["name"])
        await world.nothing_used(world.namespace)

    async def merge(self, spec: Json) -> None:
        await self.world.api.request("PATCH", self.path, {"spec": spec}, content_type=MERGE_PATCH)

    async def edit(self, revision: str) -> None:
        await self.merge({"template": {"metadata": {"annotations": {EDIT: revision}}}})

    async def listed(self, app: str = "server") -> list[Json]:
        query = {"labelSelector": f"app={app}"}
        items = (await self.world.api.request("GET", self.world.path("Pod"), query=query))["items"]
        return [one for one in items if not one["metadata"].get("deletionTimestamp")]

    async def pods(
        self, running: int, gated: int, *, revision: str | None = None, app: str = "server"
    ) -> list[Json]:
        """Wait for these numbers of pods, and gated ones of this revision; returns the gated ones."""

        async def look() -> list[Json] | None:
            alive = [
                one for one in await self.listed(app) if (one.get("status") or {}).get("phase") != "Failed"
            ]
            runs = [one for one in alive if (one.get("status") or {}).get("phase") == "Running"]
            waits = [one for one in alive if one["spec"].get("schedulingGates") == [GATE]]
            edits = {(one["metadata"].get("annotations") or {}).get(EDIT) for one in waits}
            as_wanted = (len(runs), len(waits), len(alive)) == (running, gated, running + gated)
            return waits if as_wanted and (revision is None or edits <= {revision}) else None

        return await _listed(f"{running} pods run and {gated} wait", look)


async def _listed(what: str, look: Callable[[], Awaitable[list[Json] | None]]) -> list[Json]:
    """As `eventually`, for lists that may be empty."""

    async def found() -> tuple[list[Json]] | None:
        listed = await look()
        return None if listed is None else (listed,)

    (listed,) = await eventually(what, found)
    return list(listed)


@NO_CONTROLLERS
async def test_the_pods_of_a_deployment_queue_one_by_one_and_keep_their_place_when_they_are_preempted(
    world: World,
) -> None:
    high = await priority(world, "high", 1000)
    async with Owned.made(world, _owner("Deployment", replicas=3, gpus=4)) as server:
        (waits,) = await server.pods(2, 1)
        reason = await world.reason_is(waits["metadata"]["name"], "WaitingForQuota", "Pod")
        assert reason["shortBy"] == 4
        await a_second_after(world, waits)
        await _created(world, pod("rival", gpus=4))
        await world.reason_is("rival", "WaitingForQuota", "Pod")
        await _created(world, pod("urgent", gpus=8, labels={"queuectl.dev/priority-class": high}))
        await _runs(world, "urgent")
        again = await server.pods(0, 3)
        for one in again:  # the replacements of the two, too
            await world.reason_is(one["metadata"]["name"], "WaitingForQuota", "Pod")
        assert (await world.workload("rival", "Pod"))["position"] == 4
        await world.delete("urgent", "Pod")
        await server.pods(2, 1)
        await world.reason_is("rival", "WaitingForQuota", "Pod")
        await world.delete("rival", "Pod")


@NO_CONTROLLERS
async def test_a_deployment_grows_as_far_as_quota_and_gives_it_back_when_it_is_scaled_to_zero(
    world: World,
) -> None:
    async with Owned.made(world, _owner("Deployment", replicas=1, gpus=4)) as server:
        await server.pods(1, 0)
        await server.merge({"replicas": 4})
        await server.pods(2, 2)
        await server.merge({"replicas": 2})  # its controller deletes gated pods first
        await server.pods(2, 0)

        async def all_used() -> bool:
            return (await world.used(world.namespace)).get(("a100", GPU)) == 8

        await eventually("all quota is used", all_used)
        await server.merge({"replicas": 0})
        await server.pods(0, 0)
        await world.nothing_used(world.namespace)
        await server.merge({"replicas": 1})
        await server.pods(1, 0)


@NO_CONTROLLERS
async def test_a_rollout_in_a_full_queue_waits_with_a_surge_pod_and_completes_without(world: World) -> None:
    """By default a pod is made in addition, and none that runs is deleted before that one is ready."""
    async with Owned.made(world, _owner("Deployment", replicas=2, gpus=4)) as server:
        await server.pods(2, 0)
        await server.edit("second")
        (surge,) = await server.pods(2, 1, revision="second")
        await world.reason_is(surge["metadata"]["name"], "WaitingForQuota", "Pod")
        await server.edit("third")  # the pod that waits is replaced by one of the newest revision
        await server.pods(2, 1, revision="third")
        without = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
        await server.merge({"strategy": without})

        async def rolled_out() -> bool:
            pods = await server.listed()
            edits = [(one["metadata"].get("annotations") or {}).get(EDIT) for one in pods]
            return edits == ["third", "third"]

        await eventually("both pods are of the third revision", rolled_out)
        await server.pods(2, 0)


@NO_CONTROLLERS
async def test_a_failed_pod_of_a_replicaset_gives_its_quota_to_the_pod_in_its_place(world: World) -> None:
    async with Owned.made(world, _owner("ReplicaSet", replicas=1, gpus=8)) as server:
        await server.pods(1, 0)
        (one,) = await server.listed()
        name = one["metadata"]["name"]
        failed = {"status": {"phase": "Failed", "reason": "NodeAffinity"}}
        await world.api.request(
            "PATCH", f"{world.path('Pod', name)}/status", failed, content_type=MERGE_PATCH
        )
        await world.phase(name, "Finished", "Pod")
        await server.pods(1, 0)
        names = {one["metadata"]["name"] for one in await server.listed()}
        assert len(names) == 2
        assert name in names


@NO_CONTROLLERS
async def test_a_pod_of_a_statefulset_comes_again_with_its_name_as_another_workload(world: World) -> None:
    high = await priority(world, "high", 1000)
    async with Owned.made(world, _owner("StatefulSet", replicas=4, gpus=4, serviceName="server")) as server:
        (waits,) = await server.pods(2, 1)  # the fourth is made when the third is ready
        assert waits["metadata"]["name"] == "server-2"
        await server.merge({"replicas": 2})
        await server.pods(2, 0)
        before = await world.workload("server-0", "Pod")
        await _created(world, pod("urgent", gpus=8, labels={"queuectl.dev/priority-class": high}))
        await _runs(world, "urgent")

        async def again() -> Json | None:
            found = await world.workload("server-0", "Pod")
            return found if found.get("uid") != before["uid"] and found.get("reason") else None

        found = await eventually("server-0 is a new workload", again)
        assert (found["phase"], found["reason"]["code"]) == ("Pending", "WaitingForQuota")
        await world.delete("urgent", "Pod")
        await server.pods(2, 0)


@NO_CONTROLLERS
async def test_no_pod_of_a_labelled_daemonset_is_made_and_its_event_says_why(world: World) -> None:

    async def known() -> bool:
        return "flavors" in await world.site.rest(f"/clusterqueues/{world.namespace}")

    await eventually("the ClusterQueue is in the ledger", known)
    async with Owned.made(world, _owner("DaemonSet", replicas=None, gpus=1)) as server:

        async def refused() -> bool:
            query = {"fieldSelector": "involvedObject.kind=DaemonSet"}
            path = f"/api/v1/namespaces/{world.namespace}/events"
            events = (await world.api.request("GET", path, query=query))["items"]
            return any("pods of a DaemonSet can't be held back" in one["message"] for one in events)

        await eventually("an Event says why", refused)
        await server.pods(0, 0)


PAGE = Path(__file__).parents[3] / "docs" / "serving.md"


def _of_page(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


async def class_of_page(world: World) -> None:
    """Create the priority class that the page names, if no test before has."""
    body = {"apiVersion": "queuectl.dev/v1beta1", "kind": "WorkloadPriorityClass", "value": 100}
    path = "/apis/queuectl.dev/v1beta1/workloadpriorityclasses"
    with contextlib.suppress(Conflict):
        await world.api.request("POST", path, {**body, "metadata": {"name": "serving"}})


@NO_CONTROLLERS
async def test_the_deployment_of_the_page_on_serving_runs(world: World) -> None:
    await class_of_page(world)
    text = _of_page("yaml")[0]
    config = str(world.site.data.parent / "queuectl.yaml")
    file = world.site.data.parent / "server.yaml"
    file.write_text(text)
    quoted = await world.site.queuectl("quote", str(file), "-n", world.namespace, "--config", config)
    assert quoted.out.startswith("Pod of Deployment server, of 1 pod: starts now\n"), quoted
    async with Owned.made(world, yaml.safe_load(text)) as owned:
        await owned.pods(1, 0, app="server")

        async def counted() -> bool:
            capacity = await world.site.rest("/capacity/a100")
            cells = [one for one in capacity["resources"] if one["resource"] == GPU]
            return [(one["used"], one["unmanaged"]) for one in cells] == [(1, 0)]

        await eventually("its node counts it as a workload's", counted)


async def test_the_interactive_pod_of_the_page_runs_until_it_is_cancelled(world: World) -> None:
    (text,) = _of_page("sh")
    words = shlex.split(text)
    words[-1] = str(world.site.data.parent / "queuectl.yaml")
    made = await world.site.queuectl(*words[1:], "-n", world.namespace)
    assert made.code == 0, made.err
    running = await _runs(world, "notebook")
    assert running["metadata"]["labels"]["queuectl.dev/max-exec-time-seconds"] == "28800"
    told = await world.site.queuectl(
        "cancel", "pod/notebook", "-n", world.namespace, "--yes", "--config", words[-1]
    )
    assert told.code == 0, told.err
    await world.phase("notebook", "Deleted", "Pod")
    await world.nothing_used(world.namespace)
