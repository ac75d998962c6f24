"""A server of alike pods and trainings as pod groups in one full queue, over a day of changes.

Played: the owners of the pods, which make again what was deleted, the autoscaler of the server, the scheduler
and the kubelet.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from queuectl.kube.errors import NotFound
from queuectl.kube.session import api_path
from tests.doubles.invariants import checked_commits
from tests.doubles.ledger import MemoryStore
from tests.integration.kube.sites import NAMESPACE, SITES, Site
from tests.integration.kube.test_pod_group_restarts import GROUP, PODS, _bind, _phase, _until, leading
from tests.walks import _furnish

pytestmark = pytest.mark.asyncio(loop_scope="module")
CLASSES = {"training": 10, "serving": 100, "urgent": 1000}
CLUSTER_QUEUE = api_path("queuectl.dev", "v1beta1", "clusterqueues", None, "main")
CONFIG_MAPS = api_path("", "v1", "configmaps", NAMESPACE)
Pod = dict[str, Any]
BEARS, TARGET = 10, 8
"""Load that a pod of the server can bear, and of which its autoscaler gives each."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with SITES["in_process"](tmp_path_factory.mktemp("day")) as found:
        await _furnish(found)
        for name, value in CLASSES.items():
            body = {
                "apiVersion": "queuectl.dev/v1beta1",
                "kind": "WorkloadPriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
            await found.create(api_path("queuectl.dev", "v1beta1", "workloadpriorityclasses"), body)
        preemption = {"withinClusterQueue": "LowerPriority"}
        await found.session.patch(CLUSTER_QUEUE, {"spec": {"preemption": preemption}})
        yield found


@dataclass
class Owner:
    """Keeps as many pods as it wants, as a ReplicaSet does; those of a group are made when all are gone."""

    name: str
    priority: str
    wanted: int
    group: bool = False
    revision: int = 1
    made: int = field(default=0, init=False)

    def body(self) -> Pod:
        self.made += 1
        labels = {
            "app": self.name,
            "revision": str(self.revision),
            "queuectl.dev/queue-name": "main",
            "queuectl.dev/gated": "true",
            "queuectl.dev/priority-class": self.priority,
        }
        size = {"queuectl.dev/pod-group-total-count": str(self.wanted)} if self.group else {}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{self.name}-{self.made}",
                "namespace": NAMESPACE,
                "labels": labels | ({GROUP: self.name} if self.group else {}),
                "annotations": size,
            },
            "spec": {
                "containers": [
                    {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
                ],
                "schedulingGates": [{"name": "queuectl.dev/admission"}],
            },
        }


@dataclass
class Autoscaler:
    """As a HorizontalPodAutoscaler: pods that wait count as idle, and nothing changes if that reverses the
    answer of the others. It is off at 0 pods."""

    owner: Owner
    load: int

    def adjust(self, running: int) -> None:
        if not self.owner.wanted or not running:
            return
        used = min(self.load, running * BEARS)
        limit = max if used > running * TARGET else min
        self.owner.wanted = limit(self.owner.wanted, math.ceil(used / TARGET))


def _waits(pod: Pod) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


def _ends(pod: Pod) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _of(owner: Owner, pods: Sequence[Pod]) -> list[Pod]:
    return [one for one in pods if one["metadata"]["labels"]["app"] == owner.name]


class Day:
    def __init__(self, site: Site, store: MemoryStore) -> None:
        self._site = site
        self._store = store
        self.owners: dict[str, Owner] = {}
        self.autoscalers: list[Autoscaler] = []

    def add(self, name: str, priority: str, wanted: int, *, group: bool = True) -> Owner:
        self.owners[name] = Owner(name, priority, wanted, group)
        return self.owners[name]

    async def pods(self) -> list[Pod]:
        items: list[Pod] = (await self._site.session.get(PODS))["items"]
        return items

    async def finish(self, name: str) -> None:
        """Its pods succeed, and are deleted."""
        owner = self.owners.pop(name)
        mine = _of(owner, await self.pods())
        for one in mine:
            await _phase(self._site, one["metadata"]["name"], "Succeeded")

        async def over() -> bool:
            return not any(one.ref.name == name for one in self._store.workloads.values())

        async with asyncio.timeout(20):
            while not await over():
                await asyncio.sleep(0.01)
        for one in mine:
            await self._delete(one, 0)

    async def _delete(self, pod: Pod, grace: int | None = None) -> None:
        body = {} if grace is None else {"gracePeriodSeconds": grace}
        with suppress(NotFound):
            await self._site.session.delete(f"{PODS}/{pod['metadata']['name']}", body)

    async def passes(self) -> None:
        """A second does: creation is known in whole ones."""
        last = max(one["metadata"]["creationTimestamp"] for one in await self.pods())
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "clock-"}}

        async def later() -> bool:
            found = await self._site.create(CONFIG_MAPS, body)
            return bool(found["metadata"]["creationTimestamp"] > last)

        await _until(later)

    async def _tick(self) -> None:
        await _bind(self._site)
        for one in await self.pods():
            if _ends(one):
                await self._delete(one, 0)
        pods = [one for one in await self.pods() if not _ends(one)]
        for scaler in self.autoscalers:
            scaler.adjust(sum(pod["status"]["phase"] == "Running" for pod in _of(scaler.owner, pods)))
        for owner in self.owners.values():
            mine = _of(owner, pods)
            for _ in range(owner.wanted - len(mine) if not owner.group or not mine else 0):
                await self._site.create(PODS, owner.body())
            for one in sorted(mine, key=_waits, reverse=True)[: max(0, len(mine) - owner.wanted)]:
                await self._delete(one)
            old = [one for one in mine if one["metadata"]["labels"]["revision"] != str(owner.revision)]
            if old and len(mine) == owner.wanted and not any(map(_waits, mine)):  # maxUnavailable: 1
                await self._delete(old[0])

    async def until(self, **running: int) -> None:
        """All owners' pods are there, so many of each run, and quota is held for those, and no others."""
        async with asyncio.timeout(20):
            while not await self._settled(running):
                await self._tick()
                await asyncio.sleep(0.01)

    async def _settled(self, running: dict[str, int]) -> bool:
        pods = await self.pods()
        if any(map(_ends, pods)):
            return False
        for owner in self.owners.values():
            mine = _of(owner, pods)
            alive = [one for one in mine if one["status"]["phase"] == "Running"]
            revisions = {one["metadata"]["labels"]["revision"] for one in mine}
            whole = len(mine) == owner.wanted and len(alive) == running.get(owner.name, 0)
            if not whole or revisions - {str(owner.revision)}:
                return False
        held = [one.attempt.assignment.pods for one in self._store.workloads.values() if one.attempt]
        return sum(held) == sum(running.values()) and not self._store.effects


@pytest.mark.acceptance
async def test_servers_and_trainings_share_a_queue_for_a_day_and_nothing_is_stuck(site: Site) -> None:
    store = MemoryStore()
    day = Day(site, store)

    server = day.add("server", "serving", 4, group=False)
    autoscaler = Autoscaler(server, 4 * TARGET)
    day.autoscalers.append(autoscaler)

    def serve(wanted: int) -> None:
        """The load for which the autoscaler wants so many."""
        autoscaler.load = wanted * TARGET
        server.wanted = server.wanted or 1  # by its user: it was off

    def close() -> None:
        server.wanted = 0

    async def step(change: Callable[[], object], **running: int) -> None:
        change()
        await day.until(**running)

    with checked_commits():
        async with leading(site, store):
            await day.until(server=4)
            await step(lambda: day.add("train", "training", 4), server=4, train=4)
            # A scale-up preempts the training, which waits as a whole, and comes back at the scale-down.
            await step(lambda: serve(6), server=6, train=0)
            await step(lambda: serve(4), server=4, train=4)
            await day.passes()
            await step(lambda: day.add("later", "training", 2), server=4, train=4, later=0)
            # A training that is urgent preempts the other one first, then servers.
            await step(lambda: day.add("now", "urgent", 6), server=2, train=0, later=0, now=6)
            await day.finish("now")
            await day.until(server=4, train=4, later=0)  # the one that was preempted has its old place
            await step(close, train=4, later=2)
            await step(lambda: serve(8), server=8)
            server.revision = 2  # a rollout in the full queue
            await day.until(server=8)
            await step(lambda: serve(2), server=2, train=4, later=2)
            await day.finish("train")
            await day.finish("later")
            await step(close)
    assert not store.workloads
