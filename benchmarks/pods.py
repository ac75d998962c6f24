"""What pods that queue one by one cost: requests and CPU of the API server, and starts per second.

Pods without a queue label are created without the policies and with them, in turns. Labelled ones are created
while their queue is held, then all are started, then all are stopped. As many pods start in groups, and fill
the queue; more pods, alike as those of one Deployment, come and wait. No pod is bound to a node.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple

import yaml

from benchmarks.machine import child_named, cpu_seconds, memory, scratch
from benchmarks.objects import GPU, QUEUE, separate_queues
from benchmarks.progress import bar
from benchmarks.report import Detail, Figure, Report
from benchmarks.site import Site, says, shipped_manifests, site, until
from queuectl.kinds.builtin import BUILT_IN, OPTIONAL
from queuectl.kinds.jobs import QUEUE_LABEL, KindRegistry
from queuectl.kinds.manifests import manifests
from queuectl.kinds.reserved_keys import GROUP_LABEL, GROUP_SIZE
from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.install import Installer
from queuectl.sandbox.players.api import Object

PODS, ROUNDS, GROUPS = 1000, 2, 10
_WAITING: Final = 5
"""As many times the pods that fill the queue."""
_AT_ONCE: Final = 16
_NAMESPACE: Final = "room"
_PATH: Final = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_NONE, _OTHERS, _ALL = "no policy", "those of other kinds", "also those of pods"
_SETS: Final = (_NONE, _OTHERS, _ALL)
_AT_LAST: Final = {"gracePeriodSeconds": 0}


class _Cost(NamedTuple):
    """Per pod, but for `seconds` of all."""

    server: float
    """CPU milliseconds of the API server."""
    requests: dict[str, float]
    """Writes of pods by verb and resource."""
    seconds: float


class _Waiting(NamedTuple):
    """Of the controller and its ledger, while pods come that wait."""

    pods: int
    processor: float
    """CPU milliseconds a pod."""
    grown: float
    """Peak of its memory in KiB a pod, more than before."""
    peak: int
    """Bytes."""
    rows: float
    """Decisions a pod."""


def run(scale: int = 1) -> Report:
    return asyncio.run(_run(max(20, PODS // scale), ROUNDS if scale < 10 else 1))


async def _run(count: int, rounds: int) -> Report:
    plain: dict[str, list[float]] = {policies: [] for policies in _SETS}
    with scratch() as folder, bar("pods", 3 * rounds + 5) as done:
        async with site(folder, separate_queues({_NAMESPACE: count})) as place:
            load = _PodLoad(place, count)
            await load.install()
            for number, policies in enumerate(_SETS * rounds):
                await load.gate(policies)
                plain[policies].append((await load.create(f"plain-{number}", labelled=False)).server)
                await load.clear()
                done(number + 1)
            queued = {}
            child = await place.controller(kinds=("Pod",))
            try:
                await says(child, "leading with epoch")
                await load.stop_policy("Hold")
                queued["create"] = await load.create("queued", labelled=True)
                await until(load.open(count))
                done(3 * rounds + 1)
                used = cpu_seconds(child.pid)
                queued["start"] = await load.carried_out("None", ("PATCH", "pods"))
                used = cpu_seconds(child.pid) - used
                done(3 * rounds + 2)
                queued["stop"] = await load.carried_out("HoldAndDrain", ("DELETE", "pods"))
                done(3 * rounds + 3)
                queued["start in groups"] = await load.start_groups()
                done(3 * rounds + 4)
                waiting = await load.wait_in_full_queue(child.pid)
                done(3 * rounds + 5)
            finally:
                await child.stop(10.0)
    return _report(count, plain, queued, used / count * 1e3, waiting)


class _PodLoad:
    def __init__(self, place: Site, count: int) -> None:
        self._site = place
        self._count = count
        files = manifests(KindRegistry((*BUILT_IN, *OPTIONAL)))
        left_out = ("webhook/", "default-queue/", "kueue-labels/")
        others = {_name(one) for one in shipped_manifests()}
        made = [
            one
            for name, text in files.items()
            if not name.startswith(left_out) and not name.endswith("kustomization.yaml")
            for one in yaml.safe_load_all(text)
            if one
        ]
        self._policies = [
            one for one in made if "AdmissionPolicy" in one["kind"] and _name(one) not in others
        ]
        self._rest = [one for one in made if "AdmissionPolicy" not in one["kind"]]

    async def install(self) -> None:
        await Installer(self._site.api).apply(self._rest)

    async def gate(self, policies: str) -> None:
        """Install these policies, and remove others; returns once that has taken effect."""
        on = policies == _ALL
        await self._site.gate(policies != _NONE)
        if on:
            await Installer(self._site.api).apply(self._policies)
        else:
            for policy in self._policies:
                await self._remove(policy)

        async def in_effect() -> bool:
            try:
                made = await self._site.api.request(
                    "POST", _PATH, _pod("probe", labelled=True), query={"dryRun": "All"}
                )
            except ApiError:
                return False
            return bool(made["spec"].get("schedulingGates")) is on

        await until(in_effect)

    async def _remove(self, policy: Object) -> None:
        plural = f"{policy['kind'].lower()}s".replace("policys", "policies")
        try:
            await self._site.api.request(
                "DELETE", f"/apis/{policy['apiVersion']}/{plural}/{policy['metadata']['name']}"
            )
        except ApiError as error:
            if error.status != 404:
                raise

    async def create(self, prefix: str, *, labelled: bool) -> _Cost:
        pods = (_pod(f"{prefix}-{number}", labelled=labelled) for number in range(self._count))
        return await self._cost(lambda: self._create(pods))

    async def _create(self, pods: Iterator[Object]) -> None:
        async def worker() -> None:
            for pod in pods:
                await self._site.api.request("POST", _PATH, pod)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(_AT_ONCE):
                tasks.create_task(worker())

    async def start_groups(self) -> _Cost:
        """Groups of equal size fill the queue, and start together."""
        await until(self.open(0))
        await self.stop_policy("Hold")
        size = self._count // GROUPS
        await self._create(
            _pod(f"group-{group}-{number}", labelled=True, group=(f"group-{group}", size))
            for group in range(GROUPS)
            for number in range(size)
        )
        await until(self.open(GROUPS))
        return await self.carried_out("None", ("PATCH", "pods"), size * GROUPS)

    async def wait_in_full_queue(self, controller: int) -> _Waiting:
        count = _WAITING * self._count
        decisions = "SELECT count(*) FROM queuectl.decision"
        rows, used, before = await self._site.ask(decisions), cpu_seconds(controller), memory(controller)[1]
        await self._create(_pod(f"waiting-{number}", labelled=True) for number in range(count))
        await until(self.open(GROUPS + count))
        peak = memory(controller)[1]
        return _Waiting(
            count,
            (cpu_seconds(controller) - used) / count * 1e3,
            (peak - before) / count / 1024,
            peak,
            (await self._site.ask(decisions) - rows) / count,
        )

    async def carried_out(self, policy: str, write: tuple[str, str], pods: int | None = None) -> _Cost:
        """The queue gets this stopPolicy; until each pod has had this write. `pods`: how many there are."""

        async def all_written() -> None:
            before = (await self._site.requests())[write]
            await self.stop_policy(policy)

            async def look() -> bool:
                return (await self._site.requests())[write] - before >= (pods or self._count)

            await until(look, pause=0.2)

        return await self._cost(all_written)

    async def stop_policy(self, policy: str) -> None:
        path = f"/apis/queuectl.dev/v1beta1/clusterqueues/{_NAMESPACE}"
        body = {"spec": {"stopPolicy": policy}}
        await self._site.api.request("PATCH", path, body, content_type=MERGE_PATCH)

    def open(self, count: int) -> Callable[[], Awaitable[bool]]:
        """Are so many workloads in the ledger?"""

        async def look() -> bool:
            return bool(await self._site.ask("SELECT count(*) FROM queuectl.workload_open") == count)

        return look

    async def clear(self) -> None:
        await self._site.api.request("DELETE", _PATH, _AT_LAST, deadline=300)

    async def _cost(self, work: Callable[[], Awaitable[None]]) -> _Cost:
        server = child_named("kube-apiserver")
        requests, cpu, began = await self._site.requests(), cpu_seconds(server), time.perf_counter()
        await work()
        seconds, cpu = time.perf_counter() - began, cpu_seconds(server) - cpu
        after: Counter[tuple[str, str]] = await self._site.requests()
        writes = {
            f"{verb} {resource}": (after[verb, resource] - requests[verb, resource]) / self._count
            for verb, resource in after
            if resource.startswith("pods") and verb in ("POST", "PATCH", "DELETE", "PUT")
        }
        return _Cost(cpu / self._count * 1e3, {name: each for name, each in writes.items() if each}, seconds)


def _name(policy: Object) -> tuple[str, str]:
    return policy["kind"], policy["metadata"]["name"]


def _pod(name: str, *, labelled: bool, group: tuple[str, int] | None = None) -> Object:
    """`group`: its name and size."""
    labels = {QUEUE_LABEL: QUEUE} if labelled else {"app": "x"}
    annotations = {}
    if group is not None:
        labels[GROUP_LABEL], annotations[GROUP_SIZE] = group[0], str(group[1])
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {GPU: "1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "train:1", "resources": resources}]},
    }


def _report(
    count: int,
    plain: dict[str, list[float]],
    queued: dict[str, _Cost],
    controller: float,
    waiting: _Waiting,
) -> Report:
    without, others, gated = (min(plain[policies]) for policies in _SETS)
    start, stop, groups = queued["start"], queued["stop"], queued["start in groups"]
    size = count // GROUPS
    full = f"{waiting.pods} pods that wait in a full queue"
    figures = [
        Figure(
            name="API server CPU, create without a label",
            value=gated,
            unit="ms a pod",
            ceiling=others,
            bound=_OTHERS,
        ),
        Figure(
            name="API server CPU, create with a label",
            value=queued["create"].server,
            unit="ms a pod",
            ceiling=without,
            bound=_NONE,
        ),
        Figure(name=f"starts of {count} pods", value=count / start.seconds, unit="pods a second"),
        Figure(name=f"stops of {count} pods", value=count / stop.seconds, unit="pods a second"),
        Figure(
            name=f"starts of {GROUPS} groups of {size}",
            value=size * GROUPS / groups.seconds,
            unit="pods a second",
        ),
        Figure(name="controller CPU, start", value=controller, unit="ms a pod"),
        Figure(name=f"controller CPU, {full}", value=waiting.processor, unit="ms a pod"),
        Figure(name=f"controller memory, {full}", value=waiting.grown, unit="KiB a pod"),
        Figure(name=f"peak memory of the controller, {full}", value=waiting.peak / 2**20, unit="MiB"),
        Figure(name=f"decisions in the ledger, {full}", value=waiting.rows, unit="a pod"),
    ]
    rows = tuple(
        (
            step,
            cost.server,
            cost.seconds,
            ", ".join(f"{each:g} {name}" for name, each in cost.requests.items()),
        )
        for step, cost in queued.items()
    )
    each: tuple[tuple[str | float, ...], ...] = tuple((policies, *costs) for policies, costs in plain.items())
    rounds = tuple(f"round {number + 1}" for number in range(len(plain[_ALL])))
    return Report(
        "pods",
        figures,
        [
            Detail("labelled pods", ("", "API server ms a pod", "seconds", "writes a pod"), rows),
            Detail("API server ms a pod without a label", ("", *rounds), each),
        ],
    )
