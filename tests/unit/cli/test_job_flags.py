"""`submit` with flags and with batch scripts: the Jobs that it creates, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from queuectl.cli import main
from tests.unit.cli.clusters import Cluster, Json, kubeconfig
from tests.unit.cli.conftest import Run
from tests.unit.cli.documented import place
from tests.unit.cli.servers import answering

JOBS = "/apis/batch/v1/namespaces/default/jobs"
SCRIPT = """#!/bin/bash
#SBATCH --job-name=resnet
#SBATCH --gres=gpu:a100:8 -c 16   # all of a node
#SBATCH --mem=64G
#SBATCH -t 2-0
#SBATCH --partition a100
#SBATCH --qos=high
#SBATCH --ntasks=1
#SBATCH --container-image=registry.example.com/train:1
#SBATCH --mail-type=END

#SBATCHED is a comment
python train.py
#SBATCH --gpus=4
"""


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    for name in ("main", "night"):
        found.add(f"/apis/queuectl.dev/v1beta1/namespaces/default/localqueues/{name}", spec={})
    return found


@pytest.fixture
def submit(run: Run, cluster: Cluster, tmp_path: Path) -> Iterator[Run]:
    with answering(cluster.answer) as url:
        flags = ("--kubeconfig", str(kubeconfig(tmp_path, url)), "-q", "main")
        yield lambda *arguments: run("submit", *flags, *arguments)


def script(folder: Path, text: str = SCRIPT) -> str:
    path = folder / "Train_Net.sh"
    path.write_text(text)
    return str(path)


def container(job: Json) -> dict[str, Any]:
    found: list[dict[str, Any]] = job["spec"]["template"]["spec"]["containers"]
    assert len(found) == 1
    return found[0]


def test_flags_describe_a_job_with_a_command(submit: Run, cluster: Cluster) -> None:
    flags = "--image pytorch:2 --gpus 8 --cpus 16 --memory 64Gi --time 2h --name train"
    result = submit(*flags.split(), "--", "python", "train.py", "--queue", "9")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "Job default/train: created in LocalQueue main\n"
    labels = {"queuectl.dev/max-exec-time-seconds": "7200", "queuectl.dev/queue-name": "main"}
    expected = {
        "name": "main",
        "image": "pytorch:2",
        "command": ["python", "train.py", "--queue", "9"],
        "resources": {
            "requests": {"cpu": "16", "memory": "64Gi"},
            "limits": {"memory": "64Gi", "nvidia.com/gpu": 8},
        },
    }
    assert cluster.writes == [
        (
            JOBS,
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "train", "namespace": "default", "labels": labels},
                "spec": {
                    "backoffLimit": 0,
                    "suspend": True,
                    "template": {"spec": {"restartPolicy": "Never", "containers": [expected]}},
                },
            },
        )
    ]


def test_a_job_without_a_name_gets_one_and_without_a_command_runs_that_of_its_image(
    submit: Run, cluster: Cluster
) -> None:
    assert submit("--image", "x", "--gpus", "amd.com/gpu=2").exit_code == 0
    ((_, job),) = cluster.writes
    assert job["metadata"]["generateName"] == "job-"
    assert container(job) == {"name": "main", "image": "x", "resources": {"limits": {"amd.com/gpu": 2}}}


def test_an_array_is_a_job_for_each_index_that_a_label_selects(submit: Run, cluster: Cluster) -> None:
    result = submit("--image", "x", "--array", "30", "--name", "sweep")
    assert result.stdout == "30 workloads, Job default/sweep-00 to sweep-29: created in main\n"
    assert "queuectl get workloads -n default -l queuectl.dev/array=sweep" in result.stderr
    assert "queuectl cancel -n default array/sweep" in result.stderr
    jobs = [job for _, job in cluster.writes]
    assert [job["metadata"]["name"] for job in jobs] == [f"sweep-{index:02}" for index in range(30)]
    assert {job["metadata"]["labels"]["queuectl.dev/array"] for job in jobs} == {"sweep"}
    assert [container(job)["env"] for job in jobs] == [
        [{"name": "QUEUECTL_ARRAY_INDEX", "value": str(index)}] for index in range(30)
    ]


def test_conditions_become_annotations_of_each_job(submit: Run, cluster: Cluster) -> None:
    flags = "--image x --array 2 --max-running 1 --after job/prepare --after any:jobset/load"
    result = submit(*flags.split(), "--begin", "2030-01-01T02:00:00+02:00")
    assert result.exit_code == 0, result.stderr
    for _, made in cluster.writes:
        assert made["metadata"]["annotations"] == {
            "queuectl.dev/after": "ok:Job/prepare,any:JobSet/load",
            "queuectl.dev/begin": "2030-01-01T00:00:00Z",
            "queuectl.dev/max-running": "1",
        }


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h", 7200), ("90s", 90), ("7d", 604800), ("now+60", 60), ("now+2hours", 7200), ("now+1day", 86400)],
)
def test_a_start_may_be_how_long_from_now(submit: Run, cluster: Cluster, text: str, seconds: int) -> None:
    before = datetime.now(UTC).replace(microsecond=0)  # noqa: TID251
    result = submit("--image", "x", "--begin", text)
    after = datetime.now(UTC)  # noqa: TID251
    assert result.exit_code == 0, result.stderr
    ((_, made),) = cluster.writes
    begin = datetime.fromisoformat(made["metadata"]["annotations"]["queuectl.dev/begin"])
    length = timedelta(seconds=seconds)
    assert before + length <= begin <= after + length


def test_a_manifest_gets_conditions_beside_its_own_annotations(
    submit: Run, cluster: Cluster, tmp_path: Path
) -> None:
    manifest = tmp_path / "job.json"
    metadata = {"name": "train", "annotations": {"mine": "stays"}}
    manifest.write_text(json.dumps({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}))
    assert submit(str(manifest), "--after", "job/prepare").exit_code == 0
    ((_, made),) = cluster.writes
    assert made["metadata"]["annotations"] == {"mine": "stays", "queuectl.dev/after": "ok:Job/prepare"}


def test_an_array_of_a_script_runs_so_many_at_a_time(submit: Run, cluster: Cluster, tmp_path: Path) -> None:
    text = "#!/bin/sh\n#SBATCH --array=0-2%2\ntrue\n"
    assert submit(script(tmp_path, text), "--image", "x").exit_code == 0
    assert [made["metadata"]["annotations"] for _, made in cluster.writes] == [
        {"queuectl.dev/max-running": "2"}
    ] * 3


def test_arrays_without_a_name_do_not_collide(submit: Run, cluster: Cluster) -> None:
    for _ in range(3):
        assert submit("--image", "x", "--array", "1,3").exit_code == 0
    names = {job["metadata"]["labels"]["queuectl.dev/array"] for _, job in cluster.writes}
    assert len(cluster.writes) == 6
    assert len(names) == 3


def test_each_job_of_an_array_is_a_line_of_json(submit: Run) -> None:
    lines = submit("--image", "x", "--array", "2", "--name", "s", "-o", "json").stdout.splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["s-0", "s-1"]
    assert {json.loads(line)["array"] for line in lines} == {"s"}


def test_jobs_that_were_created_before_one_failed_are_said(submit: Run, cluster: Cluster) -> None:
    cluster.add(f"{JOBS}/sweep-2", spec={})
    result = submit("--image", "x", "--array", "5", "--name", "sweep")
    assert result.exit_code == 1
    assert "2 workloads, Job default/sweep-0 to sweep-1: created" in result.stdout
    assert "Job default/sweep-2 exists already" in result.stderr


def test_the_lines_of_a_batch_script_describe_its_job(submit: Run, cluster: Cluster, tmp_path: Path) -> None:
    result = submit(script(tmp_path), "--", "--lr", "3")
    assert result.exit_code == 0, result.stderr
    ((_, job),) = cluster.writes
    assert job["metadata"]["generateName"] == "resnet-"
    assert job["metadata"]["labels"] == {
        "queuectl.dev/queue-name": "main",
        "queuectl.dev/priority-class": "high",
        "queuectl.dev/max-exec-time-seconds": "172800",
    }
    assert job["spec"]["template"]["spec"]["nodeSelector"] == {"queuectl.dev/pool": "a100"}
    found = container(job)
    assert found["image"] == "registry.example.com/train:1"
    assert found["command"] == ["/bin/bash", "-c", SCRIPT, "Train_Net.sh", "--lr", "3"]
    assert found["resources"] == {
        "requests": {"cpu": "16", "memory": "65536Mi"},
        "limits": {"memory": "65536Mi", "nvidia.com/gpu": 8},
    }
    assert "line 10: --mail-type has no effect here" in result.stderr


def test_flags_override_the_lines_of_a_script(submit: Run, cluster: Cluster, tmp_path: Path) -> None:
    flags = "--gpus 1 --time 30m --image other --array 4-8:2 -p low --name again"
    result = submit(script(tmp_path), *flags.split())
    assert result.exit_code == 0, result.stderr
    jobs = [job for _, job in cluster.writes]
    assert [job["metadata"]["name"] for job in jobs] == ["again-4", "again-6", "again-8"]
    labels = jobs[0]["metadata"]["labels"]
    assert labels["queuectl.dev/priority-class"] == "low"
    assert labels["queuectl.dev/max-exec-time-seconds"] == "1800"
    assert container(jobs[1])["image"] == "other"
    assert container(jobs[1])["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert {"name": "SLURM_ARRAY_TASK_ID", "value": "6"} in container(jobs[1])["env"]


def test_a_script_without_an_interpreter_of_its_own_name_runs_with_env(
    submit: Run, cluster: Cluster, tmp_path: Path
) -> None:
    text = "#!/usr/bin/env python3\nprint(1)\n"
    assert submit(script(tmp_path, text), "--image", "python:3", "--", "a").exit_code == 0
    ((_, job),) = cluster.writes
    assert job["metadata"]["generateName"] == "train-net-"
    assert container(job)["command"] == ["/usr/bin/env", "python3", "-c", text, "a"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "FILE is missing, or --image"),
        ("--image x --gpus -1", "'-1' is neither a number nor RESOURCE=NUMBER"),
        ("--image x --cpus many", "--cpus: 'many': 'many' is not a quantity"),
        ("--image x --memory 0", "--memory: '0': it is not above 0"),
        ("--image x --time 90", "'90' is not a run time such as 90m"),
        ("--image x --time 0m", "'0m' is not a run time"),
        ("--image x --name Train", "--name: 'Train' is not 1 to 51 lower-case letters"),
        ("--image x --array 1001", "an array has at most 1000 tasks"),
        ("--image x --array 5-1", "ranges rise"),
        ("--image x --array 0-9%2", "'0-9%2' is not a list of indices"),
        ("--image x --max-running 5", "--max-running: it counts the Jobs of an array"),
        ("--image x --array 9 --max-running 0", "--max-running: 0 is not 1 to 1000"),
        ("--image x --after prepare", "--after: 'prepare' is not [OUTCOME:]KIND/NAME"),
        ("--image x --after ok:pot/prepare", "--after: 'ok:pot/prepare': the kind is none of Job"),
        ("--image x --after done:job/prepare", "the outcome is none of ok, any, failed"),
        ("--image x --begin tomorrow", "'tomorrow' is neither a time (2026-12-01T06:00:00Z) nor how long"),
        ("--image x --begin 2h30m", "'2h30m' is neither a time"),
        ("--image x --begin now+2moons", "'now+2moons' is neither a time"),
        ("--image x --begin now-2hours", "(90s, 15m, 2h, 7d or, as Slurm writes it, now+2hours)"),
        ("--image x --begin 2030-01-01T00:00:00", "'2030-01-01T00:00:00' is neither a time"),
        ("--image x --array 2 --follow", "there are 2 workloads: --follow is for one"),
    ],
)
def test_flags_that_are_not_valid_are_named(submit: Run, cluster: Cluster, line: str, told: str) -> None:
    result = submit(*line.split())
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())
    assert cluster.writes == []


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("#SBATCH --nodes=4", "line 2: --nodes: '4': one pod is submitted"),
        ("#SBATCH -n 8", "line 2: --ntasks: '8': one pod is submitted"),
        ("#SBATCH --mem=much", "line 2: --mem: 'much' is not memory"),
        ("#SBATCH --time=soon", "line 2: --time: 'soon' is not a time limit"),
        ('#SBATCH --gpus="1', "line 2: a quote is not closed"),
        (
            "#SBATCH --gres=gpu:1,nvme:10",
            "line 2: --gres: 'gpu:1,nvme:10': nvme cannot be requested, only gpu",
        ),
        ("#SBATCH --gpus=1", "no image: --image or #SBATCH --container-image"),
    ],
)
def test_lines_of_a_script_that_are_not_valid_are_named(
    submit: Run, cluster: Cluster, tmp_path: Path, lines: str, told: str
) -> None:
    result = submit(script(tmp_path, f"#!/bin/sh\n{lines}\ntrue\n"))
    assert result.exit_code == 2
    assert told in result.stderr
    assert cluster.writes == []


def test_a_script_for_another_interpreter_belongs_into_the_image(submit: Run, tmp_path: Path) -> None:
    result = submit(script(tmp_path, "#!/usr/bin/perl\n"), "--image", "x")
    assert "line 1: '/usr/bin/perl' is not a shell or Python" in result.stderr


@pytest.mark.parametrize("flags", [("--gpus", "1"), ("--", "true")])
def test_flags_of_a_job_do_not_go_with_a_manifest(
    submit: Run, cluster: Cluster, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n")
    result = submit(str(path), *flags)
    assert result.exit_code == 2
    assert f"{flags[0]} does not go with" in result.stderr
    assert cluster.writes == []


def test_a_quote_takes_the_same_flags() -> None:
    with place(past=False) as folder:
        flags = ["--kubeconfig", str(folder / "kubeconfig"), "quote", "-q", "main", "--image", "x"]
        result = CliRunner().invoke(main, [*flags, "--gpus", "4", "--", "train"])
        many = CliRunner().invoke(main, [*flags, "--array", "2"])
    assert result.exit_code == 0, result.output
    assert "4 nvidia.com/gpu" in result.stdout
    assert "there are 2 workloads: a quote is for one" in many.stderr


@pytest.fixture
def with_pods(submit: Run, tmp_path: Path) -> Run:
    config = tmp_path / "queuectl.yaml"
    config.write_text("kinds: [Pod]\n")
    return lambda *arguments: submit("--config", str(config), *arguments)


def test_an_interactive_pod_is_gated_and_the_command_to_enter_it_is_printed(
    with_pods: Run, cluster: Cluster, tmp_path: Path
) -> None:
    flags = "--interactive --image pytorch:2 --gpus 1 --time 8h --name debug"
    result = with_pods(*flags.split())
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "Pod default/debug: created in LocalQueue main\n"
    assert "`queuectl exec pod/debug -n default`" in result.stderr
    assert f"`queuectl cancel pod/debug -n default --config {tmp_path}/queuectl.yaml`" in result.stderr
    ((path, pod),) = cluster.writes
    assert path == "/api/v1/namespaces/default/pods"
    assert pod["spec"]["schedulingGates"] == [{"name": "queuectl.dev/admission"}]
    assert pod["metadata"]["labels"] == {
        "queuectl.dev/gated": "true",
        "queuectl.dev/max-exec-time-seconds": "28800",
        "queuectl.dev/queue-name": "main",
    }
    (made,) = pod["spec"]["containers"]
    assert made["command"][:2] == ["sh", "-c"]
    assert made["resources"] == {"limits": {"nvidia.com/gpu": 1}}


def test_an_interactive_pod_runs_the_command_that_is_given(with_pods: Run, cluster: Cluster) -> None:
    result = with_pods("--interactive", "--image", "jupyter:1", "--", "jupyter", "lab")
    assert result.exit_code == 0, result.stderr
    ((_, pod),) = cluster.writes
    assert pod["spec"]["containers"][0]["command"] == ["jupyter", "lab"]
    assert pod["metadata"]["generateName"] == "pod-"


def test_an_interactive_pod_is_refused_where_pods_do_not_queue_and_with_what_describes_jobs(
    submit: Run, with_pods: Run, cluster: Cluster, tmp_path: Path
) -> None:
    refusals = {
        "kinds: [Pod]": submit("--interactive", "--image", "a:1"),
        "it does not go with --array": with_pods("--interactive", "--image", "a:1", "--array", "2"),
        "--interactive does not go with": with_pods("--interactive", script(tmp_path)),
    }
    for text, result in refusals.items():
        assert result.exit_code != 0
        assert text in result.stderr
    assert cluster.writes == []


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: server}
spec:
  replicas: REPLICAS
  template:
    metadata: {labels: {queuectl.dev/queue-name: main}}
    spec: {containers: [{name: c, image: "a:1"}]}
"""


@pytest.mark.parametrize(
    ("replicas", "text"),
    [
        ("3", "Deployment server, of 3 pods: its pods queue by the label on its template"),
        ("three", "line 2: spec.replicas: 'three' is not a number of pods"),
        ("-1", "line 2: spec.replicas: -1 is not a number of pods"),
    ],
)
def test_a_deployment_is_not_submitted(
    with_pods: Run, cluster: Cluster, tmp_path: Path, replicas: str, text: str
) -> None:
    path = tmp_path / "server.yaml"
    path.write_text(DEPLOYMENT.replace("REPLICAS", replicas))
    result = with_pods(str(path))
    assert result.exit_code == 2
    assert text in result.stderr
    assert cluster.writes == []
