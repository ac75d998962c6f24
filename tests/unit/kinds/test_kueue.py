"""Conversion of Kueue manifests: what is converted, and a note for everything that is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.model.events import PolicyObserved
from queuectl.importers.kueue import import_kueue
from queuectl.importers.result import Imported
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
    """The notes on what was left out."""
    return {(note.object, note.field): note.text for note in found.notes if note.left_out}


def advice(found: Imported) -> dict[tuple[str, str], str]:
    """The notes on what was carried over."""
    return {(note.object, note.field): note.text for note in found.notes if not note.left_out}


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
    assert notes(found) == {}
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
    assert notes(found) == {}
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
    assert notes(found) == {}
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
        ("Configuration", "waitForPodsReady.timeout"),
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


@pytest.mark.parametrize(
    ("strategy", "note"),
    [
        ("IgnoreUndeclared", 'set `scheduling.resources.uncovered`: "Ignore" in queuectl\'s configuration'),
        ("BlockUndeclared", 'set `scheduling.resources.uncovered`: "Refuse" in queuectl\'s configuration'),
        ("Other", "left out: it is none of BlockUndeclared, IgnoreUndeclared"),
        ({"a": 1}, "left out: it is none of BlockUndeclared, IgnoreUndeclared"),
    ],
)
def test_the_strategy_for_resources_that_are_not_covered_is_mapped(strategy: object, note: str) -> None:
    found = imported(
        {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "resources": {"quotaCheckStrategy": strategy},
        }
    )
    assert [one.text for one in found.notes] == [note]


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
    assert notes(found) == {}
    labels = found.objects[0]["spec"]["jobTemplate"]["metadata"]["labels"]
    assert labels == {"queuectl.dev/queue-name": "main", "app": "x"}
    assert template["metadata"] == {"labels": {"kueue.x-k8s.io/queue-name": "main", "app": "x"}}


def test_an_unsupported_job_kind_is_reported() -> None:
    metadata = {"name": "tune", "namespace": "research", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    found = imported({"apiVersion": "ray.io/v1", "kind": "RayCronJob", "metadata": metadata})
    assert "RayCronJob is not queued" in notes(found)["research/RayCronJob/tune", ""]


def test_every_mark_that_queuectl_has_is_carried_over() -> None:
    marks = {
        f"kueue.x-k8s.io/{name}": "3" for name in ("job-min-parallelism", "job-completions-equal-parallelism")
    }
    labels = {
        f"kueue.x-k8s.io/{name}": "3"
        for name in ("queue-name", "priority-class", "max-exec-time-seconds", "pod-group-pod-index")
    }
    metadata = {"name": "a", "annotations": marks, "labels": labels}
    found = imported({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata})
    assert notes(found) == {}
    assert found.objects[0]["metadata"] == {
        "name": "a",
        "annotations": {
            "queuectl.dev/min-parallelism": "3",
            "queuectl.dev/completions-equal-parallelism": "3",
        },
        "labels": {
            "queuectl.dev/queue-name": "3",
            "queuectl.dev/priority-class": "3",
            "queuectl.dev/max-exec-time-seconds": "3",
            "queuectl.dev/pod-group-pod-index": "3",
        },
    }


@pytest.mark.parametrize(
    ("field", "key", "means"),
    [
        ("labels", "kueue.x-k8s.io/pod-group-serving", "a group starts once all of its pods exist"),
        ("annotations", "kueue.x-k8s.io/elastic-job", "set queuectl.dev/min-parallelism"),
        (
            "annotations",
            "kueue.x-k8s.io/podset-required-topology",
            "topology-aware placement is not supported",
        ),
        ("annotations", "provreq.kueue.x-k8s.io/maxRunDurationSeconds", "admission checks are not supported"),
        ("annotations", "kueue.x-k8s.io/admission-gated-by", "queuectl.dev/hold"),
        ("annotations", "kueue.x-k8s.io/queue-name", "Kueue reads it as a label"),
        ("labels", "kueue.x-k8s.io/unheard", "has no meaning here: remove it"),
    ],
)
def test_a_mark_that_is_dropped_says_what_it_means_here(field: str, key: str, means: str) -> None:
    found = imported({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", field: {key: "3"}}})
    assert found.objects[0]["metadata"] == {"name": "a"}
    text = notes(found)["Job/a", f"metadata.{field}"]
    assert key in text
    assert means in text


def test_a_label_of_queuectl_applies_where_both_are_set() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "theirs", "queuectl.dev/queue-name": "ours"}
    found = imported({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "labels": labels}})
    assert found.objects[0]["metadata"]["labels"] == {"queuectl.dev/queue-name": "ours"}
    assert "applies" in notes(found)["Job/a", "metadata.labels"]


def test_selectors_follow_the_labels_and_other_places_that_name_kueue_are_noted() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    template = {
        "metadata": {"labels": dict(labels)},
        "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
    }
    spec = {"selector": {"matchLabels": dict(labels)}, "template": template}
    found = imported({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec})
    made = found.objects[0]["spec"]
    ours = {"queuectl.dev/queue-name": "q"}
    assert (made["selector"]["matchLabels"], made["template"]["metadata"]["labels"]) == (ours, ours)
    gate = notes(found)["Deployment/a", "spec.template.spec.schedulingGates[0].name"]
    assert "remove it: nothing removes this scheduling gate here" in gate


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "StatefulSet"])
def test_work_whose_pods_can_queue_is_noted_with_the_setting(kind: str) -> None:
    version = "v1" if kind == "Pod" else "apps/v1"
    metadata = {"name": "a", "labels": {"kueue.x-k8s.io/queue-name": "q"}}
    found = imported({"apiVersion": version, "kind": kind, "metadata": metadata})
    assert "with `kinds: [Pod]` in queuectl's configuration" in notes(found)[f"{kind}/a", ""]


def test_a_queue_label_where_it_queues_nothing_is_noted() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    cron = {"metadata": {"name": "a", "labels": labels}, "spec": {"jobTemplate": {"spec": {}}}}
    found = imported({"apiVersion": "batch/v1", "kind": "CronJob", **cron})
    assert "move queuectl.dev/queue-name to spec.jobTemplate" in notes(found)["CronJob/a", "metadata.labels"]
    job = {"metadata": {"name": "a"}, "spec": {"template": {"metadata": {"labels": labels}}}}
    found = imported({"apiVersion": "batch/v1", "kind": "Job", **job})
    assert "move queuectl.dev/queue-name to metadata.labels" in notes(found)["Job/a", ""]


CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare]}
waitForPodsReady: {timeout: 1h5m, requeuingStrategy: {backoffLimitCount: 5, timestamp: Eviction}}
admissionFairSharing: {usageHalfLifeTime: 168h, resourceWeights: {cpu: 0.5}}
integrations: {frameworks: [batch/job, pod]}
internalCertManagement: {enable: false}
"""


def test_the_configuration_is_read_from_its_config_map() -> None:
    manager = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kueue-manager-config", "namespace": "kueue-system"},
        "data": {"controller_manager_config.yaml": CONFIGURATION, "other": "x"},
    }
    found = imported(kueue("ClusterQueue", "a", {"cohortName": "all", "namespaceSelector": {}}), manager)
    _, root = found.objects
    assert root["spec"]["fairSharing"] == {
        "enabled": True,
        "preemptionStrategies": ["LessThanOrEqualToFinalShare"],
    }
    told = {(field, text) for (_, field), text in notes(found).items()}
    ours = "in queuectl's configuration"
    assert {
        ("waitForPodsReady.timeout", f"set `scheduling.waitForPodsReady.timeoutSeconds`: 3900 {ours}"),
        (
            "waitForPodsReady.requeuingStrategy.backoffLimitCount",
            f"set `scheduling.waitForPodsReady.requeuingBackoffLimitCount`: 5 {ours}",
        ),
        (
            "admissionFairSharing.usageHalfLifeTime",
            f"set `scheduling.admissionFairSharing.usageHalfLifeSeconds`: 604800 {ours}",
        ),
        (
            "integrations.frameworks",
            "pod: its pods queue, each by itself or as a group, with `kinds: [Pod]` in queuectl's "
            "configuration and a queue label of their own; else they run without waiting (docs/kinds.md)",
        ),
        ("data.other", "is not Kueue's Configuration: left out"),
    } <= told


def test_what_to_know_about_a_conversion_is_said_though_nothing_is_left_out() -> None:
    found = imported(
        kueue("ClusterQueue", "a", {"cohortName": "all", "fairSharing": {"weight": 1.5}}),
    )
    assert found.objects[0]["spec"]["fairSharing"] == {"weight": "1.5"}
    assert notes(found) == {}
    assert {(name, field) for name, field in advice(found)} == {
        ("Configuration", "fairSharing"),
        ("ClusterQueue/a", "spec.namespaceSelector"),
    }


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


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (
            {**kueue("ClusterQueue", "a", {"namespaceSelector": {}}), "items": []},
            ("ClusterQueue/a", "items", "there is no such field here"),
        ),
        (
            {"apiVersion": "v1", "kind": "List", "metadata": {"continue": "x"}, "items": []},
            ("file: line 1", "metadata.continue", "a part of a longer list: the rest is missing"),
        ),
        (
            {"apiVersion": "v1", "kind": "List", "items": {"a": 1}},
            ("file: line 1", "items", "a list is expected, this is an object"),
        ),
        (
            kueue("ClusterQueue", "a", {"namespaceSelector": {}}, deletionTimestamp="2026-11-28T00:00:00Z"),
            (
                "ClusterQueue/a",
                "metadata.deletionTimestamp",
                "it is being deleted, and is converted: remove it if it is to go",
            ),
        ),
        (
            kueue("LocalQueue", "a", {"clusterQueue": "a"}, namespace=False),
            ("file: line 1", "", "metadata.namespace is a boolean: it must be text"),
        ),
        (
            {**kueue("LocalQueue", "a", {}), "metadata": {"name": 3}},
            ("file: line 1", "", "metadata.name is a number: it must be text"),
        ),
        (
            kueue("ClusterQueue", "a", {"namespaceSelector": {}}, annotations={"x": True, "y": "z"}),
            ("ClusterQueue/a", "metadata.annotations", "x is a boolean: it must be text"),
        ),
    ],
)
def test_what_is_no_usual_object_is_noted(document: Json, told: tuple[str, str, str]) -> None:
    assert [tuple(note)[:3] for note in imported(document).notes if note.left_out] == [told]


def test_lists_in_lists_are_split() -> None:
    queue = kueue("ClusterQueue", "a", {"namespaceSelector": {}})
    inner = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueueList", "items": [queue]}
    found = imported({"apiVersion": "v1", "kind": "List", "items": [inner]})
    assert [made["metadata"]["name"] for made in found.objects] == ["a"]


def test_of_an_object_that_is_given_twice_the_last_one_counts() -> None:
    first, last = (kueue("ClusterQueue", "a", {"cohortName": name, "namespaceSelector": {}}) for name in "xy")
    same = kueue("ClusterQueue", "a", {"cohort": "y", "namespaceSelector": {}}, version="v1beta1")
    found = imported(first, last)
    assert [made["spec"]["cohortName"] for made in found.objects] == ["y"]
    assert notes(found) == {("ClusterQueue/a", ""): "is given twice: the last one counts"}
    assert notes(imported(same, last)) == {}


@pytest.mark.parametrize(
    ("version", "sharing", "on"),
    [
        ("v1beta1", {}, False),
        ("v1beta1", {"enable": True}, True),
        ("v1beta1", {"enable": "true"}, False),
        ("v1beta2", {}, True),
        ("v1beta2", {"enable": False}, False),
    ],
)
def test_fair_sharing_is_on_as_with_kueue(version: str, sharing: Json, on: bool) -> None:
    configuration = {
        "apiVersion": f"config.kueue.x-k8s.io/{version}",
        "kind": "Configuration",
        "fairSharing": sharing,
    }
    found = imported(configuration, kueue("Cohort", "root", {}))
    assert found.objects[0]["spec"] == ({"fairSharing": {"enabled": True}} if on else {})
    assert ("it is off with Kueue" in advice(found)["Configuration", "fairSharing"]) is not on


@pytest.mark.parametrize("strategies", [["Unheard"], "LessThanInitialShare", {"a": 1}])
def test_strategies_that_are_none_are_left_out(strategies: object) -> None:
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "fairSharing": {"preemptionStrategies": strategies},
    }
    found = imported(configuration, kueue("Cohort", "root", {}))
    assert found.objects[0]["spec"] == {"fairSharing": {"enabled": True}}
    assert "must be" in notes(found)["Configuration", "fairSharing.preemptionStrategies"]


def test_timeouts_of_pods_that_kueue_does_not_wait_for_are_not_advised() -> None:
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta1",
        "kind": "Configuration",
        "waitForPodsReady": {"enable": False, "timeout": "5m"},
    }
    found = imported(configuration)
    assert notes(found) == {}
    assert list(advice(found)) == [("Configuration", "waitForPodsReady")]


def test_a_configuration_that_cannot_be_read_is_noted() -> None:
    manager = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kueue-manager-config"},
        "data": {"a": "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: [\n"},
        "binaryData": {"b": "YQ=="},
    }
    found = imported(manager)
    assert found.objects == ()
    told = notes(found)
    assert told["ConfigMap/kueue-manager-config", "data.a"].startswith("cannot be read: line 3: ")
    assert told["ConfigMap/kueue-manager-config", "binaryData.b"] == "is not Kueue's Configuration: left out"


def test_what_a_server_writes_into_work_is_removed() -> None:
    job: Json = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "a", "uid": "x", "resourceVersion": "1", "labels": {"team": "a"}},
        "spec": {"parallelism": 1},
        "status": {"active": 1},
    }
    (made,) = imported(job).objects
    assert made == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "a", "labels": {"team": "a"}},
        "spec": {"parallelism": 1},
    }
