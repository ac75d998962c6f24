"""`get nodes`, `info node/NAME`, `logs` and `exec`: what is read from the API server beside REST."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from queuectl.cli.printing import local
from tests.unit.api.canned import GPU, CannedReadings, two_teams
from tests.unit.api.canned_nodes import with_nodes
from tests.unit.cli.clusters import Cluster, Json, kubeconfig
from tests.unit.cli.conftest import Run
from tests.unit.cli.servers import answering

PODS = "/api/v1/namespaces/default/pods"


def pod(node: str, gpus: int, workload: str | None = None, phase: str = "Running") -> Json:
    """The parts of a Pod."""
    labels = {"queuectl.dev/workload": workload} if workload else {}
    containers = [{"name": "main", "resources": {"limits": {GPU: str(gpus)}}}]
    return {
        "metadata": {"namespace": "default", "labels": labels},
        "spec": {"nodeName": node, "containers": containers},
        "status": {"phase": phase},
    }


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def readings() -> CannedReadings:
    return with_nodes(two_teams())


@pytest.fixture
def ask(run: Run, cluster: Cluster, server: str, tmp_path: Path) -> Iterator[Run]:
    """The command line with a kubeconfig for `cluster`, and REST."""
    with answering(cluster.answer) as url:
        config = str(kubeconfig(tmp_path, url))
        yield lambda *arguments: run("--kubeconfig", config, "--server", server, *arguments)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_nodes_are_listed_with_state_use_and_taints(ask: Run) -> None:
    result = ask("get", "nodes")
    assert result.exit_code == 0, result.output
    head, *shown = rows(result.stdout)
    assert head == ["NODE", "STATE", "FLAVOR", "USED", "FREE", "WORKLOADS", "TAINTS"]
    assert [[*row[:2], *row[3:]] for row in shown] == [
        ["gpu-1", "Ready", "7/8", GPU, "1", "3", "-"],
        ["gpu-2", "Cordoned", "0/8", GPU, "0", "0", "-"],
        ["gpu-3", "Ready", "0/8", GPU, "8", "0", "team=x:NoSchedule"],
    ]


@pytest.mark.parametrize("words", [["info", "node/gpu-1"], ["get", "node", "gpu-1"], ["get", "no/gpu-1"]])
def test_one_node_is_shown_with_the_workloads_on_it(ask: Run, words: list[str]) -> None:
    found = json.loads(ask(*words, "-o", "json").stdout)
    assert (found["used"][GPU], found["free"][GPU], found["unmanaged"][GPU]) == (7, 1, 1)
    assert [one["name"] for one in found["workloads"]] == ["large", "small", None]
    shown = ask(*words).stdout
    assert "large" in shown
    assert "not shown to you" in shown


def test_a_node_that_is_not_there_is_named_with_what_may_be_meant(ask: Run) -> None:
    result = ask("info", "node/gpu-11")
    assert result.exit_code == 1
    assert "not found: node gpu-11" in result.stderr
    assert "gpu-1" in result.stderr.replace("gpu-11", "")


@pytest.mark.parametrize("flag", ["--mine", "--watch", "--phase=Pending", "--as-of=2h"])
def test_filters_of_workloads_do_not_go_with_nodes(ask: Run, flag: str) -> None:
    result = ask("get", "nodes", flag)
    assert result.exit_code == 2
    assert "nodes" in result.stderr


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What kubectl is called with, from the namespace on."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "kubectl"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    words: list[str] = []

    def execv(path: str, given: list[str]) -> None:
        assert path == given[0] == str(program)
        assert given[1] == "--kubeconfig"
        words.extend(given[3:])
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", execv)
    return words


def test_the_logs_of_all_pods_are_read_by_the_label_of_the_workload(
    ask: Run, cluster: Cluster, kubectl: list[str]
) -> None:
    for name in ("small-0", "small-1"):
        cluster.add(f"{PODS}/{name}", **pod("gpu-1", 2, "uid-1"))
    assert ask("logs", "job/small", "-n", "default", "-f", "--tail", "5").exit_code == 0
    assert " ".join(kubectl) == (
        "logs -n default --selector queuectl.dev/workload=uid-1 --prefix --max-log-requests 50 --tail=5 "
        "--all-containers --follow"
    )


def test_the_logs_of_one_pod_have_no_prefix(ask: Run, cluster: Cluster, kubectl: list[str]) -> None:
    cluster.add(f"{PODS}/small-0", **pod("gpu-1", 2, "uid-1", "Succeeded"))
    assert ask("logs", "job/small", "-n", "default", "-c", "main").exit_code == 0
    assert " ".join(kubectl) == "logs -n default small-0 --tail=-1 --container main"


def test_a_command_runs_in_the_first_pod_that_runs(ask: Run, cluster: Cluster, kubectl: list[str]) -> None:
    cluster.add(f"{PODS}/small-0", **pod("gpu-1", 2, "uid-1", "Pending"))
    cluster.add(f"{PODS}/small-1", **pod("gpu-1", 2, "uid-1"))
    cluster.add(f"{PODS}/small-2", **pod("gpu-1", 2, "uid-1"))
    ask("exec", "job/small", "-n", "default", "--", "nvidia-smi", "-L")
    assert " ".join(kubectl) == "exec -n default --stdin small-1 -- nvidia-smi -L"
    kubectl.clear()
    ask("exec", "job/small", "-n", "default", "--pod", "small-2")
    assert " ".join(kubectl) == "exec -n default --stdin small-2 -- sh"
    result = ask("exec", "job/small", "-n", "default", "--pod", "other")
    assert result.exit_code == 1
    assert "other is none of its pods" in result.stderr
    result = ask("exec", "job/small", "-n", "default", "--pod", "small-0")
    assert "Job default/small: its pod small-0 does not run: it is Pending" in result.stderr


@pytest.mark.parametrize(("verb", "gated"), [("logs", False), ("exec", False), ("exec", True)])
def test_a_workload_that_waits_says_since_when_why_and_what_to_type(
    ask: Run, cluster: Cluster, kubectl: list[str], verb: str, gated: bool
) -> None:
    cluster.objects[PODS] = {"items": [], "metadata": {}}
    found = json.loads(ask("explain", "job/waits", "-n", "default", "-o", "json").stdout)
    if gated:
        cluster.add(f"{PODS}/waits-0", **pod("", 1, found["uid"], phase="Pending"))
    result = ask(verb, "job/waits", "-n", "default")
    assert result.exit_code == 1
    since = local(found["createdAt"])
    assert f"Job default/waits: it waits since {since}: WaitingForQuota: requests" in result.stderr
    typed = result.stderr.partition("`queuectl ")[2].partition("`")[0]
    assert ask(*typed.split()).stdout.startswith("Job default/waits: Pending")
    assert kubectl == []


def test_a_workload_that_is_admitted_and_has_no_pods_says_so(
    ask: Run, cluster: Cluster, kubectl: list[str]
) -> None:
    cluster.objects[PODS] = {"items": [], "metadata": {}}
    result = ask("exec", "job/small", "-n", "default")
    assert "Job default/small: it has no pods: it is Admitted" in result.stderr
    assert kubectl == []


def test_without_kubectl_it_is_named(
    ask: Run, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add(f"{PODS}/small-0", **pod("gpu-1", 2, "uid-1"))
    monkeypatch.setenv("PATH", str(tmp_path))
    result = ask("logs", "job/small", "-n", "default")
    assert result.exit_code == 2
    assert "kubectl is not on PATH" in result.stderr
