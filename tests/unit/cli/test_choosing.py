"""Commands that change several workloads: by name, by selection, and what they do where one of them fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.clusters import Cluster, kubeconfig, merged
from tests.unit.cli.conftest import Run
from tests.unit.cli.servers import Script, answering

JOBS = "/apis/batch/v1/namespaces/default/jobs"
NAMES = ("a", "b", "c")
QUEUE = "queuectl.dev/queue-name"
RUNS = {"spec": {"suspend": False}}


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    for name in NAMES:
        found.add(f"{JOBS}/{name}", metadata={"labels": {QUEUE: "main"}}, spec={"suspend": True})
    found.add("/apis/queuectl.dev/v1beta1/namespaces/default/localqueues/other", spec={"clusterQueue": "x"})
    found.add("/apis/queuectl.dev/v1beta1/workloadpriorityclasses/high", value=100)
    found.says_user = "ann"
    return found


@pytest.fixture
def change(run: Run, cluster: Cluster, tmp_path: Path) -> Iterator[Run]:
    with answering(cluster.answer) as url:
        config = str(kubeconfig(tmp_path, url))
        yield lambda *arguments: run(*arguments, "--kubeconfig", config)


def listed(script: Script, *names: str) -> None:
    script.page("workloads", *({"kind": "Job", "namespace": "default", "name": name} for name in names))


def written(cluster: Cluster) -> list[str]:
    return [path.rpartition("/")[2] for path, _ in cluster.writes]


@pytest.mark.parametrize(
    "line",
    [
        "cancel job/a job/b",
        "cancel job a b",
        "cancel jobs a b a",
        "hold job/a job/b",
        "release job/a job/b",
        "move job/a job/b --to other",
        "priority job/a job/b --class high",
    ],
)
def test_several_are_changed_by_name_with_a_line_each(change: Run, cluster: Cluster, line: str) -> None:
    if line.startswith("release"):
        for name in NAMES:
            path = f"{JOBS}/{name}"
            cluster.objects[path] = merged(
                cluster.objects[path], {"metadata": {"annotations": {"queuectl.dev/hold": "true"}}}
            )
    asks = line.split()[0] in ("cancel", "hold")
    result = change(*line.split(), *(["--yes"] if asks else []))
    assert result.exit_code == 0, result.stderr
    assert written(cluster) == ["a", "b"]
    lines = result.stdout.splitlines()
    assert [text.partition(":")[0] for text in lines] == ["Job default/a", "Job default/b"]


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        (["-l", "team=a"], {"labelSelector": "team=a"}),
        (["--queue", "main"], {"queue": "main"}),
        (["--mine"], {"submitter": "ann"}),
        (["--all"], {}),
        (["--mine", "-l", "x in (1, 2)"], {"submitter": "ann", "labelSelector": "x in (1, 2)"}),
        (["array/sweep"], {"labelSelector": "queuectl.dev/array in (sweep)"}),
        (["array/b", "Array/a", "array/b"], {"labelSelector": "queuectl.dev/array in (b, a)"}),
    ],
)
def test_a_selection_is_what_rest_lists_in_the_namespace(
    change: Run, cluster: Cluster, script: Script, scripted: str, flags: list[str], asked: dict[str, str]
) -> None:
    listed(script, "c", "a")
    result = change("cancel", *flags, "--yes", "--server", scripted)
    assert result.exit_code == 0, result.stderr
    assert written(cluster) == ["c", "a"]
    ((path, query),) = script.asked
    assert (path, {key: query[key] for key in query if key != "limit"}) == (
        "workloads",
        {"namespace": "default", **asked},
    )


@pytest.mark.parametrize("flag", ["-l", "--queue"])
@pytest.mark.parametrize("more", [["--mine"], ["--all"], ["job/a"], []])
def test_an_empty_value_does_not_choose_more_than_was_meant(
    change: Run, cluster: Cluster, script: Script, scripted: str, flag: str, more: list[str]
) -> None:
    listed(script, *NAMES)
    result = change("cancel", flag, "", *more, "--yes", "--server", scripted)
    assert (result.exit_code, cluster.writes) == (2, [])
    assert f"{flag} is empty" in result.stderr


def test_a_selection_without_workloads_changes_nothing_and_exits_with_1(
    change: Run, cluster: Cluster, script: Script, scripted: str
) -> None:
    listed(script)
    result = change("cancel", "--all", "--yes", "--server", scripted)
    assert (result.exit_code, cluster.asked) == (1, [])
    assert "no workload in namespace default is selected" in result.stderr


@pytest.mark.parametrize(
    ("line", "what"),
    [("cancel job/a job/b job/c", "deleted"), ("hold job/a job/b job/c", "put on hold")],
)
@pytest.mark.parametrize(("said", "code", "writes"), [("y", 0, 3), ("n", 1, 0), (None, 2, 0)])
def test_what_ends_work_asks_once_for_all(
    change: Run,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    what: str,
    said: str | None,
    code: int,
    writes: int,
) -> None:
    cluster.objects[f"{JOBS}/b"] = merged(cluster.objects[f"{JOBS}/b"], RUNS)
    questions: list[str] = []

    def answered(loss: str) -> str | None:
        questions.append(loss)
        return said

    monkeypatch.setattr("queuectl.cli.writing.answer", answered)
    assert change(*line.split()).exit_code == code
    assert len(cluster.writes) == writes
    assert questions == [
        f"3 workloads of namespace default are {what}: job/a, job/b, job/c; those that run end, "
        "and what they have not saved is lost"
    ]


def test_of_many_the_first_are_named(
    change: Run, monkeypatch: pytest.MonkeyPatch, script: Script, scripted: str
) -> None:
    listed(script, *(f"n{number}" for number in range(40)))
    questions: list[str] = []
    monkeypatch.setattr("queuectl.cli.writing.answer", lambda loss: questions.append(loss))
    assert change("cancel", "--all", "--server", scripted).exit_code == 2
    assert "40 workloads" in questions[0]
    assert "job/n4 and 35 more;" in questions[0]


def test_where_one_fails_the_others_are_changed_and_the_code_is_1(change: Run, cluster: Cluster) -> None:
    cluster.refusals["DELETE", f"{JOBS}/a"] = (403, "jobs.batch is forbidden")
    result = change("cancel", "job/a", "job/x", "job/c", "--yes")
    assert result.exit_code == 1
    assert written(cluster) == ["c"]
    assert "forbidden" in result.stderr
    assert "not found: Job default/x" in result.stderr
    assert result.stderr.rstrip().endswith("2 of 3 workloads are not changed")


@pytest.mark.parametrize("verb", ["hold", "cancel"])
def test_a_selected_workload_that_ended_meanwhile_is_no_failure_and_a_named_one_is(
    change: Run, cluster: Cluster, script: Script, scripted: str, verb: str
) -> None:
    ended = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    cluster.objects[f"{JOBS}/b"] = merged(cluster.objects[f"{JOBS}/b"], ended)
    listed(script, "a", "b", "c")
    result = change(verb, "--all", "--yes", "--server", scripted)
    assert result.exit_code == 0, result.stderr
    assert written(cluster) == ["a", "c"]
    assert "Job default/b is over" in result.stderr
    cluster.add(f"{JOBS}/a", metadata={"labels": {QUEUE: "main"}}, spec={"suspend": True})
    assert change(verb, "job/a", "job/b", "--yes").exit_code == 1


@pytest.mark.parametrize("others", [("a",), ("a", "c"), ()])
def test_a_selected_workload_that_no_command_can_change_fails_alone(
    change: Run, cluster: Cluster, script: Script, scripted: str, others: tuple[str, ...]
) -> None:
    entries = [("PodGroup", "train"), *(("Job", name) for name in others)]
    script.page(
        "workloads", *({"kind": kind, "namespace": "default", "name": name} for kind, name in entries)
    )
    result = change("hold", "--all", "--yes", "--server", scripted)
    assert result.exit_code == 1
    assert written(cluster) == list(others)
    assert "podgroup/train: " in result.stderr
    assert result.stderr.rstrip().endswith(f"1 of {len(entries)} workloads are not changed")


@pytest.mark.parametrize(
    "line",
    [
        "cancel job/a",
        "cancel job/a job/b",
        "hold job/a job/b",
        "move job/a --to other",
        "priority job/a --class high",
    ],
)
def test_a_dry_run_asks_the_api_server_and_writes_nothing(change: Run, cluster: Cluster, line: str) -> None:
    for name in "ab":
        if not line.startswith(("move", "priority")):
            cluster.objects[f"{JOBS}/{name}"] = merged(cluster.objects[f"{JOBS}/{name}"], RUNS)
    result = change(*line.split(), "--dry-run")
    assert result.exit_code == 0, result.stderr
    assert cluster.writes == []
    assert {method for method, _ in cluster.asked} & {"PATCH", "DELETE"}
    assert "Job default/a: " in result.stdout
    assert "dry run: nothing is written" in result.stderr


def test_several_read_as_json_are_a_line_each(change: Run) -> None:
    result = change("cancel", "job/a", "job/b", "--dry-run", "-o", "json")
    found: list[Any] = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["object"]["name"] for one in found] == ["a", "b"]
    assert [one["deleted"] for one in found] == [False, False]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("cancel", "KIND/NAME is expected, or one of -l, --queue, --mine and --all"),
        ("cancel job/a --all", "names do not go with -l, --queue, --mine and --all"),
        ("cancel job a job/b", "'job/b': after the kind 'job' names are expected"),
        ("cancel job/a b", "'b': KIND/NAME is expected, as in 'job/a'"),
        ("hold job/a job/b --wait", "--wait is for one workload"),
    ],
)
def test_words_that_name_no_workload_are_refused_before_any_request(
    change: Run, cluster: Cluster, line: str, told: str
) -> None:
    result = change(*line.split())
    assert (result.exit_code, cluster.asked) == (2, [])
    assert told in result.stderr


@pytest.mark.parametrize("words", [["cancel"], ["statement", "show"], ["kinds"], ["import", "slurm"]])
def test_options_of_the_connection_are_a_group_of_their_own(run: Run, words: list[str]) -> None:
    own, _, connection = run(*words, "--help").stdout.partition("\nConnection:\n")
    assert "--output" in own
    assert "--kubeconfig" not in own
    assert "--kubeconfig" in connection


@pytest.mark.parametrize("words", [["array/sweep", "job/a"], ["array/"], ["array/sweep", "--all"]])
def test_arrays_are_not_named_beside_other_workloads(
    change: Run, cluster: Cluster, script: Script, scripted: str, words: list[str]
) -> None:
    listed(script, "a")
    result = change("hold", *words, "--yes", "--server", scripted)
    assert (result.exit_code, written(cluster)) == (2, [])
