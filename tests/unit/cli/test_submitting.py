"""`submit` and `cancel`: what is created and deleted, and what is refused before anything is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.cli.clusters import Cluster, Json, kubeconfig, merged
from tests.unit.cli.conftest import Run
from tests.unit.cli.servers import Script, answering
from tests.unit.cli.test_following import Ledger, decision

JOBS = "/apis/batch/v1/namespaces/default/jobs"
JOB = f"{JOBS}/train"
QUEUES = "/apis/queuectl.dev/v1beta1/namespaces/default/localqueues"
LABEL = "queuectl.dev/queue-name"


def job(name: str | None = "train", **more: Any) -> Json:
    metadata = {} if name is None else {"name": name}
    body: Json = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"parallelism": 2}}
    return merged(body, more)


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    for name in ("main", "night"):
        found.add(f"{QUEUES}/{name}", spec={"clusterQueue": "team-a"})
    return found


@pytest.fixture
def write(run: Run, cluster: Cluster, tmp_path: Path) -> Iterator[Run]:
    """The command line with a kubeconfig for `cluster`."""
    with answering(cluster.answer) as url:
        config = str(kubeconfig(tmp_path, url))
        yield lambda *arguments: run(*arguments, "--kubeconfig", config)


def file(folder: Path, *bodies: Json) -> str:
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump_all(bodies))
    return str(path)


def test_a_submitted_job_is_created_suspended_with_the_label_of_its_queue(
    write: Run, cluster: Cluster, tmp_path: Path
) -> None:
    result = write("submit", file(tmp_path, job()), "-q", "main", "-p", "high")
    assert result.exit_code == 0, result.stderr
    labels = {LABEL: "main", "queuectl.dev/priority-class": "high"}
    metadata = {"name": "train", "namespace": "default", "labels": labels}
    assert cluster.writes == [(JOBS, job(metadata=metadata, spec={"suspend": True}))]
    assert result.stdout == "Job default/train: created in LocalQueue main\n"
    assert "queuectl explain job/train -n default" in result.stderr


def test_the_queue_may_be_in_the_file_and_the_name_may_be_generated(
    write: Run, cluster: Cluster, tmp_path: Path
) -> None:
    body = job(None, metadata={"generateName": "sweep-", "labels": {LABEL: "night"}})
    result = write("submit", file(tmp_path, body), "-o", "json")
    assert json.loads(result.stdout) == {
        "kind": "Job",
        "namespace": "default",
        "name": "sweep-7x9",
        "uid": "uid-sweep-7x9",
        "queue": "night",
    }


def test_a_pytorchjob_is_suspended_where_its_kind_has_the_field(
    write: Run, cluster: Cluster, tmp_path: Path
) -> None:
    body = merged(job(), {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"})
    assert write("submit", file(tmp_path, body), "-q", "main").exit_code == 0
    path, created = cluster.writes[0]
    assert path == "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
    assert created["spec"]["runPolicy"] == {"suspend": True}


@pytest.mark.parametrize(
    ("bodies", "flags", "told"),
    [
        ((job(),), "", "line 1: no queue: -q or the label queuectl.dev/queue-name names a LocalQueue"),
        ((job(), job("b", kind="CronJob")), "-q main", "line 8: kind 'CronJob' of 'batch/v1' is none of Job"),
        ((job(metadata={"namespace": "a"}),), "-q main -n b", "metadata.namespace is 'a', -n is 'b'"),
        ((job(None),), "-q main", "metadata.name is missing"),
        ((job("../x"),), "-q main", "name '../x' is not a name of a Kubernetes object"),
        ((job(spec=None) | {"spec": 7},), "-q main", "spec is not an object"),
        ((["a"],), "-q main", "this is not a Kubernetes object"),
        ((), "-q main", "it is empty"),
    ],
)
def test_a_file_that_cannot_be_submitted_is_refused_before_any_request(
    write: Run, cluster: Cluster, tmp_path: Path, bodies: tuple[Json, ...], flags: str, told: str
) -> None:
    result = write("submit", file(tmp_path, *bodies), *flags.split())
    assert result.exit_code == 2
    assert told in result.stderr
    assert cluster.asked == []


def test_a_queue_that_does_not_exist_is_reported_with_those_that_do(
    write: Run, cluster: Cluster, tmp_path: Path
) -> None:
    result = write("submit", file(tmp_path, job()), "-q", "nigth")
    assert result.exit_code == 1
    assert "namespace default has no LocalQueue nigth: did you mean night?" in result.stderr
    assert "There are: main, night. Nothing is written" in result.stderr
    assert cluster.writes == []


def test_a_user_that_may_not_read_queues_can_submit(write: Run, cluster: Cluster, tmp_path: Path) -> None:
    cluster.refusals["GET", f"{QUEUES}/other"] = (403, 'User "x" cannot get resource')
    assert write("submit", file(tmp_path, job()), "-q", "other").exit_code == 0


def test_a_name_that_is_taken_is_reported(write: Run, cluster: Cluster, tmp_path: Path) -> None:
    cluster.add(JOB, spec={"suspend": True})
    result = write("submit", file(tmp_path, job()), "-q", "main")
    assert result.exit_code == 1
    assert "Job default/train exists already" in result.stderr


def test_a_missing_right_to_create_is_named_with_the_role_that_grants_it(
    write: Run, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.refusals["POST", JOBS] = (403, 'User "x" cannot create resource "jobs"')
    result = write("submit", file(tmp_path, job()), "-q", "main")
    assert result.exit_code == 2
    assert "you may not create jobs.batch in namespace default (ClusterRole edit" in result.stderr


def test_a_right_on_a_custom_kind_is_not_said_to_be_in_a_role_that_has_no_custom_kinds(
    write: Run, cluster: Cluster, tmp_path: Path
) -> None:
    path = JOBS.replace("/batch/v1/", "/kubeflow.org/v1/").replace("/jobs", "/pytorchjobs")
    cluster.refusals["POST", path] = (403, 'User "x" cannot create resource "pytorchjobs"')
    body = job("main") | {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    result = write("submit", file(tmp_path, body), "-q", "main")
    assert result.exit_code == 2
    told = "you may not create pytorchjobs.kubeflow.org in namespace default (a Role with create"
    assert told in result.stderr
    assert "ClusterRole edit" not in result.stderr


def decide_later(script: Script, after: list[Any]) -> None:
    """Of the ledger readers know one decision at first, and these once they wait for more."""
    ledger = Ledger(script, decision(1, "Retired", details={"outcome": "Succeeded"}))

    def answer(query: Any) -> Any:
        if query.get("wait"):
            ledger.rows += after
            after.clear()
        return ledger.answer(query)

    script.answers["decisions"] = answer


@pytest.mark.parametrize(
    ("outcome", "shown", "code"),
    [("Succeeded", "Succeeded", 0), ("Failed", "Failed", 1), ("Deleted", "Cancelled", 1)],
)
def test_a_submitted_job_is_followed_until_it_ends(
    write: Run, tmp_path: Path, script: Script, scripted: str, *, outcome: str, shown: str, code: int
) -> None:
    after = [
        decision(2, "Queued", details={"queue": "main"}),
        decision(3, "Queued", "other"),
        decision(4, "Admitted", attempt=1),
        decision(5, "Retired", "other", details={"outcome": "Succeeded"}),
        decision(6, "Retired", details={"outcome": outcome}),
    ]
    decide_later(script, after)
    result = write("submit", file(tmp_path, job()), "-q", "main", "--follow", "--server", scripted)
    assert result.exit_code == code, result.stderr
    assert [line.split()[3] for line in result.stdout.splitlines()[1:]] == ["Queued", "Admitted", "Retired"]
    assert (f"Job default/train: {shown}" in result.stderr) == (code == 1)
    assert script.asked[-1][1]["namespace"] == "default"


def test_a_followed_job_whose_run_time_is_used_up_ends_with_1(
    write: Run, tmp_path: Path, script: Script, scripted: str
) -> None:
    used_up = {"code": "Deactivated", "message": "Deactivated: it ran for 4 s of 4 s"}
    after = [
        decision(2, "Queued", details={"queue": "main"}),
        decision(3, "Admitted", attempt=1),
        decision(4, "Pending", attempt=1, reason=used_up),
    ]
    decide_later(script, after)
    result = write("submit", file(tmp_path, job()), "-q", "main", "--follow", "--server", scripted)
    assert result.exit_code == 1
    assert "Job default/train: Deactivated: it ran for 4 s of 4 s" in result.stderr


def test_only_one_workload_is_followed(write: Run, cluster: Cluster, tmp_path: Path) -> None:
    result = write("submit", file(tmp_path, job(), job("b")), "-q", "main", "--follow")
    assert result.exit_code == 2
    assert "2 workloads: --follow is for one" in result.stderr
    assert cluster.asked == []


# --- cancel -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suspended", "flags", "told"),
    [(True, "", "It leaves its pending queue."), (False, "--yes", "Its quota is released once its pods")],
)
def test_a_cancelled_workload_is_deleted_with_its_pods(
    write: Run, cluster: Cluster, suspended: bool, flags: str, told: str
) -> None:
    cluster.add(JOB, metadata={"labels": {LABEL: "main"}}, spec={"suspend": suspended})
    result = write("cancel", "job/train", *flags.split())
    assert result.exit_code == 0, result.stderr
    ((path, options),) = cluster.writes
    assert (path, options["propagationPolicy"]) == (JOB, "Background")
    assert options["preconditions"] == {"uid": "uid-train"}
    assert result.stdout.startswith("Job default/train: deleted\n")
    assert told in result.stdout


def test_a_cancelled_workload_reads_as_json(write: Run, cluster: Cluster) -> None:
    cluster.add(JOB, metadata={"labels": {LABEL: "main"}}, spec={"suspend": True})
    named = {"kind": "Job", "namespace": "default", "name": "train"}
    found = json.loads(write("cancel", "train", "-o", "json").stdout)
    assert found == {"object": named, "deleted": True, "ran": False}


@pytest.mark.parametrize(
    ("labels", "status", "code", "told"),
    [
        ({}, {}, 2, "has no label queuectl.dev/queue-name"),
        ({LABEL: "main"}, {"conditions": [{"type": "Complete", "status": "True"}]}, 1, "is over"),
    ],
)
def test_a_job_without_a_queue_or_that_is_over_is_not_cancelled(
    write: Run, cluster: Cluster, labels: Json, status: Json, code: int, told: str
) -> None:
    cluster.add(JOB, metadata={"labels": labels}, spec={"suspend": True}, status=status)
    result = write("cancel", "job/train")
    assert result.exit_code == code
    assert told in result.stderr
    assert "kubectl delete jobs.batch" in result.stderr
    assert cluster.writes == []
