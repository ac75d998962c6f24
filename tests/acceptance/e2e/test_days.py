"""Days of a researcher and of an admin, typed as the documents say."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
import yaml

from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.example import fake_node
from queuectl.sandbox.players.kubelet import EXIT_CODE
from tests.acceptance.e2e.cohort import LONG
from tests.acceptance.e2e.conftest import SETTINGS, TODAY
from tests.acceptance.e2e.site import (
    Json,
    Run,
    Site,
    cluster_queue,
    eventually,
    flavor,
    job,
    local_queue,
    pod_template,
)
from tests.acceptance.e2e.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

LABEL: Final = "example.com/accelerator"
AT_ONCE: Final = 5
ARRAY: Final = 30
URGENT: Final = "urgent"
PAUSE: Final = 0.5
"""Seconds between two looks, each of which is a process."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    """A sandbox of its own, with two nodes of eight GPUs and a queue for five of them."""
    folder = Path(tempfile.mkdtemp(prefix="queuectl-days-"))
    folder.chmod(0o711)
    config = folder / "queuectl.yaml"
    config.write_text(yaml.safe_dump(SETTINGS))
    site = Site(folder / TODAY, TODAY, flags=("--empty", "--config", str(config)))
    try:
        await site.start()
        async with site.client() as api:
            found = World(site, api, "default")
            for name in ("node-1", "node-2"):
                await api.request("POST", "/api/v1/nodes", fake_node(name, "a100", gpus=8))
            await found.policy(flavor("a100", {LABEL: "a100"}))
            preemption = {"withinClusterQueue": "LowerPriority"}
            await found.policy(cluster_queue("lab", AT_ONCE, preemption=preemption))
            await found.policy(local_queue("default", "main", "lab"))
            priority = {"apiVersion": "queuectl.dev/v1beta1", "kind": "WorkloadPriorityClass"}
            await found.policy({**priority, "metadata": {"name": URGENT}, "value": 1000})
            yield found
    finally:
        await site.stop()
        shutil.rmtree(folder, ignore_errors=True)


async def typed(world: World, line: str, *, code: int = 0, identity: str = "tenant") -> Run:
    """What a command printed that was typed as this identity."""
    verb, *rest = line.split()
    found = await world.site.queuectl(verb, "--context", identity, *rest)
    assert found.code == code, f"queuectl {line}\n{found.out}{found.err}"
    return found


async def listed(world: World, line: str) -> dict[str, dict[str, Any]]:
    """Workloads by name."""
    items = (await typed(world, f"{line} -o json")).json["items"]
    return {one["name"]: one for one in items}


def of_file(name: str, seconds: float, *, code: int = 0, limit: int | None = None) -> Json:
    """A Job whose pod runs for these seconds and ends with this code. `limit`: of its run time (seconds)."""
    template = pod_template(1, seconds)
    template["metadata"]["annotations"][EXIT_CODE] = str(code)
    body = job(name, template=template)
    if limit is not None:
        body["metadata"]["labels"]["queuectl.dev/max-exec-time-seconds"] = str(limit)
    return body


async def submitted(world: World, folder: Path, *jobs: Json) -> None:
    file = folder / "jobs.yaml"
    file.write_text(yaml.safe_dump_all(jobs))
    await typed(world, f"submit {file}")


async def ended(world: World, name: str, *, code: int) -> str:
    """The outcome of a workload, once `wait` has ended with this code."""
    await typed(world, f"wait job/{name} --timeout 90s", code=code)
    found = await listed(world, "get workloads --mine --phase Finished")
    outcome: str = found[name]["end"]["outcome"]
    return outcome


async def says(world: World, line: str, *texts: str, identity: str = "tenant") -> None:
    """Wait until a command prints all these."""
    printed = ""

    async def look() -> bool:
        nonlocal printed
        printed = (await typed(world, line, identity=identity)).out
        return all(text in printed for text in texts)

    try:
        await eventually(f"queuectl {line} says {texts}", look, pause=PAUSE)
    except AssertionError as problem:
        raise AssertionError(f"{problem}\n{printed}") from None


async def test_a_researchers_day(world: World, tmp_path: Path) -> None:
    """Five of thirty tasks run at once. One Job succeeds, one fails, one reaches its time limit, and one is
    preempted and runs again.
    """
    made = await typed(
        world, f"submit -q main --name sweep --array {ARRAY} --image i --gpus 1 --time 1h -- python train.py"
    )
    assert made.out.count("\n") < 4, "one line for many"
    most = 0

    async def some_are_over() -> bool:
        nonlocal most
        most = max(most, len(await listed(world, "get workloads --mine --phase Admitted")))
        return len(await listed(world, "get workloads --mine --phase Finished")) >= AT_ONCE

    await eventually("some of the sweep are over", some_are_over, pause=PAUSE)
    assert most == AT_ONCE
    await typed(world, f"hold job/sweep-{ARRAY - 1} job/sweep-{ARRAY - 2} --yes --reason lunch")
    await says(world, "get workloads --mine --phase Pending", "OnHold")
    await typed(world, "cancel array/sweep --yes")
    await eventually("the sweep is cancelled", lambda: _none_left(world), pause=PAUSE)
    await submitted(
        world, tmp_path, of_file("good", 1), of_file("bad", 1, code=3), of_file("long", LONG, limit=5)
    )
    assert await ended(world, "good", code=0) == "Succeeded"
    assert await ended(world, "bad", code=1) == "Failed"
    assert await ended(world, "long", code=1) == "TimedOut"
    await submitted(world, tmp_path, of_file("evening", LONG))
    await says(world, "get workloads --mine --phase Admitted", "job/evening")
    rush = f"--name rush --image i --gpus {AT_ONCE} --time 1h -- ./rush"
    await typed(world, f"submit -q main -p {URGENT} {rush}")
    await says(world, "history job/evening", "Preempted", "rush")
    await says(world, "preemptions", "evening", "rush")
    assert await ended(world, "rush", code=0) == "Succeeded"
    await typed(world, "wait job/evening --for started --timeout 90s")
    await says(world, "waited job/evening", "quota of nvidia.com/gpu in flavor a100 at ClusterQueue/lab")
    await typed(world, "cancel job/evening --yes")
    found = await eventually("it is over", lambda: _deleted(world, "evening"), pause=PAUSE)
    assert [one["outcome"] for one in found["end"]["attempts"]] == ["Preempted", "Cancelled"]


async def test_work_that_follows_other_work(world: World, tmp_path: Path) -> None:
    """Each of --after's outcomes, and --begin, of Jobs that are submitted before what they wait for."""
    flags = "-q main --image i --gpus 1 --time 1h"
    for name, after in (
        ("train", "job/prepare"),
        ("repair", "failed:job/broken"),
        ("report", "any:job/broken"),
        ("never", "job/broken"),
    ):
        await typed(world, f"submit {flags} --name {name} --after {after} -- ./{name}")
    await typed(world, f"submit {flags} --name later --begin 1h -- ./later")
    await typed(world, f"submit {flags} --name soon --begin now+5seconds -- ./soon")
    for name in ("train", "repair", "report", "never"):
        await says(world, f"explain job/{name}", "WaitingForDependency")
    await says(world, "explain job/later", "WaitingForBeginTime")
    await submitted(world, tmp_path, of_file("prepare", 1), of_file("broken", 1, code=3))
    for name in ("train", "repair", "report", "soon"):
        assert await ended(world, name, code=0) == "Succeeded"
    await says(world, "explain job/never", "DependencyNeverSatisfied at Job/broken")
    ends = await listed(world, "get workloads --mine --phase Finished")
    for name, before in (("train", "prepare"), ("repair", "broken"), ("report", "broken")):
        assert ends[name]["end"]["startedAt"] >= ends[before]["end"]["endedAt"]
    assert sorted(await listed(world, "get workloads --mine")) == ["later", "never"]
    await typed(world, "cancel --mine --yes")
    await eventually("they are cancelled", lambda: _none_left(world), pause=PAUSE)


async def _deleted(world: World, name: str) -> Json | None:
    return (await listed(world, "get workloads --mine --phase Deleted")).get(name)


async def _none_left(world: World) -> bool:
    return not await listed(world, "get workloads --mine")


async def test_an_admins_day(world: World, tmp_path: Path) -> None:
    """Less quota is planned, a queue is drained with a reason, a node is cordoned and another is tainted."""
    await submitted(world, tmp_path, *(of_file(f"work-{number}", LONG) for number in range(AT_ONCE)))

    async def all_run() -> bool:
        return len(await listed(world, "get workloads --mine --phase Admitted")) == AT_ONCE

    await eventually("all run", all_run, pause=PAUSE)
    smaller = cluster_queue("lab", AT_ONCE - 2, preemption={"withinClusterQueue": "LowerPriority"})
    file = tmp_path / "smaller.yaml"
    file.write_text(yaml.safe_dump(smaller))
    planned = (await typed(world, f"plan {file}", identity="admin")).out
    assert f"nominalQuota: {AT_ONCE} -> {AT_ONCE - 2}" in planned
    await typed(world, "stop clusterqueue/lab --drain --reason maintenance --wait", identity="admin")
    await says(world, "explain job/work-0", "maintenance")
    await says(world, "history job/work-0", "ClusterQueueStopped at ClusterQueue/lab", "maintenance")
    await _patch_node(world, "node-1", {"unschedulable": True})
    taint = {"key": "example.com/repair", "value": "fan", "effect": "NoSchedule"}
    await _patch_node(world, "node-2", {"taints": [taint]})
    await typed(world, "resume clusterqueue/lab --wait", identity="admin")
    await says(world, "explain job/work-0", "example.com/repair=fan:NoSchedule", "1 node cordoned")
    await says(world, "get nodes", "Cordoned", "example.com/repair", identity="admin")
    await says(world, "get clusterqueues", "Ready, QuotaBeyondNodes", identity="admin")
    await says(world, "info node/node-2", "example.com/repair=fan:NoSchedule", identity="admin")
    await _patch_node(world, "node-1", {"unschedulable": None})
    await eventually("all run", all_run, pause=PAUSE)
    await typed(world, "cancel --mine --yes")
    await eventually("they are cancelled", lambda: _none_left(world), pause=PAUSE)


async def _patch_node(world: World, name: str, spec: Json) -> None:
    path = f"/api/v1/nodes/{name}"
    await world.api.request("PATCH", path, {"spec": spec}, content_type=MERGE_PATCH)
