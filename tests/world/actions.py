"""The steps of a schedule, done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from queuectl.core.model.workload import ObjectRef
from queuectl.kinds.jobs import PRIORITY_LABEL, QUEUE_LABEL
from queuectl.kinds.reserved_keys import GATED_LABEL, GROUP_LABEL
from queuectl.kube.errors import ApiError, Conflict, NotFound
from queuectl.kube.session import MERGE_PATCH, Session, api_path
from queuectl.sandbox.kubernetes.wire import StatusError
from queuectl.sandbox.players.api import Object
from queuectl.sandbox.players.kubelet import FAILED
from queuectl.sandbox.players.pods import owner_reference
from tests.acceptance.e2e.site import GPU, cluster_queue
from tests.job_kinds import JOB_KINDS
from tests.world import objects
from tests.world.faults import Fault
from tests.world.readers import READERS
from tests.world.replica import Replica
from tests.world.schedule import COHORT, LOSS, NAMESPACE_GONE, NODES, OPERATORS, TEAMS, Step

if TYPE_CHECKING:
    from tests.world.world import World

HOLD = "queuectl.dev/hold"
_AS_AT_FIRST: Object = {
    **{"stopPolicy": "None", "stopReason": None},
    **{"queueingStrategy": None, "headCanNeverRun": None, "maxExecutionTime": None},
    **{"waitForPodsReady": None, "fairSharing": None},
}
"""Fields of queues that admins have edited."""
_NAMESPACES = api_path("", "v1", "namespaces")
_NODES = api_path("", "v1", "nodes")
_CRDS = api_path("apiextensions.k8s.io", "v1", "customresourcedefinitions")


class Actions:
    def __init__(self, world: World) -> None:
        self._world = world
        self.manifests: dict[tuple[str, str], Object] = {}
        """The last manifest that was created under each name."""
        self._groups: dict[tuple[str, str], tuple[int, int, float, float, str]] = {}
        """How the pods of each group were made last."""
        self.forged: list[tuple[str, str]] = []
        """Workloads that forged Jobs name as their controller."""
        self._do: dict[str, Callable[..., Awaitable[None]]] = {
            "submit": self._submit,
            "delete": self._delete,
            "recreate": self._recreate,
            "hold": self._hold,
            "unhold": self._unhold,
            "priority": self._priority,
            "resize": self._resize,
            "scale": self._scale,
            "annotate pods": self._annotate_pods,
            "move": self._move,
            "apply again": self._apply_again,
            "tenant starts": self._tenant_starts,
            "tenant suspends": self._tenant_suspends,
            "stray": self._stray,
            "quota": self._quota,
            "stop queue": self._stop_queue,
            "stop local queue": self._stop_local_queue,
            "delete local queue": self._delete_local_queue,
            "delete queue": self._delete_queue,
            "leave cohort": self._cohort,
            "strict order": self._strict_order,
            "delete pods": self._delete_pods,
            "definition changes": self._definition_changes,
            "group": self._group,
            "make member": self._make_member,
            "delete member": self._delete_member,
            "hold group": self._hold_group,
            "unhold group": self._unhold_group,
            "delete group": self._delete_group,
            "budget": lambda *args: self._policy(objects.budget(*args)),
            "delete budget": lambda name: self._delete_policy("budgets", name),
            "usage limit": lambda *args: self._policy(objects.usage_limit(*args)),
            "delete usage limit": lambda name: self._delete_policy("usagelimits", name),
            "gpus": self._gpus,
            "idle policy": lambda *args: self._policy(objects.idle_policy(*args)),
            "delete idle policy": lambda name: self._delete_policy("idlepolicies", name),
            "usage order": self._usage_order,
            "time limits": self._time_limits,
            "time passes": self._time_passes,
            "kill": self._kill,
            "terminate": self._terminate,
            "pause": self._pause,
            "block loop": self._block,
            "operators pause": self._operators_pause,
            "operators slow": self._operators_slow,
            "requests": self._requests,
            "watches": self._watches,
            "expire": self._expire,
            "compact": self._compact,
            "discovery": self._requests,
            "definition gone": self._definition_gone,
            "readers restart": self._readers_restart,
            "sink fails": self._sink_fails,
            "database": self._database,
            "database clock": self._database_clock,
            LOSS: self._lose,
            NAMESPACE_GONE: self._namespace_gone,
            "nodes": self._more_nodes,
            "node fails": self._node_fails,
            "node gone": self._node_gone,
            "cordon": self._cordon,
            "pods ready": self._pods_ready,
            "cohort": lambda *args: self._policy(objects.cohort(*args)),
            "weight": self._weight,
        }

    async def do(self, step: Step) -> None:
        """Raises ApiError."""
        await self._do[step.verb](*step.args)

    # --- tenants

    async def _submit(self, namespace: str, name: str, *rest: Any) -> None:
        body = objects.workload(namespace, name, *rest)
        await self._world.tenant.create(objects.path_of(body), body)
        self.manifests[namespace, name] = body

    def _path(self, namespace: str, name: str) -> str | None:
        body = self.manifests.get((namespace, name))
        return None if body is None else objects.workload_path(body["kind"], namespace, name)

    async def _delete(self, namespace: str, name: str) -> None:
        if path := self._path(namespace, name):
            await self._world.tenant.delete(path, {"propagationPolicy": "Background"})

    async def _recreate(self, namespace: str, name: str) -> None:
        if path := self._path(namespace, name):
            await self._world.tenant.delete(path, {"propagationPolicy": "Background"})
            body = self.manifests[namespace, name]
            await self._world.tenant.create(objects.path_of(body), body)

    async def _merge(self, api: Session, path: str | None, patch: Object) -> None:
        if path is not None:
            await api.patch(path, patch, content_type=MERGE_PATCH)

    async def _hold(self, namespace: str, name: str, value: str | None = "true") -> None:
        patch = {"metadata": {"annotations": {HOLD: value}}}
        await self._merge(self._world.tenant, self._path(namespace, name), patch)

    async def _unhold(self, namespace: str, name: str) -> None:
        await self._hold(namespace, name, None)

    async def _priority(self, namespace: str, name: str, priority: str) -> None:
        patch = {"metadata": {"labels": {PRIORITY_LABEL: priority}}}
        await self._merge(self._world.tenant, self._path(namespace, name), patch)

    async def _resize(self, namespace: str, name: str, gpus: int) -> None:
        """Other requests, which only a suspended Job may be given."""
        body = self.manifests.get((namespace, name))
        if body is None or body["kind"] != "Job":
            return
        path = objects.workload_path("Job", namespace, name)
        obj = await self._world.tenant.get(path)
        limits = obj["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
        limits[GPU] = str(gpus)
        await self._world.tenant.request("PUT", path, obj)

    async def _scale(self, namespace: str, name: str, pods: int) -> None:
        """How many pods of a Job run at once."""
        await self._merge(self._world.tenant, self._path(namespace, name), {"spec": {"parallelism": pods}})

    async def _annotate_pods(self, namespace: str, name: str, value: int) -> None:
        """An edit of the spec that requests nothing else."""
        body = self.manifests.get((namespace, name))
        if body is not None and body["kind"] == "Job":
            template = {"metadata": {"annotations": {"note": str(value)}}}
            await self._merge(
                self._world.tenant, self._path(namespace, name), {"spec": {"template": template}}
            )

    async def _move(self, namespace: str, name: str, queue: str) -> None:
        patch = {"metadata": {"labels": {QUEUE_LABEL: queue}}}
        await self._merge(self._world.tenant, self._path(namespace, name), patch)

    async def _apply_again(self, namespace: str, name: str) -> None:
        """As GitOps does: labels, annotations and spec of the manifest, by an admin."""
        body = self.manifests.get((namespace, name))
        if body is not None:
            await self._merge(self._world.admin, self._path(namespace, name), body)

    async def _tenant_starts(self, namespace: str, name: str, suspend: bool = False) -> None:
        body = self.manifests.get((namespace, name))
        if body is not None:
            spec: Object = {"suspend": suspend}
            if body["kind"] == "Pod":
                spec = {"schedulingGates": body["spec"]["schedulingGates"] if suspend else None}
            elif body["kind"] == "PyTorchJob":
                spec = {"runPolicy": spec}
            elif body["kind"] == "RayService":
                spec = {"rayClusterConfig": spec}
            await self._merge(self._world.tenant, self._path(namespace, name), {"spec": spec})

    async def _tenant_suspends(self, namespace: str, name: str) -> None:
        await self._tenant_starts(namespace, name, suspend=True)

    async def _stray(self, namespace: str, name: str) -> None:
        """A running Job that says that it belongs to a workload, made in the name of its operator."""
        if path := self._path(namespace, name):
            body = objects.workload(namespace, f"{name}-stray", "Job", 1, 1, 1000, 1, "mid")
            body["spec"]["suspend"] = False
            body["metadata"]["ownerReferences"] = [owner_reference(await self._world.admin.get(path))]
            await self._world.admin.create(objects.path_of(body), body)
            self.forged.append((namespace, name))

    async def end_fights(self, evicting: Sequence[ObjectRef]) -> None:
        """Delete each workload with a forged Job whose controller starts again what is evicted of it."""
        for namespace, name in self.forged:
            if any(ref.namespace == namespace and ref.name.startswith(f"{name}-") for ref in evicting):
                self._world.say(f"{namespace}/{name}, which starts again what is evicted of it, is deleted")
                await self._delete(namespace, name)

    async def _delete_pods(self, namespace: str, name: str) -> None:
        pods = api_path("", "v1", "pods", namespace)
        for pod in (await self._world.admin.get(pods))["items"]:
            owners = pod["metadata"].get("ownerReferences") or ()
            if any(owner["name"] == name or owner["name"].startswith(f"{name}-") for owner in owners):
                await self._world.admin.delete(f"{pods}/{pod['metadata']['name']}")

    # --- tenants, groups of pods

    async def _group(self, namespace: str, name: str, size: int, *rest: Any) -> None:
        gpus, seconds, ends, priority, later, fails = rest
        self._groups[namespace, name] = (size, gpus, seconds, ends, priority)
        for number in range(size - later):
            await self._make_member(namespace, name, number, fails=number < fails)

    async def _make_member(self, namespace: str, name: str, number: int, *, fails: bool = False) -> None:
        if (known := self._groups.get((namespace, name))) is not None:
            body = objects.member(namespace, name, number, *known, fails=fails)
            await self._world.tenant.create(objects.PODS.format(namespace), body)

    async def _delete_member(self, namespace: str, name: str, number: int) -> None:
        await self._world.tenant.delete(f"{objects.PODS.format(namespace)}/{name}-{number}")

    async def _hold_group(self, namespace: str, name: str, number: int, value: str | None = "true") -> None:
        path = f"{objects.PODS.format(namespace)}/{name}-{number}"
        await self._merge(self._world.tenant, path, {"metadata": {"annotations": {HOLD: value}}})

    async def _unhold_group(self, namespace: str, name: str, number: int) -> None:
        await self._hold_group(namespace, name, number, None)

    async def _delete_group(self, namespace: str, name: str) -> None:
        for pod in await self._queued_pods(namespace):
            if pod["metadata"]["labels"].get(GROUP_LABEL) == name:
                await self._delete_object(f"{objects.PODS.format(namespace)}/{pod['metadata']['name']}")

    async def _queued_pods(self, namespace: str) -> list[Object]:
        """Pods that queue, by themselves or in groups."""
        found = await self._world.admin.get(objects.PODS.format(namespace))
        return [pod for pod in found["items"] if GATED_LABEL in (pod["metadata"].get("labels") or {})]

    # --- admins

    async def _edit(self, plural: str, name: str, spec: Object, namespace: str | None = None) -> None:
        scope = f"/namespaces/{namespace}" if namespace else ""
        path = f"{objects.POLICY}{scope}/{plural}/{name}"
        await self._world.admin.patch(path, {"spec": spec}, content_type=MERGE_PATCH)

    async def _quota(self, team: str, gpus: int) -> None:
        groups = cluster_queue("any", gpus)["spec"]["resourceGroups"]
        await self._edit("clusterqueues", team, {"resourceGroups": groups})

    async def _stop_queue(self, team: str, policy: str) -> None:
        await self._edit("clusterqueues", team, {"stopPolicy": policy, "stopReason": _reason(policy)})

    async def _stop_local_queue(self, team: str, policy: str) -> None:
        await self._edit("localqueues", "main", {"stopPolicy": policy, "stopReason": _reason(policy)}, team)

    async def _strict_order(self, team: str, head: str) -> None:
        await self._edit("clusterqueues", team, {"queueingStrategy": "StrictFIFO", "headCanNeverRun": head})

    async def _usage_order(self, team: str, users: str) -> None:
        """By the past usage of LocalQueues, and of their users; empty: by none."""
        mode = "UsageBasedAdmissionFairSharing" if users else "NoAdmissionFairSharing"
        scope = {"admissionMode": mode, "userOrder": users or None}
        await self._edit("clusterqueues", team, {"admissionScope": scope})

    async def _time_limits(self, team: str, default: int, ceiling: int) -> None:
        """0: none."""
        limits = {"default": default or None, "ceiling": ceiling or None}
        await self._edit("clusterqueues", team, {"maxExecutionTime": limits})

    async def _pods_ready(
        self, team: str, scheduling: int, startup: int, recovery: int, failures: int | None
    ) -> None:
        """Seconds until pods must be bound, ready, and ready again (0: any); failed starts that may be."""
        limits = {
            "schedulingTimeoutSeconds": scheduling or None,
            "startupTimeoutSeconds": startup or None,
            "recoveryTimeoutSeconds": recovery or None,
            "requeuing": {"backoffBaseSeconds": 3, "backoffLimitSeconds": 12, "backoffLimitCount": failures},
        }
        await self._edit("clusterqueues", team, {"waitForPodsReady": limits})

    async def _gpus(self, team: str, do: str) -> None:
        self._world.metrics.turn(team, do)

    async def _time_passes(self, seconds: float) -> None:
        """For the ledger: nothing else happens meanwhile."""
        world = self._world
        world.jump += seconds
        world.most_jump = max(world.most_jump, world.jump)

    async def _policy(self, body: Object) -> None:
        """Create it, or replace what has its name."""
        path = objects.path_of(body)
        try:
            await self._world.admin.create(path, body)
        except Conflict:
            name = body["metadata"]["name"]
            found = await self._world.admin.get(f"{path}/{name}")
            await self._world.admin.request("PUT", f"{path}/{name}", {**found, "spec": body["spec"]})

    async def _delete_policy(self, plural: str, name: str) -> None:
        await self._world.admin.delete(f"{objects.POLICY}/{plural}/{name}")

    async def _cohort(self, team: str, cohort: str) -> None:
        await self._edit("clusterqueues", team, {"cohortName": cohort or None})

    async def _weight(self, team: str, weight: str) -> None:
        await self._edit("clusterqueues", team, {"fairSharing": {"weight": weight}})

    async def _delete_local_queue(self, team: str) -> None:
        await self._world.admin.delete(f"{objects.POLICY}/namespaces/{team}/localqueues/main")

    async def _delete_queue(self, team: str) -> None:
        await self._world.admin.delete(f"{objects.POLICY}/clusterqueues/{team}")

    async def _definition_changes(self) -> None:
        patch = {"metadata": {"annotations": {"changed": str(self._world.loop.time())}}}
        await self._merge(self._world.admin, f"{_CRDS}/{self._definition}", patch)

    # --- faults

    def _meets(self, kind: str) -> None:
        self._world.met_by(kind, "")

    def _replica(self, name: str) -> Replica:
        if name == "leader":
            return self._world.leader or self._world.replicas["one"]
        return self._world.replicas[name]

    async def _kill(self, name: str) -> None:
        self._meets("kill")
        self._replica(name).kill()

    async def _terminate(self, name: str) -> None:
        self._meets("terminate")
        self._replica(name).stop()

    async def _pause(self, name: str, seconds: float, *, lease: bool = True) -> None:
        self._meets("pause" if lease else "block loop")
        replica = self._replica(name)
        starts = replica.starts
        replica.pause(lease=lease)
        await asyncio.sleep(seconds)
        if replica.starts == starts:
            replica.resume()

    async def _block(self, name: str, seconds: float) -> None:
        await self._pause(name, seconds, lease=False)

    async def _operators_pause(self, seconds: float) -> None:
        self._meets("operators pause")
        self._world.operators.paused = True
        await asyncio.sleep(seconds)
        self._world.operators.paused = False

    async def _operators_slow(self, seconds: float, client: str = OPERATORS) -> None:
        """Each of their requests arrives late. `client`: all of them, or those of the cluster alone."""
        self._meets("operators slow")
        until = self._world.loop.time() + seconds
        self._world.network.faults.append(Fault("slow", client, until))

    async def _requests(
        self, kind: str, client: str, seconds: float, rate: float, leases: bool = False
    ) -> None:
        await self._watches(kind, client, seconds, rate, leases)

    async def _watches(
        self, kind: str, client: str, seconds: float, rate: float, leases: bool = False
    ) -> None:
        """Faults concern the controllers alone: tenants and players would only have to try again."""
        until = self._world.loop.time() + seconds
        for name in [client] if client else self._world.replicas:
            self._world.network.faults.append(Fault(kind, name, until, rate, leases))

    async def _expire(self, collection: str) -> None:
        self._meets("expire")
        world = self._world
        gone = StatusError(410, "The resourceVersion for the provided watch is too old.")
        world.objects.forget()
        if world.network.gone_by_status:  # the watches break off, and are begun again too late
            world.network.faults += (Fault("cut", name, world.loop.time() + 0.5) for name in world.replicas)
        world.objects.close_watches(collection, gone)

    async def _compact(self) -> None:
        self._meets("compact")
        self._world.objects.forget()
        for collection, _ in self._world.objects.collections():
            self._world.objects.close_watches(collection)

    async def _definition_gone(self, seconds: float) -> None:
        self._meets("definition gone")
        await self._world.admin.delete(f"{_CRDS}/{self._definition}")
        await asyncio.sleep(seconds)
        await self._define()

    @property
    def _definition(self) -> str:
        return JOB_KINDS[self._world.kinds[0]].resource

    async def _define(self) -> None:
        try:
            await self._world.admin.get(f"{_CRDS}/{self._definition}")
        except NotFound:
            with suppress(Conflict):  # both the step and the end of the faults make it again
                await self._world.admin.create(_CRDS, objects.definition_of(self._world.kinds[0]))

    async def _readers_restart(self) -> None:
        self._world.readers.restart()

    async def _sink_fails(self, seconds: float, rate: float) -> None:
        self._world.readers.failing = rate
        await asyncio.sleep(seconds)
        self._world.readers.failing = 0.0

    async def _database(self, kind: str, client: str, seconds: float, rate: float) -> None:
        until = self._world.loop.time() + seconds
        for name in [client] if client else (*self._world.replicas, READERS):
            self._world.database.faults.append(Fault(kind, name, until, rate))

    async def _lose(self, transactions: int, seconds: float) -> None:
        self._meets(LOSS)
        self._world.database.lose(transactions)
        await self._database("database away", "", seconds, 1.0)

    async def _database_clock(self, seconds: float) -> None:
        self._meets("database clock")
        await self._time_passes(seconds)

    async def _namespace_gone(self, team: str, seconds: float) -> None:
        self._meets(NAMESPACE_GONE)
        await self._world.admin.delete(f"{_NAMESPACES}/{team}", {"propagationPolicy": "Background"})
        await asyncio.sleep(seconds)
        await self._namespace(team)

    async def _namespace(self, team: str) -> None:
        """Make it, once what had its name has ended, with its queues."""
        while await self._terminates(team):
            await asyncio.sleep(1.0)
        for thing in (objects.namespace(team), *objects.queues(team)):
            with suppress(Conflict):
                await self._world.admin.create(objects.path_of(thing), thing)

    async def _terminates(self, team: str) -> bool:
        try:
            found = await self._world.admin.get(f"{_NAMESPACES}/{team}")
        except NotFound:
            return False
        return "deletionTimestamp" in found["metadata"]

    # --- nodes

    async def _more_nodes(self) -> None:
        """Those that a schedule is without, unless nodes fail in it. What is gone registers again."""
        for name in NODES:
            with suppress(Conflict):
                await self._world.admin.create(_NODES, objects.node(name))

    async def _node(self, name: str, patch: Object) -> None:
        try:
            await self._merge(self._world.admin, f"{_NODES}/{name}", patch)
        except NotFound:
            self._world.say(f"  node {name} is gone")

    async def turn_node(self, name: str, *, failed: bool) -> None:
        await self._node(name, {"metadata": {"annotations": {FAILED: "true" if failed else None}}})

    async def _node_fails(self, name: str, seconds: float) -> None:
        self._meets("node fails")
        await self.turn_node(name, failed=True)
        await asyncio.sleep(seconds)
        await self.turn_node(name, failed=False)

    async def _node_gone(self, name: str, seconds: float) -> None:
        self._meets("node gone")
        await self._world.admin.delete(f"{_NODES}/{name}")
        await asyncio.sleep(seconds)
        await self._more_nodes()

    async def _cordon(self, name: str, seconds: float) -> None:
        await self._node(name, {"spec": {"unschedulable": True}})
        await asyncio.sleep(seconds)
        await self._node(name, {"spec": {"unschedulable": None}})

    async def _heal_places(self) -> None:
        """Nodes, namespaces and the cohort."""
        has = self._world.schedule.has
        if has("cohort"):
            with suppress(NotFound):
                await self._delete_policy("cohorts", COHORT)
        if has("nodes"):
            await self._more_nodes()
            for name in NODES:
                healthy = {"metadata": {"annotations": {FAILED: None}}, "spec": {"unschedulable": None}}
                await self._node(name, healthy)
        if has(NAMESPACE_GONE):
            for team in TEAMS:
                await self._namespace(team)

    # --- after the schedule

    async def heal(self) -> None:
        """All faults are over; policy is as at the beginning, and nothing is held."""
        world = self._world
        world.network.faults.clear()
        world.database.faults.clear()
        for replica in world.replicas.values():
            replica.resume()
        world.operators.paused = False
        world.readers.failing = 0.0
        await self._define()
        await self._heal_places()
        for team in TEAMS:
            for thing in objects.queues(team):
                path = objects.path_of(thing)
                try:
                    await world.admin.create(path, thing)
                except ApiError:
                    spec = {**_AS_AT_FIRST, **thing["spec"]}
                    name = thing["metadata"]["name"]
                    await world.admin.patch(f"{path}/{name}", {"spec": spec}, content_type=MERGE_PATCH)
        for namespace, name in self.manifests:
            try:
                await self._unhold(namespace, name)
            except ApiError:
                continue
        for team in TEAMS:
            for pod in await self._queued_pods(team):
                if HOLD in pod["metadata"]["annotations"]:
                    path = f"{objects.PODS.format(team)}/{pod['metadata']['name']}"
                    with suppress(NotFound):
                        await self._merge(world.admin, path, {"metadata": {"annotations": {HOLD: None}}})

    async def end_the_long(self) -> None:
        """Delete all workloads: some would run on for hours. And what limits them beside quota."""
        for plural in ("budgets", "usagelimits", "idlepolicies"):
            collection = f"{objects.POLICY}/{plural}"
            for obj in (await self._world.admin.get(collection))["items"]:
                await self._delete_object(f"{collection}/{obj['metadata']['name']}")
        for team in TEAMS:
            for pod in await self._queued_pods(team):
                await self._delete_object(f"{objects.PODS.format(team)}/{pod['metadata']['name']}")
        for kind in ("Job", *self._world.kinds):
            for team in TEAMS:
                collection = objects.workload_path(kind, team)
                for obj in (await self._world.admin.get(collection))["items"]:
                    await self._delete_object(f"{collection}/{obj['metadata']['name']}")

    async def _delete_object(self, path: str) -> None:
        try:
            await self._world.admin.delete(path, {"propagationPolicy": "Background"})
        except NotFound:
            return


def _reason(policy: str) -> str | None:
    return None if policy == "None" else "maintenance"
