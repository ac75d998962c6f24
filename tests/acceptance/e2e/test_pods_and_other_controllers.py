"""Pods that queue beside what else counts or holds pods, each by its real controller: PodDisruptionBudgets,
ResourceQuotas, gates of others, the scale subresource, Jobs, revisions of a StatefulSet."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.control_plane import find_assets
from tests.acceptance.e2e import test_pod_groups, test_single_pods
from tests.acceptance.e2e.cohort import priority
from tests.acceptance.e2e.conftest import GATE, TODAY
from tests.acceptance.e2e.pod_metrics import PodMetrics
from tests.acceptance.e2e.site import GPU, Json, Site, eventually, pod, pod_template
from tests.acceptance.e2e.test_single_pods import EDIT, LABEL, Owned
from tests.acceptance.e2e.world import World

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.queued_pods,
    pytest.mark.usefixtures("controllers"),
    pytest.mark.skipif(TODAY == "small", reason="the small API has no controllers of apps/v1"),
]
world = test_single_pods.world
OWNERS: dict[str, Json] = {
    "Deployment": {},
    "StatefulSet": {"serviceName": "server"},
    "StatefulSet, Parallel": {"serviceName": "server", "podManagementPolicy": "Parallel"},
}
OTHER = {"name": "example.com/other"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def controllers(site: Site) -> AsyncIterator[None]:
    """Those of PodDisruptionBudgets, ResourceQuotas and autoscalers, which the sandbox does without."""
    assets = find_assets()
    assert assets is not None
    process = await asyncio.create_subprocess_exec(
        str(assets / "kube-controller-manager"),
        *("--kubeconfig", str(site.kubeconfig), "--leader-elect=false", "--secure-port=0"),
        "--controllers=disruption-controller,resourcequota-controller,horizontal-pod-autoscaler-controller",
        *(
            f"--horizontal-pod-autoscaler-{flag}"
            for flag in ("sync-period=1s", "cpu-initialization-period=0s")
        ),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def _evict(world: World, name: str) -> None:
    body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    await world.api.request("POST", f"{world.path('Pod', name)}/eviction", body)


@asynccontextmanager
async def _budget(world: World, app: str) -> AsyncIterator[str]:
    """A PodDisruptionBudget that lets one pod be unavailable; its path."""
    collection = f"/apis/policy/v1/namespaces/{world.namespace}/poddisruptionbudgets"
    spec: Json = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": app}}}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app}, "spec": spec}
    await world.api.request("POST", collection, body)
    yield f"{collection}/{app}"
    await world.api.request("DELETE", f"{collection}/{app}")


async def _allows(world: World, budget: str, count: int) -> None:
    async def look() -> bool:
        found = await world.api.request("GET", budget)
        status = found.get("status") or {}
        current = status.get("observedGeneration") == found["metadata"]["generation"]
        return bool(current and status.get("disruptionsAllowed") == count)

    await eventually(f"the budget allows {count} disruptions", look)


def _owner(owner: str, replicas: int) -> Json:
    """Of pods of 4 GPUs, half of the quota."""
    kind = owner.partition(",")[0]
    return test_single_pods._owner(kind, replicas=replicas, gpus=4, **OWNERS[owner])


@pytest.mark.parametrize("owner", OWNERS)
async def test_a_pod_that_waits_counts_as_disrupted_and_a_preemption_asks_no_budget(
    world: World, owner: str
) -> None:
    """So a drain of the others waits until it runs, or is scaled away."""
    high = await priority(world, "high", 1000)
    body = _owner(owner, 3)
    async with Owned.made(world, body) as server, _budget(world, "server") as budget:
        (waits,) = await server.pods(2, 1)
        await _allows(world, budget, 0)
        runs = [one["metadata"]["name"] for one in await server.listed() if not _gated(one)]
        with pytest.raises(ApiError, match="disruption budget"):
            await _evict(world, runs[0])
        await _evict(world, waits["metadata"]["name"])  # one that waits may always be evicted
        (again,) = await server.pods(2, 1)
        assert again["metadata"]["uid"] != waits["metadata"]["uid"]
        await server.merge({"replicas": 2})
        await server.pods(2, 0)
        await _allows(world, budget, 1)
        before = {one["metadata"]["uid"] for one in await server.listed()}
        await _evict(world, runs[0])

        async def drained() -> bool:
            pods = await server.listed()
            run = [one for one in pods if (one.get("status") or {}).get("phase") == "Running"]
            return len(run) == len(pods) == 2 and {one["metadata"]["uid"] for one in run} != before

        await eventually("another pod runs in the quota of the one that was drained", drained)
        await test_single_pods._created(
            world, pod("urgent", gpus=8, labels={"queuectl.dev/priority-class": high})
        )
        await test_single_pods._runs(world, "urgent")
        await server.pods(0, 1 if owner == "StatefulSet" else 2)  # in order: the next one when one is ready
        await world.delete("urgent", "Pod")
        await server.pods(2, 0)


def _gated(one: Json) -> bool:
    return GATE in (one["spec"].get("schedulingGates") or ())


@asynccontextmanager
async def _limited(world: World, pods: int) -> AsyncIterator[str]:
    """A ResourceQuota for so many pods, which its controller has counted; its path."""
    collection = f"/api/v1/namespaces/{world.namespace}/resourcequotas"
    body: Json = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
    await world.api.request("POST", collection, {**body, "spec": {"hard": {"pods": str(pods)}}})

    async def counted() -> bool:
        found = await world.api.request("GET", f"{collection}/few")
        return bool((found.get("status") or {}).get("used"))

    await eventually("its controller has counted the pods", counted)
    yield f"{collection}/few"
    await world.api.request("DELETE", f"{collection}/few")


async def test_a_pod_that_waits_counts_in_a_full_resource_quota_and_others_come_when_it_has_room(
    world: World,
) -> None:
    body = test_single_pods._owner("Deployment", replicas=3, gpus=8)
    async with _limited(world, 2) as quota, Owned.made(world, body) as server:
        await server.pods(1, 1)
        with pytest.raises(ApiError, match="exceeded quota"):
            await world.submit(pod("third", gpus=1))
        found = await world.workload("third", "Pod")
        assert found["status"] == 404
        await world.api.request("PATCH", quota, {"spec": {"hard": {"pods": "3"}}}, content_type=MERGE_PATCH)
        await server.merge({"replicas": 2})  # its controller tries again at once
        await server.merge({"replicas": 3})
        await server.pods(1, 2)


async def test_a_group_that_a_full_resource_quota_keeps_short_says_so_and_starts_when_it_is_whole(
    world: World,
) -> None:
    async with _limited(world, 1) as quota:
        await test_pod_groups._member(world, "short", 0, size=2)
        with pytest.raises(ApiError, match="exceeded quota"):
            await test_pod_groups._member(world, "short", 1, size=2)
        reason = await world.reason_is("short", "PendingEvaluation", "PodGroup")
        assert "1 of 2 pods of the group exist (short-0)" in reason["message"]
        await world.api.request("PATCH", quota, {"spec": {"hard": {"pods": "2"}}}, content_type=MERGE_PATCH)

        async def fits() -> bool:
            try:
                await test_pod_groups._member(world, "short", 1, size=2)
            except ApiError as error:
                if "exceeded quota" not in str(error):
                    raise
                return False
            return True

        await eventually("the second pod is created", fits)
        await test_pod_groups._run(world, "short", 2)


@pytest.mark.parametrize("first", [True, False])
async def test_a_gate_of_another_controller_stays_until_that_removes_it_before_or_after_the_start(
    world: World, *, first: bool
) -> None:
    """A pod is charged while it has only gates of others: these may wait for the start."""
    await test_single_pods._created(world, pod("before", gpus=8))
    await test_single_pods._runs(world, "before")
    body = pod("both", gpus=8)
    body["spec"]["schedulingGates"] = [OTHER]
    made = await test_single_pods._created(world, body)
    assert sorted(one["name"] for one in made["spec"]["schedulingGates"]) == [OTHER["name"], GATE["name"]]
    await world.reason_is("both", "WaitingForQuota", "Pod")
    if first:
        await world.merge("both", {"spec": {"schedulingGates": [GATE]}}, "Pod")
        assert _gated(await world.get("both", "Pod"))
        await world.reason_is("both", "WaitingForQuota", "Pod")
    await world.delete("before", "Pod")
    if not first:
        await world.phase("both", "Admitted", "Pod")

        async def ungated() -> bool:
            return not _gated(await world.get("both", "Pod"))

        await eventually("it has the gate of the other alone", ungated)
        waits = await world.get("both", "Pod")
        assert (waits["spec"]["schedulingGates"], waits["status"]["phase"]) == ([OTHER], "Pending")
        assert waits["spec"]["nodeSelector"] == {LABEL: "a100"}
        assert (await world.used(world.namespace))["a100", GPU] == 8
        await world.merge("both", {"spec": {"schedulingGates": None}}, "Pod")
    running = await test_single_pods._runs(world, "both")
    assert not running["spec"].get("schedulingGates")


@pytest.mark.parametrize("owner", list(OWNERS)[1:])
async def test_a_rollout_of_a_statefulset_ends_within_the_quota(world: World, owner: str) -> None:
    async with Owned.made(world, _owner(owner, 2)) as server:
        await server.pods(2, 0)
        await server.edit("second")

        async def rolled_out() -> bool:
            edits = [one["metadata"].get("annotations", {}).get(EDIT) for one in await server.listed()]
            return edits == ["second"] * 2

        await eventually("both pods are of the second revision", rolled_out)
        await server.pods(2, 0)


@pytest.mark.parametrize("owner", OWNERS)
async def test_the_scale_subresource_which_an_autoscaler_writes_scales_from_zero_and_back(
    world: World, owner: str
) -> None:
    async with Owned.made(world, _owner(owner, 0)) as server:

        async def scale(replicas: int) -> None:
            body = {"spec": {"replicas": replicas}}
            await world.api.request("PATCH", f"{server.path}/scale", body, content_type=MERGE_PATCH)

        for replicas, running, gated in ((2, 2, 0), (3, 2, 1), (1, 1, 0), (0, 0, 0)):
            await scale(replicas)
            await server.pods(running, gated)
        await world.nothing_used(world.namespace)


async def test_an_autoscaler_counts_pods_that_wait_as_idle_and_lets_them_go_first(
    world: World, tmp_path: Path
) -> None:
    """So a full queue does not make it ask for ever more pods."""
    target: Json = {"type": "AverageValue", "averageValue": "1"}
    at_once: Json = {"stabilizationWindowSeconds": 0}
    spec: Json = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "server"},
        "minReplicas": 1,
        "maxReplicas": 8,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        "behavior": {"scaleUp": at_once, "scaleDown": at_once},
    }
    body: Json = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    path = f"/apis/autoscaling/v2/namespaces/{world.namespace}/horizontalpodautoscalers"
    async with (
        PodMetrics.served(world, tmp_path) as metrics,
        Owned.made(world, _owner("Deployment", 1)) as server,
    ):
        await world.api.request("POST", path, {**body, "metadata": {"name": "server"}, "spec": spec})
        await server.pods(1, 0)
        metrics.cpu = "1900m"  # of two that run: four are enough, as long as two wait
        await server.pods(2, 2)
        before = metrics.reads

        async def looked() -> bool:
            return metrics.reads >= before + 3

        await eventually("it has looked three times more", looked)
        await server.pods(2, 2)
        metrics.cpu = "500m"
        await server.pods(1, 0)
        await world.api.request("DELETE", f"{path}/server")


async def test_a_group_names_the_pods_of_a_statefulset_that_are_missing(world: World) -> None:
    body = _owner("StatefulSet, Parallel", 2)
    metadata = body["spec"]["template"]["metadata"]
    metadata["labels"] |= {test_pod_groups.GROUP: "server"}
    metadata["annotations"] = {"queuectl.dev/pod-group-total-count": "3"}
    body["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][GPU] = "2"

    async def missing(name: str | None) -> None:
        async def told() -> bool:
            return bool((await world.workload("server", "PodGroup")).get("podsMissing") == name)

        await eventually(f"its missing pods are {name}", told)

    async with Owned.made(world, body) as server:
        await server.pods(0, 2)

        async def waits() -> bool:
            reason = await world.reason_is("server", "PendingEvaluation", "PodGroup")
            return str(reason["message"]).endswith(": server-2 is missing")

        await eventually("its reason names the pod", waits)
        await server.merge({"replicas": 3})
        await server.pods(3, 0)
        await missing(None)
        await server.merge({"replicas": 2})
        await server.pods(2, 0)
        await missing("server-2")
        explained = await world.site.queuectl("explain", "podgroup/server", "-n", world.namespace)
        assert "server-2" in next(line for line in explained.out.splitlines() if line.startswith("Missing"))
        await server.merge({"replicas": 3})
        await server.pods(3, 0)
        await missing(None)


@pytest.mark.parametrize("owner", list(OWNERS)[1:])
async def test_a_statefulset_with_the_label_of_a_group_starts_as_one_workload_and_is_scaled_pod_by_pod(
    world: World, owner: str
) -> None:
    """The quota is 8 GPUs. In order, its first pod has to start for the next one to be created."""
    high = await priority(world, "high", 1000)
    body = _owner(owner, 3)
    body["spec"]["template"]["metadata"]["labels"][test_pod_groups.GROUP] = "server"

    async def holds(used: int, *phases: str) -> None:
        """GPUs of the queue, and the phases of the workloads that are not over."""

        async def told() -> bool:
            items = (await world.site.rest(f"/workloads?namespace={world.namespace}"))["items"]
            found = sorted(one["phase"] for one in items if one["kind"] == "PodGroup")
            held = await world.used(world.namespace)
            gpus = sum(amount for (_, resource), amount in held.items() if resource == GPU)
            return found == sorted(phases) and gpus == used

        await eventually(f"{used} GPUs are held by workloads that are {phases}", told)

    async with Owned.made(world, body) as server:
        await server.pods(0, 1 if owner == "StatefulSet" else 3)
        reason = await world.reason_is("server", "ExceedsMaxQuota", "PodGroup")
        assert "12" in str(reason["message"])  # of all its replicas
        await server.merge({"replicas": 2})
        await server.pods(2, 0)
        await holds(8, "Admitted")
        await server.merge({"replicas": 3})
        await server.pods(2, 1)
        await holds(8, "Admitted", "Pending")
        await server.merge({"replicas": 1})
        await server.pods(1, 0)
        await holds(4, "Admitted")
        await server.merge({"replicas": 2})
        await server.pods(2, 0)
        await holds(8, "Admitted", "Admitted")
        edited = body["spec"]["template"]
        edited["spec"]["containers"][0]["resources"]["limits"][GPU] = "3"
        await server.merge({"template": edited})  # one after the other, in the quota of the one before
        await holds(6, "Admitted", "Admitted")
        await test_single_pods._created(
            world, pod("urgent", gpus=8, labels={"queuectl.dev/priority-class": high})
        )
        await test_single_pods._runs(world, "urgent")
        await holds(8, "Pending")  # as one
        await world.delete("urgent", "Pod")
        await server.pods(2, 0)
        await holds(6, "Admitted")
        await server.merge({"replicas": 0})
        await world.nothing_used(world.namespace)


async def test_a_job_with_the_label_on_its_template_alone_runs_without_a_queue_and_a_warning_says_so(
    world: World,
) -> None:
    template = pod_template(4, 600)
    template["metadata"]["labels"] = {"queuectl.dev/queue-name": "main", "app": "job"}
    spec: Json = {"template": template, "parallelism": 3, "completions": 3}
    body: Json = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": spec}
    made = await world.api.request("POST", world.path("Job"), body, query={"dryRun": "All"})
    assert made["spec"]["suspend"]  # the API server gives a Job without labels those of its template
    body["metadata"]["labels"] = {"app": "job"}
    said = await world.site.kubectl("create", "-n", world.namespace, "-f", "-", stdin=yaml.safe_dump(body))
    assert "it runs without a queue" in said.err
    job = Owned(world, world.path("Job", "job"))
    await job.pods(3, 0, app="job")  # beyond the quota
    assert (await world.workload("job"))["status"] == 404
    await world.nothing_used(world.namespace)
    await world.api.request("DELETE", job.path, {"propagationPolicy": "Background"})
    await job.pods(0, 0, app="job")


def _stateful_set_of(notebook: Json) -> Json:
    """As the controller of Kubeflow's Notebooks makes it: labels go to the pod, an annotation stops it."""
    metadata, name = notebook["metadata"], notebook["metadata"]["name"]
    template = copy.deepcopy(notebook["spec"]["template"])
    template["metadata"] = {"labels": {**metadata["labels"], "app": name, "notebook-name": name}}
    stopped = "kubeflow-resource-stopped" in metadata["annotations"]
    spec = {"replicas": 0 if stopped else 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": spec}


async def test_a_notebook_queues_and_returns_its_quota_while_it_is_stopped(world: World) -> None:
    """Its controller is played, the one of StatefulSets is real."""
    high = await priority(world, "high", 1000)
    template = {"spec": {**pod("unused", gpus=6)["spec"], "restartPolicy": "Always"}}
    labels = {"queuectl.dev/queue-name": "main"}
    notebook: Json = {
        "metadata": {"name": "notebook", "labels": labels, "annotations": {}},
        "spec": {"template": template},
    }
    async with Owned.made(world, _stateful_set_of(notebook)) as owned:

        async def annotate(**annotations: str) -> None:
            notebook["metadata"]["annotations"] = annotations
            await owned.merge(_stateful_set_of(notebook)["spec"])

        await owned.pods(1, 0, app="notebook")
        await annotate(**{"kubeflow-resource-stopped": "2026-11-28T10:00:00Z"})  # it was idle
        await owned.pods(0, 0, app="notebook")
        await world.nothing_used(world.namespace)
        await test_single_pods._created(
            world, pod("urgent", gpus=4, labels={"queuectl.dev/priority-class": high})
        )
        await test_single_pods._runs(world, "urgent")
        await annotate()  # its user connects again
        await owned.pods(0, 1, app="notebook")
        reason = await world.reason_is("notebook-0", "WaitingForQuota", "Pod")
        assert reason["shortBy"] == 2
        entered = await world.site.queuectl("exec", "pod/notebook-0", "-n", world.namespace, "--", "true")
        assert "it waits since" in entered.err
        await world.delete("urgent", "Pod")
        await owned.pods(1, 0, app="notebook")


@pytest.mark.parametrize("owner", list(OWNERS)[1:])
async def test_pods_of_a_statefulset_that_wait_are_made_anew_with_its_new_revision(
    world: World, owner: str
) -> None:
    """Its controller waits for them in order, and Parallel for all but the last one (kubernetes#67250)."""
    body = test_single_pods._owner("StatefulSet", replicas=2, gpus=16, **OWNERS[owner])
    async with Owned.made(world, body) as server:
        await server.pods(0, 1 if owner == "StatefulSet" else 2)
        await world.reason_is("server-0", "ExceedsMaxQuota", "Pod")
        limits = {"limits": {GPU: "4"}}
        edited = body["spec"]["template"]
        edited["spec"]["containers"][0]["resources"] |= limits
        await server.merge({"template": edited})
        await server.pods(2, 0)
