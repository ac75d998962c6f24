"""`hold`, `release`, `stop`, `resume`: one patch each, their output, and refusals that say what to do."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.unit.cli.clusters import Cluster, Json, kubeconfig, merged
from tests.unit.cli.conftest import Run
from tests.unit.cli.servers import Script, answering

JOB = "/apis/batch/v1/namespaces/default/jobs/train"
QUEUE = "/apis/queuectl.dev/v1beta1/clusterqueues/team-a"
LOCAL = "/apis/queuectl.dev/v1beta1/namespaces/default/localqueues/main"
LABELS = {"queuectl.dev/queue-name": "main"}
HELD = {"queuectl.dev/hold": "true"}


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    found.add(JOB, metadata={"labels": LABELS}, spec={"suspend": True})
    status = {"pendingWorkloads": 12, "admittedWorkloads": 1}
    found.add(QUEUE, spec={"stopPolicy": "None"}, status=status)
    found.add(LOCAL, spec={"clusterQueue": "team-a"})
    return found


@pytest.fixture
def change(run: Run, cluster: Cluster, tmp_path: Path) -> Iterator[Run]:
    """The command line with a kubeconfig for `cluster`."""
    with answering(cluster.answer) as url:
        config = str(kubeconfig(tmp_path, url))
        yield lambda *arguments: run(*arguments, "--kubeconfig", config)


def condition(reason: str, message: str, *, active: bool = False) -> list[Json]:
    return [{"type": "Active", "status": str(active), "reason": reason, "message": message}]


def test_a_hold_is_one_patch_bound_to_the_object_that_was_read(change: Run, cluster: Cluster) -> None:
    result = change("hold", "job/train")
    assert result.exit_code == 0, result.stderr
    assert cluster.writes == [(JOB, {"metadata": {"uid": "uid-train", "annotations": HELD}})]
    assert [method for method, _ in cluster.asked] == ["GET", "PATCH"]
    assert "unset -> true" in result.stdout
    assert "It is pending" in result.stdout
    assert "queuectl release job/train -n default" in result.stdout


def test_a_hold_of_a_running_workload_says_that_it_is_evicted(change: Run, cluster: Cluster) -> None:
    cluster.objects[JOB]["spec"]["suspend"] = False
    assert "evicted" in change("hold", "train", "--yes").stdout
    assert len(cluster.writes) == 1


@pytest.mark.parametrize("line", ["hold job/train", "cancel job/train"])
def test_work_that_runs_is_not_ended_without_a_terminal_to_ask_in(
    change: Run, cluster: Cluster, line: str
) -> None:
    cluster.objects[JOB]["spec"]["suspend"] = False
    result = change(*line.split())
    assert result.exit_code == 2
    assert "Job default/train runs" in result.stderr
    assert "--yes confirms it" in result.stderr
    assert cluster.writes == []


@pytest.mark.parametrize(("answer", "code", "writes"), [("y", 0, 1), ("n", 1, 0), ("", 1, 0)])
def test_a_hold_of_running_work_asks_in_a_terminal(
    change: Run, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, writes: int
) -> None:
    cluster.objects[JOB]["spec"]["suspend"] = False
    asked: list[str] = []

    def answered(loss: str) -> str:
        asked.append(loss)
        return answer

    monkeypatch.setattr("queuectl.cli.writing.answer", answered)
    assert change("hold", "job/train").exit_code == code
    assert len(cluster.writes) == writes
    assert asked == ["Job default/train runs, and a hold evicts it: what it has not saved is lost"]


def test_a_hold_that_is_in_place_asks_nothing(change: Run, cluster: Cluster) -> None:
    running = {"spec": {"suspend": False}, "metadata": {"annotations": HELD}}
    cluster.objects[JOB] = merged(cluster.objects[JOB], running)
    assert "nothing is written" in change("hold", "job/train").stdout


def test_a_hold_of_finished_work_is_refused(change: Run, cluster: Cluster) -> None:
    ended = {"conditions": [{"type": "Complete", "status": "True"}]}
    cluster.objects[JOB] = merged(cluster.objects[JOB], {"spec": {"suspend": False}, "status": ended})
    result = change("hold", "job/train", "--yes")
    assert result.exit_code == 1
    assert "Job default/train is over: a hold would change nothing" in result.stderr
    assert cluster.writes == []


def test_a_release_of_finished_work_says_that_it_is_over(change: Run, cluster: Cluster) -> None:
    ended = {"conditions": [{"type": "Failed", "status": "True"}]}
    cluster.objects[JOB] = merged(
        cluster.objects[JOB],
        {"spec": {"suspend": False}, "metadata": {"annotations": HELD}, "status": ended},
    )
    said = change("release", "job/train").stdout
    assert "It is over" in said
    assert "pending queue" not in said


@pytest.mark.parametrize(
    ("line", "path", "before"),
    [
        ("hold job/train", JOB, {"metadata": {"annotations": HELD}}),
        ("release job/train", JOB, {}),
        ("stop cq/team-a", QUEUE, {"spec": {"stopPolicy": "Hold"}}),
        ("stop clusterqueue/team-a --drain", QUEUE, {"spec": {"stopPolicy": "HoldAndDrain"}}),
        ("resume clusterqueues/team-a", QUEUE, {}),
        ("resume lq/main", LOCAL, {}),
    ],
)
def test_a_change_that_is_in_place_already_is_not_written(
    change: Run, cluster: Cluster, line: str, path: str, before: Json
) -> None:
    cluster.objects[path] = merged(cluster.objects[path], before)
    result = change(*line.split())
    assert result.exit_code == 0, result.stderr
    assert cluster.writes == []
    assert "nothing is written" in result.stdout


def test_a_workload_may_be_named_by_two_words(change: Run, cluster: Cluster) -> None:
    assert change("hold", "job", "train").exit_code == 0
    assert change("release", "job", "train").exit_code == 0
    assert [path for path, _ in cluster.writes] == [JOB, JOB]


def test_a_release_removes_the_annotation(change: Run, cluster: Cluster) -> None:
    cluster.objects[JOB] = merged(cluster.objects[JOB], {"metadata": {"annotations": {**HELD, "own": "1"}}})
    result = change("release", "job/train")
    assert result.exit_code == 0
    assert cluster.objects[JOB]["metadata"]["annotations"] == {"own": "1"}
    assert "true -> unset" in result.stdout


@pytest.mark.parametrize(
    ("line", "path", "policy", "told"),
    [
        ("stop clusterqueue/team-a", QUEUE, "Hold", "Workloads that wait: 12; that continue: 1."),
        ("stop cq/team-a --drain", QUEUE, "HoldAndDrain", "are evicted and queue again"),
        ("stop localqueue/main -n default", LOCAL, "Hold", "It admits no more"),
        ("stop lq/main --drain", LOCAL, "HoldAndDrain", "are evicted"),
        ("stop cq team-a", QUEUE, "Hold", "It admits no more"),
    ],
)
def test_a_stop_is_one_patch_of_the_stop_policy(
    change: Run, cluster: Cluster, line: str, path: str, policy: str, told: str
) -> None:
    result = change(*line.split())
    assert result.exit_code == 0, result.stderr
    name = path.rpartition("/")[2]
    assert cluster.writes == [(path, {"metadata": {"uid": f"uid-{name}"}, "spec": {"stopPolicy": policy}})]
    assert f"stopPolicy None -> {policy}" in result.stdout
    assert told in result.stdout
    assert change("resume", *(word for word in line.split()[1:] if word != "--drain")).exit_code == 0
    assert cluster.objects[path]["spec"]["stopPolicy"] == "None"


def test_a_change_reads_as_json(change: Run) -> None:
    found = json.loads(change("stop", "cq/team-a", "-o", "json").stdout)
    assert found == {
        "object": {"kind": "ClusterQueue", "namespace": None, "name": "team-a"},
        "field": "spec.stopPolicy",
        "before": "None",
        "after": "Hold",
        "written": True,
        "reason": None,
    }


@pytest.mark.parametrize(
    ("line", "path", "kept"),
    [
        ("hold job/train", JOB, "hold by alice: node 7"),
        ("stop cq/team-a", QUEUE, "stop by alice: node 7"),
        ("resume cq/team-a", QUEUE, "resume by alice: node 7"),
        ("release job/train", JOB, "release by alice: node 7"),
    ],
)
def test_a_reason_is_kept_on_the_object_with_its_author(
    change: Run, cluster: Cluster, line: str, path: str, kept: str
) -> None:
    cluster.says_user = "alice"
    result = change(*line.split(), "--reason", "node 7")
    assert result.exit_code == 0, result.stderr
    assert f"Reason kept: {kept}" in result.stdout
    assert cluster.objects[path]["metadata"]["annotations"]["queuectl.dev/reason"] == kept


def test_those_who_wait_are_told_the_reason_of_a_stop_until_the_queue_is_resumed(
    change: Run, cluster: Cluster
) -> None:
    cluster.says_user = "alice"
    assert change("stop", "cq/team-a", "--reason", "node 7").exit_code == 0
    assert cluster.objects[QUEUE]["spec"]["stopReason"] == "by alice: node 7"
    assert change("resume", "cq/team-a", "--reason", "repaired").exit_code == 0
    assert "stopReason" not in cluster.objects[QUEUE]["spec"]


def test_the_reason_of_an_earlier_change_is_removed_with_the_next_one(change: Run, cluster: Cluster) -> None:
    assert change("hold", "job/train", "--reason", "node 7").exit_code == 0
    kept = cluster.objects[JOB]["metadata"]["annotations"]["queuectl.dev/reason"]
    assert kept == "hold by an unknown user: node 7"
    assert change("release", "job/train").exit_code == 0
    assert "queuectl.dev/reason" not in cluster.objects[JOB]["metadata"]["annotations"]


@pytest.mark.parametrize("reason", ["", "two\nlines", "x" * 201])
def test_a_reason_is_one_line(change: Run, cluster: Cluster, reason: str) -> None:
    result = change("hold", "job/train", "--reason", reason)
    assert result.exit_code == 2
    assert "one line of 1 to 200 printable characters" in result.stderr
    assert cluster.asked == []


def test_an_object_that_is_no_workload_cannot_be_held(change: Run, cluster: Cluster) -> None:
    cluster.objects[JOB]["metadata"].pop("labels")
    result = change("hold", "job/train")
    assert result.exit_code == 2
    assert "no label queuectl.dev/queue-name" in result.stderr
    assert cluster.writes == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("hold pod/x", "none of job, pytorchjob"),
        ("stop cohort/all", "none of clusterqueue, localqueue"),
        ("stop team-a", "KIND/NAME"),
        ("stop cq/", "KIND/NAME"),
        ("resume job/train", "none of clusterqueue, localqueue"),
        ("hold job/train --timeout 0", "--timeout"),
    ],
)
def test_an_invalid_change_is_reported_before_any_request(
    change: Run, cluster: Cluster, line: str, told: str
) -> None:
    result = change(*line.split())
    assert result.exit_code == 2
    assert told in result.stderr
    assert cluster.asked == []


def test_a_missing_object_exits_1_and_similar_names_are_offered(change: Run) -> None:
    result = change("hold", "job/trian")
    assert result.exit_code == 1
    assert "not found: Job default/trian: did you mean train?" in result.stderr
    assert "-n names another namespace" in change("hold", "job/x", "-n", "empty").stderr


@pytest.mark.parametrize("line", ["hold job/..", "hold job/../../secrets/x", "stop cq/.", "hold job/x -n .."])
def test_a_name_cannot_lead_to_another_path(change: Run, cluster: Cluster, line: str) -> None:
    result = change(*line.split())
    assert result.exit_code == 2
    assert "is not a name of a Kubernetes object" in result.stderr
    assert cluster.asked == []


@pytest.mark.parametrize(
    ("method", "line", "told"),
    [
        ("GET", "hold job/train", ("you may not get jobs.batch in namespace default", "ClusterRole edit")),
        ("PATCH", "hold job/train", ("you may not patch jobs.batch", "no rights")),
        ("PATCH", "stop cq/team-a", ("you may not patch clusterqueues", "queuectl-admin")),
    ],
)
def test_a_missing_right_is_named_with_the_role_that_grants_it(
    change: Run, cluster: Cluster, method: str, line: str, told: tuple[str, ...]
) -> None:
    path = JOB if "job" in line else QUEUE
    verb = method.lower()
    cluster.refusals[method, path] = (403, f'User "x" cannot {verb} resource: no rights')
    result = change(*line.split())
    assert result.exit_code == 2
    assert all(part in result.stderr for part in told), result.stderr


def test_another_object_of_the_same_name_is_left_alone(change: Run, cluster: Cluster) -> None:
    def replaced(obj: Json) -> Json:
        return merged(obj, {"metadata": {"uid": "another"}})

    cluster.after = replaced
    result = change("hold", "job/train")
    assert result.exit_code == 1
    assert "replaced" in result.stderr
    assert "annotations" not in cluster.objects[JOB]["metadata"]


def test_no_cluster_exits_2_and_the_message_says_what_to_set(run: Run, tmp_path: Path) -> None:
    result = run("hold", "job/x", "--kubeconfig", str(tmp_path / "none"))
    assert result.exit_code == 2
    assert "kubeconfig" in result.stderr
    result = run("hold", "job/x", "--kubeconfig", str(kubeconfig(tmp_path, "http://127.0.0.1:9")))
    assert result.exit_code == 2
    assert "cannot be reached" in result.stderr
    result = run("hold", "job/x", "--kubeconfig", str(tmp_path / "kubeconfig"), "--context", "nowhere")
    assert result.exit_code == 2
    assert "nowhere" in result.stderr


# --- waiting ------------------------------------------------------------------------------------------


def stopping(policy: str, running: int) -> Any:
    """A controller that observes the stop at the second read and ends one workload at each later read."""
    left = [running]

    def after(obj: Json) -> Json:
        if obj["spec"]["stopPolicy"] != policy:
            return obj
        left[0] -= bool(left[0])
        message = f"stopPolicy is {policy}"
        status = {"conditions": condition("Stopped", message), "admittedWorkloads": left[0]}
        return merged(obj, {"status": status})

    return after


def test_a_drain_is_waited_for_until_nothing_runs(change: Run, cluster: Cluster) -> None:
    cluster.after = stopping("HoldAndDrain", 2)
    result = change("stop", "cq/team-a", "--drain", "--wait")
    assert result.exit_code == 0, result.stderr
    assert "has not seen it yet" in result.stderr
    assert "1 still run" in result.stderr
    assert result.stderr.endswith("ClusterQueue team-a is stopped\n")
    assert len(cluster.writes) == 1


def test_a_wait_that_times_out_exits_1_and_says_that_the_patch_is_in_place(
    change: Run, cluster: Cluster
) -> None:
    result = change("stop", "cq/team-a", "--wait", "--timeout", "0.2")
    assert result.exit_code == 1
    assert "not within 0.2 s" in result.stderr
    assert "The change itself is written" in result.stderr
    assert cluster.objects[QUEUE]["spec"]["stopPolicy"] == "Hold"


def test_a_resume_is_waited_for_until_the_queue_is_active(change: Run, cluster: Cluster) -> None:
    stopped = {
        "spec": {"stopPolicy": "Hold"},
        "status": {"conditions": condition("Stopped", "stopPolicy is Hold")},
    }
    cluster.objects[QUEUE] = merged(cluster.objects[QUEUE], stopped)

    def after(obj: Json) -> Json:
        ready = {"status": {"conditions": condition("Ready", "", active=True)}}
        return merged(obj, ready) if obj["spec"]["stopPolicy"] == "None" else obj

    cluster.after = after
    result = change("resume", "cq/team-a", "--wait")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.endswith("ClusterQueue team-a admits again\n")


def workload(phase: str, code: str | None) -> Json:
    return {"phase": phase, "reason": {"code": code} if code else None, "sequence": 7}


def held(change: Run, script: Script, line: str, *steps: tuple[str, str | None]) -> Result:
    """Change a hold with --wait, while the ledger changes by `steps`."""
    left = list(steps)

    def answer(query: object) -> tuple[int, Json]:
        return 200, workload(*(left.pop(0) if len(left) > 1 else left[0]))

    script.answers["workloads/default/job/train"] = answer
    with answering(script.answer) as url:
        return change(*line.split(), "--wait", "--server", url)


def test_a_hold_is_waited_for_until_it_is_in_the_ledger(
    change: Run, cluster: Cluster, script: Script
) -> None:
    steps = (("Admitted", None), ("Evicting", "UserHold"), ("Pending", "OnHold"))
    result = held(change, script, "hold job/train", *steps)
    assert result.exit_code == 0, result.stderr
    assert "it is Evicting" in result.stderr
    assert result.stderr.endswith("Job default/train is on hold\n")


def test_a_release_is_waited_for_until_the_workload_is_pending_again(
    change: Run, cluster: Cluster, script: Script
) -> None:
    cluster.objects[JOB] = merged(cluster.objects[JOB], {"metadata": {"annotations": HELD}})
    result = held(change, script, "release job/train", ("Pending", "OnHold"), ("Pending", "WaitingForQuota"))
    assert result.exit_code == 0, result.stderr
    assert result.stderr.endswith("Job default/train queues again\n")


def test_without_a_rest_server_a_hold_is_waited_for_on_the_object(change: Run, cluster: Cluster) -> None:
    cluster.objects[JOB]["spec"]["suspend"] = False
    cluster.objects[JOB]["status"] = {"active": 1}
    steps: list[Json] = [{"status": {"active": 0}}, {"spec": {"suspend": True}}]

    def after(obj: Json) -> Json:
        on_hold = obj["metadata"].get("annotations") == HELD
        return merged(obj, steps.pop()) if on_hold and steps else obj

    cluster.after = after
    result = change("hold", "job/train", "--yes", "--wait")
    assert result.exit_code == 0, result.stderr
    assert "not suspended yet" in result.stderr
    assert "pods are not gone" in result.stderr


def test_a_release_cannot_be_waited_for_without_a_rest_server(change: Run, cluster: Cluster) -> None:
    result = change("release", "job/train", "--wait")
    assert result.exit_code == 2
    assert "queuectl is not installed there" in result.stderr
    assert cluster.writes == []


def test_the_cluster_of_the_sandbox_is_used_and_named_if_no_other_is_given(
    run: Run, cluster: Cluster, tmp_path: Path
) -> None:
    with answering(cluster.answer) as url:
        kubeconfig(tmp_path, url)
        (tmp_path / "endpoints.json").write_text(json.dumps({"rest": "http://127.0.0.1:9"}))
        result = run("hold", "job/train", "--data", str(tmp_path))
    assert result.exit_code == 0, result.stderr
    assert f"using the sandbox in {tmp_path}" in result.stderr
    assert len(cluster.writes) == 1


RELEASE = "queuectl.dev/reserved-release"
EVICTED = {"queuectl.dev/reserved-stopped": '{"workload":"uid-train","attempt":3}'}
FORCED = "force-release job/train --reason 'node b7 is scrap' --yes"


def test_a_forced_release_names_workload_attempt_user_and_reason(change: Run, cluster: Cluster) -> None:
    cluster.objects[JOB] = merged(cluster.objects[JOB], {"metadata": {"annotations": EVICTED}})
    cluster.says_user = "ann"
    result = change(*shlex.split(FORCED))
    assert result.exit_code == 0, result.stderr
    written = {"uid": "uid-train", "annotations": {RELEASE: "uid-train/3 by ann: node b7 is scrap"}}
    assert cluster.writes == [(JOB, {"metadata": written})]
    assert "Its quota is released" in result.stdout


@pytest.mark.parametrize(
    ("line", "object", "user", "code", "told"),
    [
        (FORCED.replace(" --yes", ""), EVICTED, "ann", 2, "pods of Job default/train may still run"),
        ("force-release job/train --yes", EVICTED, "ann", 2, "Missing option '--reason'"),
        (FORCED, {}, "ann", 1, "has no record of an admission: it holds no quota"),
        (FORCED, EVICTED, None, 1, "does not tell your name"),
        (FORCED, None, "ann", 1, "Job default/train runs: `queuectl hold` stops it first"),
    ],
    ids=["no terminal", "no reason", "never admitted", "no user", "it runs"],
)
def test_a_forced_release_that_is_refused_writes_nothing(
    change: Run, cluster: Cluster, line: str, object: Json | None, user: str | None, code: int, told: str
) -> None:
    now = {"spec": {"suspend": False}} if object is None else {"metadata": {"annotations": object}}
    cluster.objects[JOB] = merged(cluster.objects[JOB], now)
    cluster.says_user = user
    result = change(*shlex.split(line))
    assert (result.exit_code, cluster.writes) == (code, [])
    assert told in result.stderr
