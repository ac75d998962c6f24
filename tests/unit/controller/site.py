"""A cluster and a ledger for several controllers, one after another."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

from queuectl.controller.loop import Controller, LoopOptions
from queuectl.core.engine import Engine
from queuectl.core.model.events import ContextObserved, Event, Listed
from queuectl.core.model.policy import Namespace, Policy, SchedulingConfiguration
from tests.builders import SETTINGS, SOURCES, T0, flavor, local_queue, policy, queue
from tests.doubles.ledger import MemoryLedger, MemoryStore
from tests.unit.controller.fakes import Crashes, CrashingLedger, JobCluster

DEADLINE = 20.0


class Silent:
    """An observer of the controller that does nothing."""

    def took_epoch(self, epoch: int) -> None: ...
    def evaluated(self, workloads: int, *, seconds: float) -> None: ...
    def committed(self, plan: object, *, seconds: float, sequence: int) -> None: ...
    def ledger_unavailable(self) -> None: ...
    def ledger_refused(self) -> None: ...
    def set_aside(self) -> None: ...
    def predicted(self, admissions: int, misses: int) -> None: ...
    def capacity(self, flavors: object) -> None: ...
    def settled(self, key: object, result: object, *, seconds: float) -> None: ...
    def reported(self, local_queues: object, cluster_queues: object, gone: object) -> None: ...


class Site:
    """A cluster and a ledger that stay when a controller ends."""

    def __init__(self, settings: SchedulingConfiguration = SETTINGS, *, tick: float = 1) -> None:
        """`tick`: seconds by which the ledger's clock advances at each read; 0: it runs in real time."""
        self.settings = settings
        self._tick = tick
        self.crashes = Crashes()
        self.cluster = JobCluster(self.crashes)
        self.store = MemoryStore()
        self.confirm_seconds = 3600.0
        self.event_seconds = 5.0
        self.ticks = 0
        """Number of reads of the ledger's clock."""
        self._leader: asyncio.Future[None] | None = None
        self.memory = MemoryLedger(self._clock, self.store)
        self.ledger = CrashingLedger(self.memory, self.crashes)
        self.policies: list[Policy] = [flavor("default"), queue("cq", 2), local_queue("lq", "cq")]
        self.extra: list[Event] = []
        """Of policies that are read beside these."""

    def _clock(self) -> datetime:
        self.ticks += 1
        seconds = self.ticks * self._tick if self._tick else asyncio.get_running_loop().time()
        return T0 + timedelta(seconds=seconds)

    def jump_to(self, now: datetime) -> None:
        """Set the ledger's clock, while no controller runs."""
        self.ticks = math.ceil((now - T0).total_seconds() / self._tick)

    def listed(self) -> list[Event]:
        given = [policy(value) for value in self.policies]
        return [
            ContextObserved(Namespace("ns")),
            *given,
            *self.extra,
            Listed("policies"),
            *self.cluster.listed(),
        ]

    def controller(self) -> Controller:
        controller = Controller(
            ledger=self.ledger,
            cluster=self.cluster,
            engine=Engine(SOURCES, self.settings),
            observer=Silent(),
            holder="test",
            options=LoopOptions(
                status_seconds=0.01,
                event_seconds=self.event_seconds,
                confirm_seconds=self.confirm_seconds,
            ),
        )
        self.cluster.emit = controller.emit
        return controller

    @contextlib.asynccontextmanager
    async def leading(self) -> AsyncIterator[Controller]:
        """A controller that has read all sources; a crash in it ends the block without an error."""
        controller = self.controller()
        controller.emit(self.listed())
        task = asyncio.ensure_future(controller.run())  # noqa: TID251 (it may be killed)
        self._leader = task
        try:
            yield controller
            controller.stop()
            async with asyncio.timeout(DEADLINE):
                await task
        finally:
            task.cancel()
            with contextlib.suppress(BaseException):
                await task

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not condition():
                if self._leader is not None and self._leader.done():
                    await self._leader
                await asyncio.sleep(0.001)
