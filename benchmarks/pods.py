"""What pods that queue one by one cost: requests and CPU of the API server, and starts per second.

Pods without a queue label are created without the policies and with them, in turns. Labelled ones are created
while their queue is held, then all are started, then all are stopped. No pod is bound to a node.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple

import yaml

from benchmarks.machine import child_named, cpu_seconds, scratch
from benchmarks.objects import GPU, QUEUE, separate_queues
from benchmarks.progress import bar
from benchmarks.report import Detail, Figure, Report
from benchmarks.site import Site, says, shipped_manifests, site, until
from queuectl.kinds.builtin import BUILT_IN, OPTIONAL
from queuectl.kinds.jobs import QUEUE_LABEL
from queuectl.kinds.manifests import manifests
from queuectl.kinds.registry import KindRegistry
from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from queuectl.sandbox.install import Installer
from queuectl.sandbox.players.api import Object

PODS, ROUNDS = 1000, 2
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


def run(scale: int = 1) -> Report:
    return asyncio.run(_run(max(20, PODS // scale), ROUNDS if scale < 10 else 1))


async def _run(count: int, rounds: int) -> Report:
    plain: dict[str, list[float]] = {policies: [] for policies in _SETS}
    with scratch() as folder, bar("pods", 3 * rounds + 3) as done:
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
                await until(load.all_open)
                done(3 * rounds + 1)
                used = cpu_seconds(child.pid)
                queued["start"] = await load.carried_out("None", ("PATCH", "pods"))
                used = cpu_seconds(child.pid) - used
                done(3 * rounds + 2)
                queued["stop"] = await load.carried_out("HoldAndDrain", ("DELETE", "pods"))
                done(3 * rounds + 3)
            finally:
                await child.stop(10.0)
    return _report(count, plain, queued, used / count * 1e3)


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
        async def all_created() -> None:
            names: Iterator[str] = (f"{prefix}-{number}" for number in range(self._count))

            async def worker() -> None:
                for name in names:
                    await self._site.api.request("POST", _PATH, _pod(name, labelled=labelled))

            async with asyncio.TaskGroup() as tasks:
                for _ in range(_AT_ONCE):
                    tasks.create_task(worker())

        return await self._cost(all_created)

    async def carried_out(self, policy: str, write: tuple[str, str]) -> _Cost:
        """The queue gets this stopPolicy; until each pod has had this write."""

        async def all_written() -> None:
            before = (await self._site.requests())[write]
            await self.stop_policy(policy)

            async def look() -> bool:
                return (await self._site.requests())[write] - before >= self._count

            await until(look, pause=0.2)

        return await self._cost(all_written)

    async def stop_policy(self, policy: str) -> None:
        path = f"/apis/queuectl.dev/v1beta1/clusterqueues/{_NAMESPACE}"
        body = {"spec": {"stopPolicy": policy}}
        await self._site.api.request("PATCH", path, body, content_type=MERGE_PATCH)

    async def all_open(self) -> bool:
        """Are all in the ledger?"""
        return bool(await self._site.ask("SELECT count(*) FROM queuectl.workload_open") == self._count)

    async def clear(self) -> None:
        await self._site.api.request("DELETE", _PATH, _AT_LAST)

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


def _pod(name: str, *, labelled: bool) -> Object:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {GPU: "1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {QUEUE_LABEL: QUEUE} if labelled else {"app": "x"}},
        "spec": {"containers": [{"name": "main", "image": "train:1", "resources": resources}]},
    }


def _report(count: int, plain: dict[str, list[float]], queued: dict[str, _Cost], controller: float) -> Report:
    without, others, gated = (min(plain[policies]) for policies in _SETS)
    start, stop = queued["start"], queued["stop"]
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
        Figure(name="controller CPU, start", value=controller, unit="ms a pod"),
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
