"""An engine that commits to a ledger in memory, and what readers then have of it."""

from __future__ import annotations

from queuectl.answers.state import CommittedState
from queuectl.api.view import View
from queuectl.core.model.workload import ForReaders, WorkloadId
from queuectl.kinds.policy import parse_policy
from queuectl.ports.budgets import BudgetBalances
from queuectl.ports.reader import EvictionTimes
from tests.builders import World
from tests.doubles.readers import ReadableLedger


class Committed:
    """`commit` decides all that can be decided, and tells readers of nodes as a controller does."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._ledger = ReadableLedger(lambda: world.now)
        self._view = View(self._ledger, parse_policy)
        self._batch = 0

    @classmethod
    async def new(cls, world: World) -> Committed:
        committed = cls(world)
        await committed._ledger.take_epoch("test")
        return committed

    async def commit(self) -> None:
        world = self.world
        while (plan := world.plan()).decisions:
            await self._store(plan, ForReaders())
            world.commit(plan)
        nodes = world.engine.features.nodes.take_facts()
        capacities = world.engine.features.nodes.take_capacities()
        told = ForReaders(capacities=tuple(capacities or ()), nodes=() if nodes is None else nodes.changed)
        await self._store(plan, told)
        await self._view.refresh()

    async def rows(self) -> tuple[dict[WorkloadId, EvictionTimes], BudgetBalances]:
        """What REST reads of the ledger for what-ifs."""
        loaded = await self._ledger.load()
        since = self.world.now - self.state.configuration.preemptions_count_for
        times = await self._ledger.eviction_times(loaded.sequence, since)
        return times, BudgetBalances(loaded.budget_sums, loaded.budget_entries)

    async def _store(self, plan: object, told: ForReaders) -> None:
        self._batch += 1
        await self._ledger.commit(
            plan,  # type: ignore[arg-type]
            (),
            epoch=self._ledger.store.epoch,
            batch=str(self._batch),
            for_readers=told,
        )

    @property
    def state(self) -> CommittedState:
        sight = self._view.sight()
        assert sight is not None
        return sight.state
