"""Pod groups, where the configuration names pods: a start of all pods, their end, preemption, replacement."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from queuectl.kube.errors import ApiError
from tests.acceptance.e2e import test_single_pods
from tests.acceptance.e2e.cohort import priority
from tests.acceptance.e2e.conftest import GATE
from tests.acceptance.e2e.site import Json, eventually, pod
from tests.acceptance.e2e.world import World

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.queued_pods]

world = test_single_pods.world
GROUP = "queuectl.dev/pod-group-name"


def _body(group: str, number: int, *, size: int, gpus: int = 1, seconds: float = 600, **labels: str) -> Json:
    body = pod(f"{group}-{number}", gpus=gpus, seconds=seconds)
    body["metadata"]["labels"] |= {GROUP: group, **labels}
    body["metadata"].setdefault("annotations", {})["queuectl.dev/pod-group-total-count"] = str(size)
    return body


async def _member(world: World, group: str, number: int, **how: Any) -> Json:
    return await test_single_pods._created(world, _body(group, number, **how))


async def _members(world: World, group: str) -> list[Json]:
    query = {"labelSelector": f"{GROUP}={group}"}
    items: list[Json] = (await world.api.request("GET", world.path("Pod"), query=query))["items"]
    return items


async def _running(world: World, group: str, count: int) -> list[Json]:
    async def look() -> list[Json] | None:
        running = [one for one in await _members(world, group) if one["status"].get("phase") == "Running"]
        return running if len(running) == count else None

    found: list[Json] = await eventually(f"{count} pods of {group} run", look)
    return found


async def _run(world: World, group: str, count: int) -> list[Json]:
    found = await _running(world, group, count)
    await world.admitted(group, "PodGroup")
    return found


def _gated(members: list[Json]) -> list[str]:
    return [one["metadata"]["name"] for one in members if GATE in (one["spec"].get("schedulingGates") or [])]


async def _listed(world: World) -> list[tuple[str, str, str]]:
    listed: Any = (await world.site.queuectl("get", "workloads", "-n", world.namespace, "-o", "json")).json
    return [(item["kind"], item["name"], item["phase"]) for item in listed["items"]]


def _config(world: World) -> tuple[str, ...]:
    return ("--config", str(world.site.data.parent / "queuectl.yaml"))


async def _rows(world: World, group: str, verdict: str) -> list[Json]:
    async def look() -> list[Json]:
        found = await world.site.rest(f"/workloads/{world.namespace}/PodGroup/{group}/history")
        return [row for row in found["items"] if row["verdict"] == verdict]

    found: list[Json] = await eventually(f"{group} is {verdict}", look)
    return found


async def test_a_group_starts_when_all_of_its_pods_are_there_and_ends_with_the_last_one(world: World) -> None:
    for number in (0, 1):
        await _member(world, "train", number, size=3, seconds=3)
    text = "2 of 3 pods of the group exist (train-0, train-1): 1 is missing"

    async def counted() -> bool:
        return text in (await world.reason_is("train", "PendingEvaluation", "PodGroup"))["message"]

    await eventually(text, counted)
    assert len(_gated(await _members(world, "train"))) == 2
    await _member(world, "train", 2, size=3, gpus=2, seconds=3)
    members = await _run(world, "train", 3)
    assert {one["metadata"]["labels"]["queuectl.dev/workload"] for one in members} == {
        (await world.workload("train", "PodGroup"))["uid"]
    }
    assert await _listed(world) == [("PodGroup", "train", "Admitted")]
    assert sum((await world.used(world.namespace)).values()) >= 4
    await world.phase("train", "Finished", "PodGroup")
    (retired,) = await _rows(world, "train", "Retired")
    assert retired["details"]["outcome"] == "Succeeded"
    await world.nothing_used(world.namespace)


async def test_a_group_in_a_full_queue_waits_as_one_and_explain_says_why(world: World) -> None:
    await test_single_pods._created(world, pod("first", gpus=6))
    await test_single_pods._runs(world, "first")
    for number in range(3):
        await _member(world, "gang", number, size=3)
    reason = await world.reason_is("gang", "WaitingForQuota", "PodGroup")
    assert reason["shortBy"] == 1
    assert len(_gated(await _members(world, "gang"))) == 3
    told = await world.site.queuectl("explain", "podgroup/gang", "-n", world.namespace)
    assert told.code == 0, told.err
    assert "WaitingForQuota" in told.out
    of_pod = await world.site.queuectl("explain", "pod/gang-1", "-n", world.namespace)
    assert of_pod.code == 0, of_pod.err
    assert of_pod.out.splitlines()[0] == told.out.splitlines()[0]
    assert "pod/gang-1 is a pod of podgroup/gang" in of_pod.err
    refused = await world.site.queuectl("hold", "podgroup/gang", "-n", world.namespace, *_config(world))
    assert refused.code != 0
    assert "kubectl delete pods" in refused.err
    for verb, reason_code in (("hold", "OnHold"), ("release", "WaitingForQuota")):
        made = await world.site.queuectl(verb, "pod/gang-1", "-n", world.namespace, *_config(world))
        assert made.code == 0, made.err
        await world.reason_is("gang", reason_code, "PodGroup")
    await world.delete("first", "Pod")
    await _run(world, "gang", 3)
    verified = await world.site.queuectl("verify", "--cluster", *_config(world))
    assert verified.code == 0, verified.out + verified.err


async def test_a_preempted_group_goes_as_a_whole_and_its_quota_waits_for_its_last_pod(world: World) -> None:
    high = await priority(world, "high", 1000)
    for number in range(4):
        await _member(world, "low", number, size=4, gpus=1 + 2 * (number % 2))  # two roles
    await _run(world, "low", 4)
    body = pod("urgent", gpus=4, labels={"queuectl.dev/priority-class": high})
    await test_single_pods._created(world, body)
    await test_single_pods._runs(world, "urgent")
    assert await _members(world, "low") == []
    (evicted,) = await _rows(world, "low", "Evicted")
    assert evicted["reason"]["code"] == "Preempted"


async def test_a_group_of_which_all_pods_are_deleted_returns_its_quota(world: World) -> None:
    for number in range(2):
        await _member(world, "gone", number, size=2, gpus=4)
    for one in await _run(world, "gone", 2):
        path = world.path("Pod", one["metadata"]["name"])
        await world.api.request("DELETE", path, {"gracePeriodSeconds": 0})
    await world.phase("gone", "Deleted", "PodGroup")
    await world.nothing_used(world.namespace)


async def test_pods_that_succeed_return_their_quota_before_the_others_end(world: World) -> None:
    await _member(world, "part", 0, size=2, gpus=4, seconds=1)
    await _member(world, "part", 1, size=2, gpus=4)
    await _run(world, "part", 1)
    await test_single_pods._created(world, pod("next", gpus=4))
    await test_single_pods._runs(world, "next")
    with pytest.raises(ApiError):
        await world.get("part", "Pod")


async def test_pods_whose_own_node_selector_contradicts_the_flavor_are_not_started(world: World) -> None:
    alone = pod("elsewhere", gpus=1)
    first, second = (_body("elsewhere", number, size=2) for number in range(2))
    for body in (alone, second):
        body["spec"]["nodeSelector"] = {test_single_pods.LABEL: "spot"}
    for body in (alone, first, second):
        await test_single_pods._created(world, body)
    for kind in ("Pod", "PodGroup"):
        await world.reason_is("elsewhere", "NoMatchingFlavor", kind)
    assert len(_gated(await _members(world, "elsewhere"))) == 2


async def test_a_group_whose_pods_differ_says_which_and_how(world: World) -> None:
    await _member(world, "mixed", 0, size=2)
    await _member(world, "mixed", 1, size=3)
    reason = await world.reason_is("mixed", "Misconfigured", "PodGroup")
    assert "pod mixed-1: metadata.annotations[queuectl.dev/pod-group-total-count]" in reason["message"]


async def test_a_group_by_kueues_names_waits_for_its_pods_starts_as_a_whole_and_is_explained(
    world: World,
) -> None:
    """As the gate makes it of them: the controller reads queuectl's names alone."""
    for number in range(3):
        metadata = (body := _body("kueues", number, size=3))["metadata"]
        metadata["labels"]["queuectl.dev/pod-group-pod-index"] = str(number)
        for field in ("labels", "annotations"):
            metadata[field] = {
                re.sub("^queuectl.dev/", "kueue.x-k8s.io/", key): value
                for key, value in metadata[field].items()
            }
        await test_single_pods._created(world, body)
        if number == 1:
            text = "2 of 3 pods of the group exist (kueues-0, kueues-1): kueues-2 is missing"

            async def counted(text: str = text) -> bool:
                reason = await world.reason_is("kueues", "PendingEvaluation", "PodGroup")
                return text in reason["message"]

            await eventually(text, counted)
            explained = await world.site.queuectl("explain", "pod/kueues-1", "-n", world.namespace)
            assert text in explained.out, explained.err
            assert len(_gated(await _members(world, "kueues"))) == 2
    await _run(world, "kueues", 3)
    assert await _listed(world) == [("PodGroup", "kueues", "Admitted")]


async def test_the_group_of_the_page_on_serving_runs(world: World) -> None:
    _, text, *_ = test_single_pods._of_page("yaml")
    size = int(yaml.safe_load(text)["metadata"]["annotations"]["queuectl.dev/pod-group-total-count"])
    for number in range(size):
        await test_single_pods._created(world, yaml.safe_load(text.replace("train-0", f"train-{number}")))
    await _run(world, "train", size)
