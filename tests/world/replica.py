"""One replica of the controller, as a process: it starts, is killed, paused, stopped, and started again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Final

from queuectl.app.controller import ControllerParts, Startup, in_turns, lead_once, patiently
from queuectl.app.idle import check_forever
from queuectl.app.kinds import job_kinds
from queuectl.controller.loop import Controller
from queuectl.core.model.events import DeviceUseFound
from queuectl.kinds.labels import OWN
from queuectl.kube.account import Bearer
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.lease import KubeLease, LeaseProcess, Work
from queuectl.kube.session import Session, cluster_id
from queuectl.kube.statuses import QueueStatuses
from queuectl.metrics.registry import Metrics
from queuectl.settings import Settings
from tests.world.database import Database, WorldLedger
from tests.world.devices import DeviceMetrics, DeviceRecords
from tests.world.loop import Thread, VirtualLoop
from tests.world.network import Network, WorldTransport

LEASE: Final = "queuectl-system/queuectl-controller"
LOSS_SECONDS: Final = 8
"""How long a node is not ready until it is lost."""
SETTINGS: Final = Settings.model_validate(
    {
        "controller": {"lease": LEASE},
        "kinds": ["Pod"],
        "scheduling": {
            "admissionFairSharing": {"usageHalfLifeSeconds": 60, "usageSamplingIntervalSeconds": 5},
            "nodes": {"lossSeconds": LOSS_SECONDS, "settleSeconds": 4},
        },
    }
)
_IDLE: Final = SETTINGS.idle.model_copy(update={"check_seconds": 10})
"""More often than a configuration may say."""
KINDS: Final = job_kinds(SETTINGS)
LEDGER: Final = "the-ledger"
GRACE_SECONDS: Final = 30.0
"""Between SIGTERM and SIGKILL."""


class Replica:
    """`start` it; whatever ends it, `ended` is called once."""

    def __init__(
        self,
        name: str,
        loop: VirtualLoop,
        network: Network,
        database: Database,
        metrics: DeviceMetrics,
        token: str,
        random: Random,
        ended: Callable[[Replica, str], None],
    ) -> None:
        self.name = name
        self._loop = loop
        self._network = network
        self._database = database
        self._metrics = metrics
        self._token = token
        self._random = random
        self._ended = ended
        self._main: Thread | None = None
        self._apart: Thread | None = None
        self._startup = Startup()
        self._task: asyncio.Task[None] | None = None
        self._turn = 0
        self.starts = 0

    # --- what others see

    @property
    def alive(self) -> bool:
        return self._main is not None

    @property
    def controller(self) -> Controller | None:
        """That which leads, if it does and is not paused."""
        found = self._startup.controller
        if found is None or not found.leads or self._main is None or self._main.paused:
            return None
        return found

    # --- what happens to it

    def start(self) -> None:
        assert not self.alive
        self.starts += 1
        name = f"{self.name}.{self.starts}"
        self._main = self._loop.thread(name)
        self._apart = self._loop.thread(f"{name} lease")
        self._startup = Startup()
        self._task = self._loop.spawn(self._main, self._work(self._main), name)

    def kill(self, why: str = "killed") -> None:
        if self._main is None or self._apart is None:
            return
        self._loop.kill(self._main)
        self._loop.kill(self._apart)
        self._main = self._apart = None
        self._ended(self, why)

    def pause(self, *, lease: bool = True) -> None:
        """As SIGSTOP does; without `lease`: the main loop is blocked, and the lease's thread runs."""
        if self._main is not None and self._apart is not None:
            self._main.paused = True
            self._apart.paused = lease

    def resume(self) -> None:
        if self._main is not None and self._apart is not None:
            self._main.paused = self._apart.paused = False

    def stop(self) -> None:
        """As SIGTERM does."""
        if self._main is None or self._task is None:
            return
        main, task, startup = self._main, self._task, self._startup
        self._loop.call_soon(startup.stop, task, context=main.context())

        def end() -> None:
            if self._main is main:
                self.kill("killed after its grace period")

        self._loop.call_later(GRACE_SECONDS, end)

    # --- the process itself

    async def _work(self, main: Thread) -> None:
        why = "ended"
        try:
            await in_turns(self._lead, Metrics(), self._startup)
        except asyncio.CancelledError:
            why = "stopped"
        except BaseException as error:
            why = f"ended by {_named(error)}"
        if self._main is main:
            self.kill(why)

    async def _lead(self) -> bool:
        self._turn += 1
        startup, client = self._startup, self.name
        ledger = WorldLedger(self._database, client)
        session = self._session()
        await patiently(startup, "the ledger", ledger.now)
        cluster = await patiently(startup, "the API server", lambda: cluster_id(session))
        holder = f"{self.name}.{self.starts}.{self._turn}"

        async def connect() -> Session:
            return self._session()

        lease = KubeLease(
            connect,
            name=LEASE,
            holder=holder,
            ledger=LEDGER,
            process=LeaseProcess(
                random=Random(self._random.random()),
                end=self._end(self._main),
                clock=self._loop.time,
                apart=self._on_its_thread(self._apart),
            ),
        )

        async def watch_devices() -> None:
            records = DeviceRecords(self._database, client)
            await check_forever(_IDLE, records, session, self._metrics, self._devices_used)

        statuses, heard = QueueStatuses(), set[str]()
        parts = ControllerParts(
            key=cluster,
            honoured=OWN,
            statuses=statuses,
            heard=heard,
            ledger=ledger,
            cluster=KubeCluster(session, KINDS.registry, statuses=statuses, heard=heard),
            receiver=lambda emit: emit,
            lease=lease,
            holder=holder,
            random=Random(self._random.random()),
            beside=(watch_devices,),
        )
        return await lead_once(SETTINGS, KINDS, parts, session, Metrics(), startup)

    def _devices_used(self, found: Iterable[tuple[str, DeviceUseFound]]) -> None:
        if self._startup.controller is not None:
            self._startup.controller.emit(event for _, event in found)

    def _session(self) -> Session:
        return Session(WorldTransport(self._network, self.name), Bearer(self._token))

    def _on_its_thread(self, thread: Thread | None) -> Callable[[Work], Awaitable[None]]:
        assert thread is not None
        return lambda work: self._loop.spawn(thread, work(), thread.name)

    def _end(self, main: Thread | None) -> Callable[[int], object]:
        def end(code: int) -> None:
            if self._main is main:
                self.kill(f"exited with {code}")

        return end


def _named(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
