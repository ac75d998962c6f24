"""One round of the example, in virtual time: which job loses to which, and by which rule."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.core.model.reasons import Code, PreemptionCause
from queuectl.kinds.jobs import PRIORITY_LABEL, QUEUE_LABEL
from queuectl.sandbox import example
from queuectl.sandbox.install import read_kustomization
from queuectl.sandbox.players.kubelet import RUN_SECONDS
from queuectl.shipped import shipped
from queuectl.simulation.history import Life
from tests.acceptance.demo.lives import lives_of

Json = dict[str, Any]

RECLAIM = PreemptionCause.IN_COHORT_RECLAMATION
POLICY = read_kustomization(shipped("manifests") / "examples")
SIMULATED = ("Namespace", "Cohort", "ClusterQueue", "ResourceFlavor", "LocalQueue")
PRIORITIES = {
    one["metadata"]["name"]: one["value"] for one in POLICY if one["kind"] == "WorkloadPriorityClass"
}


def pod_sets(job: Json) -> list[Json]:
    spec = job["spec"]
    if job["kind"] == "Job":
        return [pod_set("main", spec["parallelism"], spec["template"])]
    return [
        pod_set(name, one["replicas"], one["template"]) for name, one in spec["pytorchReplicaSpecs"].items()
    ]


def pod_set(name: str, count: int, template: Json) -> Json:
    spec = template["spec"]
    selector = spec.get("nodeSelector", {})
    return {"name": name, "count": count, "containers": spec["containers"], "nodeSelector": selector}


def template_of(job: Json) -> Json:
    spec = job["spec"]
    found: Json = (spec if job["kind"] == "Job" else spec["pytorchReplicaSpecs"]["Master"])["template"]
    return found


def simulated(at: float, job: Json) -> Json:
    metadata = job["metadata"]
    return {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "queue": metadata["labels"][QUEUE_LABEL],
        "priority": PRIORITIES[metadata["labels"][PRIORITY_LABEL]],
        "arrival": at,
        "runSeconds": float(template_of(job)["metadata"]["annotations"][RUN_SECONDS]),
        "podSets": pod_sets(job),
    }


@pytest.fixture
def lives(monkeypatch: pytest.MonkeyPatch) -> dict[str, Life]:
    """What happened to each job in one round, by name."""
    objects = [one for one in POLICY if one["kind"] in SIMULATED]
    return lives_of(monkeypatch, objects, [simulated(at, job) for at, job in example.jobs()])


def test_each_rule_takes_from_the_job_that_the_story_says(lives: dict[str, Life]) -> None:
    lost = {
        (name, run.cause, str(run.preemptor).rpartition("/")[2])
        for name, life in lives.items()
        for run in life.runs
        if run.stopped is not None
    }
    assert lost == {
        ("fold-1", RECLAIM, "finetune-llm"),
        ("fold-2", RECLAIM, "finetune-llm"),
        ("fold-3", RECLAIM, "render"),
        ("sweep-1", PreemptionCause.IN_COHORT_FAIR_SHARING, "distill"),
        ("train-bert", PreemptionCause.IN_CLUSTER_QUEUE, "urgent-eval"),
        ("sweep-2", RECLAIM, "eval-nightly"),
        ("distill", RECLAIM, "eval-nightly"),
    }


def test_all_jobs_but_the_one_that_is_too_large_finish_within_the_round(lives: dict[str, Life]) -> None:
    left = {name for name, life in lives.items() if life.finished is None}
    assert left == {example.TOO_LARGE[1]}
    assert lives[example.TOO_LARGE[1]].reason is Code.EXCEEDS_MAX_QUOTA
    assert not lives[example.TOO_LARGE[1]].runs
    last = max(life.finished for life in lives.values() if life.finished is not None)
    assert last / 1000 < example.ROUND_SECONDS


def test_a_job_gets_spot_only_where_a100_is_full(lives: dict[str, Life]) -> None:
    flavors = {
        name: [{cell.flavor for cell in run.usage} for run in life.runs] for name, life in lives.items()
    }
    assert flavors["fold-1"] == [{"a100"}, {"spot"}]
    assert flavors["fold-4"] == [{"spot"}]
    assert {name for name, runs in flavors.items() if {"spot"} in runs} == {
        "fold-1",
        "fold-2",
        "fold-3",
        "fold-4",
    }


def test_every_pod_fits_a_node_of_each_flavor_and_the_quotas_sum_up_to_the_nodes() -> None:
    gpus: dict[str, list[int]] = {}
    for node in example.nodes():
        flavor = node["metadata"]["labels"]["example.com/accelerator"]
        gpus.setdefault(flavor, []).append(int(node["status"]["allocatable"]["nvidia.com/gpu"]))
    nominal = {
        (one["name"], resource["name"]): resource["nominalQuota"]
        for queue in POLICY
        if queue["kind"] == "ClusterQueue" and queue["metadata"]["name"] != "scavenger"
        for one in queue["spec"]["resourceGroups"][0]["flavors"]
        for resource in one["resources"]
    }
    for flavor, sizes in gpus.items():
        assert 3 * nominal[flavor, "nvidia.com/gpu"] == sum(sizes)
    for _, job in example.jobs():
        for one in pod_sets(job):
            request = int(one["containers"][0]["resources"]["requests"]["nvidia.com/gpu"])
            assert all(size % request == 0 for sizes in gpus.values() for size in sizes)
