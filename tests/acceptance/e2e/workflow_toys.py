"""Toys of what makes pods for steps of workflows, trials and notebook servers.

They are not those projects. Each does with its pods what the source that it names does, as far as queuectl
sees it, in steps of 0.1 s where the real one waits for events, or longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from queuectl.kube.errors import Conflict, NotFound
from queuectl.sandbox.install import Installer
from queuectl.sandbox.players.pods import owner_reference
from tests.acceptance.e2e import test_single_pods
from tests.acceptance.e2e.site import Json, pod
from tests.acceptance.e2e.world import World

PAUSE = 0.1


async def find(world: World, name: str) -> Json | None:
    try:
        return await world.get(name, "Pod")
    except NotFound:
        return None


async def _delete(world: World, name: str) -> None:
    with suppress(NotFound):
        await world.delete(name, "Pod")


def phase_of(found: Json) -> str:
    return str((found.get("status") or {}).get("phase") or "Pending")


def _is(found: Json, kind: str) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)


@asynccontextmanager
async def running(*toys: AirflowTask | Experiment | TaskRun) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        playing = [tasks.create_task(toy.run()) for toy in toys]
        yield
        for one in playing:
            one.cancel()


@dataclass
class AirflowTask:
    """A task with a KubernetesPodOperator, without `deferrable`.

    apache/airflow, providers/cncf/kubernetes: operators/pod.py, utils/pod_manager.py (`await_pod_start`).
    """

    world: World
    labels: Mapping[str, str]
    gpus: int
    schedule_timeout: float = 120
    retries: int = 0
    state: str = "queued"
    pods: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """One try after another; `retry_delay` is 0."""
        for number in range(self.retries + 1):
            name = f"train-{number}"  # the real one ends in random letters
            labels = {"kubernetes_pod_operator": "True", "try_number": str(number + 1), **self.labels}
            await test_single_pods._created(self.world, pod(name, gpus=self.gpus, queue=None, labels=labels))
            self.pods.append(name)
            self.state = "running"
            well = await self._ended_well(name)
            await _delete(self.world, name)  # `on_finish_action`
            self.state = "success" if well else "up_for_retry" if number < self.retries else "failed"
            if well:
                return

    async def _ended_well(self, name: str) -> bool:
        clock = asyncio.get_running_loop().time
        since = clock()
        while (found := await find(self.world, name)) is not None:  # else PodNotFoundException
            phase = phase_of(found)
            if phase in ("Succeeded", "Failed"):
                return phase == "Succeeded"
            waits = phase == "Pending" and not _is(found, "PodScheduled")
            if waits and clock() - since >= self.schedule_timeout:
                return False
            await asyncio.sleep(PAUSE)
        return False


@dataclass
class NotebookServer:
    """The server of one user of a JupyterHub with KubeSpawner.

    jupyterhub/kubespawner, spawner.py (`_start`, `poll`, `stop`). The hub stops one that starts too late.
    """

    world: World
    extra_labels: Mapping[str, str]
    gpus: int
    start_timeout: float = 60
    name: str = "jupyter-alice"

    async def start(self) -> bool:
        body = pod(self.name, gpus=self.gpus, queue=None, labels={"app": "jupyterhub", **self.extra_labels})
        body["spec"]["restartPolicy"] = "OnFailure"
        while True:
            try:
                await test_single_pods._created(self.world, body)
                break
            except Conflict:
                await self.stop()
        try:
            async with asyncio.timeout(self.start_timeout):
                while await self.poll() is not None or not await self._ready():
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            await self.stop()
            return False
        return True

    async def _ready(self) -> bool:
        found = await find(self.world, self.name)
        return found is not None and phase_of(found) == "Running"

    async def poll(self) -> int | None:
        """None: there is one that runs or may run. The hub then makes no other one by itself."""
        found = await find(self.world, self.name)
        if found is None or phase_of(found) in ("Succeeded", "Failed"):
            return 1
        return None

    async def stop(self) -> None:
        await _delete(self.world, self.name)
        while await find(self.world, self.name) is not None:
            await asyncio.sleep(PAUSE)


EXPERIMENT = "katib.kubeflow.org/experiment"


@dataclass
class Experiment:
    """An Experiment of Katib whose trials are Jobs. It has no Trial and no Suggestion.

    kubeflow/katib, pkg/controller.v1beta1: experiment/experiment_controller.go, trial/util/job_util.go. A
    trial runs from the creation of its Job until that has succeeded or failed: suspended or not.
    """

    world: World
    name: str
    trial_spec: Json
    parallel_trials: int
    max_trials: int
    created: list[str] = field(default_factory=list)
    """The UIDs of all Jobs."""

    async def run(self) -> None:
        while True:
            over = [_is(one, "Complete") or _is(one, "Failed") for one in await self.jobs()]
            free = min(self.parallel_trials - over.count(False), self.max_trials - len(over))
            for _ in range(free):
                await self._create(f"{self.name}-{len(self.created)}")
            await asyncio.sleep(PAUSE)

    async def _create(self, name: str) -> None:
        metadata = self.trial_spec["metadata"]
        labels = {**metadata["labels"], EXPERIMENT: self.name, "katib.kubeflow.org/trial": name}
        body = {**self.trial_spec, "metadata": {**metadata, "name": name, "labels": labels}}
        self.created.append((await self.world.submit(body))["metadata"]["uid"])

    async def jobs(self) -> list[Json]:
        query = {"labelSelector": f"{EXPERIMENT}={self.name}"}
        found = await self.world.api.request("GET", self.world.path("Job"), query=query)
        items: list[Json] = found["items"]
        return items


TASK_RUNS: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "taskruns.tekton.dev"},
    "spec": {
        "group": "tekton.dev",
        "scope": "Namespaced",
        "names": {"kind": "TaskRun", "plural": "taskruns"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


@dataclass
class TaskRun:
    """A TaskRun of Tekton of one step; its status is kept here.

    tektoncd/pipeline, pkg: reconciler/taskrun/taskrun.go (`reconcile`), pod/status.go (`DidTaskRunFail`).
    """

    world: World
    labels: Mapping[str, str]
    gpus: int
    timeout: float = 3600
    retries: int = 0
    reason: str = "Pending"
    pods: list[str] = field(default_factory=list)
    """The UIDs of all pods, one after another."""
    retried: int = 0

    async def run(self) -> None:
        await Installer(self.world.api).apply([TASK_RUNS])
        path = f"/apis/tekton.dev/v1/namespaces/{self.world.namespace}/taskruns"
        body = {"apiVersion": "tekton.dev/v1", "kind": "TaskRun"}
        metadata: Json = {"name": "build", "labels": dict(self.labels)}
        owner = await self.world.api.request("POST", path, {**body, "metadata": metadata})
        clock = asyncio.get_running_loop().time
        since = clock()
        while self.reason not in ("Succeeded", "Failed", "TaskRunTimeout"):
            found = await find(self.world, self.pod)
            if clock() - since >= self.timeout:
                self.reason = "TaskRunTimeout"
                await _delete(self.world, self.pod)
            elif found is None:
                await self._create(owner)
            elif phase_of(found) == "Failed" and self.retried < self.retries:
                self.retried += 1  # the failed pod is archived in `retriesStatus`
                since = clock()
            else:
                self.reason = phase_of(found)
            await asyncio.sleep(PAUSE)

    @property
    def pod(self) -> str:
        return f"build-pod-retry{self.retried}" if self.retried else "build-pod"

    async def _create(self, owner: Json) -> None:
        labels = {**self.labels, "tekton.dev/taskRun": "build"}
        body = pod(self.pod, gpus=self.gpus, queue=None, labels=labels)
        body["metadata"]["ownerReferences"] = [owner_reference(owner)]
        made = await test_single_pods._created(self.world, body)
        self.pods.append(made["metadata"]["uid"])
