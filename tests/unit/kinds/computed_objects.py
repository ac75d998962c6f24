"""Objects of the kinds that have no pod templates of their own, as an API server returns them."""

from __future__ import annotations

from typing import Any

from queuectl.kinds.train_job import MANAGER
from tests.unit.kinds.job_objects import UID, metadata
from tests.unit.kinds.kind_objects import job_set, template


def spark_application(
    driver: dict[str, Any] | None = None, executor: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """A suspended application with one driver and two executors."""
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": metadata(),
        "spec": {
            "suspend": True,
            "type": "Scala",
            "mode": "cluster",
            "sparkVersion": "4.0.1",
            "mainApplicationFile": "local:///opt/spark/examples/jars/spark-examples.jar",
            "driver": {"cores": 1, "memory": "1g", **(driver or {})},
            "executor": {"instances": 2, "cores": 2, "memory": "4g", **(executor or {})},
            **spec,
        },
        "status": {},
    }


def spark_state(state: str, **executors: str) -> dict[str, Any]:
    """Status of a SparkApplication; `executors`: state by pod."""
    return {"status": {"applicationState": {"state": state}, "executorState": executors}}


def component(api_version: str, kind: str, spec: Any, *pod_sets: dict[str, Any]) -> dict[str, Any]:
    """Of an AppWrapper; `pod_sets`: those that it declares."""
    made = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "one"}, "spec": spec}
    return {"template": made, **({"podSets": list(pod_sets)} if pod_sets else {})}


def app_wrapper(*components: dict[str, Any]) -> dict[str, Any]:
    """A suspended AppWrapper, of one Job with two pods if no components are given."""
    job = component("batch/v1", "Job", {"parallelism": 2, "completions": 2, "template": template()})
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": metadata(),
        "spec": {"suspend": True, "components": list(components or (job,))},
        "status": {},
    }


def train_job(*patches: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A suspended TrainJob; `patches`: its runtimePatches."""
    runtime = {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "ClusterTrainingRuntime",
        "name": "torch-distributed",
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": metadata(),
        "spec": {
            "suspend": True,
            "runtimeRef": runtime,
            "managedBy": "trainer.kubeflow.org/trainjob-controller",
            **({"runtimePatches": list(patches)} if patches else {}),
            **spec,
        },
        "status": {},
    }


def its_job_set(nodes: int = 4, **pod: Any) -> dict[str, Any]:
    """The JobSet that Trainer makes for `train_job()`; `pod` adds to its pod spec."""
    made = job_set(("node", 1, nodes))
    owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "train", "uid": UID}
    made["metadata"] = {
        **{key: value for key, value in metadata().items() if key != "labels"},
        "uid": "9b53-0d9a4f3f1c11",
        "ownerReferences": [owner | {"controller": True}],
    }
    made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"] |= pod
    return made


def merged(train: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    """`made` with queuectl's entry as Trainer applies it: node selectors are merged, tolerations replaced."""
    found: dict[str, Any] = next(one for one in train["spec"]["runtimePatches"] if one["manager"] == MANAGER)
    (job,) = found["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    patch = job["template"]["spec"]["template"].get("spec", {})
    pod = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    selector = {"nodeSelector": pod.get("nodeSelector", {}) | patch.get("nodeSelector", {})}
    return its_job_set(**{**pod, **patch, **selector})
