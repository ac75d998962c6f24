"""At random times of a busy hour: each answer as of that time is the one that was given then."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from random import Random
from typing import Any

import pytest

from queuectl.api import requests
from queuectl.api.answer_routes import AnswerRoutes
from queuectl.api.capacity_routes import CapacityRoutes
from queuectl.api.http import Refusal
from queuectl.api.preemption_routes import PreemptionRoutes
from queuectl.api.queue_routes import QueueRoutes
from queuectl.api.requests import Cursors, Endpoint, Question, Unrestricted
from queuectl.api.view import AnswerSource, PastStates, View
from queuectl.api.workload_routes import WorkloadRoutes
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import StoredWorkload
from queuectl.core.quota.tree import QuotaTree
from queuectl.kinds.policy import parse_policy
from tests.builders import GPU
from tests.doubles import engine_state
from tests.doubles.readers import ReadableLedger
from tests.job_kinds import JOB_KINDS
from tests.unit.answers.hours import START, Hour
from tests.unit.core import profiles
from tests.unit.scenarios.test_past_hours import SECONDS, times

SINCE = "since=2026-11-02T09:00:00Z"
ASKED = {
    "/api/v1/clusterqueues": ("",),
    "/api/v1/clusterqueues/{name}": ("",),
    "/api/v1/clusterqueues/{name}/share": (SINCE, f"{SINCE}&steps=3"),
    "/api/v1/localqueues": ("",),
    "/api/v1/localqueues/{namespace}/{name}": ("",),
    "/api/v1/cohorts": ("",),
    "/api/v1/cohorts/{name}": ("",),
    "/api/v1/cohorts/{name}/share": ("", SINCE),
    "/api/v1/resourceflavors": ("",),
    "/api/v1/resourceflavors/{name}": ("",),
    "/api/v1/workloads": ("limit=1000", "phase=Finished", "order=position&clusterqueue=product"),
    "/api/v1/workloads/{namespace}/{kind}/{name}": ("",),
    "/api/v1/workloads/{namespace}/{kind}/{name}/history": ("",),
    "/api/v1/workloads/{namespace}/{kind}/{name}/waited": ("",),
    "/api/v1/workloads/{namespace}/{kind}/{name}/exposure": ("",),
    "/api/v1/decisions": ("", "after=40&limit=7", "queue=other&after=0&limit=200", "namespace=product"),
    "/api/v1/preemptions": ("", SINCE, "queue=main&limit=2"),
}
"""By path, what is asked. A write that was acknowledged later is told so in a story."""
OF_NODES = {"/api/v1/capacity": ("",), "/api/v1/capacity/{name}": ("",)}
"""Asked beside these where there are nodes. Demand as of a time is not what the controller told (A31)."""
NOT_ASKED = {
    "/api/v1/workloads/{namespace}/{kind}/{name}/story",
    "/api/v1/demand",
    "/api/v1/demand/{name}",
}
EACH = 4
"""Questions at each time."""
OBJECTS = {"clusterqueues": "research", "cohorts": "gpus", "resourceflavors": "a100", "capacity": "a100"}


def questions(*, on_nodes: bool) -> list[tuple[str, str]]:
    asked = ASKED | OF_NODES if on_nodes else ASKED
    return [(path, text) for path, texts in asked.items() for text in texts]


Quotas = dict[tuple[str, str], dict[FlavorResource, int]]
"""What counts of nominal quotas, by kind and name."""


class Told(Hour):
    """`told`: by time and question, the document of then."""

    def __init__(self, seed: int, times: list[datetime], *, on_nodes: bool, seconds: float) -> None:
        self.told: dict[datetime, dict[tuple[str, str, str], Any]] = {}
        self.quotas: dict[datetime, Quotas] = {}
        """As they counted in the engine, by time."""
        self._moment: datetime | None = None
        super().__init__(seed, times, on_nodes=on_nodes, seconds=seconds)

    def _keep(self) -> None:
        while self._times and self._times[-1] < super()._clock():
            self._moment = self._times.pop()
            asked = questions(on_nodes=bool(self.nodes))
            self.told[self._moment] = asyncio.run(told(self.ledger, self._moment, asked))
            self.quotas[self._moment] = quotas(engine_state.tree(self._engine))
        self._moment = None

    def _clock(self) -> datetime:
        return self._moment or super()._clock()


def quotas(tree: QuotaTree) -> Quotas:
    return {
        (node.kind, node.name): {tree.names[cell]: node.nominal[cell] for cell in node.named}
        for node in tree.nodes()
    }


async def told(
    ledger: ReadableLedger, when: datetime, asked: list[tuple[str, str]], *, back: bool = False
) -> dict[tuple[str, str, str], Any]:
    """By path, name of a workload and query. `back`: as of `when`, which is over."""
    view = View(ledger, parse_policy, lambda: 0.0)
    await view.refresh()
    assert view.problem is None
    source = AnswerSource(view, ledger, JOB_KINDS, Cursors(b"key"), PastStates(ledger, parse_policy))
    workloads = WorkloadRoutes(source)
    parts = (
        QueueRoutes(source),
        workloads,
        AnswerRoutes(source, workloads),
        PreemptionRoutes(source, workloads),
        CapacityRoutes(source),
    )
    endpoints = {one.path: one for part in parts for one in part.endpoints()}
    told_back = {path for path, one in endpoints.items() if requests.AS_OF in one.parameters}
    assert told_back == ASKED.keys() | OF_NODES.keys() | NOT_ASKED
    found = {}
    for path, text in Random(str(when)).sample(asked, EACH):
        for one in among(ledger, when) if "{kind}" in path else (None,):
            values = requests.parse(text, endpoints[path].parameters)
            if back:
                values["asOf"] = when
            key = (path, one.ref.name if one is not None else "", text)
            found[key] = await answer(endpoints[path], values, one)
    return found


def among(ledger: ReadableLedger, when: datetime) -> Iterator[StoredWorkload]:
    """Two of those that had arrived, also if they were over: the same now and later."""
    store = ledger.store
    lives = {one.id: one for one in (*store.workloads.values(), *(one for _, one in store.ended))}
    arrived = {row.workload for row in store.decisions if row.now <= when}
    known = sorted(id for id in lives if id in arrived)
    for id in Random(str(when)).sample(known, min(2, len(known))):
        yield lives[id]


async def answer(endpoint: Endpoint, values: dict[str, Any], one: StoredWorkload | None) -> Any:
    path = {"namespace": "students", "name": "main"}
    for plural, name in OBJECTS.items():
        if f"/{plural}/" in endpoint.path:
            path = {"name": name}
    if one is not None:
        path = {"namespace": one.ref.namespace, "kind": one.ref.kind, "name": one.ref.name}
    try:
        found = await endpoint.answer(Question(Unrestricted(), path, values, "", _again))
    except Refusal as refusal:
        return refusal.status
    # When the answer was made, and how.
    return found.model_dump(mode="json", exclude={"age_seconds", "controller", "next"})


async def _again() -> Unrestricted:
    return Unrestricted()


@cache
def hour(*, on_nodes: bool) -> Told:
    count = max(30, profiles.examples(60 if on_nodes else 200))
    played = Told(7, times(3, count), on_nodes=on_nodes, seconds=SECONDS)
    played.run()
    assert len(played.told) > 0.9 * count
    return played


@pytest.mark.acceptance
@pytest.mark.parametrize("on_nodes", [False, True], ids=["quota", "shortage"])
def test_each_answer_as_of_a_time_is_the_one_that_was_given_then(on_nodes: bool) -> None:
    played, asked = hour(on_nodes=on_nodes), questions(on_nodes=on_nodes)
    kinds: set[tuple[str, bool]] = set()
    for when, then in played.told.items():
        found = asyncio.run(told(played.ledger, when, asked, back=True))
        for question, document in then.items():
            assert found[question] == document, (when, question)
            kinds.add((question[0], isinstance(document, dict)))
        assert found.keys() == then.keys()
        assert when > START
    expected = {path for path, _ in asked}
    assert {path for path, answered in kinds if answered} == expected, "each was answered"


@pytest.mark.acceptance
def test_as_of_a_time_quotas_count_as_they_did_in_the_engine_while_nodes_came_and_went() -> None:
    played = hour(on_nodes=True)
    states = PastStates(played.ledger, parse_policy)
    counted: list[int] = []
    for when, then in played.quotas.items():
        state = asyncio.run(states.sight(when, observed=False, epoch=1)).state
        found = {("ClusterQueue", name): state.effective(one) for name, one in state.queues.items()}
        found |= {
            ("Cohort", n): state.effective(one) for n, one in state.cohorts().items() if one is not None
        }
        assert found == {node: amounts for node, amounts in then.items() if node in found}, when
        assert {node for node, amounts in then.items() if amounts} <= found.keys()
        research, cell = ("ClusterQueue", "research"), FlavorResource("a100", GPU)
        counted.append(found[research][cell] - state.queues["research"].nominal[cell])
    assert 3 * sum(more < 0 for more in counted) > 2 * len(counted), "there was hardly a shortage"
    assert len(set(counted)) > 5, "what counts hardly changed"
    assert 0 in counted, "there was never enough"
