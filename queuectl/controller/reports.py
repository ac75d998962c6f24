"""What is told of the state: metrics, the status of queues, and facts for the readers of the ledger."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from queuectl.core.decisions import Plan
from queuectl.core.engine import Engine
from queuectl.core.model.capacity import ClusterQueueDemand, FlavorCapacity, NodeFacts, PodDemand
from queuectl.core.model.events import Result
from queuectl.core.model.policy import Condition, LocalQueueName
from queuectl.core.model.workload import EffectKey, ForReaders, PendingLine, PodsReady
from queuectl.core.reports import ClusterQueueReport, LocalQueueReport
from queuectl.ports.cluster import Cluster, ClusterUnavailable


class LoopObserver(Protocol):
    """Receives what happens, for metrics. Called on the loop, must not block."""

    def took_epoch(self, epoch: int) -> None: ...
    def evaluated(self, workloads: int, *, seconds: float) -> None: ...
    def committed(self, plan: Plan, *, seconds: float, sequence: int) -> None: ...
    def ledger_unavailable(self) -> None: ...
    def ledger_refused(self) -> None: ...
    def set_aside(self) -> None: ...
    def settled(self, key: EffectKey, result: Result, *, seconds: float) -> None: ...
    def predicted(self, admissions: int, misses: int) -> None: ...
    def capacity(self, flavors: Sequence[FlavorCapacity]) -> None: ...
    def reported(
        self,
        local_queues: Sequence[LocalQueueReport],
        cluster_queues: Sequence[ClusterQueueReport],
        gone: Sequence[str],
    ) -> None: ...


class Reports:
    """Reads reports from the engine once in a period. Queues that did not change have none."""

    def __init__(
        self,
        engine: Engine,
        cluster: Cluster,
        observer: LoopObserver,
        period_seconds: float,
        ask_to_tell: Callable[[], None],
    ) -> None:
        """`ask_to_tell` is called when `facts` are to be stored."""
        self._engine = engine
        self._cluster = cluster
        self._observer = observer
        self._period = period_seconds
        self._ask_to_tell = ask_to_tell
        self.facts = PendingFacts()
        """What readers are to be told."""
        self._history = PastCapacities()
        self._told_capacities: dict[str, FlavorCapacity] = {}
        self._told_demands: dict[str, tuple[PodDemand, ...]] = {}

    async def publish(self) -> None:
        """Have the status of changed queues written, each at most once in a period, until cancelled.

        Status writes that take long delay neither those of the other kind nor what readers are told.
        """
        of_local_queues = Statuses(self._cluster.publish_local_queue, self._period)
        of_cluster_queues = Statuses(self._cluster.publish_cluster_queue, self._period)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._report(of_local_queues, of_cluster_queues), name="reports")
            tasks.create_task(of_local_queues.run(self._period), name="status of LocalQueues")
            tasks.create_task(of_cluster_queues.run(self._period), name="status of ClusterQueues")

    async def _report(
        self, of_local_queues: Statuses[LocalQueueReport], of_cluster_queues: Statuses[ClusterQueueReport]
    ) -> None:
        while True:
            local_queues, cluster_queues, gone = self._engine.take_reports()
            self._observer.reported(local_queues, cluster_queues, gone)
            if (capacities := self._engine.features.nodes.take_capacities()) is not None:
                self._observer.capacity(capacities)
                self._tell_capacities(capacities)
            self._keep_capacities()
            self._tell_demands(cluster_queues, gone)
            self._tell_nodes()
            self._tell_readers(cluster_queues)
            of_local_queues.changed(local_queues)
            of_cluster_queues.changed(cluster_queues)
            await asyncio.sleep(self._period)

    def _tell_readers(self, cluster_queues: Sequence[ClusterQueueReport]) -> None:
        self.facts.tell("pods_ready", ((one.workload, one) for one in self._engine.take_pods_ready()))
        lines = ((one.name, one.line) for one in cluster_queues)
        self.facts.tell(
            "lines", ((name, PendingLine(name, line)) for name, line in lines if line is not None)
        )
        if self.facts:
            self._ask_to_tell()

    def _tell_capacities(self, capacities: Sequence[FlavorCapacity]) -> None:
        now = {one.flavor: one for one in capacities}
        changed = ((n, one) for n, one in now.items() if self._told_capacities.get(n) != one)
        self.facts.tell("capacities", changed)
        self._told_capacities = now

    def _keep_capacities(self) -> None:
        now = asyncio.get_running_loop().time()
        due = self._history.due(now, self._told_capacities.values())
        self.facts.tell("past_capacities", ((one.flavor, one) for one in due))

    def _tell_demands(self, queues: Sequence[ClusterQueueReport], gone: Sequence[str]) -> None:
        """At the start, all queues are told: an earlier leader may have told something else."""
        for name in gone:
            self._told_demands.pop(name, None)
        changed = [one for one in queues if self._told_demands.get(one.name) != one.demand]
        self._told_demands |= {one.name: one.demand for one in changed}
        self.facts.tell("demands", ((one.name, ClusterQueueDemand(one.name, one.demand)) for one in changed))

    def _tell_nodes(self) -> None:
        """Some each time. At the start, all: the ledger stores those that differ from what it has."""
        if (found := self._engine.features.nodes.take_facts()) is not None:
            if found.every is not None:
                self.facts.tell_all_nodes(found.every)
            self.facts.tell("nodes", ((one.name, one) for one in found.changed))


LEAST_SECONDS: Final = 60.0
"""Between two rows of one flavor, however often it changes."""
MOST_SECONDS: Final = 24 * 3600.0
"""After this time there is another row, also of a flavor that does not change: old months are dropped."""


class PastCapacities:
    """Pure: the caller says what time it is, in seconds."""

    def __init__(self) -> None:
        self._stored: dict[str, tuple[float, FlavorCapacity]] = {}
        """The last row of each flavor, with its time."""

    def due(self, now: float, capacities: Iterable[FlavorCapacity]) -> list[FlavorCapacity]:
        """Return those to store now, of all flavors that there are. Each call counts as if they were stored.

        A change is due at once, or as soon as LEAST_SECONDS have passed since the last row: the last of many
        changes is never left out.
        """
        there = {one.flavor: one for one in capacities}
        self._stored = {flavor: row for flavor, row in self._stored.items() if flavor in there}
        found = list(self._due(now, there.values()))
        self._stored |= {one.flavor: (now, one) for one in found}
        return found

    def _due(self, now: float, there: Iterable[FlavorCapacity]) -> Iterator[FlavorCapacity]:
        for one in there:
            at, stored = self._stored.get(one.flavor, (float("-inf"), None))
            if now - at >= (LEAST_SECONDS if one != stored else MOST_SECONDS):
                yield one


Fact = PodsReady | PendingLine | FlavorCapacity | ClusterQueueDemand | NodeFacts | frozenset[str]
Key = tuple[str, str]
"""The field of ForReaders, and the name of the fact in it."""

_ALL_NODES: Final = ("all_nodes", "")
_PAUSE: Final = 10.0
"""After a try that failed, the others wait for so many times its duration: decisions wait for each try."""


@dataclass(slots=True)
class FactsBatch:
    """Facts that are stored in one transaction."""

    facts: dict[Key, Fact]
    failures: int = 0
    failed_at: float = field(default=float("-inf"))
    """When it failed last, in seconds."""

    @property
    def told(self) -> ForReaders:
        fields: dict[str, list[Fact]] = {}
        for (name, _), fact in self.facts.items():
            fields.setdefault(name, []).append(fact)
        every = fields.pop(_ALL_NODES[0], None)
        found = ForReaders(**{name: tuple(facts) for name, facts in fields.items()})  # type: ignore[arg-type]
        return found if every is None else found._replace(all_nodes=tuple(sorted(every[0])))  # type: ignore[arg-type]


class PendingFacts:
    """Keeps each fact until it is stored. Facts that fail are divided until the one that fails is alone."""

    def __init__(self) -> None:
        self._fresh: dict[Key, Fact] = {}
        self._failed: list[FactsBatch] = []
        self._pause_until = float("-inf")

    def __bool__(self) -> bool:
        return bool(self._fresh or self._failed)

    def tell(self, name: str, facts: Iterable[tuple[str, Fact]]) -> None:
        """Store these instead of earlier facts with the same names. `name`: a field of ForReaders."""
        for key, fact in facts:
            self._place_of((name, key))[name, key] = fact
            if isinstance(fact, NodeFacts) and not fact.gone:
                self._add_node(fact.name)

    def tell_all_nodes(self, names: tuple[str, ...]) -> None:
        """All nodes that there are: readers are told that the others are gone."""
        self._place_of(_ALL_NODES)[_ALL_NODES] = frozenset(names)

    def take(self, now: float) -> FactsBatch | None:
        """Return what to store next: `stored` or `failed` must follow. `now`: seconds of one clock."""
        if self._fresh:
            part, self._fresh = FactsBatch(self._fresh), {}
            return part
        if not self._failed or now < self._pause_until:
            return None
        part = min(self._failed, key=lambda one: one.failures)
        self._failed.remove(part)
        return part

    def failed(self, part: FactsBatch, begun: float, now: float, stored_at: float) -> None:
        """A part was not stored. `stored_at`: when anything was stored last. All in seconds of one clock.

        It is divided only if anything was stored since it failed before: in an outage no fact is the cause.
        """
        part.facts |= {key: self._fresh.pop(key) for key in part.facts.keys() & self._fresh.keys()}
        self._pause_until = now + _PAUSE * (now - begun)
        keys = sorted(part.facts)
        if part.failed_at < stored_at and part.failures and len(keys) > 1:
            halves = keys[: len(keys) // 2], keys[len(keys) // 2 :]
            self._failed += (FactsBatch({key: part.facts[key] for key in half}, 1, now) for half in halves)
        else:
            self._failed.append(FactsBatch(part.facts, part.failures + 1, now))

    def _place_of(self, key: Key) -> dict[Key, Fact]:
        """A fact of which an earlier value failed takes its place, so that it fails with no others again."""
        return next((part.facts for part in self._failed if key in part.facts), self._fresh)

    def _add_node(self, name: str) -> None:
        place = self._place_of(_ALL_NODES)
        every = place.get(_ALL_NODES)
        if isinstance(every, frozenset) and name not in every:
            place[_ALL_NODES] = every | {name}


Name = LocalQueueName | str
Report = TypeVar("Report", bound=LocalQueueReport | ClusterQueueReport)
log = logging.getLogger(__name__)

EACH_SECOND: Final = 5
"""Writes of one kind of queue. Where 1,000 queues change all the time, a write each would be a quarter of the
work of the API server."""
MOST_UNWRITTEN: Final = 3
"""Failed writes after which a part of a round ends: if the API server is away, each of them takes its whole
deadline."""


class Statuses(Generic[Report]):
    """Of the queues of one kind."""

    def __init__(self, publish: Callable[[Report], Awaitable[None]], period_seconds: float) -> None:
        """`publish` writes one status. Raises ClusterUnavailable. `period_seconds`: between two rounds."""
        self._publish = publish
        self._most = max(1, round(EACH_SECOND * period_seconds))
        self._late: dict[Name, Report] = {}
        """What is not written, those that wait longest first."""
        self._refused: dict[Name, None] = {}
        """Those of which the last write failed, those that were not tried for longest first."""
        self._written: dict[Name, Condition] = {}

    def changed(self, reports: Iterable[Report]) -> None:
        """Each of these is to be written; an earlier report of the same queue is not."""
        for report in reports:
            self._late[report.name] = report

    async def run(self, period_seconds: float) -> None:
        """Write what is due once in a period, until cancelled."""
        while True:
            await self.write()
            await asyncio.sleep(period_seconds)

    async def write(self) -> None:
        """Write those that are due: changed conditions, then others, then those that were refused before."""
        refused = list(self._refused)
        turned, others = self._due()
        for part in (turned, others[: self._most], refused):
            await self._write_some(part)

    async def _write_some(self, names: Iterable[Name]) -> None:
        failures = 0
        for name in names:
            report = self._late.pop(name, None)
            self._refused.pop(name, None)
            if report is None:
                continue
            try:
                await self._publish(report)
            except ClusterUnavailable as error:
                log.warning("queue status not written, will be again: %s", error)
                self._late.setdefault(name, report)
                self._refused[name] = None
                failures += 1
                if failures == MOST_UNWRITTEN:
                    return
            else:
                self._written[name] = report.condition

    def _due(self) -> tuple[list[Name], list[Name]]:
        turned: list[Name] = []
        others: list[Name] = []
        for name, one in self._late.items():
            if name not in self._refused:
                (others if self._written.get(name) == one.condition else turned).append(name)
        return turned, others
