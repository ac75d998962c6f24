"""The objects of a schedule: what is installed before it, and what tenants and admins write."""

from __future__ import annotations

import shutil
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from queuectl.core.model.start_conditions import AFTER, BEGIN, MAX_RUNNING
from queuectl.kinds.jobs import PRIORITY_LABEL, QUEUE_LABEL, KindRegistry
from queuectl.kinds.labels import ARRAY_LABEL, MAX_RUN_LABEL
from queuectl.kinds.manifests import manifests as made
from queuectl.kinds.reserved_keys import GATED_LABEL, GROUP_LABEL, GROUP_SIZE, SCHEDULING_GATE
from queuectl.kinds.single_pod import POD
from queuectl.kube.session import api_path
from queuectl.sandbox.example import fake_node, pytorchjob_crd
from queuectl.sandbox.install import read_kustomization
from queuectl.sandbox.players.api import Object, stamp
from queuectl.sandbox.players.kubelet import EXIT_CODE, RUN_SECONDS, TERMINATE_SECONDS
from queuectl.shipped import shipped
from tests.acceptance.e2e.site import GPU, cluster_queue, flavor, job, local_queue, pod_template, pytorchjob
from tests.integration.kube.sites import definition
from tests.job_kinds import JOB_KINDS
from tests.world.schedule import COHORT, FAMILIES, NODES, TEAMS

T0: Final = datetime(2026, 11, 21, 10, tzinfo=UTC)
"""When a schedule begins."""
PRIORITIES: Final = {"low": 1, "mid": 50, "high": 100}
POLICY: Final = "/apis/queuectl.dev/v1beta1"
PODS: Final = "/api/v1/namespaces/{}/pods"
_KINDS: Final = ("Job", "Pod", *sum(FAMILIES, ()))
_PLURALS: Final = {
    "ClusterQueue": "clusterqueues",
    "LocalQueue": "localqueues",
    "Cohort": "cohorts",
    "ResourceFlavor": "resourceflavors",
    "WorkloadPriorityClass": "workloadpriorityclasses",
    "Budget": "budgets",
    "UsageLimit": "usagelimits",
    "IdlePolicy": "idlepolicies",
}


def installed(kinds: KindRegistry) -> list[Object]:
    """CRDs, and gate and rights for these kinds, as `queuectl manifests` makes them; CRDs of operators."""
    with TemporaryDirectory() as folder:
        manifests = Path(folder) / "manifests"
        shutil.copytree(shipped("manifests"), manifests)
        for name, text in made(kinds).items():
            (manifests / name).write_text(text)
        return [
            *read_kustomization(manifests),
            *read_kustomization(manifests / "mutating"),
            *(definition_of(kind) for family in FAMILIES for kind in family),
        ]


def definition_of(kind: str) -> Object:
    return pytorchjob_crd() if kind == "PyTorchJob" else definition(JOB_KINDS[kind])


def policy() -> list[Object]:
    """Flavor, priorities, a node, and for each team a namespace, a queue and two LocalQueues."""
    found = [flavor("a100", {"example.com/accelerator": "a100"}), node("node")]
    for name, value in PRIORITIES.items():
        head = {"apiVersion": "queuectl.dev/v1beta1", "kind": "WorkloadPriorityClass"}
        found.append({**head, "metadata": {"name": name}, "value": value})
    for name in TEAMS:
        found.append(namespace(name))
        found += queues(name)
    return found


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def node(name: str) -> Object:
    return fake_node(name, "a100", gpus=NODES[name])


def queues(team: str) -> list[Object]:
    preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    limits = {"onExceeded": "Fail"}  # of what its label limits; elsewhere it is suspended
    return [
        cluster_queue(team, TEAMS[team], cohortName=COHORT, preemption=preemption, maxExecutionTime=limits),
        local_queue(team, "main", team),
        local_queue(team, "other", "guests" if team != "guests" else "team-a"),
    ]


def path_of(thing: Object) -> str:
    """Of its collection."""
    kind, metadata = thing["kind"], thing["metadata"]
    if kind == "Namespace":
        return api_path("", "v1", "namespaces")
    if kind in _KINDS:
        return workload_path(kind, metadata["namespace"])
    namespace = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{POLICY}{namespace}/{_PLURALS[kind]}"


def workload_path(kind: str, namespace: str, name: str | None = None) -> str:
    row = POD if kind == "Pod" else JOB_KINDS[kind]
    return api_path(row.group, row.version, row.plural, namespace, name)


def workload(
    namespace: str,
    name: str,
    kind: str,
    pods: int,
    gpus: int,
    seconds: float,
    ends: float,
    priority: str,
    limit: int = 0,
    condition: str = "",
) -> Object:
    """As its owner writes it. `seconds`: how long a pod runs; `ends`: how long it takes to be deleted;
    `limit`: how long the workload may run, 0: any time."""
    template = pod_template(gpus, seconds)
    template["metadata"]["annotations"] = {RUN_SECONDS: str(seconds), TERMINATE_SECONDS: str(ends)}
    if kind == "PyTorchJob":
        body = pytorchjob(name, workers=1, template=template)
    elif kind in _MADE_OF:
        body = _MADE_OF[kind](name, pods, template)
    elif kind == "Pod":
        template["spec"]["schedulingGates"] = [{"name": SCHEDULING_GATE}]
        body = {"apiVersion": "v1", "kind": kind, **template}
        body["metadata"]["name"] = name
    else:
        body = job(name, template=template, parallelism=pods, completions=pods)
    body["metadata"]["namespace"] = namespace
    body["metadata"]["labels"] = {QUEUE_LABEL: "main", PRIORITY_LABEL: priority}
    if kind == "Pod":
        body["metadata"]["labels"][GATED_LABEL] = "true"
    if limit:
        body["metadata"]["labels"][MAX_RUN_LABEL] = str(limit)
    annotations: Object = {}
    what, _, value = condition.partition(" ")
    if what == "array":
        body["metadata"]["labels"][ARRAY_LABEL] = "array"
        annotations = {MAX_RUNNING: value}
    elif what == "begin":
        annotations = {BEGIN: stamp(T0 + timedelta(seconds=int(value)))}
    elif what == "after":
        annotations = {AFTER: value}
    if annotations:
        body["metadata"]["annotations"] = {**body["metadata"].get("annotations", {}), **annotations}
    return body


def _job_set(name: str, pods: int, template: Object) -> Object:
    """Its Jobs have the label of the queue themselves, where its name ends with an odd number."""
    labels = {"metadata": {"labels": {QUEUE_LABEL: "main"}}} if name[-1] in "13579" else {}
    spec = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template}
    group = {"name": "node", "replicas": pods, "template": {**labels, "spec": spec}}
    return _of("JobSet", name, {"replicatedJobs": [group]})


def _train_job(name: str, pods: int, template: Object) -> Object:
    (container,) = template["spec"]["containers"]
    job = {"name": "node", "template": {"spec": {"template": {"metadata": template["metadata"]}}}}
    patch = {"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}
    spec = {
        "runtimeRef": {"name": "world"},
        "trainer": {"numNodes": pods, "resourcesPerNode": container["resources"]},
        "runtimePatches": [{"manager": "example.com/world", **patch}],
    }
    return _of("TrainJob", name, spec)


def _ray_cluster(pods: int, template: Object) -> Object:
    """Its pods do not end by themselves."""
    endless = {**template, "spec": {**template["spec"], "restartPolicy": "Always"}}
    group = {"groupName": "small", "replicas": pods - 1, "minReplicas": 0, "maxReplicas": 9}
    workers = [{**group, "template": endless}] if pods > 1 else []
    return {"headGroupSpec": {"template": endless}, "workerGroupSpecs": workers}


def _ray_job(name: str, pods: int, template: Object) -> Object:
    container = {**template["spec"]["containers"][0], "resources": {"requests": {"cpu": "1"}}}
    submitter = {**template, "spec": {**template["spec"], "containers": [container]}}
    spec = {"shutdownAfterJobFinishes": True, "submitterPodTemplate": submitter}
    return _of("RayJob", name, {"rayClusterSpec": _ray_cluster(pods, template), **spec})


def _ray_service(name: str, pods: int, template: Object) -> Object:
    return _of("RayService", name, {"rayClusterConfig": _ray_cluster(pods, template)})


def _of(kind: str, name: str, spec: Object) -> Object:
    head = {"apiVersion": JOB_KINDS[kind].api_version, "kind": kind}
    return deepcopy({**head, "metadata": {"name": name}, "spec": spec})


_MADE_OF: Final = {
    **{"JobSet": _job_set, "TrainJob": _train_job, "RayJob": _ray_job, "RayService": _ray_service}
}


def member(
    namespace: str,
    group: str,
    number: int,
    size: int,
    gpus: int,
    seconds: float,
    ends: float,
    priority: str,
    fails: bool,
) -> Object:
    """A pod of a group, as its owner writes it."""
    body = pod_template(gpus, seconds, schedulingGates=[{"name": SCHEDULING_GATE}])
    annotations = {RUN_SECONDS: str(seconds), TERMINATE_SECONDS: str(ends), GROUP_SIZE: str(size)}
    if fails:
        annotations[EXIT_CODE] = "1"
    labels = {QUEUE_LABEL: "main", PRIORITY_LABEL: priority, GATED_LABEL: "true", GROUP_LABEL: group}
    metadata = {"name": f"{group}-{number}", "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", **body, "metadata": {**metadata, "annotations": annotations}}


def budget(
    name: str,
    kind: str,
    target: str,
    subject: str,
    hours: str,
    mode: str,
    period: str,
    refund: int,
    exhausted: str,
) -> Object:
    """A period of kind Dates is a part of a schedule."""
    when: Object = {"kind": period}
    if period == "Dates":
        when |= {"begins": stamp(T0 + timedelta(seconds=15)), "ends": stamp(T0 + timedelta(seconds=100))}
    spec: Object = {
        "resource": GPU,
        "hours": hours,
        "mode": mode,
        "period": when,
        "refunds": {"preempted": refund},
    }
    spec |= {"onExhausted": exhausted, "lowerClass": "low" if exhausted == "LowerClass" else None}
    return _about("Budget", name, kind, target, spec, subject)


def usage_limit(
    name: str, kind: str, target: str, subject: str, running: int, gpus: int, pending: int, least: int
) -> Object:
    spec: Object = {
        "running": running or None,
        "pending": pending or None,
        "resources": {GPU: gpus} if gpus else {},
        "minRequest": {GPU: least} if least else {},
    }
    return _about("UsageLimit", name, kind, target, spec, subject)


def cohort(fair: bool, shortage: str) -> Object:
    head = {"apiVersion": "queuectl.dev/v1beta1", "kind": "Cohort", "metadata": {"name": COHORT}}
    return {**head, "spec": {"fairSharing": {"enabled": fair}, "capacityShortage": shortage}}


def idle_policy(name: str, kind: str, target: str, does: str, dry_run: bool) -> Object:
    """`does`: hold, cancel or lower; empty: users are told."""
    spec: Object = {"notifyAfterSeconds": 600, "dryRun": dry_run}
    if does:
        spec[f"{does}AfterSeconds"] = 900
    return _about("IdlePolicy", name, kind, target, spec | ({"lowerClass": "low"} if does == "lower" else {}))


def _about(kind: str, name: str, target: str, of: str, spec: Object, subject: str | None = None) -> Object:
    """A policy object about the workloads of a target."""
    place = {"name": "main", "namespace": of} if target == "LocalQueue" else {"name": of}
    about: Object = {"target": {"kind": target, **place}, "subject": subject and {"kind": subject}}
    head = {"apiVersion": "queuectl.dev/v1beta1", "kind": kind, "metadata": {"name": name}}
    return {**head, "spec": {key: value for key, value in {**about, **spec}.items() if value is not None}}


def gpus_of(pod: Object) -> int:
    containers = pod["spec"]["containers"]
    return sum(int(((one.get("resources") or {}).get("limits") or {}).get(GPU, 0)) for one in containers)
