"""At random times of a busy hour: each answer as of that time is the one that was given then."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from random import Random
from typing import Any

from queuectl.api import query
from queuectl.api.answer_routes import AnswerRoutes
from queuectl.api.asking import Endpoint, Question, Source
from queuectl.api.identity import Unrestricted
from queuectl.api.past import PastStates
from queuectl.api.preemption_routes import PreemptionRoutes
from queuectl.api.problems import Refusal
from queuectl.api.query import Cursors
from queuectl.api.queue_routes import QueueRoutes
from queuectl.api.view import View
from queuectl.api.workload_routes import WorkloadRoutes
from queuectl.core.model import StoredWorkload
from queuectl.kinds.policy import parse_policy
from queuectl.ledger.memory import MemoryLedger
from tests.job_kinds import JOB_KINDS
from tests.simulator.hours import START, Hour
from tests.simulator.test_past_hours import times

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
QUESTIONS = [(path, text) for path, texts in ASKED.items() for text in texts]
EACH = 4
"""Questions at each time."""
OBJECTS = {"clusterqueues": "research", "cohorts": "gpus", "resourceflavors": "a100"}


class Told(Hour):
    """`told`: by time and question, the document of then."""

    def __init__(self, seed: int, times: list[datetime]) -> None:
        self.told: dict[datetime, dict[tuple[str, str, str], Any]] = {}
        self._moment: datetime | None = None
        super().__init__(seed, times)

    def _keep(self) -> None:
        while self._times and self._times[-1] < super()._clock():
            self._moment = self._times.pop()
            self.told[self._moment] = asyncio.run(told(self.ledger, self._moment))
        self._moment = None

    def _clock(self) -> datetime:
        return self._moment or super()._clock()


async def told(
    ledger: MemoryLedger, when: datetime, *, back: bool = False
) -> dict[tuple[str, str, str], Any]:
    """By path, name of a workload and query. `back`: as of `when`, which is over."""
    view = View(ledger, parse_policy, lambda: 0.0)
    await view.refresh()
    assert view.problem is None
    source = Source(view, ledger, JOB_KINDS, Cursors(b"key"), PastStates(ledger, parse_policy))
    workloads = WorkloadRoutes(source)
    parts = (
        QueueRoutes(source),
        workloads,
        AnswerRoutes(source, workloads),
        PreemptionRoutes(source, workloads),
    )
    endpoints = {one.path: one for part in parts for one in part.endpoints()}
    told_back = {path for path, one in endpoints.items() if query.AS_OF in one.parameters}
    assert told_back == {*ASKED, "/api/v1/workloads/{namespace}/{kind}/{name}/story"}
    found = {}
    for path, text in Random(str(when)).sample(QUESTIONS, EACH):
        for one in among(ledger, when) if "{kind}" in path else (None,):
            values = query.parse(text, endpoints[path].parameters)
            if back:
                values["asOf"] = when
            key = (path, one.ref.name if one is not None else "", text)
            found[key] = await answer(endpoints[path], values, one)
    return found


def among(ledger: MemoryLedger, when: datetime) -> Iterator[StoredWorkload]:
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


def test_each_answer_as_of_a_time_is_the_one_that_was_given_then() -> None:
    played = Told(7, times(3, 200))
    played.run()
    assert len(played.told) > 190
    kinds: set[tuple[str, bool]] = set()
    for when, then in played.told.items():
        found = asyncio.run(told(played.ledger, when, back=True))
        for asked, document in then.items():
            assert found[asked] == document, (when, asked)
            kinds.add((asked[0], isinstance(document, dict)))
        assert found.keys() == then.keys()
        assert when > START
    assert {path for path, answered in kinds if answered} == ASKED.keys(), "each was answered"
