"""The work of two days of a simulated month in nine minutes, at the same time of each day.

Nothing is scaled but the work itself: forecasts draw the arrivals of an earlier day at the same time of the
day, so a session finds those before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final, NamedTuple

from benchmarks.months import DAY, QUOTA, Recorded, arrivals
from benchmarks.objects import gang_job, shared_queues
from queuectl.answers.forecast.samples import LEAST_ENDINGS
from queuectl.core.decisions import Plan
from queuectl.core.model.events import ConfigurationObserved, Event
from queuectl.core.model.workload import EffectKey
from queuectl.kinds.batch_job import JOB
from queuectl.kinds.context import CONTEXT_KINDS
from queuectl.kinds.policy import policy_event
from queuectl.kinds.reserved_keys import SUBMITTER_ANNOTATION
from queuectl.kinds.workloads import observe
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.ports.reader import PastLife
from queuectl.sandbox.control_plane import TENANT_USER
from queuectl.scenarios.arrivals import Arrival, milliseconds

Object = dict[str, Any]

FASTER: Final = 300
"""Two days of the month take nine minutes: of each time, what is left after the first eight hours."""
SECONDS: Final = 540.0
_ENDING: Final = (2.0, 4.0)
"""Seconds that the pods of evicted Jobs take to end, at least and at most."""
TREES: Final = tuple(map(str, range(1, 10)))
"""Cohort trees, which have nothing in common: forecasts of one tree depend on each other."""
_NIGHT: Final = 8 * 3600
_DAYS: Final = 2


class Task(NamedTuple):
    """One Job of a session. Times in seconds, `at` from its start."""

    at: float
    namespace: str
    name: str
    gpus: int
    run: float

    @property
    def body(self) -> Object:
        return gang_job(self.name, self.gpus, 1)


class Delays(NamedTuple):
    """How long quota was held on a real API server: in fast time, what it adds counts. Seconds."""

    held: tuple[float, ...]
    """For longer than Jobs ran."""
    evicted: tuple[float, ...]
    """From evictions on."""


def delays_in(lives: Iterable[PastLife], played: Mapping[str, Task]) -> Delays:
    """`played`: by UID. Raises ValueError if too few Jobs ended, or were evicted."""
    held, evicted = [], []
    for life in lives:
        for run in life.runs:
            if run.ended_at is None:
                continue
            if run.evicted_at is not None:
                evicted.append((run.ended_at - run.evicted_at).total_seconds())
            else:
                length = (run.ended_at - run.admitted_at).total_seconds()
                held.append(max(0.0, length - played[life.workload.id].run))
    if min(len(held), len(evicted)) < LEAST_ENDINGS:
        raise ValueError(f"only {len(held)} Jobs ended, and {len(evicted)} were evicted")
    return Delays(tuple(held), tuple(evicted))


def session(seed: object) -> list[Task]:
    """Of all trees at once, each with work of its own. In order of their times."""
    found = []
    for tree in TREES:
        for one in arrivals("stationary", _DAYS, Random(f"session/{seed}/{tree}")):
            at, run = [time / 1000 / FASTER for time in (one.at - _NIGHT * 1000, one.run or 0)]
            if 0 <= at < SECONDS:
                ref, gpus = one.workload.ref, one.workload.pod_sets[0].count
                found.append(Task(at, f"{ref.namespace}-{tree}", ref.name, gpus, run))
    return sorted(found)


def ending(dice: Random) -> float:
    """Seconds until the pods of an evicted Job have ended."""
    return dice.uniform(*_ENDING)


def tree_of(namespace: str) -> str:
    return namespace.rpartition("-")[2]


def policy() -> list[Object]:
    """Namespaces and queues: in each tree three teams that borrow from each other."""
    trees = {f"all-{tree}": [f"{team}-{tree}" for team in "abc"] for tree in TREES}
    return list(shared_queues(trees, QUOTA, {}))


def sessions(days: int, delays: Delays) -> Iterator[Task]:
    """A session at the same time of each day, of Jobs that hold quota as long as on a real API server."""
    dice = Random("held")
    for day in range(days):
        for one in session(f"past-{day}"):
            yield one._replace(at=one.at + day * DAY, run=one.run + dice.choice(delays.held))


class Past(Recorded):
    """Work of an earlier time, under one policy."""

    def __init__(
        self, begins: datetime, there: Iterable[Object], work: Iterable[Task], delays: Delays
    ) -> None:
        super().__init__(_events(there), begins, 0.0)
        self._work = work
        self._delays = delays
        self._dice = Random("endings")
        self.plans: list[tuple[Plan, tuple[EffectKey, ...]]] = []

    def run(self, seconds: float) -> None:
        self.play(map(self._arrival, self._work), until=seconds)

    def _stop(self, job: Any) -> Iterable[Event]:
        self._eviction = milliseconds(self._dice.choice(self._delays.evicted))
        return super()._stop(job)

    def _store(self, plan: Plan, done: tuple[EffectKey, ...]) -> int:
        self.plans.append((plan, done))
        return self._sequence

    def _arrival(self, one: Task) -> Arrival:
        body, created = one.body, self._start + timedelta(seconds=one.at)
        body["metadata"] |= {
            "namespace": one.namespace,
            "uid": f"{one.namespace}-{one.name}-{one.at}",
            "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "annotations": {SUBMITTER_ANNOTATION: TENANT_USER},
        }
        seen = observe(JOB, body)
        assert seen is not None, body
        return Arrival(at=milliseconds(one.at), workload=seen.workload, run=milliseconds(one.run))


def _events(there: Iterable[Object]) -> Iterator[Event]:
    yield ConfigurationObserved('{"scheduling":{}}')
    for one in there:
        event = CONTEXT_KINDS["Namespace"].event(one) if one["kind"] == "Namespace" else policy_event(one)
        assert event is not None, one
        yield event


async def write(past: Past, url: str, cluster: str) -> None:
    """Commit all plans, as a controller did at their times. Raises LedgerUnavailable."""
    async with connection_pool(url) as pool:
        ledger = PostgresLedger(pool, cluster)
        epoch = await ledger.take_epoch("past")
        for number, (plan, done) in enumerate(past.plans):
            await ledger.commit(plan, done, epoch=epoch, batch=f"past-{number}")
