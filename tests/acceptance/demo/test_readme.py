"""The example of fair sharing in README.md, in virtual time: its policy leads to its table."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from queuectl.simulation.history import Life, Run
from tests.acceptance.demo.lives import lives_of

Json = dict[str, Any]

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
QUEUES = ("team-a", "team-b", "guests")
GPU = "nvidia.com/gpu"
STEP_SECONDS = 10
SUBMITTED = (("team-a", 4, 4), ("guests", 1, 4), ("guests", 1, 4), ("team-b", 1, 8))
"""For each step: who, how many Jobs, GPUs of each."""


def section() -> str:
    return README.partition("## Example of fair sharing\n")[2].partition("\n## ")[0]


def objects() -> list[Json]:
    """The policy as printed, with what its comment says of the other queues."""
    cohort, team = yaml.safe_load_all(re.findall(r"```yaml\n(.*?)```", section(), re.DOTALL)[0])
    found = [
        cohort,
        {"apiVersion": team["apiVersion"], "kind": "ResourceFlavor", "metadata": {"name": "a100"}},
    ]
    for name in QUEUES:
        queue = deepcopy(team)
        queue["metadata"]["name"] = name
        if name == "guests":
            queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = 0
        local = {"metadata": {"name": "main", "namespace": name}, "spec": {"clusterQueue": name}}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        found += [queue, namespace, {"apiVersion": team["apiVersion"], "kind": "LocalQueue", **local}]
    return found


def used(lives: dict[str, Life], queue: str, at: int) -> int:
    """GPUs that it holds at this second."""

    def holds(run: Run) -> bool:
        return run.admitted <= at * 1000 and (run.released is None or run.released > at * 1000)

    runs = (run for life in lives.values() for run in life.runs if run.cluster_queue == queue)
    return sum(
        amount for run in runs if holds(run) for cell, amount in run.usage.items() if cell.resource == GPU
    )


def test_the_policy_of_readme_leads_to_the_table_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = re.findall(r"^\| ([a-z-]+) submits [^|]*\| (\d+) \| (\d+) \| (\d+) \|", section(), re.MULTILINE)
    assert [row[0] for row in rows] == [who for who, _, _ in SUBMITTED]
    workloads = [
        {
            "name": f"job-{step}-{number}",
            "namespace": who,
            "queue": "main",
            "arrival": step * STEP_SECONDS,
            "runSeconds": 1000,
            "podSets": [{"requests": {GPU: gpus}}],
        }
        for step, (who, count, gpus) in enumerate(SUBMITTED)
        for number in range(count)
    ]
    lives = lives_of(monkeypatch, objects(), workloads)
    for step, row in enumerate(rows):
        found = [used(lives, queue, (step + 1) * STEP_SECONDS - 1) for queue in QUEUES]
        assert found == [int(number) for number in row[1:]], f"step {step + 1}"
