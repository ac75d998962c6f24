"""`fit`: one patch of the fields that determine number and size of the pods, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.clusters import Cluster, Json, kubeconfig, merged
from tests.unit.cli.conftest import Run
from tests.unit.cli.servers import Script, answering

JOB = "/apis/batch/v1/namespaces/default/jobs/train"
QUEUE = "queuectl.dev/queue-name"
GPU = "nvidia.com/gpu"
RUNS: Json = {"spec": {"suspend": False}}
OVER: Json = {**RUNS, "status": {"conditions": [{"type": "Complete", "status": "True"}]}}


def container(gpus: int) -> Json:
    return {"name": "main", "resources": {"requests": {"cpu": "4"}, "limits": {GPU: str(gpus)}}}


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    found.add(
        JOB,
        metadata={"labels": {QUEUE: "main"}, "namespace": "default", "resourceVersion": "7"},
        spec={
            "suspend": True,
            "parallelism": 4,
            "completions": 8,
            "template": {"spec": {"containers": [container(2)]}},
        },
    )
    return found


@pytest.fixture
def fit(run: Run, cluster: Cluster, tmp_path: Path) -> Iterator[Run]:
    with answering(cluster.answer) as url:
        config = str(kubeconfig(tmp_path, url))
        yield lambda *arguments: run("fit", *arguments, "--kubeconfig", config)


def test_fewer_gpus_are_one_patch_of_exactly_this_object(fit: Run, cluster: Cluster) -> None:
    told = fit("job/train", "--gpus", "4")
    assert told.exit_code == 0, told.stderr
    metadata = {"uid": "uid-train", "resourceVersion": "7"}
    assert cluster.writes == [(JOB, {"spec": {"parallelism": 2}, "metadata": metadata})]
    assert told.stdout.splitlines() == [
        f"Job default/train, podset main: 4 pods with 2 {GPU} each -> 2 pods with 2 {GPU} each",
        "spec.parallelism 4 -> 2",
        "It keeps its place: its priority and creation time, which stay, order it.",
        "It still completes 8 times, at most 2 pods at a time; --completions changes both.",
    ]


def test_gpus_are_divided_among_the_pods_that_are_asked_for(fit: Run, cluster: Cluster) -> None:
    told = fit("job", "train", "--gpus", "4", "--pods", "4", "-o", "json")
    assert told.exit_code == 0, told.stderr
    assert json.loads(told.stdout) == {
        "object": {"kind": "Job", "namespace": "default", "name": "train"},
        "podSet": "main",
        "before": {"pods": 4, "requests": {"cpu": 4000, GPU: 2}},
        "after": {"pods": 4, "requests": {"cpu": 4000, GPU: 1}},
        "fields": [
            {
                "field": f"spec.template.spec.containers[0].resources.limits[{GPU}]",
                "before": "2",
                "after": "1",
            }
        ],
        "written": True,
        "dryRun": False,
        "reason": None,
    }
    spec = cluster.objects[JOB]["spec"]
    assert (spec["parallelism"], spec["template"]["spec"]["containers"]) == (4, [container(1)])


def test_a_dry_run_writes_nothing(fit: Run, cluster: Cluster) -> None:
    told = fit("job/train", "--pods", "1", "--dry-run")
    assert told.exit_code == 0, told.stderr
    assert "the API server would accept it, and nothing is written" in told.stdout
    assert cluster.objects[JOB]["spec"]["parallelism"] == 4


def test_a_size_that_it_has_already_is_not_written(fit: Run, cluster: Cluster) -> None:
    told = fit("job/train", "--gpus", "8")
    assert (told.exit_code, cluster.writes) == (0, [])
    assert "It is so large already: nothing is written." in told.stdout


def test_the_reason_is_kept_with_the_name_of_the_user(fit: Run, cluster: Cluster) -> None:
    cluster.says_user = "alice"
    assert fit("job/train", "--pods", "2", "--reason", "deadline").exit_code == 0
    assert cluster.objects[JOB]["metadata"]["annotations"] == {
        "queuectl.dev/reason": "fit by alice: deadline"
    }


@pytest.mark.parametrize(
    ("now", "line", "code", "told"),
    [
        (RUNS, "--gpus 4", 1, "`queuectl hold job/train -n default --wait` stops it"),
        (OVER, "--gpus 4", 1, "is over: another size would change nothing"),
        ({"status": {"active": 1}}, "--gpus 4", 1, "is being stopped: its pods are not gone yet"),
        ({"metadata": {"labels": {QUEUE: None}}}, "--gpus 4", 2, "another size would have no effect"),
        ({}, "", 2, "give --gpus N, --pods N or both, or --to-start"),
        ({}, "--gpus 4 --to-start", 2, "give --gpus N, --pods N or both, or --to-start"),
        ({}, "--gpus 0", 2, "0 is not in the range"),
        ({}, "--gpus 3", 1, "each of its 4 pods requests 2 nvidia.com/gpu, and 3 is no multiple of that"),
        ({}, "--gpus 3 --pods 2", 1, "3 nvidia.com/gpu cannot be divided equally among 2 pods"),
        ({}, "--pods 9", 1, "it would have 8 pods, not 9: another field limits them"),
        ({}, "--pods 2 --podset worker", 1, "it has no podset 'worker', only main"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_to_do_instead(
    fit: Run, cluster: Cluster, now: Json, line: str, code: int, told: str
) -> None:
    cluster.objects[JOB] = merged(cluster.objects[JOB], now)
    result = fit("job/train", *line.split())
    assert (result.exit_code, cluster.writes) == (code, [])
    assert told in result.stderr


def tried(script: Script, starts: str, *items: Json) -> None:
    path = "workloads/default/job/train/counterfactuals"
    script.say(path, {"now": {"starts": starts}, "items": list(items), "sequence": 9, "ageSeconds": 0.1})


def change(kind: str, before: int, after: int, resource: str | None = None) -> Json:
    return {"kind": kind, "podSet": "main", "resource": resource, "before": before, "after": after}


def test_the_size_with_which_it_starts_is_the_largest_that_rest_has_tried(
    fit: Run, cluster: Cluster, script: Script, scripted: str
) -> None:
    fewer, smaller = change("FewerPods", 4, 3), change("SmallerPods", 2, 1, GPU)
    other = {**change("OtherPriority", 0, 9), "podSet": None}
    tried(script, "NotYet", change("SmallerPods", 4000, 100, "cpu"), smaller, fewer, other)
    told = fit("job/train", "--to-start", "--server", scripted)
    assert told.exit_code == 0, told.stderr
    assert cluster.objects[JOB]["spec"]["parallelism"] == 3


@pytest.mark.parametrize(
    ("starts", "items", "told"),
    [
        ("Now", [], "Job default/train: it starts as large as it is; nothing is written"),
        ("NotYet", [change("MoreQuota", 8, 9)], "with no smaller number of pods or devices would it start"),
        ("NotYet", [change("FewerPods", 5, 3)], "it has another size than the one that was tried: try again"),
    ],
)
def test_without_a_size_with_which_it_starts_nothing_is_written(
    fit: Run, cluster: Cluster, script: Script, scripted: str, starts: str, items: list[Json], told: str
) -> None:
    tried(script, starts, *items)
    result = fit("job/train", "--to-start", "--server", scripted)
    assert (result.exit_code, cluster.writes) == (1, [])
    assert told in result.stderr


def test_one_that_runs_is_refused_also_if_its_size_is_to_be_found(
    fit: Run, cluster: Cluster, script: Script, scripted: str
) -> None:
    cluster.objects[JOB] = merged(cluster.objects[JOB], RUNS)
    tried(script, "Now")
    result = fit("job/train", "--to-start", "--server", scripted)
    assert (result.exit_code, cluster.writes) == (1, [])
    assert "Job default/train runs: only a workload that waits can get another size" in result.stderr


def test_a_refusal_by_an_older_api_server_names_the_release_that_permits_it(
    fit: Run, cluster: Cluster
) -> None:
    cluster.refusals["PATCH", JOB] = (
        422,
        'spec.template: Invalid value: {"spec":{"dump": 1}}: field is immut',
    )
    result = fit("job/train", "--gpus", "4", "--pods", "4")
    assert result.exit_code == 1
    assert "the API server does not permit it: " in result.stderr
    assert "spec.template: Invalid value\n" in result.stderr
    assert "dump" not in result.stderr
    assert "from Kubernetes 1.36 on" in result.stderr


@pytest.mark.parametrize(
    ("meanwhile", "code", "told"),
    [
        ({"status": {"ready": 0}}, 0, "spec.parallelism 4 -> 2"),
        (RUNS, 1, "only a workload that waits can get another size"),
    ],
)
def test_an_object_that_changes_between_read_and_write_is_read_again(
    fit: Run, cluster: Cluster, meanwhile: Json, code: int, told: str
) -> None:
    def once(obj: Json) -> Json:
        if obj["metadata"]["resourceVersion"] == "8":
            return obj
        return merged(merged(obj, meanwhile), {"metadata": {"resourceVersion": "8"}})

    cluster.after = once
    result = fit("job/train", "--gpus", "4")
    assert result.exit_code == code, result.stderr
    assert told in result.stdout + result.stderr
    assert len(cluster.writes) == (2 if code == 0 else 1)


def test_an_object_that_always_changes_is_given_up(fit: Run, cluster: Cluster) -> None:
    def always(obj: Json) -> Json:
        version = str(int(obj["metadata"]["resourceVersion"]) + 1)
        return merged(obj, {"metadata": {"resourceVersion": version}})

    cluster.after = always
    result = fit("job/train", "--gpus", "4")
    assert result.exit_code == 1
    assert "was changed or replaced meanwhile: nothing is written; try again" in result.stderr
    assert len(cluster.writes) == 3
