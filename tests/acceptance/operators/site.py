"""A real control plane with the gate, real operators, and the controller: what these tests share.

The controller runs in this process with a ledger in memory: a test reads what is held without a request. As
in a cluster it has the rights of its service account and no other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Set
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from queuectl.controller.loop import Controller, LoopOptions
from queuectl.core.engine import Engine
from queuectl.core.model.workload import ObjectRef
from queuectl.kinds.jobs import JobKind
from queuectl.kinds.reserved_keys import SUBMITTER_ANNOTATION
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.errors import ApiError
from queuectl.kube.reflectors import Reflectors, reflectors
from queuectl.kube.session import Session, api_path
from queuectl.kube.sources import sources
from queuectl.sandbox.control_plane import ControlPlane
from queuectl.sandbox.install import Installer, read_kustomization
from queuectl.sandbox.players import play
from queuectl.sandbox.players.api import Client
from queuectl.sandbox.players.informer import Informer
from queuectl.sandbox.players.kubelet import FAKE_NODE
from queuectl.sandbox.players.pods import PODS, controller_uid
from queuectl.shipped import shipped
from tests.acceptance.operators.kinds import SUBJECTS
from tests.acceptance.operators.programs import (
    NAMESPACE,
    TRAINER,
    TRAINER_2_3,
    Operator,
    Program,
    needed_by_training_operator,
    rights,
)
from tests.acceptance.operators.subjects import GPU, OVERHEAD, RUNTIME_CLASS, Subject
from tests.acceptance.operators.toys import Toys
from tests.acceptance.operators.trainer import runtimes
from tests.doubles.ledger import MemoryLedger, MemoryStore
from tests.doubles.processes import controllers_stopped
from tests.integration.sandbox.cluster import WallClock
from tests.integration.sandbox.polling import eventually
from tests.job_kinds import JOB_KINDS
from tests.rights import bind
from tests.unit.controller.site import Silent

Json = dict[str, Any]
POOLS = ("left", "right")
"""Flavors with different label keys and taints, such as `left.example.com/pool`, each with its node."""
SECONDS = 120.0
"""Until when a condition must be true: many tests share two cores."""
_RBAC = "rbac.authorization.k8s.io"
TENANTS: Json = {
    "apiGroups": sorted({row.group for row in JOB_KINDS}),
    "resources": ["*"],
    "verbs": ["*"],
}
"""The rule of the tenant's role."""


class CountingCluster(KubeCluster):
    """Knows how often it has looked for pods of a workload."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.looks: Counter[str] = Counter()
        """By the UID of the object; those that found something alive."""

    async def anything_alive(
        self,
        ref: ObjectRef,
        *,
        still: float = 0.0,
        unreachable: Set[str] = frozenset(),
    ) -> bool:
        alive = await super().anything_alive(ref, still=still, unreachable=unreachable)
        self.looks[ref.uid] += alive
        return alive


@dataclass
class Site:
    """A control plane whose operators and controller run."""

    name: str
    plane: ControlPlane
    admin: Client
    tenant: Client
    store: MemoryStore
    """The ledger."""
    cluster: CountingCluster
    operators: dict[str, Operator | Toys]
    objects: dict[str, Informer]
    """By the name of the row."""
    pods: Informer
    absent: frozenset[str] = frozenset()
    """Kinds whose definitions were not there when the controller began to lead."""
    background: set[asyncio.Task[Any]] = field(default_factory=set)

    async def until(self, what: str, condition: Callable[[], object], seconds: float = SECONDS) -> None:
        """Wait for a condition on what this process knows: ledger, objects, pods."""

        def holds() -> object:
            self.check()
            return condition()

        await eventually(holds, what, seconds)

    def check(self) -> None:
        """Raise the error of a part of the site that has ended."""
        for operator in self.operators.values():
            operator.check()
        for task in self.background:
            if task.done():
                task.result()

    @asynccontextmanager
    async def operators_stopped(self) -> AsyncIterator[None]:
        """Also the controllers of Kubernetes itself."""
        try:
            async with controllers_stopped(self.plane):
                for operator in self.operators.values():
                    await operator.stop()
                yield
        finally:
            for operator in self.operators.values():
                await operator.start()


@asynccontextmanager
async def served(
    name: str, folder: Path, assets: Path, binaries: Path, programs: tuple[Program, ...]
) -> AsyncIterator[Site]:
    """The controller leads before the definitions of the operators are there."""
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(ControlPlane(folder / "plane", assets, fsync=False))
        plane.write_kubeconfig(folder / "kubeconfig")
        admin, tenant = [
            await stack.enter_async_context(Client(plane.url, plane.ssl_context(), plane.tokens[name]))
            for name in ("admin", "tenant")
        ]
        await _install(admin)
        session = await Session.from_kubeconfig(str(folder / "kubeconfig"), "controller")
        stack.push_async_callback(session.close)
        clock = WallClock()
        site = Site(
            name=name,
            plane=plane,
            admin=admin,
            tenant=tenant,
            store=MemoryStore(),
            cluster=CountingCluster(session, JOB_KINDS),
            operators=_operators(name, programs, binaries, plane, admin),
            objects={row.name: Informer(admin, collection(row), clock) for row in JOB_KINDS},
            pods=Informer(admin, PODS, clock, {"namespace": _namespace, "owner": controller_uid}),
        )
        stack.push_async_callback(_end, site)
        controller, reflecting = _controller(site, session)
        _run(site, controller.run())
        _run(site, play(admin, clock, controller_manager=False, training_operator=False))
        for store in (site.pods, *site.objects.values()):
            _run(site, store.run())
        await site.until("the controller leads", lambda: controller.ready)
        site.absent = frozenset(kind for kind, state in reflecting.kinds().items() if not state.installed)
        await _install_operators(site)
        for subject in SUBJECTS:
            if subject.on(name):
                await eventually(partial(_in_force, tenant, subject), f"the gate on {subject}", SECONDS)
        yield site


def _operators(
    site: str, programs: tuple[Program, ...], binaries: Path, plane: ControlPlane, admin: Client
) -> dict[str, Operator | Toys]:
    found: dict[str, Operator | Toys] = {one.name: Operator(one, binaries, plane, admin) for one in programs}
    toys = any(subject.site == site and not subject.real for subject in SUBJECTS)
    return found | ({"toys": Toys(plane, admin)} if toys else {})


async def _in_force(tenant: Client, subject: Subject) -> bool:
    """The server answers 404 until it serves a kind, and 503 until its mutating policies cover it."""
    path = api_path(subject.row.group, subject.row.version, subject.row.plural, "default")
    try:
        made = await tenant.request("POST", path, subject.body("probe"), query={"dryRun": "All"})
    except ApiError as error:
        if error.status not in (404, 503):
            raise
        return False
    return SUBMITTER_ANNOTATION in made["metadata"]["annotations"]


def collection(row: JobKind) -> str:
    return api_path(row.group, row.version, row.plural)


def _namespace(pod: Json) -> str | None:
    return str(pod["metadata"]["namespace"])


def _run(site: Site, work: Coroutine[Any, Any, None]) -> None:
    site.background.add(asyncio.ensure_future(work))  # noqa: TID251 (it outlives the task of this fixture)


async def _end(site: Site) -> None:
    for task in site.background:
        task.cancel()
    await asyncio.gather(*site.background, return_exceptions=True)
    for operator in site.operators.values():
        await operator.stop()


def _controller(site: Site, session: Session) -> tuple[Controller, Reflectors]:
    watched = sources(JOB_KINDS)
    controller = Controller(
        ledger=MemoryLedger(WallClock().now, site.store),
        cluster=site.cluster,
        engine=Engine(frozenset(source.name for source in watched)),
        observer=Silent(),
        holder="operators",
        options=LoopOptions(
            event_seconds=3600,
        ),
    )
    reflecting = reflectors(session, controller.emit, watched)
    _run(site, reflecting.run())
    return controller, reflecting


async def _install(admin: Client) -> None:
    """queuectl as docs/install.md has it, flavors with their nodes, and a tenant with rights on all kinds."""
    installer = Installer(admin)
    for folder in ("", "mutating"):
        await installer.apply(read_kustomization(shipped("manifests") / folder))
    for pool in POOLS:
        await installer.apply([_flavor(pool), _node(pool)])
    role = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "tenant"},
        "rules": [TENANTS],
    }
    namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    overhead: Json = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": RUNTIME_CLASS},
        "handler": "none",
        "overhead": {"podFixed": OVERHEAD},
    }
    await installer.apply([overhead, role, namespace, rights()])
    await give_tenant_rights(admin, "default")


async def give_tenant_rights(admin: Client, namespace: str) -> None:
    """In one namespace only: a right in all of them makes a user the controller of a kind."""
    await bind(admin, "tenant", "ClusterRole", "tenant", TENANTS, namespace=namespace)


def _flavor(pool: str) -> Json:
    toleration = {"key": f"{pool}.example.com/only", "operator": "Exists", "effect": "NoSchedule"}
    spec = {"nodeLabels": {f"{pool}.example.com/pool": "yes"}, "tolerations": [toleration]}
    return {
        "apiVersion": "queuectl.dev/v1beta1",
        "kind": "ResourceFlavor",
        "metadata": {"name": pool},
        "spec": spec,
    }


def _node(pool: str) -> Json:
    room = dict.fromkeys(("cpu", "memory", "ephemeral-storage", "pods", GPU, "example.com/nic"), "100T")
    labels = {FAKE_NODE: "true", f"{pool}.example.com/pool": "yes"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": pool, "labels": labels},
        "spec": {"taints": [{"key": f"{pool}.example.com/only", "effect": "NoSchedule"}]},
        "status": {"capacity": room, "allocatable": room},
    }


async def _install_operators(site: Site) -> None:
    """Definitions first: an operator ends where one is missing."""
    installer = Installer(site.admin)
    for operator in site.operators.values():
        await installer.apply(operator.definitions())
    if "training-operator" in site.operators:
        await installer.apply(needed_by_training_operator())
    for operator in site.operators.values():
        await operator.install()
        await operator.start()
    if not {TRAINER.name, TRAINER_2_3.name}.isdisjoint(site.operators):
        await installer.apply(runtimes())
