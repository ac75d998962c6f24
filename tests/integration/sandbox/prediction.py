"""Predicted against placed: gangs that fit by what queuectl says, and what the sandbox's scheduler does.

The scheduler plays these rules of kube-scheduler: node selector, required node affinity, taints, readiness,
cordons and requests. It takes the first node by name that fits, one pod after another, and never preempts.
queuectl expects pods on other nodes (M7): what is judged is whether all pods of a gang find a node at all.

    python -m tests.integration.sandbox.prediction --gangs 2000 --nodes 200 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any

from queuectl.core.features.nodes.room import NodeRoom
from queuectl.core.model.events import ContextObserved
from queuectl.core.model.pods import PodGroup, Pods, PodShape
from queuectl.core.model.policy import Node, NodeRules, ResourceFlavor, Toleration
from queuectl.core.model.workload import WorkloadId
from queuectl.kinds.context import CONTEXT_KINDS
from queuectl.kinds.pods import pod_event
from queuectl.sandbox.players.api import Object
from queuectl.sandbox.players.pods import node_of
from queuectl.sandbox.players.scheduler import Scheduler
from tests.builders import GPU, T0

POOLS = ("a100", "h100", "t4")
SPOT = {"key": "spot", "value": "", "effect": "NoSchedule"}
FLAVORS = {pool: ResourceFlavor(name=pool, node_labels=(("pool", pool),)) for pool in POOLS}


class Objects:
    """The objects of one collection, as the players' store has them."""

    def __init__(self) -> None:
        self.found: dict[str, Object] = {}
        self._told: list[Callable[[str, Object | None, Object | None], None]] = []

    def subscribe(self, told: Callable[[str, Object | None, Object | None], None]) -> None:
        self._told.append(told)

    def get(self, key: str) -> Object | None:
        return self.found.get(key)

    def put(self, key: str, obj: Object | None) -> None:
        before = self.found.pop(key, None)
        if obj is not None:
            self.found[key] = obj
        for tell in self._told:
            tell(key, before, obj)

    def observe(self, obj: Object) -> None:
        """What a write has answered: conditions say nothing here."""


class Bindings:
    """An API that binds pods, and takes every other write."""

    def __init__(self, pods: Objects) -> None:
        self._pods = pods

    async def request(self, method: str, path: str, body: Any = None, **_: Any) -> Object:
        if body is not None and body.get("kind") == "Binding":
            key = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
            pod = self._pods.get(key)
            assert pod is not None
            self._pods.put(key, {**pod, "spec": {**pod["spec"], "nodeName": body["target"]["name"]}})
        return {}


class Now:
    def now(self) -> datetime:
        return T0

    async def sleep(self, seconds: float) -> None:
        """No time passes."""


@dataclass
class Outcome:
    """Numbers of gangs."""

    fit: int = 0
    """Predicted to fit."""
    wrong_fit: int = 0
    """Some of their pods found no node."""
    no_fit: int = 0
    """Predicted not to fit."""
    wrong_no_fit: int = 0
    """All of their pods found a node."""

    def __str__(self) -> str:
        return (
            f"{self.fit} gangs were predicted to fit, {self.wrong_fit} of them did not; "
            f"{self.no_fit} were predicted not to fit, {self.wrong_no_fit} of them did"
        )


@dataclass
class Gang:
    name: str
    pods: Pods
    objects: list[Object] = field(default_factory=list)


class Play:
    def __init__(self, seed: int, nodes: int) -> None:
        self._random = Random(seed)
        self._pods, self._nodes = Objects(), Objects()
        api: Any = Bindings(self._pods)
        pods: Any = self._pods
        known: Any = self._nodes
        self._scheduler = Scheduler(api, pods, known, Now())
        self._room = NodeRoom(FLAVORS, NodeRules())
        self.outcome = Outcome()
        self._running: list[Gang] = []
        for number in range(nodes):
            self._add(self._node(f"n{number:03}"))

    def _node(self, name: str) -> Object:
        gpus = str(self._random.choice((4, 8, 8, 16)))
        return {
            "metadata": {"name": name, "labels": {"pool": self._random.choice(POOLS), "zone": name[-1]}},
            "spec": {
                "taints": [SPOT] if self._random.random() < 0.2 else [],
                "unschedulable": self._random.random() < 0.05,
            },
            "status": {
                "allocatable": {"cpu": "1000", "pods": "250", GPU: gpus},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }

    def _add(self, node: Object) -> None:
        self._nodes.put(node["metadata"]["name"], node)
        seen = CONTEXT_KINDS["Node"].observe(node)
        assert isinstance(seen, Node)
        assert ContextObserved(seen)
        self._room.observe(seen, T0)

    def _gang(self, number: int) -> Gang:
        random = self._random
        pool = random.choice(POOLS)
        kinds = [(random.choice((1, 1, 2, 4, 8, 16)), random.randint(1, 24))]
        if random.random() < 0.3:
            kinds.append((random.choice((1, 2, 4)), random.randint(1, 4)))
        zone = {"zone": str(random.randint(0, 9))} if random.random() < 0.15 else {}
        spot = random.random() < 0.5
        gang = Gang(f"g{number}", tuple(_group(pool, gpus, count, zone, spot) for gpus, count in kinds))
        for place, (gpus, count) in enumerate(kinds):
            for each in range(count):
                gang.objects.append(_pod(gang.name, f"{gang.name}-{place}-{each}", pool, gpus, zone, spot))
        return gang

    async def step(self, number: int) -> None:
        """One more gang comes; some of those that run end."""
        gang = self._gang(number)
        self._room.settle()
        predicted = self._room.fits(gang.pods)
        placed = await self._place(gang)
        if predicted:
            self.outcome.fit += 1
            self.outcome.wrong_fit += not placed
        else:
            self.outcome.no_fit += 1
            self.outcome.wrong_no_fit += placed
        if predicted and placed:
            self._observe(gang)
            self._running.append(gang)
        else:
            self._end(gang)
        while self._running and self._random.random() < 0.4:
            self._end(self._running.pop(self._random.randrange(len(self._running))))

    async def _place(self, gang: Gang) -> bool:
        """Give its pods to the scheduler, in any order. Return whether all are bound."""
        for pod in self._random.sample(gang.objects, len(gang.objects)):
            key = _key(pod)
            self._pods.put(key, pod)
            await self._scheduler.reconcile(key)
        return all(node_of(self._now(pod)) for pod in gang.objects)

    def _now(self, pod: Object) -> Object:
        found = self._pods.get(_key(pod))
        assert found is not None
        return found

    def _observe(self, gang: Gang) -> None:
        for pod in gang.objects:
            event = pod_event(self._now(pod))
            assert event is not None
            self._room.observe_pod(event.pod, T0)

    def _end(self, gang: Gang) -> None:
        for pod in gang.objects:
            self._pods.put(_key(pod), None)
            self._room.forget_pod(pod["metadata"]["uid"])


def _key(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _group(pool: str, gpus: int, count: int, zone: Mapping[str, str], spot: bool) -> PodGroup:
    tolerations = (Toleration(key="spot", operator="Exists"),) if spot else ()
    return PodGroup(PodShape(((GPU, gpus),), ((GPU, pool),), tuple(zone.items()), tolerations), count)


def _pod(gang: str, name: str, pool: str, gpus: int, zone: Mapping[str, str], spot: bool) -> Object:
    container = {"name": "main", "resources": {"limits": {GPU: str(gpus)}}}
    return {
        "metadata": {
            "uid": name,
            "name": name,
            "namespace": "ns",
            "labels": {"queuectl.dev/workload": WorkloadId(gang)},
        },
        "spec": {
            "containers": [container],
            "nodeSelector": {"pool": pool, **zone},
            "tolerations": [{"key": "spot", "operator": "Exists"}] if spot else [],
        },
        "status": {"phase": "Pending"},
    }


async def play(seed: int, gangs: int, nodes: int) -> Outcome:
    """Let `gangs` random gangs come to `nodes` random nodes, one after another."""
    found = Play(seed, nodes)
    for number in range(gangs):
        await found.step(number)
    return found.outcome


def main() -> None:
    parser = argparse.ArgumentParser(description="Predicted against placed: see the head of this module.")
    parser.add_argument("--gangs", type=int, default=2000)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(asyncio.run(play(given.seed, given.gangs, given.nodes)))


if __name__ == "__main__":
    main()
