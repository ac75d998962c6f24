"""AppWrapper on sample objects: the pods of its components, how they are steered, what its status says."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import WorkloadOutcome
from queuectl.kinds import patches
from queuectl.kinds.reserved_keys import POD_LABELS
from queuectl.kinds.workloads import observe
from tests.integration.kube.sites import SPOT, effect
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.computed_objects import app_wrapper, component
from tests.unit.kinds.job_objects import container
from tests.unit.kinds.json_patches import applied, with_its_stop
from tests.unit.kinds.kind_objects import job_set, sample, template

WRAPPER = JOB_KINDS["AppWrapper"]
POD = {"containers": [container()]}


def counts(obj: dict[str, Any]) -> dict[str, int]:
    event = observe(WRAPPER, obj)
    assert event is not None
    assert event.workload.problem is None
    assert all(dict(pod_set.requests) == {"nvidia.com/gpu": 2} for pod_set in event.workload.pod_sets)
    return {pod_set.name: pod_set.count for pod_set in event.workload.pod_sets}


def problem(*components: dict[str, Any]) -> str:
    event = observe(WRAPPER, app_wrapper(*components))
    assert event is not None
    assert event.workload.problem is not None
    assert event.workload.problem.code is Code.MISCONFIGURED
    return str(event.workload.problem.detail)


def declared(path: str, **more: Any) -> dict[str, Any]:
    return {"path": path, **more}


@pytest.mark.parametrize(
    ("inner", "found"),
    [
        (component("v1", "Pod", POD), {"pod": 1}),
        (component("apps/v1", "Deployment", {"replicas": 3, "template": template()}), {"pods": 3}),
        (component("apps/v1", "StatefulSet", {"template": template()}), {"pods": 1}),
        (
            component("batch/v1", "Job", {"parallelism": 4, "completions": 2, "template": template()}),
            {"main": 2},
        ),
        (
            component(
                "kubeflow.org/v1", "PyTorchJob", sample(JOB_KINDS["PyTorchJob"], Master=1, Worker=3)["spec"]
            ),
            {"master": 1, "worker": 3},
        ),
        (
            component(
                "jobset.x-k8s.io/v1alpha2", "JobSet", job_set(("driver", 1, 1), ("workers", 2, 4))["spec"]
            ),
            {"driver": 1, "workers": 8},
        ),
        (
            component(
                "example.com/v1",
                "Farm",
                {"groups": [{"pods": template()}, {"pods": template()}]},
                declared("template.spec.groups[0].pods", replicas=2),
                declared("template.spec.groups[1].pods"),
            ),
            {"0": 2, "1": 1},
        ),
    ],
    ids=lambda value: value["template"]["kind"] if "template" in value else "",
)
def test_the_pods_of_a_component_are_found_by_its_kind_or_as_declared(
    inner: dict[str, Any], found: dict[str, int]
) -> None:
    service = component("v1", "Service", {"ports": []})
    assert counts(app_wrapper(service, inner)) == {f"1-{name}": size for name, size in found.items()}


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        (
            component("example.com/v1", "Farm", {}),
            "what pods a Farm of example.com/v1 has is not known: declare them in podSets",
        ),
        (
            component("kubeflow.org/v1", "TFJob", sample(JOB_KINDS["TFJob"], Worker=2)["spec"]),
            "spec.components[0]: its operator does not find the pods of a TFJob: declare them in podSets",
        ),
        (
            component("sparkoperator.k8s.io/v1beta2", "SparkApplication", {}),
            "spec.components[0]: a SparkApplication can't be queued inside of an AppWrapper",
        ),
        (component("v1", "Service", {}), "spec.components: no pods"),
        (
            component("apps/v1", "Deployment", {"template": template()}, declared("template.spec.pods")),
            "spec.components[0].podSets[0].path: template.spec.pods: the pods of a Deployment are at",
        ),
        (
            component("example.com/v1", "Farm", {}, declared("template.spec.pods")),
            "spec.components[0].podSets[0].path: there is no pod template at template.spec.pods",
        ),
        (
            component("example.com/v1", "Farm", {}, declared("spec..pods")),
            "spec.components[0].podSets[0].path: 'spec..pods' is not a path such as template.spec.template",
        ),
        (
            component("v1", "Pod", POD | {"containers": []} | {"containers": 7}),
            "containers: 7 is not a list",
        ),
        (
            component(
                "apps/v1",
                "Deployment",
                {"template": {"metadata": {"labels": {"queuectl.dev/workload": "mine"}}, **template()}},
            ),
            "spec.components[0].template.spec.template.metadata.labels[queuectl.dev/workload]: leave it out",
        ),
        ({"template": {"kind": "Pod"}}, "spec.components[0].template.apiVersion: null is not text"),
        ({"template": 7}, "spec.components[0].template: 7 is not an object"),
    ],
)
def test_a_component_that_cannot_be_read_is_named(inner: dict[str, Any], words: str) -> None:
    assert words in problem(inner)


def test_a_kind_that_its_operator_does_not_know_is_queued_with_declared_podsets() -> None:
    spec = sample(JOB_KINDS["TFJob"], Chief=1, Worker=3)["spec"]
    chief, worker = (f"template.spec.tfReplicaSpecs.{name}.template" for name in ("Chief", "Worker"))
    inner = component("kubeflow.org/v1", "TFJob", spec, declared(worker, replicas=1), declared(chief))
    # The number of pods is that of the TFJob, whatever is declared; the order is the declared one.
    assert counts(app_wrapper(inner)) == {"0-worker": 3, "0-chief": 1}


def test_a_start_writes_what_its_operator_adds_to_each_podset_of_a_component() -> None:
    workers = sample(JOB_KINDS["PyTorchJob"], Master=1, Worker=3)["spec"]
    obj = app_wrapper(
        component("v1", "Service", {}),
        component("kubeflow.org/v1", "PyTorchJob", workers),
        component("v1", "Pod", POD),
    )
    obj["spec"]["components"][2]["podSetInfos"] = [{"labels": {"left": "over"}}]
    started = applied(obj, patches.start(WRAPPER, effect(obj, "AppWrapper")))
    assert started["spec"]["suspend"] is False
    service, jobs, pod = started["spec"]["components"]
    assert "podSetInfos" not in service
    assert [len(one["podSetInfos"]) for one in (jobs, pod)] == [2, 1]
    for info in (*jobs["podSetInfos"], *pod["podSetInfos"]):
        assert info["nodeSelector"] == dict(SPOT.node_labels)
        assert [one["key"] for one in info["tolerations"]] == ["spot"]
        assert set(info["labels"]) == set(POD_LABELS)
    assert jobs["template"] == obj["spec"]["components"][1]["template"]


@pytest.mark.parametrize(
    ("phase", "conditions", "ready", "outcome"),
    [
        ("Suspended", {}, None, None),
        ("Resuming", {"PodsReady": "False"}, False, None),
        ("Running", {"PodsReady": "True"}, True, None),
        ("Resetting", {"PodsReady": "False", "ResourcesDeployed": "True"}, False, None),
        ("Succeeded", {"ResourcesDeployed": "True"}, None, WorkloadOutcome.SUCCEEDED),
        ("Failed", {"ResourcesDeployed": "True"}, None, None),
        ("Failed", {"ResourcesDeployed": "False"}, None, WorkloadOutcome.FAILED),
        ("Failed", {}, None, WorkloadOutcome.FAILED),
    ],
)
def test_it_has_failed_once_its_components_are_deleted(
    phase: str, conditions: dict[str, str], ready: bool | None, outcome: WorkloadOutcome | None
) -> None:
    told = [{"type": name, "status": value} for name, value in conditions.items()]
    obj = app_wrapper() | {"status": {"phase": phase, "conditions": told}}
    assert WRAPPER.status(obj).ready is ready
    assert WRAPPER.outcome(obj) is outcome


def test_a_stop_waits_until_its_operator_says_suspended_once_more() -> None:
    obj = app_wrapper() | {"status": {"phase": "Suspended"}}
    stop = effect(obj, "AppWrapper")
    obj = with_its_stop(WRAPPER, stop, obj)
    asked = patches.next_stop(WRAPPER, stop, obj)
    assert asked is not None
    assert applied(obj, asked.body)["status"]["phase"] == "Suspending"
