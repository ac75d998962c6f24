"""Room on nodes, beside the real kube-scheduler: it binds what is admitted, and not what waits (M1, M7)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from queuectl.core.decisions import Admit
from queuectl.core.model.events import PodGone
from queuectl.core.model.policy import CapacityMode, FlavorNodes, ResourceFlavor, Toleration
from queuectl.core.model.workload import Workload, WorkloadOutcome
from queuectl.kinds.builtin import OPTIONAL
from queuectl.kinds.context import CONTEXT_KINDS
from queuectl.kinds.jobs import QUEUE_LABEL, KindRegistry
from queuectl.kinds.node_constraints import toleration_json
from queuectl.kinds.pods import pod_event
from queuectl.kinds.reserved_keys import WORKLOAD_LABEL
from queuectl.kinds.workloads import observe
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.session import Session, api_path
from queuectl.sandbox.control_plane import ControlPlane, find_assets
from queuectl.sandbox.processes import ChildProcess, spawn
from tests.builders import GPU, group, local_queue, observed, queue
from tests.integration.kube.sites import SPOT, effect, served
from tests.job_kinds import JOB_KINDS
from tests.unit.core.node_worlds import NodeWorld

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
NAMESPACE: Final = "ns"
PODS: Final = api_path("", "v1", "pods", NAMESPACE)
NODES: Final = api_path("", "v1", "nodes")
ZONE: Final = "topology.kubernetes.io/zone"
SECONDS: Final = 60
"""A deadline for the scheduler."""
GANGS: Final = 240
MOST_WRONG: Final = {"Job": 0.05, "PyTorchJob": 0.25}
"""Of all predictions for gangs of one kind. The scheduler takes pods that are created together in any order:
small ones, of a master or of another gang, may take the place of a large one. Of 2,000 gangs, 0.5 % were
predicted wrong (docs/performance.md).
"""
PLENTY: Final = {GPU: 10**6, "cpu": 10**9, "memory": 1 << 60}
L4_TAINT: Final = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
FLAVORS: Final = (
    ResourceFlavor(name="a100", node_labels=(("gpu", "a100"),)),
    # Pods of it share cores, too: its nodes limit them.
    ResourceFlavor(
        name="l4",
        node_labels=(("gpu", "l4"),),
        tolerations=(Toleration("nvidia.com/gpu", "Exists", None, "NoSchedule"),),
        nodes=FlavorNodes(mode=CapacityMode.ENFORCE),
    ),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    assets = find_assets()
    if assets is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: the real kube-scheduler is not tried")
    if not (assets / "kube-scheduler").exists():
        pytest.skip(f"KUBEBUILDER_ASSETS={assets} has no kube-scheduler: it is not tried")
    folder = tmp_path_factory.mktemp("plane")
    async with ControlPlane(folder / "plane", assets, controllers=False, fsync=False) as plane:
        plane.write_kubeconfig(folder / "kubeconfig")
        scheduler = await _scheduler(assets, folder)
        try:
            async with served(folder / "kubeconfig", None) as site:
                namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
                await site.session.create(api_path("", "v1", "namespaces"), namespace)
                yield site.session
        finally:
            await scheduler.stop()


async def _scheduler(assets: Path, folder: Path) -> ChildProcess:
    arguments = (
        f"--kubeconfig={folder / 'kubeconfig'}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    )
    log = folder / "kube-scheduler.log"
    return await spawn([assets / "kube-scheduler", *arguments], name="kube-scheduler", log=log, cwd=folder)


class SeenPods:
    """The pods of the namespace, as a watch reports them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._changed = asyncio.Condition()
        self.by_name: dict[str, Json] = {}

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._follow())
            try:
                yield
            finally:
                following.cancel()

    async def _follow(self) -> None:
        listed = await self._session.get(PODS)
        version = listed["metadata"]["resourceVersion"]
        for found in listed["items"]:
            self._note("ADDED", found)
        while True:
            async with self._session.watch(PODS, query={"resourceVersion": version}) as events:
                async for some in events:
                    async with self._changed:
                        for event in some:
                            found = event["object"]
                            version = found["metadata"]["resourceVersion"]
                            self._note(event["type"], found)
                        self._changed.notify_all()

    def _note(self, kind: str, found: Json) -> None:
        if kind == "DELETED":
            self.by_name.pop(found["metadata"]["name"], None)
        else:
            self.by_name[found["metadata"]["name"]] = found

    async def decided(self, names: Iterable[str]) -> list[Json]:
        """Wait until each of these pods is bound, or known to fit on no node. Return them."""
        wanted = list(names)
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(lambda: all(map(self._is_decided, wanted)))
        return [self.by_name[name] for name in wanted]

    def _is_decided(self, name: str) -> bool:
        pod = self.by_name.get(name)
        return pod is not None and (is_bound(pod) or _unschedulable(pod))

    async def gone(self, names: Iterable[str]) -> None:
        wanted = list(names)
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(lambda: not any(name in self.by_name for name in wanted))


def is_bound(pod: Json) -> bool:
    return bool(pod["spec"].get("nodeName"))


def _unschedulable(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any((one["type"], one.get("reason")) == ("PodScheduled", "Unschedulable") for one in conditions)


@dataclass
class Gang:
    body: Json
    workload: Workload
    names: list[str] = field(default_factory=list)


class Trial:
    """Gangs come and end at random. The engine predicts each, and the scheduler gets its pods."""

    def __init__(self, session: Session, seen: SeenPods, seed: int) -> None:
        self.random = random.Random(seed)
        self.session = session
        self.seen = seen
        self.world = NodeWorld(
            policies=(
                *FLAVORS,
                *(queue(one.name, groups=[group({one.name: PLENTY})]) for one in FLAVORS),
                *(local_queue(one.name, one.name) for one in FLAVORS),
            )
        )
        self.flavors = {one.name: one for one in FLAVORS}
        self.number = 0
        self.running: list[Gang] = []
        self.tally: Counter[tuple[str, bool, bool]] = Counter()
        """Predictions, and what the scheduler did: (kind, it fits, all its pods were bound)."""
        self.wrong: list[str] = []

    async def add_nodes(self) -> None:
        for number in range(12):
            await self._add_node(f"a100-{number:02}", "a100", 8, 64, zone=number % 3)
        for number in range(4):
            await self._add_node(f"a100-small-{number}", "a100", 4, 32, zone=number % 3)
        reserved = {"key": "dedicated", "value": "inference", "effect": "NoSchedule"}
        for number in range(2):
            await self._add_node(f"a100-reserved-{number}", "a100", 8, 64, taints=[reserved])
        await self._add_node("a100-cordoned", "a100", 8, 64, unschedulable=True)
        for number in range(8):
            await self._add_node(f"l4-{number}", "l4", 4, 24, zone=number % 3, taints=[L4_TAINT])

    async def _add_node(
        self, name: str, gpu: str, gpus: int, cores: int, *, zone: int = 0, **spec: Any
    ) -> None:
        labels = {"gpu": gpu, ZONE: f"zone-{zone}"}
        event = CONTEXT_KINDS["Node"].event(
            await _add_node(self.session, name, gpus, cores, labels=labels, **spec)
        )
        assert event is not None
        self.world.tell(event)

    def gang(self) -> Gang:
        self.number += 1
        name = f"gang-{self.number}"
        flavor = self.random.choices(("a100", "l4"), (3, 2))[0]
        one = self._template(flavor)
        if self.random.random() < 0.7:
            count = self.random.choice((1, 1, 2, 3, 4, 6, 8))
            version, kind = "batch/v1", "Job"
            spec: Json = {"parallelism": count, "completions": count, "template": one, "suspend": True}
        else:
            version, kind = "kubeflow.org/v1", "PyTorchJob"
            workers = self.random.choice((1, 2, 3, 5))
            replicas = {
                "Master": {"replicas": 1, "template": self._template(flavor)},
                "Worker": {"replicas": workers, "template": one},
            }
            spec = {"pytorchReplicaSpecs": replicas, "runPolicy": {"suspend": True}}
        metadata = {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {QUEUE_LABEL: flavor},
        }
        body = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
        event = observe(JOB_KINDS[kind], body)
        assert event is not None
        assert event.workload.problem is None, event.workload.problem.message
        self.world.tell(event)
        return Gang(body, event.workload)

    def _template(self, flavor: str) -> Json:
        """Of pods with GPUs alone, with cores beside them, or with cores alone."""
        gpus = self.random.choice((1, 1, 2, 4, 8) if flavor == "a100" else (0, 1, 1, 2, 4))
        requests = {GPU: str(gpus)} if gpus else {"cpu": "3", "memory": "4Gi"}
        if self.random.random() < 0.5:
            cores = max(1, gpus) * self.random.choice((2, 4) if flavor == "a100" else (2, 6, 9))
            requests |= {"cpu": str(cores), "memory": f"{cores * 4}Gi"}
        limits = {GPU: str(gpus)} if gpus else {}
        container: Json = {"name": "pytorch", "image": "i"}
        container["resources"] = {"requests": requests, "limits": limits}
        spec: Json = {"containers": [container], "restartPolicy": "Never"}
        if self.random.random() < 0.15:
            spec["nodeSelector"] = {ZONE: f"zone-{self.random.randrange(3)}"}
        return {"spec": spec}

    async def start(self, gang: Gang) -> None:
        """Create its pods, with what its flavor adds."""
        flavor = self.flavors[gang.body["metadata"]["labels"][QUEUE_LABEL]]
        owner = {key: gang.body[key] for key in ("apiVersion", "kind")}
        owner |= {"name": gang.workload.ref.name, "uid": gang.workload.ref.uid, "controller": True}
        bodies = []
        for number, template in enumerate(_pods_of(gang.body)):
            spec = dict(template["spec"])
            spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **dict(flavor.node_labels)}
            spec["tolerations"] = [toleration_json(one) for one in flavor.tolerations]
            name = f"{gang.workload.ref.name}-{number}"
            gang.names.append(name)
            metadata = {
                "name": name,
                "labels": {WORKLOAD_LABEL: str(gang.workload.id)},
                "ownerReferences": [owner],
            }
            bodies.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        await asyncio.gather(*(self.session.create(PODS, body) for body in bodies))

    async def end_pods(self, gang: Gang) -> None:
        selector = {"labelSelector": f"{WORKLOAD_LABEL}={gang.workload.id}", "gracePeriodSeconds": "0"}
        await self.session.request("DELETE", PODS, query=selector)
        await self.seen.gone(gang.names)

    def admitted(self, gangs: Iterable[Gang]) -> list[Gang]:
        """Those that the engine admits now, in order."""
        of = {gang.workload.id: gang for gang in gangs}
        found = [of[one.attempt.workload] for one in self.world.run() if isinstance(one, Admit)]
        self.world.settle()
        return found

    async def step(self) -> None:
        """Some gangs come together. Those that are admitted are bound; no other could have been."""
        waiting = [self.gang() for _ in range(self.random.choice((1, 1, 1, 2, 4)))]
        while some := self.admitted(waiting):
            for gang in some:
                await self.start(gang)
            for gang in some:
                waiting.remove(gang)
                self.running.append(gang)
                await self.judge(gang, fits=True)
        for gang in waiting:
            await self.start(gang)
            await self.judge(gang, fits=False)
            await self.end_pods(gang)
            self.world.tell(observed(gang.workload, finished=WorkloadOutcome.SUCCEEDED))
        if waiting or self.random.random() < 0.2:
            for _ in range(self.random.choice((1, 2, 3))):
                await self.end_one()

    async def judge(self, gang: Gang, *, fits: bool) -> None:
        pods = await self.seen.decided(gang.names)
        all_bound = all(map(is_bound, pods))
        self.tally[gang.workload.ref.kind, fits, all_bound] += 1
        if all_bound != fits:
            requests = [one["spec"]["containers"][0]["resources"]["requests"] for one in pods]
            self.wrong.append(f"{gang.workload.ref.name}: fits={fits}, bound={all_bound}: {requests}")
        if fits:
            self.world.tell(*filter(None, map(pod_event, pods)))

    async def end_one(self) -> None:
        if not self.running:
            return
        gang = self.running.pop(self.random.randrange(len(self.running)))
        uids = [self.seen.by_name[name]["metadata"]["uid"] for name in gang.names]
        await self.end_pods(gang)
        self.world.tell(*map(PodGone, uids))
        self.world.finish(gang.workload)
        self.world.run()


def _pods_of(body: Json) -> list[Json]:
    """The pod templates of a Job or PyTorchJob, one for each pod."""
    if body["kind"] == "Job":
        return [body["spec"]["template"]] * int(body["spec"]["parallelism"])
    replicas = body["spec"]["pytorchReplicaSpecs"].values()
    return [one["template"] for one in replicas for _ in range(one["replicas"])]


async def _add_node(
    session: Session, name: str, gpus: int, cores: int, *, labels: Mapping[str, str], **spec: Any
) -> Json:
    """Create a ready node. Return it."""
    amounts = {GPU: str(gpus), "cpu": str(cores), "memory": f"{cores * 8}Gi", "pods": "110"}
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": spec,
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    await session.create(NODES, body)
    # The API server adds a taint to each new node, which a controller takes away from those that are ready.
    return await session.patch(f"{NODES}/{name}", {"spec": {"taints": spec.get("taints")}})


async def test_what_is_admitted_is_bound_and_what_waits_is_not(session: Session, figures: list[str]) -> None:
    seen = SeenPods(session)
    async with seen.followed():
        trial = Trial(session, seen, seed=1)
        await trial.add_nodes()
        while trial.tally.total() < GANGS:
            await trial.step()
    report = ", ".join(
        f"{count} of kind {kind} predicted {fits}, bound {bound}"
        for (kind, fits, bound), count in sorted(trial.tally.items())
    )
    figures.append(f"kube-scheduler: {report}")
    for kind, most in MOST_WRONG.items():
        for fits in (True, False):
            wrong = trial.tally[kind, fits, not fits]
            made = wrong + trial.tally[kind, fits, fits]
            assert made > GANGS / 20, report
            assert wrong <= most * made, "\n".join([report, *trial.wrong])


async def test_a_pod_that_queues_is_bound_to_a_node_of_its_flavor_once_started(
    session: Session,
) -> None:
    taint = {"key": "spot", "value": "true", "effect": "NoSchedule"}
    await _add_node(session, "other-0", 0, 64, labels={})
    await _add_node(session, "spot-0", 0, 8, labels=dict(SPOT.node_labels), taints=[taint])
    seen = SeenPods(session)
    async with seen.followed():
        labels = {QUEUE_LABEL: "main", "queuectl.dev/gated": "true"}
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "queued", "labels": labels},
            "spec": {"containers": [container]},
        }
        gates = {"schedulingGates": [{"name": "queuectl.dev/admission"}]}
        queued = await session.create(PODS, {**body, "spec": {"containers": [container], **gates}})
        # The scheduler, which takes pods in order, does not wait for the first.
        await session.create(PODS, {**body, "metadata": {"name": "beside"}})
        (beside,) = await seen.decided(["beside"])
        assert is_bound(beside)
        assert not is_bound(seen.by_name["queued"])
        kinds = KindRegistry((*JOB_KINDS, *OPTIONAL))
        await KubeCluster(session, kinds).start(effect(queued, "Pod", kinds=kinds))
        (started,) = await seen.decided(["queued"])
        assert started["spec"]["nodeName"] == "spot-0"
