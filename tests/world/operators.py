"""Doubles of the JobSet controller, Trainer, KubeRay and the node lifecycle controller: what each writes, in
its order.

A JobSet has a Job for each replica. A TrainJob has a JobSet of its name. A RayJob has a RayCluster, which has
the pods, and a Job that submits; a RayService has a RayCluster that is suspended with it. They see the
cluster by watches, so late, and do one thing after the other. Webhooks of JobSet and Trainer refuse what the
real ones do.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any, Final

from queuectl.kube.errors import NotFound
from queuectl.kube.session import MERGE_PATCH, Session, api_path
from queuectl.sandbox.kubernetes.store import ObjectStore
from queuectl.sandbox.kubernetes.wire import StatusCause, StatusError
from queuectl.sandbox.players.api import Clock, Object, stamp
from queuectl.sandbox.players.informer import Informer
from queuectl.sandbox.players.jobs import JOBS, JobController
from queuectl.sandbox.players.kubelet import Kubelet, Nodes, has_failed
from queuectl.sandbox.players.pods import (
    PODS,
    PodController,
    active,
    controller_uid,
    deletion_of,
    holds,
    node_of,
    owner_reference,
    phase_of,
    pod_path,
    ready,
    with_condition,
)
from queuectl.sandbox.players.scheduler import Scheduler
from queuectl.sandbox.players.training_operator import PYTORCHJOBS, TrainingOperator
from queuectl.sandbox.players.work_queue import WorkQueue
from tests.job_kinds import JOB_KINDS

_QUARANTINE: Final = 15.0
"""Seconds; kube-controller-manager waits for 40."""
_JOBSET: Final = "jobset.sigs.k8s.io"
_WAITS_FOR_HEAD: Final = {"cpu": "200m", "memory": "256Mi"}


async def operate(api: Session, own: Session, clock: Clock, kinds: Sequence[str]) -> None:
    """Scheduler, kubelet, Job controller by `api`, and the operators of these kinds by `own`, until
    cancelled."""
    by_owner = {"owner": controller_uid}
    pods = Informer(api, PODS, clock, {"node": node_of, **by_owner})
    nodes, jobs = Informer(api, "/api/v1/nodes", clock), Informer(api, JOBS, clock, by_owner)
    made = {name: Informer(own, _collection(name), clock, by_owner) for name in kinds}
    players: list[Any] = [
        Nodes(api, nodes, clock),
        Scheduler(api, pods, nodes, clock),
        Kubelet(api, pods, nodes, clock),
        JobController(api, jobs, pods, clock),
        NodeLifecycle(api, pods, nodes, clock),
    ]
    if "PyTorchJob" in made:
        players.append(TrainingOperator(own, made["PyTorchJob"], pods, clock))
    if "JobSet" in made:
        players.append(JobSets(own, made["JobSet"], jobs, clock))
    if "TrainJob" in made:
        players.append(TrainJobs(own, made["TrainJob"], made["JobSet"], clock))
    if "RayCluster" in made:
        players.append(RayClusters(own, made["RayCluster"], pods, clock))
        players.append(RayJobs(own, made["RayJob"], made["RayCluster"], jobs, clock))
        players.append(RayServices(own, made["RayService"], made["RayCluster"], clock))
    stores = [nodes, pods, jobs, *made.values()]
    async with asyncio.TaskGroup() as tasks:
        for store in stores:
            tasks.create_task(store.run())
        for store in stores:
            await store.synced.wait()
        for player in players:
            tasks.create_task(player.queue.run())


class NodeLifecycle:
    """Of kube-controller-manager: pods on a node that has failed are not ready, those of a node that stays
    gone are deleted for good."""

    def __init__(self, api: Session, pods: Informer, nodes: Informer, clock: Clock) -> None:
        self.queue = WorkQueue("node lifecycle", self.reconcile, clock)
        self._api, self._pods, self._nodes, self._clock = api, pods, nodes, clock
        nodes.subscribe(self._on_node)

    def _on_node(self, key: str, before: Object | None, after: Object | None) -> None:
        if after is None:
            self.queue.add_after(key, _QUARANTINE)
        elif before is not None and has_failed(before) is not has_failed(after):
            self.queue.add(key)

    async def reconcile(self, key: str) -> None:
        node = self._nodes.get(key)
        for pod in self._pods.by("node", key):
            with suppress(NotFound):
                if node is None:
                    await self._api.delete(pod_path(pod), {**deletion_of(pod), "gracePeriodSeconds": 0})
                elif phase_of(pod) == "Running":
                    await self._turn(pod, ready=not has_failed(node))

    async def _turn(self, pod: Object, *, ready: bool) -> None:
        conditions = with_condition(
            pod["status"].get("conditions") or [], self._clock.now(), "Ready", ready, "NodeNotReady"
        )
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": conditions}}
        await self._api.patch(pod_path(pod, "/status"), body, content_type=MERGE_PATCH)


def _collection(name: str) -> str:
    row = JOB_KINDS[name]
    return PYTORCHJOBS if name == "PyTorchJob" else api_path(row.group, row.version, row.plural)


class _Operator(PodController):
    """Of a kind whose objects have others; `_pods`: these, by owner."""

    async def _make(self, store: Informer, body: Object) -> None:
        path = store.path_of(body["metadata"]["namespace"], "").rstrip("/")
        store.observe(await self._api.create(path, body))

    async def _write(self, store: Informer, obj: Object, changes: Object, subresource: str = "") -> None:
        """Raises Conflict if it has changed since it was read."""
        read = {name: obj["metadata"][name] for name in ("uid", "resourceVersion")}
        path = store.path_of(obj["metadata"]["namespace"], obj["metadata"]["name"]) + subresource
        body = {"metadata": read, **changes}
        store.observe(await self._api.patch(path, body, content_type=MERGE_PATCH))

    async def _remove(self, store: Informer, objects: Iterable[Object]) -> None:
        for obj in objects:
            path = store.path_of(obj["metadata"]["namespace"], obj["metadata"]["name"])
            try:
                await self._api.delete(path, deletion_of(obj))
            except NotFound:
                continue

    async def _say(self, obj: Object, status: Object) -> None:
        before = obj.get("status") or {}
        changes = {name: value for name, value in status.items() if before.get(name) != value}
        if changes:
            await self._store_status(obj, changes)

    def _seen(self, key: str) -> Object | None:
        """None: it is gone, or being deleted."""
        obj = self._jobs.get(key)
        return None if obj is None or obj["metadata"].get("deletionTimestamp") else obj

    def _with_suspended(self, obj: Object, conditions: list[Object]) -> list[Object]:
        if obj["spec"].get("suspend"):
            return with_condition(conditions, self._clock.now(), "Suspended", True, "Suspended")
        if holds(conditions, "Suspended"):
            return with_condition(conditions, self._clock.now(), "Suspended", False, "Resumed")
        return conditions


def _ends(obj: Object) -> str | None:
    """The condition that says how it ended."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    signs = ("Completed" if obj["kind"] == "JobSet" else "Complete", "Failed")
    return next((sign for sign in signs if holds(conditions, sign)), None)


# --- JobSet


class JobSets(_Operator):
    kind = "JobSet"
    name = "jobset"

    async def reconcile(self, key: str) -> None:
        obj = self._seen(key)
        if obj is None:
            return
        jobs = {one["metadata"]["name"]: one for one in self._pods.by("owner", obj["metadata"]["uid"])}
        if _ends(obj) is not None:
            await self._remove(self._pods, (one for one in jobs.values() if _ends(one) is None))
            return
        wanted = {one["metadata"]["name"]: one for one in _jobs_of(obj)}
        conditions = list((obj.get("status") or {}).get("conditions") or ())
        ends = {name: _ends(jobs[name]) if name in jobs else None for name in wanted}
        if "Failed" in ends.values():
            conditions = with_condition(conditions, self._clock.now(), "Failed", True, "FailedJobs")
        elif all(end == "Complete" for end in ends.values()):
            conditions = with_condition(conditions, self._clock.now(), "Completed", True, "AllJobsCompleted")
        else:
            for name, body in wanted.items():
                if name not in jobs:
                    await self._make(self._pods, body)
                elif ends[name] is None:
                    await self._suspend_as(obj, jobs[name], body)
            conditions = self._with_suspended(obj, conditions)
        status = {"replicatedJobsStatus": _counts(obj, jobs), "conditions": conditions}
        await self._say(obj, status)

    async def _suspend_as(self, obj: Object, job: Object, body: Object) -> None:
        if bool(job["spec"].get("suspend")) == bool(obj["spec"].get("suspend")):
            return
        if obj["spec"].get("suspend"):
            await self._write(self._pods, job, {"spec": {"suspend": True}})
            return
        if (job.get("status") or {}).get("startTime"):
            await self._write(self._pods, job, {"status": {"startTime": None}}, "/status")
            return  # that change triggers another call
        template = _merged(job["spec"]["template"], body["spec"]["template"])
        await self._write(self._pods, job, {"spec": {"suspend": False, "template": template}})


def _jobs_of(obj: Object) -> Iterator[Object]:
    metadata = obj["metadata"]
    for group in obj["spec"]["replicatedJobs"]:
        for number in range(group.get("replicas", 1)):
            body = deepcopy(group["template"])
            labels = {
                f"{_JOBSET}/jobset-name": metadata["name"],
                f"{_JOBSET}/jobset-uid": metadata["uid"],
                f"{_JOBSET}/replicatedjob-name": group["name"],
                f"{_JOBSET}/job-index": str(number),
            }
            for holder in (body, body["spec"]["template"]):
                inner = holder.setdefault("metadata", {})
                inner["labels"] = {**(inner.get("labels") or {}), **labels}
            body["spec"]["suspend"] = bool(obj["spec"].get("suspend"))
            body["metadata"] |= {
                "name": f"{metadata['name']}-{group['name']}-{number}",
                "namespace": metadata["namespace"],
                "ownerReferences": [owner_reference(obj)],
            }
            yield {"apiVersion": "batch/v1", "kind": "Job", **body}


def _merged(before: Object, template: Object) -> Object:
    """Scheduling fields of a template that a resumed Job gets: what it had stays beside what is new."""
    metadata, spec = template.get("metadata") or {}, template["spec"]
    tolerations = [*(before["spec"].get("tolerations") or ())]
    tolerations += [one for one in spec.get("tolerations") or () if one not in tolerations]
    return {
        "metadata": {name: metadata.get(name) for name in ("labels", "annotations") if metadata.get(name)},
        "spec": {"nodeSelector": spec.get("nodeSelector") or {}, "tolerations": tolerations},
    }


def _counts(obj: Object, jobs: Mapping[str, Object]) -> list[Object]:
    """Of each group, its Jobs."""
    found = []
    for group in obj["spec"]["replicatedJobs"]:
        counts = dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
        for number in range(group.get("replicas", 1)):
            job = jobs.get(f"{obj['metadata']['name']}-{group['name']}-{number}")
            if job is None:
                continue
            status, end = job.get("status") or {}, _ends(job)
            up = (status.get("ready") or 0) + (status.get("succeeded") or 0)
            counts["succeeded"] += end == "Complete"
            counts["failed"] += end == "Failed"
            counts["ready"] += end is None and up >= job["spec"].get("parallelism", 1)
            counts["active"] += end is None and bool(status.get("active"))
            counts["suspended"] += bool(job["spec"].get("suspend"))
        found.append({"name": group["name"], **counts})
    return found


# --- TrainJob


class TrainJobs(_Operator):
    kind = "TrainJob"
    name = "trainer"

    async def reconcile(self, key: str) -> None:
        obj = self._seen(key)
        if obj is None or _ends(obj) is not None:
            return
        child = next(iter(self._pods.by("owner", obj["metadata"]["uid"])), None)
        spec = _runtime(obj)
        if child is None:
            await self._make(self._pods, _owned(obj, "JobSet", obj["metadata"]["name"], spec))
        elif (child["spec"].get("suspend") or spec["suspend"]) and child["spec"] != spec:
            await self._write(self._pods, child, {"spec": spec})
        conditions = self._with_suspended(obj, list((obj.get("status") or {}).get("conditions") or ()))
        end = _ends(child) if child is not None else None
        if end is not None:
            sign = "Failed" if end == "Failed" else "Complete"
            conditions = with_condition(conditions, self._clock.now(), sign, True, f"JobSet{end}")
        told = (child.get("status") or {}).get("replicatedJobsStatus") if child is not None else None
        await self._say(obj, {"conditions": conditions, "jobsStatus": told})


def _runtime(obj: Object) -> Object:
    """The spec of its JobSet: one Job, changed by fields of the TrainJob and its patches."""
    trainer, spec = obj["spec"]["trainer"], obj["spec"]
    container = {"name": "node", "image": "none", "resources": trainer["resourcesPerNode"]}
    template: Object = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    for entry in spec.get("runtimePatches") or ():
        (job,) = entry["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        patch = deepcopy(job["template"]["spec"]["template"])
        for name, values in (patch.get("metadata") or {}).items():
            template["metadata"].setdefault(name, {}).update(values)
        inner = patch.get("spec") or {}
        template["spec"].setdefault("nodeSelector", {}).update(inner.get("nodeSelector") or {})
        if inner.get("tolerations"):
            template["spec"]["tolerations"] = inner["tolerations"]
    pods = trainer["numNodes"]
    job = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template}
    group = {"name": "node", "replicas": 1, "template": {"spec": job}}
    return {"suspend": bool(spec.get("suspend")), "replicatedJobs": [group]}


def _owned(owner: Object, name: str, called: str, spec: Object, **metadata: Any) -> Object:
    row = JOB_KINDS[name]
    metadata |= {"name": called, "namespace": owner["metadata"]["namespace"]}
    metadata["ownerReferences"] = [owner_reference(owner)]
    return {"apiVersion": row.api_version, "kind": row.kind, "metadata": metadata, "spec": deepcopy(spec)}


# --- RayCluster, RayJob, RayService


class RayClusters(_Operator):
    kind = "RayCluster"
    name = "raycluster"

    async def reconcile(self, key: str) -> None:
        obj = self._seen(key)
        if obj is None:
            return
        pods = self._pods.by("owner", obj["metadata"]["uid"])
        alive = [pod for pod in pods if active(pod)]
        if obj["spec"].get("suspend"):
            await self._delete(alive)
        else:
            missing = _ray_pods(obj)
            for pod in alive:
                group = pod["metadata"]["labels"]["ray.io/group"]
                missing[group] = missing[group][1:]
            for pod in (one for group in missing.values() for one in group):
                await self._create(pod)
        await self._say(obj, self._status(obj))

    def _status(self, obj: Object) -> Object:
        pods = self._pods.by("owner", obj["metadata"]["uid"])
        up = [pod["metadata"]["labels"]["ray.io/group"] for pod in pods if active(pod) and ready(pod)]
        wanted = sum(map(len, _ray_pods(obj).values()))
        conditions = list((obj.get("status") or {}).get("conditions") or ())
        suspended, now = bool(obj["spec"].get("suspend")), self._clock.now()
        conditions = with_condition(conditions, now, "HeadPodReady", "headgroup" in up, "HeadPod")
        if suspended or holds(conditions, "RayClusterSuspended"):
            done = suspended and not pods
            conditions = with_condition(conditions, now, "RayClusterSuspended", done, "UserRequest")
        state = "suspended" if suspended and not pods else "ready" if len(up) >= wanted else ""
        before = (obj.get("status") or {}).get("state") or ""
        return {
            "state": state if suspended else state or before if before != "suspended" else state,
            "readyWorkerReplicas": len([group for group in up if group != "headgroup"]),
            "conditions": conditions,
            "observedGeneration": obj["metadata"]["generation"],
        }


def _ray_pods(obj: Object) -> dict[str, list[Object]]:
    """By group."""
    spec, metadata = obj["spec"], obj["metadata"]
    workers = [(one["groupName"], one.get("replicas", 0), one) for one in spec.get("workerGroupSpecs") or ()]
    found = {}
    for name, count, group in [("headgroup", 1, spec["headGroupSpec"]), *workers]:
        template = deepcopy(group["template"])
        inner = template.setdefault("metadata", {})
        labels = {"ray.io/cluster": metadata["name"], "ray.io/group": name}
        template["metadata"] = {
            "generateName": f"{metadata['name']}-{name}-",
            "namespace": metadata["namespace"],
            "labels": {**(inner.get("labels") or {}), **labels},
            "annotations": inner.get("annotations") or {},
            "ownerReferences": [owner_reference(obj)],
        }
        if name != "headgroup":
            wait = {"name": "wait-gcs-ready", "image": "none", "resources": {"requests": _WAITS_FOR_HEAD}}
            template["spec"]["initContainers"] = [wait]
        found[name] = [{"apiVersion": "v1", "kind": "Pod", **template}] * count
    return found


def _ray_cluster(owner: Object, called: str, spec: Object) -> Object:
    """KubeRay copies labels and annotations."""
    metadata = owner["metadata"]
    labels = {**(metadata.get("labels") or {}), "ray.io/originated-from-cr-name": metadata["name"]}
    annotations = dict(metadata.get("annotations") or {})
    return _owned(owner, "RayCluster", called, spec, labels=labels, annotations=annotations)


def _suffixed(obj: Object) -> str:
    metadata = obj["metadata"]
    return f"{metadata['name']}-{zlib.crc32((metadata['uid'] + metadata['resourceVersion']).encode()):08x}"


class RayJobs(_Operator):
    """A state of KubeRay leads to the next in one call."""

    kind = "RayJob"
    name = "rayjob"

    def __init__(
        self, api: Session, jobs: Informer, clusters: Informer, submitters: Informer, clock: Clock
    ) -> None:
        super().__init__(api, jobs, clusters, clock)
        self._submitters = submitters
        submitters.subscribe(self._on_pod)

    async def reconcile(self, key: str) -> None:
        obj = self._seen(key)
        if obj is None:
            return
        uid = obj["metadata"]["uid"]
        clusters, submitters = self._pods.by("owner", uid), self._submitters.by("owner", uid)
        status, suspend = obj.get("status") or {}, bool(obj["spec"].get("suspend"))
        state = status.get("jobDeploymentStatus") or ""
        if state == "":
            start = {"rayClusterName": _suffixed(obj), "startTime": stamp(self._clock.now())}
            await self._turn(obj, "Initializing", **start)
        elif state == "Suspended":
            if not suspend:
                await self._turn(obj, "")
        elif state == "Suspending":
            await self._remove(self._pods, clusters)
            await self._remove(self._submitters, submitters)
            if not clusters and not submitters:
                await self._turn(obj, "Suspended", rayClusterName="", rayClusterStatus=None, jobStatus="")
        elif state in ("Complete", "Failed"):
            await self._remove(self._pods, clusters)
        elif suspend:
            await self._turn(obj, "Suspending")
        else:
            await self._run(obj, status, clusters, submitters)

    async def _run(
        self, obj: Object, status: Object, clusters: Sequence[Object], submitters: Sequence[Object]
    ) -> None:
        called = status["rayClusterName"]
        cluster = next((one for one in clusters if one["metadata"]["name"] == called), None)
        if cluster is None:
            await self._make(self._pods, _ray_cluster(obj, called, obj["spec"]["rayClusterSpec"]))
            return
        told = {"rayClusterStatus": cluster.get("status")}
        submitter = next(iter(submitters), None)
        if submitter is None:
            if (cluster.get("status") or {}).get("state") == "ready":
                spec = {"backoffLimit": 0, "template": obj["spec"]["submitterPodTemplate"]}
                await self._make(self._submitters, _owned(obj, "Job", obj["metadata"]["name"], spec))
                told |= {"jobStatus": "PENDING"}
                await self._turn(obj, "Running", **told)
            else:
                await self._say(obj, told)
        elif (end := _ends(submitter)) is not None:
            good = end == "Complete"
            told |= {"jobStatus": "SUCCEEDED" if good else "FAILED", "endTime": stamp(self._clock.now())}
            await self._turn(obj, "Complete" if good else "Failed", **told)
        else:
            await self._turn(obj, "Running", **told)

    async def _turn(self, obj: Object, state: str, **status: Any) -> None:
        await self._say(obj, {"jobDeploymentStatus": state, **status})


class RayServices(_Operator):
    kind = "RayService"
    name = "rayservice"

    async def reconcile(self, key: str) -> None:
        obj = self._seen(key)
        if obj is None:
            return
        spec, metadata = obj["spec"]["rayClusterConfig"], obj["metadata"]
        cluster = next(iter(self._pods.by("owner", metadata["uid"])), None)
        if cluster is None:
            await self._make(self._pods, _ray_cluster(obj, _suffixed(obj), spec))
            return
        marks = metadata.get("annotations") or {}
        if cluster["spec"] != spec or (cluster["metadata"].get("annotations") or {}) != marks:
            changed = {**cluster, "spec": spec, "metadata": {**cluster["metadata"], "annotations": marks}}
            path = self._pods.path_of(metadata["namespace"], cluster["metadata"]["name"])
            self._pods.observe(await self._api.request("PUT", path, changed))
            return
        told = cluster.get("status") or {}
        up = told.get("state") == "ready"
        ready = with_condition(
            list((obj.get("status") or {}).get("conditions") or ()), self._clock.now(), "Ready", up, "Serve"
        )
        name = cluster["metadata"]["name"]
        active_service = {"rayClusterName": name, "rayClusterStatus": told}
        status: Object = {"activeServiceStatus": active_service, "conditions": ready}
        if holds(told.get("conditions") or [], "HeadPodReady"):
            status["observedGeneration"] = metadata["generation"]
        await self._say(obj, status)


# --- webhooks


_GUARDED: Final = {"JobSet": "replicatedJobs", "TrainJob": "runtimePatches"}
"""Fields that change only while an object is suspended."""


class Webhooks:
    """Of JobSet and Trainer, as a check of the small API. `one_write`: Trainer accepts a start in one."""

    def __init__(self, store: ObjectStore, *, one_write: bool) -> None:
        self._store = store
        self._one_write = one_write

    def __call__(self, new: Object) -> Iterable[StatusCause]:
        """Raises StatusError."""
        kind, metadata = new["kind"], new["metadata"]
        if (field := _GUARDED.get(kind)) is None:
            return ()
        objects = self._store.collection(JOB_KINDS[kind].resource)
        stored = objects.get((metadata["namespace"], metadata["name"]))
        old = new if stored is None else stored.read()
        was, now = bool(old["spec"].get("suspend")), bool(new["spec"].get("suspend"))
        may = now or (was and (kind == "JobSet" or self._one_write))
        if old["spec"].get(field) != new["spec"].get(field) and not (may and _idle(kind, old)):
            raise StatusError(403, f"admission webhook denied the request: spec.{field} is immutable")
        return ()


def _idle(kind: str, obj: Object) -> bool:
    """Trainer takes no patches while Jobs have pods."""
    told = (obj.get("status") or {}).get("jobsStatus") or ()
    return kind == "JobSet" or not any(one.get("active") for one in told)
