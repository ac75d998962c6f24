"""What the benchmarks create: rights, queues, Jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from queuectl.kinds.jobs import PRIORITY_LABEL, QUEUE_LABEL
from queuectl.sandbox.control_plane import TENANT_USER
from queuectl.sandbox.example import fake_node
from queuectl.sandbox.players.kubelet import RUN_SECONDS

Object = dict[str, Any]

GPU: Final = "nvidia.com/gpu"
QUEUE: Final = "main"
"""The LocalQueue of each namespace."""
NODES: Final = 250
NODE_GPUS: Final = 8
_GROUP: Final = "queuectl.dev/v1beta1"
_RBAC: Final = "rbac.authorization.k8s.io"


def rights() -> Iterator[Object]:
    """The tenant may create Jobs anywhere. No controller manager aggregates the built-in roles here."""
    role: Object = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "makes-jobs"},
    }
    kinds = {"batch": "jobs", "kubeflow.org": "pytorchjobs"}
    rules = [{"apiGroups": [name], "resources": [kind], "verbs": ["create"]} for name, kind in kinds.items()]
    yield {**role, "rules": rules}
    yield {
        **role,
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "makes-jobs"},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": TENANT_USER}],
    }


def separate_queues(quotas: Mapping[str, int]) -> Iterator[Object]:
    """`quotas`: GPUs by namespace; each has a ClusterQueue of its own."""
    yield _object("ResourceFlavor", "a100", {"nodeLabels": {"example.com/accelerator": "a100"}})
    plenty = [{"name": name, "nominalQuota": amount} for name, amount in (("cpu", "9k"), ("memory", "99Ti"))]
    for name, gpus in quotas.items():
        yield from _queue(name, [*plenty, {"name": GPU, "nominalQuota": gpus}])


def shared_queues(
    cohorts: Mapping[str, Iterable[str]], gpus: int, priorities: Mapping[str, int]
) -> Iterator[Object]:
    """A queue for each namespace of each cohort: each lends and borrows, reclaims, and preempts by priority.

    `gpus`: quota of each queue.
    """
    yield _object("ResourceFlavor", "a100", {})
    for name, value in priorities.items():
        yield {
            "apiVersion": _GROUP,
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
    preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    for cohort, namespaces in cohorts.items():
        for name in namespaces:
            quota = {"name": GPU, "nominalQuota": gpus, "borrowingLimit": 5 * gpus}
            yield from _queue(name, [quota], cohortName=cohort, preemption=preemption)


def _queue(name: str, quotas: list[Object], **spec: Any) -> Iterator[Object]:
    """A namespace with its LocalQueue, and the ClusterQueue of the same name."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    covered = [quota["name"] for quota in quotas]
    group = {"coveredResources": covered, "flavors": [{"name": "a100", "resources": quotas}]}
    yield _object("ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": [group], **spec})
    yield _object("LocalQueue", QUEUE, {"clusterQueue": name}, namespace=name)


def _object(kind: str, name: str, spec: Object, **metadata: str) -> Object:
    return {"apiVersion": _GROUP, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def gpu_nodes() -> Iterator[Object]:
    """Ready nodes of the flavor. They exist in the API only."""
    for number in range(NODES):
        node = fake_node(f"node-{number:03}", "a100", gpus=NODE_GPUS)
        node["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        yield node


def training_job(name: str) -> Object:
    """About 2 KB as stored, a usual size of Jobs; it requests one GPU."""
    container = {
        "name": "train",
        "image": "registry.example/research/trainer:2030.1",
        "command": ["python", "-m", "trainer", "--config", "/etc/trainer/config.yaml", "--resume"],
        "env": [{"name": f"TRAINER_OPTION_{number}", "value": f"value-{number}"} for number in range(8)],
        "resources": {
            "requests": {"cpu": "8", "memory": "64Gi"},
            "limits": {"memory": "64Gi", GPU: "1"},
        },
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "config", "mountPath": "/etc/trainer"},
        ],
    }
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "config", "configMap": {"name": "trainer"}},
    ]
    pods = {"restartPolicy": "Never", "containers": [container], "volumes": volumes}
    labels = {QUEUE_LABEL: QUEUE, "team": "research"}
    return _job(name, labels, {"metadata": {"labels": {"app": "trainer"}}, "spec": pods})


def small_job(name: str, gpus: int, priority: str) -> Object:
    """The least of a Job: the API server spends its time on requests, not on long objects."""
    amounts = {GPU: str(gpus)}
    container = {"name": "main", "image": "train:1", "resources": {"requests": amounts, "limits": amounts}}
    labels = {QUEUE_LABEL: QUEUE, PRIORITY_LABEL: priority}
    return _job(name, labels, {"spec": {"restartPolicy": "Never", "containers": [container]}})


def gang_job(name: str, pods: int, gpus: int) -> Object:
    """Pods that all run at the same time, and for longer than any benchmark."""
    container = {"name": "main", "image": "train:1", "resources": {"limits": {GPU: str(gpus)}}}
    pod = {"metadata": {"annotations": {RUN_SECONDS: "86400"}}}
    body = _job(
        name, {QUEUE_LABEL: QUEUE}, {**pod, "spec": {"restartPolicy": "Never", "containers": [container]}}
    )
    body["spec"] |= {"parallelism": pods, "completions": pods}
    return body


def _job(name: str, labels: dict[str, str], template: Object) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {"suspend": True, "backoffLimit": 0, "template": template},
    }
