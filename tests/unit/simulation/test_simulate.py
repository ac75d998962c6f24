"""`queuectl simulate` at a terminal and in pipes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from queuectl.cli import main

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "docs" / "examples" / "three-teams.yaml"
HEAD = """\
format: scenario/v1
kind: simulation
name: small
until: 3600
objects:
- {apiVersion: queuectl.dev/v1beta1, kind: ResourceFlavor, metadata: {name: a100}}
- apiVersion: queuectl.dev/v1beta1
  kind: ClusterQueue
  metadata: {name: team}
  spec:
    namespaceSelector: {}
    resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors:
      - {name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: 4}]}
- apiVersion: queuectl.dev/v1beta1
  kind: LocalQueue
  metadata: {name: main, namespace: ns}
  spec: {clusterQueue: team}
"""
ARRIVALS = """\
arrivals:
- name: train
  namespace: ns
  queue: main
  poisson: {perHour: 60}
  runSeconds: {exponential: 300}
  podSets: [{requests: {nvidia.com/gpu: 1}}]
"""
WORKLOADS = """\
workloads:
- name: runs
  namespace: ns
  queue: main
  state: admitted
  runSeconds: 100
  podSets: [{requests: {nvidia.com/gpu: 3}}]
  admission: {clusterQueue: team, podSets: {main: {flavors: {nvidia.com/gpu: a100}}}}
- name: ends
  namespace: ns
  queue: main
  state: admitted
  runSeconds: 50
  evicted: {reason: Preempted, at: 2024-01-01T00:00:00Z}
  podSets: [{requests: {nvidia.com/gpu: 1}}]
  admission: {clusterQueue: team, podSets: {main: {flavors: {nvidia.com/gpu: a100}}}}
- name: comes
  namespace: ns
  queue: main
  createdAt: 2024-01-01T00:00:40Z
  runSeconds: 10
  podSets: [{requests: {nvidia.com/gpu: 2}}]
"""


def simulated(folder: Path, text: str, *more: str) -> Result:
    path = folder / "scenario.yaml"
    path.write_text(text)
    return CliRunner().invoke(main, ["simulate", str(path), *more])


def measured(folder: Path, text: str) -> dict[str, Any]:
    found = simulated(folder, text, "-o", "json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)  # type: ignore[no-any-return]


@pytest.mark.acceptance
def test_the_same_file_gives_the_same_answer_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(HEAD + ARRIVALS)
    answers = [
        subprocess.run(
            [sys.executable, "-m", "queuectl", "simulate", "scenario.yaml", "-o", "json"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
            capture_output=True,
            timeout=60,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert answers[0] == answers[1]
    assert json.loads(answers[0])["total"]["started"] > 10


def test_another_seed_gives_other_work(tmp_path: Path) -> None:
    assert measured(tmp_path, HEAD + ARRIVALS) != measured(tmp_path, HEAD + "seed: 5\n" + ARRIVALS)


def test_running_work_continues_and_evicted_work_is_pending_again(tmp_path: Path) -> None:
    """3 of 4 GPUs are held for 100 s; the fourth comes free after the 20 s that an eviction takes."""
    found = measured(tmp_path, HEAD.replace("until: 3600", "evictionSeconds: 20") + WORKLOADS)
    (team,) = found["queues"]
    assert (team["workloads"], team["finished"], team["running"]) == (3, 3, 0)
    # `ends` runs again from 20 to 70 s; `comes` asks for 2 GPUs at 40 s, and there are 2 from 100 s on.
    assert team["wait"] == {"mean": 60.0, "median": 60.0, "p95": 60.0, "max": 60.0}
    assert found["seconds"] == 110.0
    assert team["resources"][0]["used"] == pytest.approx((300 + 20 + 50 + 20) / 110, abs=1e-3)


def test_the_table_has_a_row_for_each_queue_and_the_total(tmp_path: Path) -> None:
    found = simulated(tmp_path, HEAD + ARRIVALS)
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert re.fullmatch(r"small: \d+ workloads, 1h00m of virtual time", lines[0])
    assert sum(line.startswith("team ") for line in lines) == 2
    assert sum(line.startswith("total ") for line in lines) == 2
    assert "Preemptions" not in found.stdout


def test_policy_comes_from_manifests_and_the_document_replaces_it(tmp_path: Path) -> None:
    """The queue of the file `policy.yaml` has 1 GPU, that of the document 4."""
    head, _, objects = HEAD.partition("objects:\n")
    policy = tmp_path / "policy.yaml"
    policy.write_text(objects.replace("nominalQuota: 4", "nominalQuota: 1"))
    waiting = WORKLOADS[WORKLOADS.index("- name: comes") :].replace(
        "requests: {nvidia.com/gpu: 2}", "requests: {}"
    )
    small = simulated(tmp_path, f"{head}workloads:\n{waiting}", "-p", str(policy), "-o", "json")
    assert json.loads(small.stdout)["queues"][0]["resources"][0]["nominal"] == 1
    own = simulated(tmp_path, f"{HEAD}workloads:\n{waiting}", "-p", str(policy), "-o", "json")
    assert json.loads(own.stdout)["queues"][0]["resources"][0]["nominal"] == 4


def test_errors_in_manifests_have_their_place(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(HEAD.partition("objects:\n")[2].replace("nominalQuota: 4", "nominalQuota: -4"))
    found = simulated(tmp_path, HEAD + ARRIVALS, "-p", str(policy), "-p", str(tmp_path / "none.yaml"))
    assert (found.exit_code, found.stdout) == (2, "")
    assert "policy.yaml: line 10, column" in found.stderr
    assert "none.yaml: No such file or directory" in found.stderr


@pytest.mark.acceptance
def test_the_example_in_the_documentation_is_simulated_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "three.svg"
    found = CliRunner().invoke(main, ["simulate", str(EXAMPLE), "--picture", str(picture), "-o", "json"])
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert [queue["name"] for queue in told["queues"]] == ["product", "research", "students"]
    assert told["total"]["workloads"] > 500
    assert told["total"]["preemptions"]["suffered"] > 0
    assert "Three teams share 48 GPUs" in picture.read_text()


@pytest.mark.acceptance
def test_the_example_is_simulated_with_fair_sharing_too(tmp_path: Path) -> None:
    fair = EXAMPLE.read_text() + "config: {fairSharing: {enabled: true}}\n"
    causes = measured(tmp_path, fair)["total"]["preemptions"]["causes"]
    assert causes["InCohortFairSharing"] > 0


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        ("out.gif", "its name must end in .svg or .png"),
        ("nowhere/out.svg", "there is no folder"),
    ],
)
def test_an_impossible_picture_is_an_error_before_the_simulation(
    picture: str, message: str, tmp_path: Path
) -> None:
    found = simulated(tmp_path, HEAD + ARRIVALS, "--picture", str(tmp_path / picture))
    assert (found.exit_code, found.stdout) == (2, "")
    assert message in found.stderr


@pytest.mark.parametrize(
    ("given", "instead", "message"),
    [
        ("exponential: 300", "exponential: -3", "line 25, column 16: arrivals[0].runSeconds.exponential: -3"),
        ("exponential: 300", "uniform: [5, 3]", "arrivals[0].runSeconds: uniform: 5 is more than 3"),
        ("exponential: 300", "exponential: 3, constant: 5", "give one of uniform, exponential, lognormal"),
        ("exponential: 300", "exponential: null", "give one of uniform, exponential, lognormal"),
        ("{exponential: 300}", "soon", "must be seconds, or one of uniform, exponential, lognormal"),
        ("  poisson: {perHour: 60}\n", "", "arrivals[0]: give one of every, poisson"),
        ("poisson: {perHour: 60}", "every: 0", "line 24, column 3: arrivals[0].every: 0"),
        ("until: 3600\n", "", "arrivals[0]: never stops: give count or to, or until"),
        ("until: 3600", "until: .inf", "line 4, column 8: inf is not a number of JSON"),
        ("until: 3600", "til: 3600", "til: there is no such field"),
        ("kind: simulation", "kind: cycle", "documents of kind cycle are not run"),
        ("nominalQuota: 4", "nominalQuota: -4", "nominalQuota"),
        ("queue: main\n", "queue: main\n  podsets: []\n", "arrivals[0].podsets: there is no such field"),
    ],
)
def test_errors_in_a_scenario_have_their_place(
    given: str, instead: str, message: str, tmp_path: Path
) -> None:
    assert given in HEAD + ARRIVALS
    found = simulated(tmp_path, (HEAD + ARRIVALS).replace(given, instead))
    assert (found.exit_code, found.stdout) == (2, "")
    assert message in found.stderr


def test_too_many_workloads_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuectl.simulation.stage.MOST_WORKLOADS", 20)
    found = simulated(tmp_path, HEAD + ARRIVALS)
    assert (found.exit_code, found.stdout) == (2, "")
    assert "more than 20 workloads arrive" in found.stderr


def test_two_workloads_of_one_name_are_refused(tmp_path: Path) -> None:
    twin = WORKLOADS.replace("name: comes", "name: train-1") + ARRIVALS
    found = simulated(tmp_path, HEAD + twin)
    assert found.exit_code == 2
    assert "two workloads that arrive are called ns/train-1" in found.stderr


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    found = CliRunner().invoke(main, ["simulate", str(tmp_path / "none.yaml")])
    assert found.exit_code == 2
    assert "No such file" in found.stderr


def test_two_documents_in_one_file_are_refused(tmp_path: Path) -> None:
    text = HEAD + ARRIVALS
    found = simulated(tmp_path, f"{text}---\n{text}")
    assert found.exit_code == 2
    assert "one document is played at a time" in found.stderr
