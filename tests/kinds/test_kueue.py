"""Conversion of Kueue manifests: what is converted, and a note for everything that is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.events import PolicyObserved
from queuectl.kinds.imports import Imported
from queuectl.kinds.kueue import import_kueue
from queuectl.kinds.policy import policy_event
from tests.job_kinds import JOB_KINDS

Json = dict[str, Any]

GROUPS = [
    {
        "coveredResources": ["cpu", "nvidia.com/gpu"],
        "flavors": [
            {
                "name": "a100",
                "resources": [
                    {"name": "cpu", "nominalQuota": "40", "borrowingLimit": "8"},
                    {"name": "nvidia.com/gpu", "nominalQuota": 8, "lendingLimit": 4},
                ],
            }
        ],
    }
]


def kueue(kind: str, name: str, spec: Json, version: str = "v1beta2", **metadata: Any) -> Json:
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


def imported(*documents: Any) -> Imported:
    placed = ((f"file: line {number}", document) for number, document in enumerate(documents, 1))
    return import_kueue(placed, JOB_KINDS)


def notes(found: Imported) -> dict[tuple[str, str], str]:
    return {(note.object, note.field): note.text for note in found.notes}


def test_a_queue_of_v1beta2_changes_its_group_and_nothing_else() -> None:
    spec = {
        "cohortName": "research",
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "queueingStrategy": "StrictFIFO",
        "resourceGroups": GROUPS,
        "preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}},
        "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"},
        "fairSharing": {"weight": "2"},
        "stopPolicy": "Hold",
    }
    found = imported(kueue("ClusterQueue", "team-a", spec))
    assert found.notes == ()
    (made,) = found.objects
    assert made == {
        "apiVersion": "queuectl.dev/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": "team-a"},
        "spec": spec,
    }
    assert isinstance(policy_event(made), PolicyObserved)


def test_the_names_of_v1beta1_become_those_of_v1beta2() -> None:
    queue = {
        "cohort": "research",
        "resourceGroups": GROUPS,
        "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"},
    }
    found = imported(
        kueue("ClusterQueue", "team-a", queue, "v1beta1"),
        kueue("Cohort", "research", {"parent": "all"}, "v1alpha1"),
    )
    assert found.notes == ()
    assert found.objects[0]["spec"] == {
        "cohortName": "research",
        "resourceGroups": GROUPS,
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"},
    }
    assert found.objects[1]["spec"] == {"parentName": "all"}


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        ("ClusterQueue", {"admissionChecks": ["prov"]}, "spec.admissionChecks"),
        (
            "ClusterQueue",
            {"concurrentAdmissionPolicy": {"migration": {"mode": "TryPreferredFlavors"}}},
            "spec.concurrentAdmissionPolicy",
        ),
        (
            "ResourceFlavor",
            {"nodeLabels": {"example.com/gpu": "a100"}, "topologyName": "racks"},
            "spec.topologyName",
        ),
        ("LocalQueue", {"clusterQueue": "team-a", "somethingNew": [1]}, "spec.somethingNew"),
        (
            "ClusterQueue",
            {"cohortName": "research", "resourceGroups": [{**GROUPS[0], "somethingNew": 1}]},
            "spec.resourceGroups[0].somethingNew",
        ),
    ],
)
def test_a_field_without_effect_in_queuectl_is_removed_and_named(kind: str, spec: Json, field: str) -> None:
    found = imported(kueue(kind, "one", spec))
    assert list(notes(found)) == [(f"{kind}/one", field)]
    (made,) = found.objects
    last = field.rpartition(".")[2]
    assert last not in str(made)


def test_an_object_that_breaks_a_rule_is_left_out_with_the_rule() -> None:
    broken = [{**GROUPS[0], "coveredResources": ["cpu"]}]
    found = imported(kueue("ClusterQueue", "team-a", {"resourceGroups": broken}))
    assert found.objects == ()
    assert "must list exactly the coveredResources cpu" in notes(found)["ClusterQueue/team-a", ""]


@pytest.mark.parametrize("kind", ["Topology", "AdmissionCheck", "MultiKueueCluster", "Workload", "Unheard"])
def test_an_unsupported_kind_is_named(kind: str) -> None:
    found = imported(kueue(kind, "one", {}))
    assert found.objects == ()
    assert list(notes(found)) == [(f"{kind}/one", "")]


def test_fields_added_by_a_server_are_removed() -> None:
    exported = kueue(
        "LocalQueue",
        "main",
        {"clusterQueue": "team-a"},
        namespace="research",
        uid="x",
        resourceVersion="7",
        finalizers=["kueue.x-k8s.io/resource-in-use"],
        labels={"team": "a"},
        annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "keep"},
    )
    exported["status"] = {"pendingWorkloads": 3}
    found = imported({"apiVersion": "v1", "kind": "List", "items": [exported]})
    assert found.notes == ()
    assert found.objects[0] == {
        "apiVersion": "queuectl.dev/v1beta1",
        "kind": "LocalQueue",
        "metadata": {
            "name": "main",
            "namespace": "research",
            "labels": {"team": "a"},
            "annotations": {"note": "keep"},
        },
        "spec": {"clusterQueue": "team-a"},
    }


def test_fair_sharing_is_set_on_the_root_of_every_tree() -> None:
    strategies = ["LessThanOrEqualToFinalShare"]
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "fairSharing": {"preemptionStrategies": strategies},
        "waitForPodsReady": {"timeout": "30m"},
    }
    found = imported(
        configuration,
        kueue("ClusterQueue", "a", {"cohortName": "implicit"}),
        kueue("ClusterQueue", "b", {"cohortName": "leaf"}),
        kueue("Cohort", "leaf", {"parentName": "root"}),
        kueue("Cohort", "root", {"fairSharing": {"weight": "3"}}),
    )
    assert {(name, field) for name, field in notes(found)} == {
        ("Configuration", "fairSharing"),
        ("Configuration", "waitForPodsReady"),
    }
    sharing = {
        made["metadata"]["name"]: made["spec"].get("fairSharing")
        for made in found.objects
        if made["kind"] == "Cohort"
    }
    assert sharing == {
        "leaf": None,
        "root": {"weight": "3", "enabled": True, "preemptionStrategies": strategies},
        "implicit": {"enabled": True, "preemptionStrategies": strategies},
    }
    assert all(isinstance(policy_event(made), PolicyObserved) for made in found.objects)


def test_fair_sharing_that_is_off_is_not_set() -> None:
    off = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta1",
        "kind": "Configuration",
        "fairSharing": {"enable": False},
    }
    found = imported(off, kueue("Cohort", "root", {}))
    assert found.objects[0]["spec"] == {}


def test_a_job_gets_our_labels_also_in_its_templates() -> None:
    template = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "main", "app": "x"}}, "spec": {}}
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "research"},
        "spec": {"jobTemplate": template},
    }
    found = imported(cron)
    assert found.notes == ()
    labels = found.objects[0]["spec"]["jobTemplate"]["metadata"]["labels"]
    assert labels == {"queuectl.dev/queue-name": "main", "app": "x"}
    assert template["metadata"] == {"labels": {"kueue.x-k8s.io/queue-name": "main", "app": "x"}}


def test_an_unsupported_job_kind_is_reported() -> None:
    metadata = {"name": "tune", "namespace": "research", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    found = imported({"apiVersion": "ray.io/v1", "kind": "RayCronJob", "metadata": metadata})
    assert "RayCronJob is not queued" in notes(found)["research/RayCronJob/tune", ""]


def test_a_label_without_effect_in_queuectl_is_named() -> None:
    metadata = {"name": "a", "annotations": {"kueue.x-k8s.io/job-min-parallelism": "3"}}
    found = imported({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata})
    assert found.objects[0]["metadata"] == {"name": "a"}
    assert "job-min-parallelism" in notes(found)["Job/a", "metadata.annotations"]


FIELDS = st.sampled_from(
    ["spec", "metadata", "name", "labels", "annotations", "items", "cohort", "admissionChecks", "fairSharing",
     "flavorFungibility", "resourceGroups", "parent", "kind", "kueue.x-k8s.io/queue-name"]
)  # fmt: skip
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=12,
)


def test_a_configuration_with_metadata_that_are_no_mapping_is_named_by_its_kind() -> None:
    document = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Configuration", "metadata": True}
    notes = imported(document).notes
    assert [note.object for note in notes] == ["Configuration"]


@given(
    kind=st.sampled_from(
        ["ClusterQueue", "Cohort", "ResourceFlavor", "LocalQueue", "Job", "Configuration", ""]
    ),
    group=st.sampled_from(["kueue.x-k8s.io/v1beta1", "config.kueue.x-k8s.io/v1beta1", "batch/v1", ""]),
    rest=ANYTHING,
)
def test_no_document_raises(kind: str, group: str, rest: Any) -> None:
    rest = rest if isinstance(rest, dict) else {"spec": rest}
    imported(rest, {**rest, "kind": kind, "apiVersion": group}, rest.get("spec"))
