"""`move` and `priority`: one patch of a label each, and refusals before and by the API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.clusters import Cluster, Json, kubeconfig, merged
from tests.unit.cli.conftest import Run
from tests.unit.cli.servers import answering

JOB = "/apis/batch/v1/namespaces/default/jobs/train"
QUEUES = "/apis/queuectl.dev/v1beta1/namespaces/default/localqueues"
CLASSES = "/apis/queuectl.dev/v1beta1/workloadpriorityclasses"
QUEUE = "queuectl.dev/queue-name"
CLASS = "queuectl.dev/priority-class"
KUEUES_QUEUE = "kueue.x-k8s.io/queue-name"
KUEUES_CLASS = "kueue.x-k8s.io/priority-class"
RUNS: Json = {"spec": {"suspend": False}}
OVER: Json = {**RUNS, "status": {"conditions": [{"type": "Complete", "status": "True"}]}}


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    found.add(JOB, metadata={"labels": {QUEUE: "main"}}, spec={"suspend": True})
    for name in ("main", "research"):
        found.add(f"{QUEUES}/{name}", spec={"clusterQueue": "team-a"})
    found.add(f"{CLASSES}/high", value=100)
    return found


@pytest.fixture
def change(run: Run, cluster: Cluster, tmp_path: Path) -> Iterator[Run]:
    with answering(cluster.answer) as url:
        config = str(kubeconfig(tmp_path, url))
        yield lambda *arguments: run(*arguments, "--kubeconfig", config)


@pytest.mark.parametrize(
    ("labels", "line", "written"),
    [
        ({QUEUE: "main"}, "move job/train --to research", {QUEUE: "research"}),
        ({QUEUE: "main"}, "move job train --to research", {QUEUE: "research"}),
        ({KUEUES_QUEUE: "main"}, "move job/train --to research", {KUEUES_QUEUE: "research"}),
        ({QUEUE: "main", KUEUES_QUEUE: "x"}, "move job/train --to research", {QUEUE: "research"}),
        ({QUEUE: "main"}, "priority job/train --class high", {CLASS: "high"}),
        ({KUEUES_QUEUE: "main"}, "priority job/train --class high", {KUEUES_CLASS: "high"}),
        ({QUEUE: "main", KUEUES_CLASS: "low"}, "priority job/train --class high", {KUEUES_CLASS: "high"}),
        ({QUEUE: "main", CLASS: "low"}, "priority job/train --unset", {CLASS: None}),
        (
            {QUEUE: "main", CLASS: "low", KUEUES_CLASS: "mid"},
            "priority job/train --unset",
            {CLASS: None, KUEUES_CLASS: None},
        ),
    ],
)
def test_a_change_is_one_patch_of_the_label_that_counts(
    change: Run, cluster: Cluster, labels: Json, line: str, written: Json
) -> None:
    cluster.objects[JOB]["metadata"]["labels"] = labels
    result = change(*line.split())
    assert result.exit_code == 0, result.stderr
    assert cluster.writes == [(JOB, {"metadata": {"uid": "uid-train", "labels": written}})]
    assert "creation time, which stay" in result.stdout


@pytest.mark.parametrize(
    ("labels", "line"),
    [
        ({QUEUE: "main"}, "move job/train --to main"),
        ({QUEUE: "main", CLASS: "high"}, "priority job/train --class high"),
        ({QUEUE: "main"}, "priority job/train --unset"),
    ],
)
def test_a_change_that_is_in_place_already_is_not_written(
    change: Run, cluster: Cluster, labels: Json, line: str
) -> None:
    cluster.objects[JOB]["metadata"]["labels"] = labels
    result = change(*line.split())
    assert result.exit_code == 0, result.stderr
    assert "nothing is written" in result.stdout
    assert cluster.writes == []


@pytest.mark.parametrize(
    ("now", "line", "code", "told"),
    [
        (RUNS, "move job/train --to research", 1, "`queuectl hold job/train -n default --wait` stops it"),
        (OVER, "move job/train --to research", 1, "Job default/train is over: a move would change nothing"),
        (OVER, "priority job/train --class high", 1, "is over: another priority would change nothing"),
        ({}, "move job/train --to reserch", 1, "no LocalQueue reserch: did you mean research?"),
        ({}, "move job/train --to ../x", 1, "namespace default has no LocalQueue ../x"),
        ({}, "priority job/train --class hihg", 1, "the cluster has no WorkloadPriorityClass hihg: did you"),
        ({}, "priority job/train", 2, "either --class NAME or --unset"),
        ({}, "priority job/train --class high --unset", 2, "either --class NAME or --unset"),
        ({"metadata": {"labels": {QUEUE: None}}}, "move job/train --to research", 2, "a move would have no"),
        ({"metadata": {"labels": {QUEUE: None}}}, "priority job/train --unset", 2, "no label queuectl.dev/"),
    ],
)
def test_a_change_that_would_do_nothing_or_harm_is_refused(
    change: Run, cluster: Cluster, now: Json, line: str, code: int, told: str
) -> None:
    cluster.objects[JOB] = merged(cluster.objects[JOB], now)
    result = change(*line.split())
    assert (result.exit_code, cluster.writes) == (code, [])
    assert told in result.stderr


@pytest.mark.parametrize("line", ["hold", "move --to research", "priority --class high"])
def test_a_child_is_refused_and_the_object_that_queues_for_it_is_named(
    change: Run, cluster: Cluster, line: str
) -> None:
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "whole", "uid": "u"}
    cluster.objects[JOB]["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    command, *flags = line.split()
    result = change(command, "job/train", *flags)
    assert (result.exit_code, cluster.writes) == (2, [])
    assert "Job default/train belongs to JobSet default/whole, and only its owner queues" in result.stderr
    cluster.objects[JOB]["metadata"]["ownerReferences"] = [{**owner, "kind": "CronJob", "controller": True}]
    assert change(command, "job/train", *flags).exit_code == 0


def test_work_that_runs_gets_another_priority_without_a_stop(change: Run, cluster: Cluster) -> None:
    cluster.objects[JOB]["spec"]["suspend"] = False
    result = change("priority", "job/train", "--class", "high")
    assert "It runs on." in result.stdout
    assert cluster.objects[JOB]["spec"]["suspend"] is False


def test_a_refusal_by_an_admission_policy_is_told_in_its_own_words(change: Run, cluster: Cluster) -> None:
    words = "the label queuectl.dev/queue-name can't be changed while it runs"
    refusal = f'jobs.batch "train" is forbidden: ValidatingAdmissionPolicy denied request: {words}'
    cluster.refusals["PATCH", JOB] = (403, refusal)
    result = change("move", "job/train", "--to", "research")
    assert result.exit_code == 1
    assert "an admission policy refuses the change of Job default/train" in result.stderr
    assert words in result.stderr
    assert "ClusterRole" not in result.stderr


def test_without_the_right_to_read_queues_the_move_is_tried(change: Run, cluster: Cluster) -> None:
    cluster.refusals["GET", f"{QUEUES}/research"] = (403, 'User "x" cannot get resource')
    assert change("move", "job/train", "--to", "research").exit_code == 0
    assert cluster.objects[JOB]["metadata"]["labels"] == {QUEUE: "research"}


def test_a_dry_run_reads_as_json_that_nothing_is_written(change: Run) -> None:
    found = json.loads(change("move", "job/train", "--to", "research", "--dry-run", "-o", "json").stdout)
    assert (found["before"], found["after"], found["written"]) == ("main", "research", False)


def test_a_reason_is_kept_and_the_change_reads_as_json(change: Run, cluster: Cluster) -> None:
    cluster.says_user = "alice"
    line = "move job/train --to research --reason quota -o json"
    assert json.loads(change(*line.split()).stdout) == {
        "object": {"kind": "Job", "namespace": "default", "name": "train"},
        "field": f"metadata.labels[{QUEUE}]",
        "before": "main",
        "after": "research",
        "written": True,
        "reason": "move by alice: quota",
    }
    assert change("priority", "job/train", "--class", "high").exit_code == 0
    assert "queuectl.dev/reason" not in cluster.objects[JOB]["metadata"]["annotations"]


def test_the_reason_of_a_hold_that_is_in_force_stays(change: Run, cluster: Cluster) -> None:
    held = {"queuectl.dev/hold": "true", "queuectl.dev/reason": "hold by alice: node 7"}
    cluster.objects[JOB]["metadata"]["annotations"] = held
    assert change("move", "job/train", "--to", "research").exit_code == 0
    assert cluster.objects[JOB]["metadata"]["annotations"] == held
