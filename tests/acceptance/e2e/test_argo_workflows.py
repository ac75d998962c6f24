"""Steps of Argo Workflows by their real controller. Its executor is played: pods have no outputs."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
import yaml

from queuectl.kube.session import MERGE_PATCH
from tests.acceptance.e2e import real_operator, test_single_pods
from tests.acceptance.e2e.cohort import priority
from tests.acceptance.e2e.conftest import GATE, TODAY
from tests.acceptance.e2e.site import GPU, Json, Site, eventually, job, pod, pod_template
from tests.acceptance.e2e.world import World
from tests.acceptance.operators.programs import ARGO, NAMESPACE, find_operators

BINARIES = find_operators()
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.queued_pods,
    pytest.mark.usefixtures("controller"),
    pytest.mark.skipif(TODAY == "small", reason="the small API does not apply what Argo writes"),
    pytest.mark.skipif(BINARIES is None, reason="QUEUECTL_OPERATORS is not set: there is no Argo"),
]
world = test_single_pods.world
LABELS = {"queuectl.dev/queue-name": "main"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def controller(site: Site, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[None]:
    """Workflows are served, and their controller runs."""
    assert BINARIES is not None
    metadata = {"name": "workflow-controller-configmap", "namespace": NAMESPACE}
    data = {"config": "metricsConfig: {enabled: false}"}
    config: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    async with real_operator.running(ARGO, BINARIES, site, tmp_path_factory.mktemp("argo"), config):
        yield


@dataclass
class Workflow:
    """One of two steps: `prepare` of one GPU, then `train` of all eight."""

    world: World
    path: str

    @classmethod
    @asynccontextmanager
    async def made(cls, world: World, train: Json | None = None, **spec: Any) -> AsyncIterator[Workflow]:
        """`train`: the template of that step."""
        collection = f"/apis/argoproj.io/v1alpha1/namespaces/{world.namespace}/workflows"
        steps = [[{"name": name, "template": name}] for name in ("prepare", "train")]
        main: Json = {"name": "main", "steps": steps}
        templates = [main, _template("prepare", 1, 1), train or _template("train", 8, 4)]
        body: Json = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": {"name": "experiment"},
            "spec": {"entrypoint": "main", "templates": templates} | spec,
        }
        await world.api.request("POST", collection, body)
        found = cls(world, f"{collection}/experiment")
        try:
            yield found
        finally:  # its pods would count in the tests after this one
            await found.delete()

    async def delete(self) -> None:
        await self.world.api.request("DELETE", self.path, {"propagationPolicy": "Background"})

    async def merge(self, spec: Json) -> None:
        await self.world.api.request("PATCH", self.path, {"spec": spec}, content_type=MERGE_PATCH)

    async def status(self) -> Json:
        found = await self.world.api.request("GET", self.path)
        status: Json = found.get("status") or {}
        return status

    async def is_(self, phase: str) -> Json:
        async def look() -> Json | None:
            status = await self.status()
            return status if status.get("phase") == phase else None

        try:
            found: Json = await eventually(f"the workflow is {phase}", look)
        except AssertionError as error:
            raise AssertionError(f"{error}: {await self.status()}") from None
        return found

    async def step(self, name: str, phase: str) -> Json:
        """Wait until this step has this phase in the status of the workflow; returns its node."""

        async def look() -> Json | None:
            nodes = (await self.status()).get("nodes") or {}
            return next((n for n in nodes.values() if (n["displayName"], n["phase"]) == (name, phase)), None)

        try:
            found: Json = await eventually(f"step {name} is {phase}", look)
        except AssertionError as error:
            raise AssertionError(f"{error}: {await self.status()}") from None
        return found

    async def pods(self) -> list[Json]:
        query = {"labelSelector": "workflows.argoproj.io/workflow=experiment"}
        found: list[Json] = (await self.world.api.request("GET", self.world.path("Pod"), query=query))[
            "items"
        ]
        return found

    async def waits(self, step: str, before: str = "") -> Json:
        """Wait for the gated pod of a step, which is not the one with the UID `before`; returns it."""

        async def look() -> Json | None:
            for one in await self.pods():
                gated = GATE in (one["spec"].get("schedulingGates") or ())
                other = one["metadata"]["uid"] != before
                if f"-{step}-" in one["metadata"]["name"] and gated and other:
                    return one
            return None

        found: Json = await eventually(f"a pod of {step} waits", look)
        return found

    async def runs(self, step: str, node: str = "") -> Json:
        """Wait until Argo has seen that this step runs; returns its pod."""
        await self.step(node or step, "Running")
        (found,) = [one for one in await self.pods() if f"-{step}-" in _name(one)]
        return found

    async def are_gone(self) -> None:
        async def look() -> bool:
            return not await self.pods()

        await eventually("the workflow has no pods", look)


def _template(name: str, gpus: int, seconds: float) -> Json:
    template = pod_template(gpus, seconds)
    (container,) = template["spec"]["containers"]
    metadata: Json = {**template["metadata"], "labels": LABELS}
    return {"name": name, "metadata": metadata, "container": {**container, "name": "", "command": ["run"]}}


def _name(one: Json) -> str:
    name: str = one["metadata"]["name"]
    return name


async def _full(world: World) -> None:
    await test_single_pods._created(world, pod("before", gpus=8))
    await test_single_pods._runs(world, "before")


@pytest.mark.parametrize("collected", [False, True])
async def test_each_step_waits_for_its_own_quota(world: World, *, collected: bool) -> None:
    """`collected`: Argo deletes the pod of a step that has succeeded."""
    await _full(world)
    spec = {"podGC": {"strategy": "OnPodSuccess", "deleteDelayDuration": "0s"}} if collected else {}
    async with Workflow.made(world, **spec) as workflow:
        prepare = await workflow.waits("prepare")
        await workflow.step("prepare", "Pending")
        await world.reason_is(_name(prepare), "WaitingForQuota", "Pod")
        assert [_name(one) for one in await workflow.pods()] == [_name(prepare)]
        # A step is booked on the account of Argo, which created its pod.
        waiting = await world.workload(_name(prepare), "Pod")
        assert waiting["submitter"] == f"system:serviceaccount:{NAMESPACE}:{ARGO.name}"
        await world.delete("before", "Pod")
        train = await workflow.runs("train")
        assert (await world.used(world.namespace))["a100", GPU] == 8
        await workflow.is_("Succeeded")
        for one in (prepare, train):
            await world.phase(_name(one), "Finished", "Pod")
        await world.nothing_used(world.namespace)
        if collected:
            await workflow.are_gone()


REPEATED = {
    (None, "Error"): False,
    (None, "Failed"): False,
    ("OnFailure", "Error"): False,
    ("OnFailure", "Failed"): True,
    ("Always", "Error"): True,
    ("Always", "Failed"): True,
}
"""By the policy of its retries and the phase that Argo gives to a step that is preempted.

The phase is Failed where Argo sees how the pod has ended before it is gone. A finalizer makes that sure,
such as that of its setting ARGO_POD_STATUS_CAPTURE_FINALIZER.
"""


@pytest.mark.parametrize(("policy", "phase"), REPEATED)
async def test_a_preempted_step_is_repeated_in_its_place_if_its_policy_of_retries_has_its_phase(
    world: World, policy: str | None, phase: str
) -> None:
    high = await priority(world, "high", 1000)
    train = _template("train", 8, 3)
    if policy:
        train["retryStrategy"] = {"limit": "2", "retryPolicy": policy}
    train["metadata"]["annotations"] = {
        "sandbox.queuectl.dev/run-seconds": "600",
        "sandbox.queuectl.dev/terminate-seconds": "3",
    }
    async with Workflow.made(world, train) as workflow:
        first = await workflow.runs("train", "train(0)" if policy else "train")
        if phase == "Failed":
            await world.merge(_name(first), {"metadata": {"finalizers": ["example.com/status"]}}, "Pod")
        await test_single_pods._created(world, pod("rival", gpus=8))
        await test_single_pods._created(
            world, pod("urgent", gpus=8, labels={"queuectl.dev/priority-class": high})
        )
        await workflow.step("train(0)" if policy else "train", phase)
        if phase == "Failed":
            await world.merge(_name(first), {"metadata": {"finalizers": None}}, "Pod")
        await test_single_pods._runs(world, "urgent")
        if not REPEATED[policy, phase]:
            await workflow.is_("Failed")
            return
        again = await workflow.waits("train", first["metadata"]["uid"])
        assert _name(again) != _name(first)
        await world.reason_is(_name(again), "WaitingForQuota", "Pod")

        async def is_first() -> bool:
            return bool((await world.workload("rival", "Pod"))["position"] == 2)

        await eventually("the step has its place before a pod that came later", is_first)
        await world.delete("urgent", "Pod")
        await workflow.step("train(1)", "Running")


async def test_a_step_whose_pod_is_deleted_while_it_waits_is_made_again(world: World) -> None:
    await _full(world)
    async with Workflow.made(world) as workflow:
        first = await workflow.waits("prepare")
        await workflow.step("prepare", "Pending")
        await world.delete(_name(first), "Pod")
        again = await workflow.waits("prepare", first["metadata"]["uid"])
        assert _name(again) == _name(first)
    await workflow.are_gone()
    await world.phase(_name(again), "Deleted", "Pod")


async def test_a_workflow_that_is_suspended_has_no_pods(world: World) -> None:
    await _full(world)
    async with Workflow.made(world, suspend=True) as workflow:
        await workflow.is_("Running")
        assert not await workflow.pods()
        await workflow.merge({"suspend": None})
        await workflow.waits("prepare")


async def test_the_deadline_of_a_workflow_counts_the_time_in_the_queue(world: World) -> None:
    """Argo sees it at the next change of the workflow or of its pods, at the latest after 20 minutes."""
    await _full(world)
    async with Workflow.made(world, activeDeadlineSeconds=3) as workflow:
        waiting = await workflow.waits("prepare")
        changes = itertools.count()

        async def failed() -> Json | None:
            await workflow.merge({"podMetadata": {"labels": {"change": str(next(changes))}}})
            status = await workflow.status()
            return status if status.get("phase") == "Failed" else None

        status = await eventually("the workflow is Failed", failed, pause=1)
        assert "exceeded its deadline" in str(status["nodes"])
        await workflow.are_gone()
        await world.phase(_name(waiting), "Deleted", "Pod")


async def test_a_job_of_a_resource_template_queues_and_its_step_runs_through_a_preemption(
    world: World,
) -> None:
    """The step has no label. The test creates the Job, as the executor in its pod would."""
    high = await priority(world, "high", 1000)
    train = job("train", template=pod_template(8, 600))
    resource = {"action": "create", "setOwnerReference": True, "manifest": yaml.safe_dump(train)}
    step: Json = {"name": "train", "resource": resource | {"successCondition": "status.succeeded > 0"}}
    step["metadata"] = {"annotations": {"sandbox.queuectl.dev/run-seconds": "600"}}
    templates = [{"name": "main", "steps": [[{"name": "train", "template": "train"}]]}, step]
    async with Workflow.made(world, templates=templates) as workflow:
        creates = await workflow.runs("train")
        assert (await world.workload(_name(creates), "Pod"))["status"] == 404
        train["metadata"]["ownerReferences"] = creates["metadata"]["ownerReferences"]
        await world.submit(train)
        await world.started("train")
        await test_single_pods._created(
            world, pod("urgent", gpus=8, labels={"queuectl.dev/priority-class": high})
        )
        await test_single_pods._runs(world, "urgent")
        assert (await world.get("train"))["spec"]["suspend"]
        assert (await workflow.runs("train"))["metadata"]["uid"] == creates["metadata"]["uid"]
        await world.delete("urgent", "Pod")
        await world.started("train")
    await world.phase("train", "Deleted")
