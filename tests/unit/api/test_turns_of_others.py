"""However many workloads there are, each path lets other requests have a turn after some hundred of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from queuectl.answers import state
from queuectl.answers.state import in_parts
from queuectl.core.model.capacity import NodeFacts
from queuectl.core.model.policy import Node
from queuectl.core.model.workload import PodSet, StoredWorkload, WorkloadId
from tests.unit.api.canned import EPOCH_START, GPU, WAITS, CannedReadings, workload
from tests.unit.api.conftest import Rest
from tests.unit.api.test_as_of import written
from tests.unit.api.test_what_ifs import ledger, manifest

Serve = Callable[..., Awaitable[Rest]]
WAITING = 3_000
MOST = 500
"""Workloads that one path may look at between two turns of others."""


class Counted(dict[WorkloadId, StoredWorkload]):
    """The workloads of a state, which counts those that are looked at from the event loop."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.looked = 0
        self._loop = threading.get_ident()

    def _look(self, number: int) -> None:
        if threading.get_ident() == self._loop:
            self.looked += number

    def __getitem__(self, key: WorkloadId) -> StoredWorkload:
        self._look(1)
        return super().__getitem__(key)

    def values(self) -> Any:
        self._look(len(self))
        return super().values()

    def items(self) -> Any:
        self._look(len(self))
        return super().items()

    def __iter__(self) -> Iterator[WorkloadId]:
        self._look(len(self))
        return super().__iter__()


def many() -> CannedReadings:
    readings = ledger()
    pods = PodSet(name="main", count=6, requests=((GPU, 1),))
    for queue, namespace in (("team-a", "default"), ("team-b", "other")):
        rows = [
            replace(
                workload(f"{queue}-{one}", one, namespace=namespace, cluster_queue=queue, reason=WAITS),
                id=WorkloadId(f"{queue}-{one}"),
                pod_sets=(pods,),
            )
            for one in range(10, 10 + WAITING // 2)
        ]
        readings.commit(*rows)
    readings.node(NodeFacts(name="gpu-1", node=Node("gpu-1", allocatable=((GPU, 8),))))
    readings.keep(EPOCH_START)
    return readings


async def most_between_turns(rest: Rest, counted: Counted, ask: Awaitable[Any]) -> int:
    most, done = 0, False

    async def other() -> None:
        nonlocal most
        while not done:
            before = counted.looked
            await asyncio.sleep(0)
            most = max(most, counted.looked - before)

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(other())
        answer = await ask
        done = True
    assert answer.status == 200, await answer.text()
    return most


@pytest.fixture
async def asked(serve: Serve) -> tuple[Rest, Counted]:
    rest = await serve(many())
    sight = rest.view.sight()
    assert sight is not None
    counted = Counted(sight.state.workloads)
    object.__setattr__(sight.state, "workloads", counted)
    return rest, counted


FILTERS = ("name=zzz", "labelSelector=team%3Dzzz", "submitter=zzz", "queue=zzz", "kind=PyTorchJob")


async def test_no_path_looks_at_many_workloads_without_a_turn_for_others(asked: tuple[Rest, Counted]) -> None:
    rest, counted = asked
    document = await (await rest.client.get("/openapi.json")).json()
    paths = []
    for template, methods in document["paths"].items():
        name = "all" if "cohorts" in template else "a100"
        name = "team-a" if "clusterqueues" in template or "demand" in template else name
        name = "main" if "localqueues" in template else "gpu-1" if "nodes" in template else name
        names = ("runs", "waits") if "{kind}" in template else (name,)
        if "get" in methods:
            paths += [
                template.format(namespace="default", kind="job", name=one, month="2026-01") for one in names
            ]
    paths += [f"/api/v1/workloads?{one}" for one in FILTERS]
    paths += [f"/api/v1/workloads?clusterqueue=team-a&order=position&{one}" for one in FILTERS[:4]]
    paths += [f"/api/v1/workloads?order={one}&limit=100" for one in ("newest", "devices", "submitter")]
    paths += [f"/api/v1/workloads?name=zzz&asOf={written(EPOCH_START)}"]
    seen = {path: await most_between_turns(rest, counted, rest.client.get(path)) for path in paths}
    quote = rest.client.post("/api/v1/quote", json=manifest(pods=2))
    seen["quote"] = await most_between_turns(rest, counted, quote)
    assert {path: most for path, most in seen.items() if most > MOST} == {}
    assert counted.looked > WAITING, "they were looked at"


async def test_a_part_counts_items_that_are_passed_over() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        others = tasks.create_task(other())
        assert [one async for one in in_parts(range(10 * state.SCANNED)) if one < 0] == []
        others.cancel()
    assert turns >= 10
