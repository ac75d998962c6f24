"""What docs/serving.md says of Airflow, JupyterHub, Katib and Tekton, by toys of them.

Each queues by the label where the page puts it, runs when there is quota, and goes on from a preemption.
"""

from __future__ import annotations

import pytest

from queuectl.kube.session import MERGE_PATCH
from tests.acceptance.e2e import test_single_pods
from tests.acceptance.e2e.cohort import priority
from tests.acceptance.e2e.conftest import GATE
from tests.acceptance.e2e.site import GPU, Json, eventually, job, pod, pod_template
from tests.acceptance.e2e.workflow_toys import AirflowTask, Experiment, NotebookServer, TaskRun, find, running
from tests.acceptance.e2e.world import World

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.queued_pods]
world = test_single_pods.world
LABELS = {"queuectl.dev/queue-name": "main"}


async def _full(world: World) -> None:
    await test_single_pods._created(world, pod("before", gpus=8))
    await test_single_pods._runs(world, "before")


async def _waits(world: World, name: str) -> None:
    await world.reason_is(name, "WaitingForQuota", "Pod")
    assert GATE in (await world.get(name, "Pod"))["spec"]["schedulingGates"]


async def _preempted(world: World, earlier: Json) -> None:
    """By a pod `urgent`, while a pod `rival`, which came at least a second later, waits."""
    high = await priority(world, "high", 1000)
    await test_single_pods.a_second_after(world, earlier)
    await test_single_pods._created(world, pod("rival", gpus=8))
    await world.reason_is("rival", "WaitingForQuota", "Pod")
    await test_single_pods._created(
        world, pod("urgent", gpus=8, labels={"queuectl.dev/priority-class": high})
    )


async def _succeed(world: World, name: str) -> None:
    path = f"{world.path('Pod', name)}/status"
    await world.api.request("PATCH", path, {"status": {"phase": "Succeeded"}}, content_type=MERGE_PATCH)


async def _places(world: World, *names: str) -> None:
    """These pods wait in this order."""

    async def look() -> bool:
        found = [(await world.workload(name, "Pod")).get("position") for name in names]
        return found == list(range(1, len(names) + 1))

    await eventually(f"{' before '.join(names)}", look)


async def test_a_try_of_an_airflow_task_that_is_preempted_fails_and_the_next_one_queues_behind_others(
    world: World,
) -> None:
    await _full(world)
    task = AirflowTask(world, LABELS, 8, schedule_timeout=600, retries=1)
    async with running(task):
        await _waits(world, "train-0")
        await world.delete("before", "Pod")
        await _preempted(world, await test_single_pods._runs(world, "train-0"))
        await test_single_pods._runs(world, "urgent")
        await _waits(world, "train-1")
        await _places(world, "rival", "train-1")
        await world.delete("urgent", "Pod")
        await test_single_pods._runs(world, "rival")
        await world.delete("rival", "Pod")
        await test_single_pods._runs(world, "train-1")
        await _succeed(world, "train-1")

        async def over() -> bool:
            return task.state == "success"

        await eventually("the task has succeeded", over)
    await world.phase("train-1", "Finished", "Pod")
    await world.nothing_used(world.namespace)


async def test_the_schedule_timeout_of_an_airflow_task_counts_the_time_in_the_queue(world: World) -> None:
    await _full(world)
    task = AirflowTask(world, LABELS, 1, schedule_timeout=1, retries=1)
    await task.run()
    assert (task.state, task.pods) == ("failed", ["train-0", "train-1"])
    for name in task.pods:
        await world.phase(name, "Deleted", "Pod")
    assert (await world.used(world.namespace))["a100", GPU] == 8


async def test_a_server_of_jupyterhub_starts_in_time_or_not_and_after_a_preemption_only_for_its_user(
    world: World,
) -> None:
    await _full(world)
    server = NotebookServer(world, LABELS, 8, start_timeout=1)
    assert not await server.start()
    await world.phase(server.name, "Deleted", "Pod")
    await world.delete("before", "Pod")
    server.start_timeout = 60
    assert await server.start()
    await _preempted(world, await world.get(server.name, "Pod"))
    await test_single_pods._runs(world, "urgent")
    assert await server.poll() == 1
    await world.delete("urgent", "Pod")
    await test_single_pods._runs(world, "rival")
    assert await find(world, server.name) is None
    await world.delete("rival", "Pod")
    assert await server.start()  # its user comes again
    await server.stop()
    await world.nothing_used(world.namespace)


@pytest.mark.parametrize(("seen", "retries"), [(False, 0), (True, 0), (True, 1)])
async def test_a_preempted_task_run_of_tekton_is_repeated_in_its_place_if_it_has_retries_or_saw_no_failure(
    world: World, *, seen: bool, retries: int
) -> None:
    """`seen`: Tekton sees that the pod has failed before it is gone, which a finalizer makes sure."""
    await _full(world)
    task = TaskRun(world, LABELS, 8, retries=retries)
    async with running(task):
        await _waits(world, "build-pod")
        await world.delete("build-pod", "Pod")  # while it waits: it is made again

        async def again() -> bool:
            return len(task.pods) == 2

        await eventually("the pod is made again", again)
        await _waits(world, "build-pod")
        await world.delete("before", "Pod")
        first = await test_single_pods._runs(world, "build-pod")
        if seen:
            await world.merge("build-pod", {"metadata": {"finalizers": ["example.com/status"]}}, "Pod")
        await _preempted(world, first)

        async def went_on() -> bool:
            return task.reason == "Failed" or len(task.pods) == 3

        await eventually("it fails, or has another pod", went_on)
        assert (task.reason == "Failed") is (seen and not retries)
        if seen:
            await world.merge("build-pod", {"metadata": {"finalizers": None}}, "Pod")
        await test_single_pods._runs(world, "urgent")
        if task.reason == "Failed":
            return
        await _waits(world, task.pod)
        await _places(world, task.pod, "rival")
        await world.delete("urgent", "Pod")
        await test_single_pods._runs(world, task.pod)


async def test_the_timeout_of_a_task_run_counts_the_time_in_the_queue(world: World) -> None:
    await _full(world)
    task = TaskRun(world, LABELS, 1, timeout=2)
    await task.run()
    assert (task.reason, len(task.pods)) == ("TaskRunTimeout", 1)
    await world.phase("build-pod", "Deleted", "Pod")


async def test_an_experiment_of_katib_is_an_array_that_runs_as_many_trials_as_it_says(world: World) -> None:
    """To Katib a trial that waits, or is preempted, runs: its Job stays, and no other one is made."""
    high = await priority(world, "high", 1000)
    trial = job("unused", template=pod_template(4, 600))
    trial["metadata"] |= {
        "labels": {**LABELS, "queuectl.dev/array": "tune"},
        "annotations": {"queuectl.dev/max-running": "1"},
    }
    experiment = Experiment(world, "tune", trial, parallel_trials=3, max_trials=6)
    async with running(experiment):
        await world.started("tune-0")
        for waits in ("tune-1", "tune-2"):
            await world.reason_is(waits, "WaitingForArray")
        await world.submit(job("other", template=pod_template(4, 600)))
        await world.started("other")
        listed = await world.site.queuectl("get", "workloads", "-n", world.namespace)
        assert "tune (2)" in listed.out  # one row for those that wait
        await test_single_pods._created(
            world, pod("urgent", gpus=8, labels={"queuectl.dev/priority-class": high})
        )
        await test_single_pods._runs(world, "urgent")
        assert (await world.get("tune-0"))["spec"]["suspend"]
        await world.delete("urgent", "Pod")
        await world.started("tune-0")
        assert [one["metadata"]["uid"] for one in await experiment.jobs()] == experiment.created
        assert len(experiment.created) == 3
        query = {"labelSelector": "job-name=tune-0"}
        (run,) = (await world.api.request("GET", world.path("Pod"), query=query))["items"]
        await test_single_pods._runs(world, run["metadata"]["name"])
        await _succeed(world, run["metadata"]["name"])
        await world.phase("tune-0", "Finished")
        await world.started("tune-1")
        await world.reason_is("tune-2", "WaitingForArray")
    for name in ("other", *(one["metadata"]["name"] for one in await experiment.jobs())):
        await world.delete(name)
    await world.nothing_used(world.namespace)
