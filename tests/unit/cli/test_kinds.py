"""`queuectl kinds`: the rows, what the cluster serves, and rows tried on sample objects."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from queuectl.app.kinds import Kinds, job_kinds, survey
from queuectl.settings import load
from tests.integration.kube.sites import CRDS, PYTORCH_CRD, in_process
from tests.unit.cli.conftest import Run
from tests.unit.kinds.training import KIND, ROW, training


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return _written(tmp_path / "queuectl.yaml", {"kinds": [ROW]})


class _Plain(yaml.SafeDumper):
    """Without aliases, which a configuration must not have."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _written(path: Path, *documents: Any) -> Path:
    path.write_text("---\n".join(yaml.dump(one, Dumper=_Plain, sort_keys=False) for one in documents))
    return path


def _kinds(path: Path) -> Kinds:
    return job_kinds(load(path, environ={}))


def test_without_a_cluster_the_rows_are_listed_with_their_places(run: Run, config: Path) -> None:
    result = run("kinds", "--config", str(config), "-o", "json")
    assert result.exit_code == 0
    items = {item["name"]: item for item in json.loads(result.stdout)["items"]}
    assert items["Job"]["place"] is None
    assert items[KIND.name] == {
        "name": KIND.name,
        "apiVersion": "example.com/v1",
        "place": f"{config}: line 2",
        "served": None,
        "queued": None,
        "running": None,
        "problem": None,
    }


def test_workloads_are_counted_by_kind(run: Run, server: str) -> None:
    lines = run("kinds", "--server", server).stdout.splitlines()
    assert lines[0].split() == ["NAME", "API", "VERSION", "ROW", "SERVED", "QUEUED", "RUNNING", "PROBLEM"]
    counts = {line.split()[0]: line.split()[5:7] for line in lines[1:]}
    items = json.loads(run("get", "workloads", "-A", "--server", server, "-o", "json").stdout)["items"]
    pending = sum(item["kind"] == "Job" and item["phase"] == "Pending" for item in items)
    running = sum(item["kind"] == "Job" and item["phase"] != "Pending" for item in items)
    assert counts["Job"] == [str(pending), str(running)]
    assert counts["JobSet"] == ["0", "0"]


async def test_what_the_cluster_serves_and_why_a_kind_does_not_queue_is_shown(tmp_path: Path) -> None:
    broken = {**ROW, "kind": "Other", "plural": "others", "suspend": "suspend"}
    kinds = _kinds(_written(tmp_path / "queuectl.yaml", {"kinds": [ROW, broken]}))
    older = deepcopy(PYTORCH_CRD)
    older["spec"]["versions"][0]["name"] = "v1beta1"
    async with in_process(tmp_path) as site:
        await site.create(CRDS, older)
        found = {one.name: one for one in await survey(kinds, site.session)}
    assert (found["Job"].served, found["Job"].problem) == (("v1",), None)
    assert (found["TFJob"].served, found["TFJob"].problem) == ((), None)
    assert found["PyTorchJob"].problem == "the cluster serves v1beta1, and the row is for v1"
    assert "kinds[1].suspend: must be the path of a field of the spec" in str(found["kinds[1]"].problem)


def test_sample_objects_are_shown_as_they_would_be_charged(run: Run, config: Path, tmp_path: Path) -> None:
    sample = training(small=2)
    del sample["metadata"]["labels"], sample["metadata"]["uid"]
    file = _written(tmp_path / "train.yaml", sample)
    result = run("kinds", "check", "--config", str(config), str(file))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "DistributedTraining train",
        "  podset driver: 1 pod, each requests nvidia.com/gpu 1",
        "  podset small: 2 pods, each requests nvidia.com/gpu 1",
        "  suspended: yes; finished: no; ready: not known",
    ]


def test_an_object_that_cannot_be_queued_is_found_wrong(run: Run, config: Path, tmp_path: Path) -> None:
    elastic, unknown = training(small=2), {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    elastic["spec"]["mode"] = "elastic"
    file = _written(tmp_path / "train.yaml", elastic, unknown)
    result = run("kinds", "check", "--config", str(config), str(file), "-o", "json")
    assert result.exit_code == 1
    problems = [item["problem"] for item in json.loads(result.stdout)["items"]]
    assert problems[0] == "Misconfigured: spec.mode: only gang training queues, set it to gang"
    assert problems[1] == "no row is for kind 'Pod' of 'v1'"
    assert "2 of 2 objects cannot be queued" in result.stderr


def test_a_malformed_row_costs_its_kind_alone_and_is_named_with_line_and_field(
    run: Run, tmp_path: Path
) -> None:
    broken = {**ROW, "kind": "Other", "plural": "others", "colour": "red"}
    config = _written(tmp_path / "queuectl.yaml", {"kinds": [broken, ROW]})
    assert _kinds(config).registry.find("distributedtraining") is not None
    file = _written(tmp_path / "train.yaml", training(small=2))
    result = run("kinds", "check", "--config", str(config), str(file))
    assert result.exit_code == 1
    line = config.read_text().splitlines().index("  colour: red") + 1
    assert f"{config}: line {line}: kinds[0].colour: there is no such field" in result.stderr
    assert "podset driver" in result.stdout
    assert run("manifests", "--config", str(config)).exit_code == 2


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"apiVersion": "kubeflow.org/v1", "kind": "TFJob"},
            "there is a row for TFJob of kubeflow.org/v1",
        ),
        (
            {"children": [{"apiVersion": "a.b/v1", "kind": "C"}]},
            "there is no row for C of a.b/v1",
        ),
    ],
)
def test_a_row_that_does_not_fit_to_the_others_is_refused(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    kinds = _kinds(_written(tmp_path / "queuectl.yaml", {"kinds": [{**ROW, **change}]}))
    assert problem in kinds.problems[0]


def test_a_kind_whose_name_is_taken_has_its_group_in_its_name(tmp_path: Path) -> None:
    row = {**ROW, "kind": "MPIJob", "plural": "mpijobs"}
    kinds = _kinds(_written(tmp_path / "queuectl.yaml", {"kinds": [row]}))
    assert kinds.registry.rows[-1].name == "MPIJob.v1.example.com"
