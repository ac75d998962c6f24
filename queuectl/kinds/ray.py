"""RayJob, RayCluster and RayService of the KubeRay operator.

A RayJob makes a RayCluster, and usually a Job that submits the program to it. A RayService makes RayClusters.

What KubeRay 1.6 does: after a stop that follows soon on a start it looks at the RayCluster again only after
300 s (`RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV`), so that a resumed one may hold quota without pods for so
long. It finds the submitter's Job of a RayJob by name: a RayJob with the name of a deleted one whose Job is
still there gets no submitter, and holds quota until it is deleted or evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from queuectl.core.model.workload import WorkloadOutcome
from queuectl.kinds.jobs import (
    Copies,
    Ending,
    JobKind,
    KindRefusal,
    PodLabel,
    Sign,
    Status,
    SuspensionSeen,
    conditions,
    value_at,
)
from queuectl.kinds.json_fields import BadField, Json, array, integer, mapping
from queuectl.kinds.podsets import Count, Each, Pods, PodSetGroup, Templates
from queuectl.kinds.requests import MAX_CONTAINERS
from queuectl.kinds.start_patch import LABELLED

_SUBMITS_BY_JOB: Final = "K8sJobMode"
_SUBMITS_FROM_HEAD: Final = "SidecarMode"
_WITHOUT_TEMPLATE: Final = "default-submitter"
"""Podset of a submitter for which the RayJob has no pod template: it is charged, and goes to any node."""


# What KubeRay adds: getSubmitterContainer and DefaultWorkerPodTemplate of its release 1.6, and
# BuildCollectorContainer of 1.7.
_SUBMITTER: Final = {"resources": {"requests": {"cpu": "500m", "memory": "200Mi"}}}
_COLLECTOR: Final = {"requests": {"cpu": "50m", "memory": "64Mi"}}
_COLLECTOR_OPTIONS: Final = ("historyServerOptions", "collectorOptions")
_WAITS_FOR_HEAD: Final = {"cpu": "200m", "memory": "256Mi"}


def _groups(*cluster: str) -> tuple[PodSetGroup, PodSetGroup]:
    """Head and worker groups of the RayCluster whose spec is at this path."""
    head = PodSetGroup(name="head", at=(*cluster, "headGroupSpec"))
    replicas = Count(("replicas",), default=0, at_least=("minReplicas",), at_most=("maxReplicas",))
    workers = PodSetGroup(
        at=(*cluster, "workerGroupSpecs", Each("groupName")),
        counts=(replicas, Count(("numOfHosts",))),
        optional=True,
    )
    return head, workers


def _cluster_pods(*cluster: str) -> Callable[[Json, list[Pods]], list[Pods]]:
    """Workers have an init container of KubeRay; all pods a collector, if the spec at `cluster` has one."""

    def completed(obj: Json, found: list[Pods]) -> list[Pods]:
        path = (*cluster, *_COLLECTOR_OPTIONS)
        if (options := value_at(obj, path)) is not None:
            if not isinstance(options, Mapping):
                raise BadField(".".join(path), "not an object")
            own = mapping(options, "resources", ".".join(path))
            resources = _COLLECTOR if options.get("resources") is None else own
            found = [_with_container(one, {"name": "collector", "resources": resources}) for one in found]
        return [one if one.name == "head" else one.with_init(_WAITS_FOR_HEAD) for one in found]

    return completed


_job_cluster_pods: Final = _cluster_pods("spec", "rayClusterSpec")


def _job_pods(obj: Json, found: list[Pods]) -> list[Pods]:
    """The submitter is in a Job, in the head, or nowhere."""
    mode = mapping(obj, "spec", "").get("submissionMode") or _SUBMITS_BY_JOB
    cluster = _job_cluster_pods(obj, [one for one in found if one.name != "submitter"])
    if mode == _SUBMITS_FROM_HEAD:
        head, *workers = cluster
        return [_with_container(head, _SUBMITTER), *workers]
    if mode != _SUBMITS_BY_JOB:
        return cluster
    default = Pods(_WITHOUT_TEMPLATE, 1, "spec.submitterPodTemplate", {"containers": [_SUBMITTER]}, {})
    return [*cluster, *([one for one in found if one.name == "submitter"] or [default])]


def _with_container(pods: Pods, container: Json) -> Pods:
    listed = array(pods.spec, "containers", f"{pods.path}.spec", MAX_CONTAINERS)
    return pods._replace(spec={**pods.spec, "containers": [*listed, container]})


def _status(*cluster: str) -> Callable[[Json], Status]:
    """From the status of the RayCluster at this path. Whether pods remain is never in it."""

    def status(obj: Json) -> Status:
        told = value_at(obj, cluster)
        state = value_at(obj, (*cluster, "state"))
        return Status(ready=state == "ready" if told else None, pods_ready=_ready(told))

    return status


_cluster_of_job: Final = _status("status", "rayClusterStatus")


def _job_status(obj: Json) -> Status:
    """The Job that submits is made when the RayCluster is ready."""
    status = _cluster_of_job(obj)
    return status._replace(held_back=1) if _submits_by_job(obj) and not status.ready else status


def _submits_by_job(obj: Json) -> bool:
    return value_at(obj, ("spec", "submissionMode")) in (None, "", _SUBMITS_BY_JOB)


def _service_status(obj: Json) -> Status:
    found = conditions(obj)
    told = value_at(obj, ("status", "activeServiceStatus", "rayClusterStatus"))
    ready = found["Ready"] == "True" if "Ready" in found else None
    return Status(ready=ready, pods_ready=_ready(told))


def _ready(told: object) -> int | None:
    """Pods of a RayCluster that are ready; its status counts workers."""
    if not isinstance(told, Mapping) or not told:
        return None
    try:
        workers = integer(told, "readyWorkerReplicas", "status", default=0)
    except BadField:
        return None
    return workers + (conditions({"status": told}).get("HeadPodReady") == "True")


def _refuse(cluster: str) -> tuple[KindRefusal, ...]:
    """RayClusters that cannot be queued; `cluster`: the path of their spec."""
    at = "object." + ".".join(f"?{key}" for key in cluster.split("."))
    head, workers = f"[{at}.?headGroupSpec.orValue({{}})]", f"{at}.?workerGroupSpecs.orValue([])"
    return (
        KindRefusal(
            f"{at}.?enableInTreeAutoscaling.orValue(false)",
            f"{cluster}.enableInTreeAutoscaling",
            "true: the autoscaler would start pods past the quota. Set it to false",
        ),
        KindRefusal(
            f"{workers}.exists(group, group.?numOfHosts.orValue(1) < 1)",
            f"{cluster}.workerGroupSpecs.numOfHosts",
            "below 1: the number of pods is replicas x numOfHosts. Set it to 1 or more",
        ),
        # These labels replace those of the pod template.
        KindRefusal(
            f"({head} + {workers}).exists(group, group.?labels.orValue({{}}).exists(key,"
            " key.startsWith('queuectl.dev/')))",
            f"{cluster}.labels",
            "labels of a group that begin with queuectl.dev/ hide its pods from queuectl. Leave them out",
        ),
    )


_REFUSED_JOBS: Final = (
    KindRefusal(
        "object.?spec.?submissionMode.orValue('') == 'InteractiveMode'",
        "spec.submissionMode",
        "InteractiveMode: KubeRay does not suspend a RayJob that waits for a user."
        " Use K8sJobMode, HTTPMode or SidecarMode",
    ),
    KindRefusal(
        "object.?spec.?clusterSelector.orValue({}).size() > 0",
        "spec.clusterSelector",
        "a RayJob on an existing RayCluster has no pods of its own that could wait."
        " Set spec.rayClusterSpec instead",
    ),
    KindRefusal(
        "!object.?spec.?shutdownAfterJobFinishes.orValue(false)",
        "spec.shutdownAfterJobFinishes",
        "false: KubeRay does not suspend a RayJob that keeps its RayCluster. Set it to true",
    ),
    *_refuse("spec.rayClusterSpec"),
)
_STATUS: Final = ("status", "jobDeploymentStatus")
_MANAGED_BY: Final = (("spec", "managedBy"), ("ray.io/kuberay-operator",))

RAY_JOB: Final = JobKind(
    name="RayJob",
    group="ray.io",
    version="v1",
    plural="rayjobs",
    suspend=("spec", "suspend"),
    podsets=Templates(
        groups=(
            *_groups("spec", "rayClusterSpec"),
            PodSetGroup(name="submitter", at=("spec", "submitterPodTemplate"), template=(), optional=True),
        ),
        made=(_WITHOUT_TEMPLATE,),
        completed=_job_pods,
    ),
    status=_job_status,
    ordered=_submits_by_job,
    ends=(
        Ending(Sign(_STATUS, "Failed"), WorkloadOutcome.FAILED),
        # KubeRay does not leave this status again.
        Ending(Sign(_STATUS, "ValidationFailed"), WorkloadOutcome.FAILED),
        Ending(Sign(("status", "jobStatus"), "STOPPED"), WorkloadOutcome.FAILED),
        Ending(Sign(_STATUS, "Complete"), WorkloadOutcome.SUCCEEDED),
    ),
    # From `Suspending`, KubeRay deletes the RayCluster and the Job before it says `Suspended`.
    seen=SuspensionSeen(Sign(_STATUS, "Suspended"), asked="Suspending"),
    end_time=("status", "endTime"),
    # KubeRay forgets the name of the RayCluster before its pods are gone: a start gives them the first label.
    pods=(
        LABELLED,
        PodLabel("ray.io/cluster", path=("status", "rayClusterName")),
        PodLabel("ray.io/cluster", prefix=True),
        PodLabel("batch.kubernetes.io/job-name"),
    ),
    children=("RayCluster", "Job"),
    managed_by=_MANAGED_BY,
    fixed=(
        ("spec", "submissionMode"),
        ("spec", "submitterPodTemplate"),
        ("spec", "rayClusterSpec", "historyServerOptions"),
    ),
    refuse=_REFUSED_JOBS,
)

RAY_CLUSTER: Final = JobKind(
    name="RayCluster",
    group="ray.io",
    version="v1",
    plural="rayclusters",
    suspend=("spec", "suspend"),
    podsets=Templates(groups=_groups("spec"), completed=_cluster_pods("spec")),
    status=_status("status"),
    ends=(),
    seen=SuspensionSeen(Sign("RayClusterSuspended")),
    pods=(PodLabel("ray.io/cluster"), LABELLED),
    # With fault tolerance, a Job clears the database of the head at the end.
    children=("Job",),
    managed_by=_MANAGED_BY,
    fixed=(("spec", "historyServerOptions"),),
    refuse=_refuse("spec"),
)

_CONFIG: Final = ("spec", "rayClusterConfig")
_TIMEOUT: Final = "ray.io/initializing-timeout"

RAY_SERVICE: Final = JobKind(
    name="RayService",
    group="ray.io",
    version="v1",
    plural="rayservices",
    # KubeRay copies it to the RayCluster that it has, with the rest of the spec: a start makes no second one.
    suspend=(*_CONFIG, "suspend"),
    podsets=Templates(groups=_groups(*_CONFIG), completed=_cluster_pods(*_CONFIG)),
    status=_service_status,
    ends=(),
    # Its RayClusters are updated before this is written. While one of them has no head, as after a stop, this
    # is not written: the RayClusters show that the stop was seen.
    seen=SuspensionSeen(Sign(("status", "observedGeneration")), asked=""),
    suspends=Copies("RayCluster", "ray.io/originated-from-cr-name", ("status", "observedGeneration")),
    pods=(
        LABELLED,
        PodLabel("ray.io/cluster", path=("status", "activeServiceStatus", "rayClusterName")),
        PodLabel("ray.io/cluster", path=("status", "pendingServiceStatus", "rayClusterName")),
        PodLabel("ray.io/cluster", prefix=True),
    ),
    children=("RayCluster", "Job"),
    managed_by=_MANAGED_BY,
    kept="another spec of its RayCluster makes a second one",
    # Any other spec of the RayCluster makes a second one beside it.
    fixed=(_CONFIG,),
    refuse=(
        KindRefusal(
            f"object.metadata.?annotations[?'{_TIMEOUT}'].hasValue()",
            f"metadata.annotations[{_TIMEOUT}]",
            "the time that it waits in the queue counts, and KubeRay gives it up for good. Leave it out",
        ),
        *_refuse("spec.rayClusterConfig"),
    ),
)
