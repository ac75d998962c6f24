"""What is told of the state: metrics, the status of queues, and facts for the readers of the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

from queuectl.controller.facts import PendingFacts
from queuectl.controller.statuses import Statuses
from queuectl.core.capacity import ClusterQueueDemand, FlavorCapacity, PodDemand
from queuectl.core.decisions import Plan
from queuectl.core.engine import Engine
from queuectl.core.events import Result
from queuectl.core.model import EffectKey, PendingLine
from queuectl.core.reports import ClusterQueueReport, LocalQueueReport
from queuectl.ports.cluster import Cluster


class LoopObserver(Protocol):
    """Receives what happens, for metrics. Called on the loop, must not block."""

    def took_epoch(self, epoch: int) -> None: ...
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
            if (capacities := self._engine.take_capacities()) is not None:
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
        if (found := self._engine.take_nodes()) is not None:
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
