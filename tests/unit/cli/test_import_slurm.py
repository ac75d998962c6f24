"""`queuectl import slurm`: sites as Slurm prints them, and policy tests on what comes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from queuectl.cli import main
from tests.unit.cli.conftest import Run
from tests.unit.kinds.slurm_sites import CONDO, DEPARTMENT, FOLDER, university

GPU = "nvidia.com/gpu"


def workload(reference: str, queue: str, gpus: int, **more: Any) -> dict[str, Any]:
    namespace, name = reference.split("/")
    found = {"name": name, "namespace": namespace, "queue": queue, "state": "pending"}
    return {**found, "podSets": [{"requests": {GPU: gpus}}], **more}


def holding(reference: str, queue: str, gpus: int, flavor: str, **more: Any) -> dict[str, Any]:
    held = {"clusterQueue": reference.split("/")[0], "podSets": {"main": {"flavors": {GPU: flavor}}}}
    return workload(reference, queue, gpus, state="admitted", admission=held, **more)


SITES: dict[str, tuple[tuple[Path, ...] | str, list[dict[str, Any]], dict[str, Any]]] = {
    # The share of vision is larger than that of nlp_lab, which is admitted before it.
    "department": (
        DEPARTMENT,
        [
            holding("vision/runs", "alice", 8, "a100"),
            workload("vision/next", "bob", 8),
            workload("nlp-lab/next", "carol", 8),
        ],
        {
            "admitted": {"nlp-lab/next": {"podSets": {"main": {"flavors": {GPU: "a40-gpu"}}}}},
            "reasons": {"vision/next": "WaitingForQuota"},
        },
    ),
    # The owner of nodes takes them back from scavengers; a node selector stands for the partition.
    "condo": (
        CONDO,
        [
            holding("guests/scavenges", "yan", 8, "h100-physics"),
            workload(
                "physics/own",
                "xia",
                16,
                podSets=[{"requests": {GPU: 16}, "nodeSelector": {"queuectl.dev/pool": "h100-physics"}}],
            ),
        ],
        {
            "preempted": [
                {"workload": "guests/scavenges", "reason": "InCohortReclamation", "by": "physics/own"}
            ]
        },
    ),
    # A group may use the nodes of its faculty and those of all, and not more than its limit of a flavor.
    "university": (
        university(),
        [
            workload("sci-lab1/fits", "user001", 96, podSets=[{"count": 12, "requests": {GPU: 8}}]),
            workload(
                "med-lab2/limited",
                "user012",
                24,
                podSets=[
                    {"count": 3, "requests": {GPU: 8}, "nodeSelector": {"queuectl.dev/pool": "general-h100"}}
                ],
            ),
        ],
        {"admitted": {"sci-lab1/fits": {}}, "reasons": {"med-lab2/limited": "ExceedsMaxQuota"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SITES)
def test_an_imported_site_is_a_policy_that_can_be_tested(name: str, run: Run, tmp_path: Path) -> None:
    given, workloads, expect = SITES[name]
    if isinstance(given, str):
        (tmp_path / "slurm.txt").write_text(given)
        given = (tmp_path / "slurm.txt",)
    found = run("import", "slurm", *(word for path in given for word in ("-f", str(path))))
    assert found.exit_code == 3, found.stderr
    (tmp_path / "policy.yaml").write_text(found.stdout)
    case = {"format": "scenario/v1", "kind": "cycle", "name": name, "workloads": workloads, "expect": expect}
    (tmp_path / "test.json").write_text(json.dumps(case))
    tested = run("test", "-p", str(tmp_path / "policy.yaml"), str(tmp_path / "test.json"))
    assert tested.exit_code == 0, tested.output


def test_a_folder_may_have_the_outputs_in_any_files(run: Run, tmp_path: Path) -> None:
    for path in DEPARTMENT:
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / ".hidden").write_text("not read")
    found = run("import", "slurm", "-f", str(tmp_path))
    assert found.exit_code == 3, found.stderr
    assert [made["kind"] for made in yaml.safe_load_all(found.stdout)].count("LocalQueue") == 6
    assert f"{tmp_path / 'department.cfg'}: line 19: User dave MaxSubmitJobs=10: " not in found.stderr
    assert f"{tmp_path / 'department.cfg'}: lines 19-20: User MaxSubmitJobs (2 times): " in found.stderr
    assert found.stderr.splitlines()[-1].startswith("23 objects converted, ")


def test_the_exit_code_is_3_and_the_json_has_notes_if_something_is_not_carried_over(run: Run) -> None:
    arguments = ["import", "slurm", "-o", "json", "-f", str(CONDO[0])]
    found = run(*arguments)
    assert found.exit_code == 3
    told = json.loads(found.stdout)
    assert len(told["objects"]) == 14
    assert {"object", "field", "text", "leftOut"} == set(told["notes"][0])


def test_bad_lines_of_all_files_are_errors_and_nothing_is_printed(tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text("\nsinfo: error: no controller\n")
    site = (FOLDER / "condo.txt").read_text().replace("PriorityTier=1 ", "PriorityTier=low ")
    text = f"{site}what is this\n"
    found = CliRunner().invoke(main, ["import", "slurm", "-f", str(bad), "-f", "-"], input=text)
    assert (found.exit_code, found.stdout) == (2, "")
    first, second = found.stderr.splitlines()
    assert first.endswith("bad.txt: line 2: 'sinfo: error: no controller': is no line of scontrol show "
                          "partition|node, or of sacctmgr dump|show -P")  # fmt: skip
    assert second.startswith("standard input: line 27: 'what is this': is no line of scontrol")
    found = CliRunner().invoke(main, ["import", "slurm", "-f", "-"], input=site)
    assert (found.exit_code, found.stdout) == (2, "")
    assert "line 3: 'low': Partition scavenge: PriorityTier: 'low' is not a whole number" in found.stderr
