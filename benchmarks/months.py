"""Simulated months of three borrowing teams, recorded in a ledger in memory: what forecasts are tried on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Coroutine, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

from queuectl.core.decisions import Plan
from queuectl.core.engine import Engine
from queuectl.core.model.events import ConfigurationObserved, ContextObserved, Event, Listed
from queuectl.core.model.workload import EffectKey, ObjectRef, PodSet, Workload, WorkloadId
from queuectl.kinds.context import CONTEXT_KINDS
from queuectl.kinds.policy import policy_event
from queuectl.scenarios.arrivals import Arrival, milliseconds
from queuectl.scenarios.rebuilt_engine import SOURCE
from queuectl.simulation.player import Play
from tests.doubles.readers import ReadableLedger

GPU: Final = "nvidia.com/gpu"
DAY: Final = 86_400.0
START: Final = datetime(2026, 10, 5, tzinfo=UTC)
"""A Monday."""
KINDS: Final = ("stationary", "bursty", "policy change", "few long jobs")
QUOTA: Final = 16
"""GPUs of each team."""

Found = TypeVar("Found")


def at_once(work: Coroutine[Any, Any, Found]) -> Found:
    """Return the result of a coroutine that never waits: the ledger in memory has such ones only."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")


class Class(NamedTuple):
    """Jobs that are alike."""

    prefix: str
    team: str
    submitter: str
    gpus: int
    per_day: float
    """On a working day; a third of it on a day of a weekend."""
    median: float
    """Seconds."""
    sigma: float


def _usual(factor: float = 1.0) -> list[Class]:
    return [
        one
        for team, load in (("a", 1.2), ("b", 1.0), ("c", 0.6))
        for one in (
            Class("train", team, f"{team}-ada", 4, 9 * load * factor, 14_000, 0.9),
            Class("finetune", team, f"{team}-ada", 2, 14 * load * factor, 7_000, 0.8),
            Class("eval", team, f"{team}-grace", 1, 45 * load * factor, 2_400, 0.7),
        )
    ]


def _classes(kind: str) -> list[Class]:
    if kind == "few long jobs":
        return [Class("pretrain", team, f"{team}-ada", 8, 1.7, 86_400, 0.7) for team in "abc"]
    return _usual(0.85 if kind == "bursty" else 1.0)


def policy(kind: str, name: str, namespace: str = "", **spec: Any) -> Event:
    return policy_event(
        {
            "apiVersion": "queuectl.dev/v1beta1",
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }
    )


def team(name: str, gpus: int) -> Event:
    quota = {"name": "a100", "resources": [{"name": GPU, "nominalQuota": gpus}]}
    return policy(
        "ClusterQueue",
        name,
        cohortName="all",
        namespaceSelector={},
        resourceGroups=[{"coveredResources": [GPU], "flavors": [quota]}],
        preemption={"reclaimWithinCohort": "Any"},
    )


def site(quota: int) -> list[Event]:
    """`quota`: GPUs of each team."""

    def namespace(name: str) -> ContextObserved:
        found = CONTEXT_KINDS["Namespace"].event({"metadata": {"name": name}})
        assert isinstance(found, ContextObserved)
        return found

    return [
        ConfigurationObserved('{"scheduling":{}}'),
        *map(namespace, "abc"),
        policy("ResourceFlavor", "a100"),
        policy("Cohort", "all"),
        *(team(name, quota) for name in "abc"),
        *(policy("LocalQueue", "main", name, clusterQueue=name) for name in "abc"),
    ]


class Recorded(Play):
    """Stores each plan before it counts, with the writes that are acknowledged with it."""

    def __init__(self, there: Iterable[Event], start: datetime, eviction_seconds: float) -> None:
        """`there`: the objects at the start."""
        self._done: list[EffectKey] = []
        engine = Engine(frozenset({SOURCE}))
        super().__init__(engine, start, eviction_seconds=eviction_seconds)
        engine.handle([*there, Listed(SOURCE)])

    @abstractmethod
    def _store(self, plan: Plan, done: tuple[EffectKey, ...]) -> int:
        """Return the sequence of its first decision."""

    def _commit(self, plan: Plan) -> None:
        done, self._done = tuple(self._done), []
        self._sequence = self._store(plan, done)
        super()._commit(plan)

    def _write(self, effect: Any) -> Iterable[Event]:
        self._done.append(effect.key)
        return super()._write(effect)


class Month(Recorded):
    """Plays it with its decisions in `ledger`. `size`: of quota and load alike."""

    def __init__(self, kind: str, days: int = 30, seed: int = 1, size: int = 1) -> None:
        self.ledger = ReadableLedger(self._clock)
        self._epoch = at_once(self.ledger.take_epoch("month"))
        self._batches = count()
        super().__init__(site(QUOTA * size), START, eviction_seconds=30.0)
        self.days = days
        if kind == "policy change":
            half = days * DAY / 2
            reduced = QUOTA * size // 2
            self.happen(milliseconds(half), lambda _: [team("b", reduced), team("c", reduced)])
        dice = Random(f"{kind}/{seed}")
        self.work = sorted(arrivals(kind, days, dice, size), key=lambda one: one.at)

    def run(self) -> None:
        self.play_until(self.days * DAY)

    def add(self, more: Iterable[Arrival]) -> None:
        """Other workloads, before it is played."""
        self.work += more

    def play_until(self, seconds: float) -> None:
        self.play(self.work, until=seconds)

    def _decide(self) -> None:
        super()._decide()
        if self._done:  # a controller does not wait for the next decision to acknowledge its writes
            done, self._done = tuple(self._done), []
            self._store(self._engine.decide(self._clock()), done)

    def _store(self, plan: Plan, done: tuple[EffectKey, ...]) -> int:
        batch = f"batch-{next(self._batches)}"
        return at_once(self.ledger.commit(plan, done, epoch=self._epoch, batch=batch))


def arrivals(kind: str, days: int, dice: Random, size: int = 1) -> Iterator[Arrival]:
    for one in _classes(kind):
        for number, at in enumerate(_times(one.per_day * size, days, dice)):
            yield arrival(one, number, at, dice)
    if kind == "bursty":
        for burst, at in enumerate(_times(0.6, days, dice)):
            name = dice.choice("abc")
            sweep = Class("sweep", name, f"{name}-grace", 1, 0, 5_000, 0.6)
            for number in range(dice.randint(20, 60)):
                yield arrival(sweep, 1000 * burst + number, at + number, dice)


def _times(per_day: float, days: int, dice: Random) -> Iterator[float]:
    """By thinning: most between 9 and 18, few at night, a third at weekends."""
    most, at = 2.2 * per_day / DAY, 0.0
    while (at := at + dice.expovariate(most)) < days * DAY:
        hour, weekend = at % DAY / 3600, int(at // DAY) % 7 >= 5
        rate = (2.2 if 9 <= hour < 18 else 0.28) / (3 if weekend else 1)
        if dice.random() * 2.2 < rate:
            yield at


def arrival(one: Class, number: int, at: float, dice: Random) -> Arrival:
    name = f"{one.prefix}-{one.gpus}g-{number}" if one.prefix != "sweep" else f"sweep-{number}"
    identity = WorkloadId(f"{one.team}-{name}")
    workload = Workload(
        id=identity,
        ref=ObjectRef(one.team, "Job", name, identity),
        queue="main",
        created_at=START + timedelta(seconds=int(at)),
        pod_sets=(PodSet(name="main", count=one.gpus, requests=((GPU, 1),)),),
        submitter=one.submitter,
    )
    run = dice.lognormvariate(0.0, one.sigma) * one.median
    return Arrival(at=milliseconds(at), workload=workload, run=milliseconds(run))
