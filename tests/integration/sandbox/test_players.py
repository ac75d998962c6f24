"""Scheduler, kubelet, Job controller and training operator, tested through the API only.

On the small API server all of them are players; on the real one the Job controller is the real one.
"""

from __future__ import annotations

import pytest

from queuectl.sandbox.players.api import Object
from tests.integration.sandbox.cluster import Cluster, condition, job, pod, pod_template, pytorchjob
from tests.integration.sandbox.polling import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
LABEL = "example.com/gpu"
SPOT = {"key": "spot", "value": "true", "effect": "NoSchedule"}


def types(thing: Object) -> list[str]:
    """Conditions that are True, in their order."""
    return [c["type"] for c in thing["status"]["conditions"] if c["status"] == "True"]


async def test_a_suspended_job_has_no_pods_starts_when_resumed_and_completes(cluster: Cluster) -> None:
    await cluster.node("n1")
    await cluster.create("jobs", job("train", pod_template(), parallelism=2, completions=3, suspend=True))
    found = await cluster.until("jobs", "train", lambda j: condition(j, "Suspended") == "True", "suspended")
    assert not found["status"].get("active")
    assert await cluster.pods_of("train") == []
    await cluster.patch("jobs", "train", {"spec": {"suspend": False}})
    found = await cluster.until("jobs", "train", lambda j: condition(j, "Complete") == "True", "complete")
    status = found["status"]
    assert status["succeeded"] == 3
    assert not status.get("active")
    assert not status.get("terminating")
    assert types(found) == ["SuccessCriteriaMet", "Complete"]
    assert condition(found, "Suspended") == "False"
    assert status["startTime"] <= status["completionTime"]
    assert len(await cluster.pods_of("train")) == 3


async def test_suspending_a_running_job_deletes_its_pods_and_it_can_start_again(cluster: Cluster) -> None:
    await cluster.node("n1")
    await cluster.create("jobs", job("train", pod_template(run=None), parallelism=2, completions=2))
    await cluster.until("jobs", "train", lambda j: j.get("status", {}).get("ready") == 2, "ready")
    await cluster.patch("jobs", "train", {"spec": {"suspend": True}})
    found = await cluster.until(
        "jobs",
        "train",
        lambda j: (
            condition(j, "Suspended") == "True"
            and not j["status"].get("active")
            and not j["status"].get("terminating")
        ),
        "suspended and quiet",
    )
    await eventually(lambda: gone(cluster, "train"), "the end of its pods")
    assert not found["status"].get("failed")
    await cluster.patch("jobs", "train", {"spec": {"suspend": False}})
    await cluster.until("jobs", "train", lambda j: j["status"].get("ready") == 2, "ready again")


async def gone(cluster: Cluster, owner: str) -> bool:
    return not await cluster.pods_of(owner)


async def test_a_job_whose_pods_fail_more_often_than_its_limit_fails(cluster: Cluster) -> None:
    await cluster.node("n1")
    await cluster.create("jobs", job("broken", pod_template(exit_code=3), backoffLimit=0))
    found = await cluster.until("jobs", "broken", lambda j: condition(j, "Failed") == "True", "failed")
    assert types(found) == ["FailureTarget", "Failed"]
    assert found["status"]["failed"] == 1
    assert (
        next(c for c in found["status"]["conditions"] if c["type"] == "Failed")["reason"]
        == "BackoffLimitExceeded"
    )
    (failed,) = await cluster.pods_of("broken")
    state = failed["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (failed["status"]["phase"], state["exitCode"]) == ("Failed", 3)


async def test_an_indexed_job_completes_each_index_once(cluster: Cluster) -> None:
    await cluster.node("n1")
    body = job("shards", pod_template(), parallelism=2, completions=4, completionMode="Indexed")
    await cluster.create("jobs", body)
    found = await cluster.until("jobs", "shards", lambda j: condition(j, "Complete") == "True", "complete")
    assert found["status"]["completedIndexes"] == "0-3"


async def test_a_finished_job_is_deleted_after_its_time_to_live_with_its_pods(cluster: Cluster) -> None:
    await cluster.node("n1")
    await cluster.create("jobs", job("brief", pod_template(), ttlSecondsAfterFinished=1))

    async def nothing_left() -> bool:
        return not await cluster.items("jobs") and not await cluster.items("pods")

    await eventually(nothing_left, "the end of job and pods")


async def test_a_job_past_its_deadline_fails_and_its_pods_end(cluster: Cluster) -> None:
    await cluster.node("n1")
    await cluster.create("jobs", job("slow", pod_template(run=None), activeDeadlineSeconds=1))
    found = await cluster.until("jobs", "slow", lambda j: condition(j, "Failed") == "True", "failed")
    assert (
        next(c for c in found["status"]["conditions"] if c["type"] == "Failed")["reason"]
        == "DeadlineExceeded"
    )
    assert not found["status"].get("active")


async def test_a_job_has_failed_only_when_its_last_pod_has_ended(cluster: Cluster) -> None:
    await cluster.node("n1")
    slow = pod_template(run=None, annotations={"sandbox.queuectl.dev/terminate-seconds": "1.5"})
    await cluster.create("jobs", job("slow", slow, activeDeadlineSeconds=1))
    found = await cluster.until("jobs", "slow", lambda j: condition(j, "FailureTarget") == "True", "to fail")
    assert condition(found, "Failed") == ""
    assert await cluster.pods_of("slow")
    found = await cluster.until("jobs", "slow", lambda j: condition(j, "Failed") == "True", "failed")
    assert not found["status"].get("terminating")


async def test_a_job_is_complete_only_when_a_replaced_pod_has_ended_too(cluster: Cluster) -> None:
    if not cluster.jobs_are_played:
        return  # the real controller is not tested here; it also waits ten seconds before it replaces a pod
    await cluster.node("n1")
    slow = pod_template(run=1, annotations={"sandbox.queuectl.dev/terminate-seconds": "4"})
    await cluster.create("jobs", job("moved", slow))
    await eventually(lambda: cluster.pods_of("moved"), "its first pod")
    (first,) = await cluster.pods_of("moved")
    name = first["metadata"]["name"]
    await cluster.until("pods", name, lambda p: p["status"]["phase"] == "Running", "running")
    await cluster.delete("pods", name)
    found = await cluster.until(
        "jobs", "moved", lambda j: condition(j, "SuccessCriteriaMet") == "True", "successful"
    )
    assert condition(found, "Complete") == ""
    assert found["status"]["terminating"] == 1
    await cluster.until("jobs", "moved", lambda j: condition(j, "Complete") == "True", "complete")


async def test_deleting_a_job_deletes_its_pods(cluster: Cluster) -> None:
    await cluster.node("n1")
    await cluster.create("jobs", job("train", pod_template(run=None)))
    await cluster.until("jobs", "train", lambda j: j.get("status", {}).get("ready") == 1, "ready")
    await cluster.delete("jobs", "train")
    await eventually(lambda: gone(cluster, "train"), "the end of its pods")


async def test_a_deleted_pod_takes_the_time_of_its_annotation_to_end(cluster: Cluster) -> None:
    await cluster.node("n1")
    slow = pod_template(run=None, annotations={"sandbox.queuectl.dev/terminate-seconds": "0.7"})
    await cluster.create("jobs", job("train", slow))
    await cluster.until("jobs", "train", lambda j: j.get("status", {}).get("ready") == 1, "ready")
    await cluster.patch("jobs", "train", {"spec": {"suspend": True}})
    await cluster.until("jobs", "train", lambda j: j["status"].get("terminating") == 1, "terminating")
    await cluster.until("jobs", "train", lambda j: not j["status"].get("terminating"), "quiet")


async def test_pods_go_where_selector_taints_and_free_gpus_allow(cluster: Cluster) -> None:
    await cluster.node("a", gpus=2, labels={LABEL: "a100"})
    await cluster.node("s", gpus=4, labels={LABEL: "spot"}, taints=(SPOT,))
    tolerant: tuple[Object, ...] = ({"key": "spot", "operator": "Exists"},)
    await cluster.create("pods", pod("first", pod_template(run=None, gpus=2, selector={LABEL: "a100"})))
    first = await cluster.until("pods", "first", lambda p: p["status"].get("phase") == "Running", "running")
    assert first["spec"]["nodeName"] == "a"
    await cluster.create("pods", pod("second", pod_template(run=None, gpus=1, selector={LABEL: "a100"})))
    second = await cluster.until(
        "pods", "second", lambda p: condition(p, "PodScheduled") == "False", "told why"
    )
    message = second["status"]["conditions"][-1]["message"]
    assert message == "0/2 nodes are available: 1 didn't match the node selector, 1 had too little free."
    await cluster.create("pods", pod("wary", pod_template(run=None, gpus=1)))
    wary = await cluster.until("pods", "wary", lambda p: condition(p, "PodScheduled") == "False", "told why")
    assert "1 had untolerated taints" in wary["status"]["conditions"][-1]["message"]
    await cluster.create("pods", pod("tolerant", pod_template(run=None, gpus=3, tolerations=tolerant)))
    found = await cluster.until("pods", "tolerant", lambda p: p["spec"].get("nodeName"), "bound")
    assert found["spec"]["nodeName"] == "s"
    # Resources that come free are used.
    await cluster.delete("pods", "first")
    for name in ("second", "wary"):
        found = await cluster.until("pods", name, lambda p: p["spec"].get("nodeName"), "bound")
        assert found["spec"]["nodeName"] == "a"


async def test_a_pod_that_names_its_node_goes_to_no_other(cluster: Cluster) -> None:
    await cluster.node("a", gpus=2)
    for name, node in (("here", "a"), ("elsewhere", None)):
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node or "b"]}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        template = pod_template(run=None, gpus=1)
        template["spec"]["affinity"] = {"nodeAffinity": required}
        await cluster.create("pods", pod(name, template))
        if node:  # a scheduler that has not seen it yet tries again
            await cluster.until("pods", name, lambda p: p["spec"].get("nodeName"), "bound")
        found = await cluster.until("pods", name, lambda p: condition(p, "PodScheduled"), "tried")
        assert found["spec"].get("nodeName") == node


async def test_all_pods_of_one_shape_start_when_a_node_grows(cluster: Cluster) -> None:
    await cluster.node("a", gpus=0)
    await cluster.create("jobs", job("gang", pod_template(run=None), parallelism=5, completions=5))
    await eventually(lambda: told(cluster, 5), "five pods told why")
    await cluster.resize("a", 3)
    await cluster.until("jobs", "gang", lambda j: j["status"].get("ready") == 3, "three of five ready")
    await cluster.resize("a", 5)
    await cluster.until("jobs", "gang", lambda j: j["status"].get("ready") == 5, "ready")


async def told(cluster: Cluster, count: int) -> bool:
    return sum(condition(p, "PodScheduled") == "False" for p in await cluster.items("pods")) == count


async def test_a_pytorchjob_runs_as_one_gang_and_succeeds_with_its_master(cluster: Cluster) -> None:
    await cluster.node("n1")
    await cluster.create("pytorchjobs", pytorchjob("llm", pod_template(), suspend=True))
    await cluster.until("pytorchjobs", "llm", lambda j: condition(j, "Suspended") == "True", "suspended")
    assert await cluster.pods_of("llm") == []
    await cluster.patch("pytorchjobs", "llm", {"spec": {"runPolicy": {"suspend": False}}})
    found = await cluster.until(
        "pytorchjobs", "llm", lambda j: condition(j, "Succeeded") == "True", "succeeded"
    )
    assert condition(found, "Suspended") == "False"
    assert condition(found, "Running") == "False"
    assert found["status"]["replicaStatuses"]["Master"]["succeeded"] == 1
    pods = {p["metadata"]["name"]: p for p in await cluster.pods_of("llm")}
    assert sorted(pods) == ["llm-master-0", "llm-worker-0", "llm-worker-1", "llm-worker-2"]
    labels = pods["llm-worker-1"]["metadata"]["labels"]
    assert labels["training.kubeflow.org/job-name"] == "llm"
    assert labels["training.kubeflow.org/replica-type"] == "worker"


async def test_suspending_a_running_pytorchjob_deletes_its_pods_and_it_can_start_again(
    cluster: Cluster,
) -> None:
    await cluster.node("n1")
    await cluster.create("pytorchjobs", pytorchjob("llm", pod_template(run=None), workers=1))
    await cluster.until("pytorchjobs", "llm", lambda j: condition(j, "Running") == "True", "running")
    await cluster.patch("pytorchjobs", "llm", {"spec": {"runPolicy": {"suspend": True}}})
    await eventually(lambda: gone(cluster, "llm"), "the end of its pods")
    found = await cluster.until(
        "pytorchjobs", "llm", lambda j: condition(j, "Suspended") == "True", "suspended"
    )
    assert condition(found, "Running") == "False"
    await cluster.patch("pytorchjobs", "llm", {"spec": {"runPolicy": {"suspend": False}}})
    await cluster.until("pytorchjobs", "llm", lambda j: condition(j, "Running") == "True", "running again")


async def test_a_pytorchjob_fails_with_its_first_failed_pod(cluster: Cluster) -> None:
    await cluster.node("n1")
    await cluster.create("pytorchjobs", pytorchjob("broken", pod_template(exit_code=1), workers=1))
    found = await cluster.until("pytorchjobs", "broken", lambda j: condition(j, "Failed") == "True", "failed")
    assert condition(found, "Running") != "True"
    assert condition(found, "Succeeded") != "True"
