"""When waiting workloads start: copies of the engine run forward on virtual time (A12 to A16)."""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Final, NamedTuple

from queuectl.answers.forecast.forward import DAY, Forward
from queuectl.answers.forecast.samples import LEAST_RUNS, Calendar, Endings, RunTimes, grouped, run_of
from queuectl.answers.queue_states import queue_of
from queuectl.answers.trial_snapshot import queues_of_limited_classes
from queuectl.answers.what_if.trials import PLANS
from queuectl.core.decisions import Keep
from queuectl.core.engine import Engine
from queuectl.core.features.nodes.facts import pods_of_facts, with_unmanaged
from queuectl.core.model.capacity import NodeFacts
from queuectl.core.model.policy import DEFAULT_CONFIGURATION, SchedulingConfiguration
from queuectl.core.model.reasons import Family
from queuectl.core.model.workload import LedgerSnapshot, Phase, StoredWorkload, WorkloadId
from queuectl.core.quota.cohort_trees import CohortTrees
from queuectl.kinds.policy import parse_policy
from queuectl.ports.reader import NotAtRest, PastLives
from queuectl.scenarios.arrivals import Arrival, milliseconds
from queuectl.scenarios.rebuilt_engine import by_workload, engine_of

WINDOW: Final = timedelta(days=28)
"""How much of the past a forecast draws from."""
HORIZON_DAYS: Final = 14
DRAWS: Final = (9, 19, 39)
"""Of N draws, the interval between rank (N + 1) / 10 and rank 9 (N + 1) / 10 holds one more with 80 %."""
MOST_WORK: Final = 180_000
"""Units of Plan.work in the first draws of one forecast together: some 10 s of CPU time."""
_ENOUGH: Final = 3
"""More draws are made while all together have a part of 1 / _ENOUGH of that."""
COPIED_FOR_ONE: Final = 20
"""How many nodes and pods on them are copied in the time of one unit of work."""
_DECIDE: Final = ("Cohort", "ClusterQueue", "UsageLimit")
_MOST_MILLISECONDS: Final = HORIZON_DAYS * DAY + 1


class Unknown(NamedTuple):
    """Why there is no forecast."""

    why: str


class Interval(NamedTuple):
    """Seconds from the time of the forecast. None: later than `after`."""

    low: float | None
    median: float | None
    high: float | None
    after: float | None
    """Seconds up to which all draws were played; None: the workload started in each."""
    draws: int


@dataclass(frozen=True, slots=True)
class Known:
    """A state, and what was known of earlier times then."""

    snapshot: LedgerSnapshot
    now: datetime
    past: PastLives
    """As known at `now` (run_times.known_at)."""
    configuration: SchedulingConfiguration = DEFAULT_CONFIGURATION


def obstacle(one: StoredWorkload) -> str | None:
    """Return why waiting alone does not start it; None: it may."""
    if one.phase is Phase.ADMITTED and one.attempt is not None:
        return f"it started at {one.attempt.admitted_at.isoformat()}"
    if one.phase not in (Phase.PENDING, Phase.EVICTING):
        return "it has ended"
    if one.reason is not None and one.reason.family in (Family.NEVER, Family.HELD):
        return f"it cannot start before something is changed: {one.reason.code}"
    return None


@dataclass(slots=True)
class Draw:
    """What one copy of the engine did."""

    starts: dict[WorkloadId, int]
    """Milliseconds to the first admission of each."""
    reached: int
    """It was played up to this time."""
    work: int
    bounded: bool
    """It ended at a bound: a longer one is not possible."""


class Forecast:
    """Forecasts for the waiting workloads of one cohort tree, from one state.

    Draws are kept: the next workload of the tree costs less.
    """

    def __init__(self, basis: Known, cluster_queue: str, most_work: int = MOST_WORK) -> None:
        """Raises KeyError if there is no such ClusterQueue, ValueError for a spec that cannot be read, and
        NotAtRest."""
        self._basis = basis
        self._most_work = most_work
        snapshot = basis.snapshot
        self.queues = queues_together(snapshot, cluster_queue)
        """The ClusterQueues that are played."""
        self.sequence = snapshot.sequence
        mine = {one.id: one for one in snapshot.workloads if queue_of(one) in self.queues}
        self._workloads = mine
        effects = tuple(key for key in snapshot.effects if key.workload in mine)
        tree = LedgerSnapshot(
            sequence=snapshot.sequence,
            now=snapshot.now,
            workloads=tuple(mine.values()),
            configs=snapshot.configs,
            effects=effects,
            past_usage=snapshot.past_usage,
            budget_sums=snapshot.budget_sums,
            budget_entries=snapshot.budget_entries,
            nodes=_nodes_for(mine, snapshot),
        )
        self._pods = by_workload(pod for one in tree.nodes for pod in pods_of_facts(one))
        self._copied = (len(tree.nodes) + sum(map(len, self._pods.values()))) // COPIED_FOR_ONE
        self._due = frozenset(effects)
        self._engine: Engine = engine_of(tree, basis.configuration)
        self._last = settle(self._engine, basis.now, self.sequence)
        lives = [one for one in basis.past.lives if queue_of(one.workload) in self.queues]
        self._runs = grouped(lives, basis.past.until)
        self._ran = {life.workload.id: run_of(life, basis.past.until).seconds for life in lives}
        self._endings = Endings(lives)
        self._calendar = Calendar(lives, basis.past.since, basis.now, self.queues)
        self._draws: list[Draw] = []

    @property
    def waiting(self) -> list[StoredWorkload]:
        """The workloads of the tree that time can start."""
        return [one for one in self._workloads.values() if obstacle(one) is None]

    def known(self, workload: WorkloadId) -> StoredWorkload | None:
        """Return it as of the state; None: it is not in the tree."""
        return self._workloads.get(workload)

    @property
    def unknown(self) -> Unknown | None:
        """Why the history does not suffice."""
        if not self._calendar.days:
            return Unknown("the history is shorter than a day")
        times = RunTimes(self._runs)
        if not all(times.known(one) for one in (*self._workloads.values(), *self._calendar.came)):
            return Unknown(f"fewer than {LEAST_RUNS} runs have ended in its cohort tree")
        return None

    def of(
        self, targets: Collection[WorkloadId], *, most_draws: int = DRAWS[-1]
    ) -> dict[WorkloadId, Interval] | Unknown:
        """Return when each of `targets` starts. Their draws end when all have started, or at a bound."""
        if (unknown := self.unknown) is not None:
            return unknown
        done = 0
        for count in DRAWS:
            used = sum(draw.work for draw in self._draws[:done])
            if done and (count > most_draws or used / done * count > self._most_work / _ENOUGH):
                break
            for number in range(done, count):
                self._draw(number, targets)
            done = count
        draws = self._draws[:done]
        return {one: interval([(draw.starts.get(one), draw.reached) for draw in draws]) for one in targets}

    def _draw(self, number: int, targets: Collection[WorkloadId]) -> None:
        """Draws are the same for all targets, but for their length."""
        if number < len(self._draws):
            known = self._draws[number]
            if known.bounded or all(one in known.starts for one in targets):
                return
        found = self._played(number, targets)
        self._draws[number : number + 1] = [found]

    def _played(self, number: int, targets: Collection[WorkloadId]) -> Draw:
        basis = self._basis
        dice = Random(f"{self.sequence}/{number}")
        times = RunTimes(self._runs, Random(f"{self.sequence}/{number}/runs"))
        ending = Random(f"{self.sequence}/{number}/endings")
        most_work = self._most_work // DRAWS[0]
        play = Forward(
            self._engine.fork(),
            basis.now,
            sequence=self._last,
            eviction_seconds=self._endings.draw(ending.random()),
            targets=targets,
            most_work=most_work,
            pods=self._pods,
        )
        for one in self._workloads.values():
            self._know(play, one, times, dice)
            if one.evicted_at is not None:
                so_far = max(0.0, (basis.now - one.evicted_at).total_seconds())
                play.gone(milliseconds(self._endings.left(ending.random(), so_far)), one.id)
        play.run(HORIZON_DAYS, partial(self._day, times, self._calendar.sample(dice), dice))
        bounded = play.work >= most_work or play.reached >= HORIZON_DAYS * DAY
        play.close()
        return Draw(play.starts, play.reached, play.work + self._copied, bounded)

    def _know(self, play: Forward, one: StoredWorkload, times: RunTimes, dice: Random) -> None:
        ran = 0.0
        if one.attempt is not None:
            ran = max(0.0, (self._basis.now - one.attempt.admitted_at).total_seconds())
        run = times.draw(one, dice.random(), longer=max(ran, self._ran.get(one.id, 0.0)))
        play.know(one, _whole(run), _whole(run - ran), self._due)

    def _day(self, times: RunTimes, days: Sequence[int], dice: Random, number: int) -> Iterator[Arrival]:
        for one in self._calendar.day(number, days, dice):
            run = _whole(times.draw(one.like, dice.random()))
            yield Arrival(at=one.at, workload=one.workload, run=run)


def interval(draws: Sequence[tuple[int | None, int]]) -> Interval:
    """Return the ranks of 10, 50 and 90 % of draws: each the start, or None and the time that was reached."""
    reached = [reach for start, reach in draws if start is None]
    certain = min(reached, default=_MOST_MILLISECONDS)
    starts = sorted(start for start, _ in draws if start is not None and start < certain)

    def rank(part: float) -> float | None:
        at = max(1, math.floor(part * (len(draws) + 1) + 0.5)) - 1
        return starts[at] / 1000 if at < len(starts) else None

    after = certain / 1000 if reached else None
    return Interval(rank(0.1), rank(0.5), rank(0.9), after, len(draws))


def _nodes_for(mine: Container[WorkloadId], snapshot: LedgerSnapshot) -> tuple[NodeFacts, ...]:
    """Return the nodes of a snapshot, on which pods of workloads that are not `mine` stay."""
    others = frozenset(str(one.id) for one in snapshot.workloads if one.id not in mine)
    return tuple(with_unmanaged(one, others) for one in snapshot.nodes)


def _whole(seconds: float) -> int:
    return min(max(1, milliseconds(min(seconds, 1e9))), _MOST_MILLISECONDS)


def settle(engine: Engine, now: datetime, sequence: int) -> int:
    """Commit the reasons of pending workloads, which a rebuilt engine finds anew: once for all its copies.

    Stop at any other decision: it belongs to the draws. So do counts of pods: an engine asks for each once.
    Return the sequence of the last decision. Raises NotAtRest.
    """
    for _ in range(PLANS):
        plan = engine.decide(now)
        if not plan.decisions or not all(isinstance(one, Keep) for one in plan.decisions):
            return sequence
        engine.commit(replace(plan, probes=()), sequence + 1)
        sequence += len(plan.recorded)
    raise NotAtRest(f"it does not come to rest within {PLANS} plans")


def queues_together(snapshot: LedgerSnapshot, cluster_queue: str) -> frozenset[str]:
    """Return the ClusterQueues on which starts in the tree of one depend: all of this tree, of those with
    workloads of a class that a UsageLimit is about (X1), and of those that are waited for (V1).

    Raises KeyError if there is no such ClusterQueue, and ValueError for a spec that cannot be read.
    """
    policies = [parse_policy(key, spec) for key, spec in snapshot.configs if key.kind in _DECIDE]
    trees = CohortTrees(policies)
    found = set(trees.queues_beside(cluster_queue))
    limited = queues_of_limited_classes(policies, snapshot.workloads)
    named = {one.ref[:3]: queue_of(one) for one in snapshot.workloads}
    waiting = [one for one in snapshot.workloads if one.options.start and one.options.start.after]
    before = 0
    while before < len(found):
        before = len(found)
        joined = limited if limited & found else set[str]()
        for one in waiting:
            if one.cluster_queue in found and one.options.start is not None:
                names = ((one.ref.namespace, after.kind, after.name) for after in one.options.start.after)
                joined |= {queue for name in names if (queue := named.get(name)) is not None}
        for name in joined & trees.queues - found:
            found |= set(trees.queues_beside(name))
    return frozenset(found)
