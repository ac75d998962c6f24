"""What the gate costs the API server: its CPU for the requests of a Job, without policies and with them.

A Job is created by a tenant, started with the controller's patch, and reported complete in one status patch,
as in the load of `jobs`; then it is deleted. Each step is done for all Jobs before the next one, so that each
has its own figure. The sets of policies are in force in turns on the same server, and the lowest figure of
each step counts. WorkloadPriorityClasses and LocalQueues exist: some policies are evaluated for each of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Final

from benchmarks.following import follow
from benchmarks.load import over
from benchmarks.machine import child_named, cpu_seconds, scratch
from benchmarks.objects import QUEUE, rights, training_job
from benchmarks.progress import bar
from benchmarks.report import Detail, Figure, Goal, Report
from benchmarks.site import until
from queuectl.app.kinds import built_in
from queuectl.core.model.policy import ResourceFlavor
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    AttemptState,
    Effect,
    EffectKey,
    PodSetAssignment,
    Verb,
    Workload,
)
from queuectl.kinds import patches
from queuectl.kinds.workloads import observe
from queuectl.kube.errors import ApiError
from queuectl.kube.session import JSON_PATCH, MERGE_PATCH
from queuectl.sandbox import tenancy
from queuectl.sandbox.control_plane import ControlPlane, find_assets
from queuectl.sandbox.install import Installer, read_kustomization
from queuectl.sandbox.players.api import Client, Object
from queuectl.shipped import shipped

JOBS, WARM, ROUNDS = 400, 100, 3
"""Jobs measured in a round, Jobs before that, and rounds of each set of policies."""
GOAL: Final = 1.2
"""API server CPU of a Job with the whole gate, divided by that without any policy."""
_AT_ONCE: Final = 16
_PATH: Final = "/apis/batch/v1/namespaces/default/jobs"
_STEPS: Final = ("create", "start", "status", "delete")
_NONE, _VALIDATING, _ALL = "no policy", "validating", "validating and mutating"
_UNLABELLED: Final = "Jobs without a label: "
_NAMED: Final = 4
"""WorkloadPriorityClasses, and LocalQueues of the namespace."""
_SETS: Final = (_NONE, _VALIDATING, _ALL)
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_FLAVOR: Final = ResourceFlavor(name="a100", node_labels=(("example.com/accelerator", "a100"),))

Costs = dict[str, float]
"""CPU milliseconds of the API server per Job, by step."""


def run(scale: int = 1) -> Report:
    return asyncio.run(_run(max(20, JOBS // scale), WARM // scale, ROUNDS if scale < 10 else 1))


async def _run(count: int, warm: int, rounds: int) -> Report:
    assets = find_assets()
    assert assets is not None, "the caller has looked for them"
    measured: dict[str, list[Costs]] = {}
    with scratch() as folder, bar("gate", rounds * len(_SETS)) as done:
        async with (
            ControlPlane(folder / "plane", assets, controllers=False, fsync=False) as plane,
            AsyncExitStack() as stack,
        ):
            clients = [
                await stack.enter_async_context(Client(plane.url, plane.ssl_context(), plane.tokens[name]))
                for name in ("admin", "tenant", "controller")
            ]
            load = Load(*clients)
            await load.install()
            await load.measure("first", warm, labelled=True)
            for number in range(rounds):
                for name in _SETS:
                    await load.gate(name)
                    # The server compiles all policies once more.
                    await load.measure("warm", warm, labelled=True)
                    for kind, labelled in (("", True), (_UNLABELLED, False)):
                        cost = await load.measure(f"{number}", count, labelled=labelled)
                        measured.setdefault(kind + name, []).append(cost)
                    done(number * len(_SETS) + _SETS.index(name) + 1)
    lowest = {
        name: {step: min(one[step] for one in costs) for step in _STEPS} for name, costs in measured.items()
    }
    return _report(lowest)


def _gates(thing: Object) -> bool:
    return "AdmissionPolicy" in thing["kind"]


def _named() -> Iterator[Object]:
    """What a Job may name: no Job of the load names one of them but the first LocalQueue."""
    common: Object = {"apiVersion": "queuectl.dev/v1beta1"}
    for number in range(_NAMED):
        yield {
            **common,
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": f"class-{number}"},
            "value": number,
        }
        yield {
            **common,
            "kind": "LocalQueue",
            "metadata": {"name": QUEUE if number == 0 else f"queue-{number}", "namespace": "default"},
            "spec": {"clusterQueue": "research"},
        }


class Load:
    """The requests of Jobs, by the three users that send them in a cluster."""

    def __init__(self, admin: Client, tenant: Client, controller: Client) -> None:
        self._admin, self._tenant, self._controller = admin, tenant, controller

    async def install(self) -> None:
        everything = [thing for thing in read_kustomization(shipped("manifests")) if not _gates(thing)]
        await Installer(self._admin).apply([*everything, *rights(), *_named()])

    async def gate(self, name: str) -> None:
        """Have this set of policies in force, and no other."""
        for kind in ("validating", "mutating"):
            for part in ("ybindings", "ies"):
                await self._admin.request("DELETE", f"{_ADMISSION}/{kind}admissionpolic{part}")
        await until(self._is_open)
        if name == _NONE:
            return
        policies = [thing for thing in read_kustomization(shipped("manifests")) if _gates(thing)]
        if name == _ALL:
            policies += read_kustomization(shipped("manifests") / "mutating")
        await Installer(self._admin).apply(policies)
        await tenancy.wait_for_gate(self._tenant, mutating=name == _ALL)

    async def _is_open(self) -> bool:
        """Does a labelled Job of a tenant start by itself?"""
        body = training_job("open")
        body["spec"]["suspend"] = False
        try:
            answer = await self._tenant.request("POST", _PATH, body, query={"dryRun": "All"})
        except ApiError:  # refused by a policy
            return False
        return not answer["spec"].get("suspend")

    async def measure(self, prefix: str, count: int, *, labelled: bool) -> Costs:
        """Create, start, finish and delete this number of Jobs, while one client watches.

        The admin starts those without a label: queuectl's account may not, and has no patch for them.
        """
        names = [f"{prefix}-{number}" for number in range(count)]
        made: dict[str, Object] = {}
        listed = asyncio.Event()

        async def create(name: str) -> None:
            body = training_job(name)
            if not labelled:
                body["metadata"]["labels"] = {"example.com/queue": QUEUE, "team": "research"}
            made[name] = await self._tenant.request("POST", _PATH, body)

        async def start(name: str) -> None:
            if not labelled:
                started = {"spec": {"suspend": False}}
                await self._admin.request("PATCH", f"{_PATH}/{name}", started, content_type=MERGE_PATCH)
                return
            patch = patches.start(built_in().registry["Job"], _effect(made[name]))
            await self._controller.request("PATCH", f"{_PATH}/{name}", patch, content_type=JSON_PATCH)

        async def finish(name: str) -> None:
            ended = over(made[name]["metadata"]["creationTimestamp"])
            await self._admin.request("PATCH", f"{_PATH}/{name}/status", ended, content_type=MERGE_PATCH)

        async def delete(name: str) -> None:
            await self._admin.request("DELETE", f"{_PATH}/{name}", {"propagationPolicy": "Background"})

        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(follow(self._admin, lambda job: None, listed.set))
            await listed.wait()
            steps = zip(_STEPS, (create, start, finish, delete), strict=True)
            found = {step: await _cpu(send, names) for step, send in steps}
            watching.cancel()
        return found


async def _cpu(send: Callable[[str], Awaitable[None]], names: Sequence[str]) -> float:
    server = child_named("kube-apiserver")
    before, left = cpu_seconds(server), iter(names)

    async def worker() -> None:
        for name in left:
            await send(name)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_AT_ONCE):
            tasks.create_task(worker())
    return (cpu_seconds(server) - before) / max(1, len(names)) * 1e3


def _effect(job: Object) -> Effect:
    event = observe(built_in().registry["Job"], job)
    assert event is not None
    workload = event.workload
    return Effect(
        key=EffectKey(workload.id, 1, Verb.START),
        workload=workload,
        observation=event.observation,
        attempt=_attempt(workload),
        flavors=(_FLAVOR,),
    )


def _attempt(workload: Workload) -> Attempt:
    pod_sets = tuple(
        PodSetAssignment(
            name=pods.name,
            count=pods.count,
            requests=pods.requests,
            flavors=tuple((resource, _FLAVOR.name) for resource, _ in pods.requests),
            node_selector=pods.node_selector,
            tolerations=pods.tolerations,
        )
        for pods in workload.pod_sets
    )
    return Attempt(
        workload=workload.id,
        number=1,
        state=AttemptState.ADMITTED,
        assignment=Assignment(cluster_queue="research", pod_sets=pod_sets),
        admitted_at=workload.created_at,
        sequence=1,
    )


def _report(found: dict[str, Costs]) -> Report:
    total = {name: sum(costs.values()) for name, costs in found.items()}
    figures = [
        Figure(
            name=f"API server CPU, {kind}{name}",
            value=total[kind + name],
            unit="ms a Job",
            ceiling=total[kind + _NONE],
            bound=_NONE,
            goal=Goal("ratio", "most", GOAL) if kind + name == _ALL else None,
        )
        for kind in ("", _UNLABELLED)
        for name in (_VALIDATING, _ALL)
    ]
    rows = tuple((name, *(costs[step] for step in _STEPS), total[name]) for name, costs in found.items())
    return Report("gate", figures, [Detail("ms of API server CPU a Job", ("", *_STEPS, "all"), rows)])
