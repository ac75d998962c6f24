"""The registry of kinds, and the manifests made from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuectl.kinds.jobs import JobKind, KindRegistry
from queuectl.kinds.manifests import TEMPLATES, file_name, manifests
from queuectl.kinds.podsets import Templates
from tests.acceptance.manifests.rendered import MANIFESTS
from tests.job_kinds import JOB_KINDS

JOB, PYTORCH = JOB_KINDS["Job"], JOB_KINDS["PyTorchJob"]
OTHER = replace(JOB, name="Job.v1.example.com", group="example.com", plural="jobs")


@pytest.mark.parametrize("name", ["pytorchjob", "PyTorchJobs", "pytorchjobs.kubeflow.org", "pytorch"])
def test_a_kind_is_found_by_each_of_its_names_in_any_case(name: str) -> None:
    assert JOB_KINDS.find(name) is PYTORCH


def test_a_kind_that_is_not_in_the_registry_is_not_found() -> None:
    assert JOB_KINDS.find("pods") is None
    assert JOB_KINDS.of("v1", "Pod") is None
    assert JOB_KINDS.served_at("", "v1", "pods") is None


def test_of_two_kinds_with_one_name_the_second_has_the_name_that_kubectl_would_use() -> None:
    both = KindRegistry((JOB, OTHER))
    assert (both.find("job"), both.find("jobs.v1.example.com")) == (JOB, OTHER)
    assert both["Job.v1.example.com"].kind == "Job"
    assert both.of("example.com/v1", "Job") is OTHER
    assert both.served_at("example.com", "v1", "jobs") is OTHER
    assert both.find("jobs.example.com") is OTHER
    assert both.known() == "Job, Job.v1.example.com"


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("mpijob", "v2beta1"),
        ("MPIJobs", "v2beta1"),
        ("mpijob.v1.kubeflow.org", "v1"),
        ("mpijobs.v1.kubeflow.org", "v1"),
    ],
)
def test_of_the_two_kinds_of_mpijob_the_one_of_the_mpi_operator_has_the_short_name(
    name: str, version: str
) -> None:
    found = JOB_KINDS.find(name)
    assert found is not None
    assert (found.kind, found.version) == ("MPIJob", version)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (JOB, "two rows have the name Job"),
        (replace(OTHER, name="Job.example"), "Job.example is not the name of a row for Job of"),
        (
            replace(JOB, name="Job.v2.batch", version="v2", suspend=("spec", "paused")),
            "Job.v2.batch has another form than another version of jobs.batch",
        ),
    ],
)
def test_rows_that_cannot_be_in_one_registry_are_refused(row: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        KindRegistry((JOB, row))  # type: ignore[arg-type]


def test_the_manifests_that_are_checked_in_are_those_of_the_built_in_kinds() -> None:
    made = manifests(JOB_KINDS)
    assert {name: (MANIFESTS / name).read_text() for name in made} == made, "run: make manifests"


def test_a_further_kind_has_a_policy_of_its_own_and_changes_every_file_that_names_kinds() -> None:
    made, more = manifests(JOB_KINDS), manifests(KindRegistry((*JOB_KINDS, OTHER)))
    assert more.keys() - made.keys() == {"gate/kinds/jobs.example.com.yaml"}
    unchanged = {name for name in made if made[name] == more[name]}
    assert unchanged == {
        "gate/attribution.yaml",
        "gate/scale.yaml",
        "gate/pods.yaml",
        "mutating/attribution.yaml",
    }


def test_each_kind_has_one_policy_and_both_versions_of_a_kind_share_it() -> None:
    made = manifests(JOB_KINDS)
    names = {f"gate/kinds/{file_name(row)}" for row in JOB_KINDS}
    assert {name for name in made if name.startswith("gate/kinds/") and "kustom" not in name} == names
    assert len(names) == len(JOB_KINDS.rows) - 1
    files = [path for path in TEMPLATES.rglob("*.yaml") if not path.name.endswith(".pods.yaml")]
    assert len(made) == len(files) - 1 + len(names)
    assert "apiVersions: [v2beta1]" in made["gate/kinds/mpijobs.kubeflow.org.yaml"]


@pytest.mark.parametrize(
    "row", [row for row in JOB_KINDS if isinstance(row.podsets, Templates)], ids=lambda row: row.name
)
def test_the_policy_of_a_kind_has_the_paths_of_no_other_kind(row: JobKind) -> None:
    text = manifests(JOB_KINDS)[f"gate/kinds/{file_name(row)}"]
    others = {path for other in JOB_KINDS for path in _fields(other)} - _fields(row)
    assert "request.resource.group ==" not in text
    assert {field for field in others if field in text} == set()


def _fields(row: JobKind) -> set[str]:
    """Names of fields that few kinds have."""
    if not isinstance(row.podsets, Templates):
        return set()
    return {str(group.parent[-1]) for group in row.podsets.groups} - {"spec"}
