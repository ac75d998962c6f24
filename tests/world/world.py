"""One schedule: it is set up, played, healed, and judged."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from itertools import chain
from operator import attrgetter
from random import Random
from typing import Any, Final
from unittest.mock import patch

from queuectl.core.model.workload import EffectKey
from queuectl.kinds import gate
from queuectl.kinds.labels import OWN
from queuectl.kube.account import Bearer
from queuectl.kube.errors import ApiError
from queuectl.kube.session import Session
from queuectl.ports.reader import DecisionRow
from queuectl.sandbox.install import Installer
from queuectl.sandbox.kubernetes.handler import RequestHandler
from queuectl.sandbox.kubernetes.identities import Identities
from queuectl.sandbox.kubernetes.resources import CRDS
from queuectl.sandbox.kubernetes.store import ObjectStore, Stored
from queuectl.sandbox.kubernetes.wire import Json
from tests.doubles import controller_state, engine_state
from tests.job_kinds import JOB_KINDS
from tests.world import objects
from tests.world.actions import Actions
from tests.world.crash_points import Await, CrashPoint, Points
from tests.world.database import Database, RecordedLedger
from tests.world.devices import DeviceMetrics
from tests.world.faults import answer_with
from tests.world.judge import Judge
from tests.world.loop import Stuck, virtual_loop
from tests.world.network import Network, WorldTransport
from tests.world.objects import T0
from tests.world.operators import Webhooks, operate
from tests.world.oracles import Safety, phases
from tests.world.readers import Readers
from tests.world.replica import KINDS, SETTINGS, Replica
from tests.world.schedule import (
    FAMILIES,
    LOSS,
    OF_CLUSTER,
    OPERATORS,
    REPLICAS,
    WRITE_FAULTS,
    Schedule,
    Step,
)

_STARTS_AGAIN: Final = (1.0, 5.0)
"""Seconds from the end of a replica to its next start."""
_TWO_WRITES: Final = 4
"""Of each fourth seed, the release of Trainer does not accept a start in one write."""
_UNSEEN: Final = ("leases.coordination.k8s.io", "events.events.k8s.io", "events", "nodes")


class RecordedStore(ObjectStore):
    """Begins with what a cluster has before a schedule, and tells of each write."""

    def __init__(self, *, seed: str, history: int, kinds: Sequence[str]) -> None:
        """`kinds`: those of operators that are installed."""
        super().__init__(None, seed=seed, history=history)
        before = _cluster()
        absent = {JOB_KINDS[kind].resource for kind in chain(*FAMILIES) if kind not in kinds}
        for collection, stored in before.collections():
            for one in stored.values():
                if collection != CRDS or one.key[1] not in absent:
                    self._index(collection, None, one)
        self.revision = self.floor = before.revision

    wrote: Callable[[str, Stored, bool], None] = staticmethod(lambda collection, stored, gone: None)

    def put(self, collection: str, obj: Json) -> Stored:
        stored = super().put(collection, obj)
        self.wrote(collection, stored, False)
        return stored

    def remove(self, collection: str, obj: Json) -> Stored:
        stored = super().remove(collection, obj)
        self.wrote(collection, stored, True)
        return stored


@cache
def _cluster() -> ObjectStore:
    """CRDs, gate, rights, namespaces, queues and a node, as installed. Read only."""
    loop, store, identities = (
        virtual_loop(Random("cluster")),
        ObjectStore(None, seed="cluster"),
        Identities(None),
    )
    api = RequestHandler(store, identities, clock=lambda: T0)
    network = Network(loop, api, Random("cluster"), lambda: T0)
    admin = Session(WorldTransport(network, "admin"), Bearer(identities.tokens["admin"]))

    async def install() -> None:
        await Installer(admin).apply([*objects.installed(KINDS.registry), *objects.policy()])

    loop.run_until_complete(install())
    loop.close()
    return store


@cache
def _gate() -> dict[Any, Any]:
    return gate.expected(KINDS.registry, OWN)


@dataclass
class Outcome:
    schedule: Schedule
    violations: list[str]
    story: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """Virtual."""
    callbacks: int = 0
    digest: str = ""
    """Of all bytes that were written, with their times."""
    met: set[tuple[str, str]] = field(default_factory=set)
    """Kinds of faults, each with a phase of a workload's life that it met."""
    starts: int = 0
    writes: int = 0
    """Of controllers: points at which they may crash."""
    waited: Sequence[Await] = ()
    """Where in the write path their tasks have waited, if this was watched."""


class World:
    def __init__(self, schedule: Schedule, crash: CrashPoint | None = None, *, watched: bool = False) -> None:
        """`watched`: note where tasks wait."""
        self.schedule = schedule
        self.points = Points(crash)
        watched = watched or (crash is not None and isinstance(crash.at, Await))
        seed = schedule.seed
        self.loop = virtual_loop(Random(f"order {seed}"))
        self.loop.waits = self._waits if watched else None
        self.story: list[str] = []
        self.met: set[tuple[str, str]] = set()
        self._met_at: dict[str, float] = {}
        self.silent_since = float("-inf")
        """When a watch last fell silent, or a request was last left without an answer."""
        self.digest = hashlib.sha256()
        self.jump = 0.0
        """Seconds by which the database's clock differs."""
        self.most_jump = 0.0
        """The most of it so far."""
        self.last_write = 0.0
        self.kinds = schedule.kinds
        self.objects = RecordedStore(seed=str(seed), history=2_000, kinds=self.kinds)
        identities = Identities(None)
        webhooks = Webhooks(self.objects, one_write=seed % _TWO_WRITES > 0)
        api = RequestHandler(self.objects, identities, clock=self.api_clock, check=webhooks)
        self.network = Network(
            *(self.loop, api, Random(f"network {seed}"), self.api_clock),
            points=self.points,
            on_fault=self.met_by,
        )
        self.memory = RecordedLedger(self.database_clock, settings=SETTINGS.configuration())
        self.database = Database(self.loop, self.memory, Random(f"database {seed}"), self.met_by, self.points)
        self.metrics = DeviceMetrics(self.objects, self.loop.time, self.database_clock)
        self.safety = Safety(self.memory.store, self.objects, self.metrics, self.say)
        self.objects.wrote = self._wrote
        self.database.on_commit = self._committed
        self.database.lossy = schedule.has(LOSS)
        self.database.on_loss = self._lost
        self.database.on_refusal = lambda why: self.safety.violated(f"the ledger refuses a plan: {why}")
        self._tokens = identities.tokens
        self._random = Random(f"world {seed}")
        self._judging = self.loop.thread("world")
        self.operators = self.loop.thread(OPERATORS)
        self._closing = self._healed = False
        self._waiting: list[asyncio.Future[None]] = []
        self.replicas = {
            name: Replica(
                *(name, self.loop, self.network, self.database, self.metrics, self._tokens["controller"]),
                Random(f"{name} {seed}"),
                self._ended,
            )
            for name in REPLICAS
        }
        self.readers = Readers(
            *(self.loop, self.database, self.memory, Random(f"readers {seed}"), self.safety.violated)
        )
        self.points.kill = lambda name: self.replicas[name].kill("crashed")
        self.points.stop = lambda name: self.replicas[name].stop()
        self.admin = self.session("admin")
        self.tenant = self.session("tenant")

    # --- time, and what is written

    def api_clock(self) -> datetime:
        return T0 + timedelta(seconds=self.loop.time())

    def database_clock(self) -> datetime:
        return T0 + timedelta(seconds=self.loop.time() + self.jump)

    def now(self) -> datetime:
        """The clock of the players."""
        return self.api_clock()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def say(self, text: str) -> None:
        self.story.append(f"{self.loop.time():7.2f} s  {text}")

    def _wrote(self, collection: str, stored: Stored, gone: bool) -> None:
        if self._closing:
            return
        time = self.loop.time()
        self.digest.update(f"{time:.6f} {collection} {gone} ".encode() + stored.raw)
        if collection not in _UNSEEN:
            self._written()
        self.safety.stored(collection, stored, self.network.sender, gone=gone)
        self._awake()

    def _awake(self) -> None:
        """No event waits for a loop that waits for events."""
        for replica in self.replicas.values():
            controller = replica.controller
            if controller is not None and controller_state.is_asleep(controller):
                self.safety.violated(f"events do not wake replica {replica.name}")

    def _committed(self, rows: Sequence[DecisionRow], done: Sequence[EffectKey]) -> None:
        if self._closing:
            return
        self.safety.acknowledged(done)
        if not rows:
            return
        self._written()
        for row in rows:
            self.digest.update(repr(row).encode())
            if row.workload is not None:
                reason = "" if row.reason is None else f" {row.reason.code}"
                attempt = "" if row.attempt is None else f" attempt {row.attempt}"
                place = row.ref and f"{row.ref.namespace}/{row.ref.name}"
                self.say(
                    f"    ledger {row.sequence}: {row.verdict}{reason} {place}{attempt} (epoch {row.epoch})"
                )
        self.safety.committed(rows)

    def _lost(self, rows: Sequence[DecisionRow]) -> None:
        self.say(f"    the ledger lacks {len(rows)} decisions, and is at {self.memory.store.sequence}")
        self.safety.lost(rows)
        self.readers.lost()
        self._written()

    def _written(self) -> None:
        self.last_write = self.loop.time()
        for waiter in self._waiting:
            answer_with(waiter, None)
        self._waiting.clear()

    async def _reached(self, phase: str, of: tuple[str, str] | None) -> bool:
        """Wait for the workload, or for any, in this phase. Returns False if the faults end before."""
        while not self._healed:
            if phase in phases(self.memory.store, self.objects, of):
                return True
            self._waiting.append(self.loop.create_future())
            await self._waiting[-1]
        return False

    def met_by(self, kind: str, _: str) -> None:
        """A fault concerns a request of a controller, or a process."""
        if kind in ("silent", "hang", "late"):
            self.silent_since = self.loop.time()
        if kind in ("forbidden", *WRITE_FAULTS):
            self.safety.denied = True
        if self._met_at.get(kind) == self.last_write:
            return
        self._met_at[kind] = self.last_write
        for phase in phases(self.memory.store, self.objects):
            self.met.add((kind, phase))

    def session(self, identity: str, client: str | None = None) -> Session:
        """`client`: the name of its process, if that is another."""
        return Session(WorldTransport(self.network, client or identity), Bearer(self._tokens[identity]))

    # --- processes

    def _waits(self, thread: str, task: asyncio.Task[Any]) -> None:
        client = thread.partition(".")[0]
        if client in REPLICAS and not self._closing:
            self.points.wait(client, task)

    def _ended(self, replica: Replica, why: str) -> None:
        if self._closing:
            return
        self.say(f"replica {replica.name} {why}")
        wait = self._random.uniform(*_STARTS_AGAIN)
        context = self._judging.context()
        self.loop.call_later(wait, lambda: self._closing or replica.alive or replica.start(), context=context)  # type: ignore[func-returns-value]

    @property
    def leader(self) -> Replica | None:
        return next((one for one in self.replicas.values() if one.controller is not None), None)

    @property
    def leads(self) -> bool:
        """Whether a replica leads and has read the cluster."""
        found = self.leader.controller if self.leader is not None else None
        return found is not None and engine_state.engine_of(found).synced

    # --- the schedule

    def run(self) -> Outcome:
        logging.disable(logging.CRITICAL)
        gc.disable()
        expected = _gate()
        try:
            # It is a function of the kinds, and reads forty files.
            with patch.object(gate, "expected", lambda *_: expected):
                self._run()
        except Stuck as stuck:
            self.safety.violated(f"stuck: {stuck}")
        finally:
            self._closing = True
            self.network.close()
            self.database.closed = True
            self.loop.close()
            gc.enable()
            logging.disable(logging.NOTSET)
        return Outcome(
            self.schedule,
            self.safety.violations,
            self.story,
            self.loop.time(),
            self.loop.callbacks,
            self.digest.hexdigest(),
            self.met,
            sum(self.safety.starts.values()),
            len(self.points.passed),
            tuple(self.points.waited),
        )

    def _run(self) -> None:
        main = self.loop.spawn(self._judging, self._play(), "world")
        self.loop.run_until_complete(main)

    def _spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.loop.spawn(self.loop.thread(name), work, name)

    async def _play(self) -> None:
        of_cluster, own = self.session("admin", OF_CLUSTER), self.session("admin", OPERATORS)
        operators = operate(of_cluster, own, self, self.kinds)
        self.loop.spawn(self.operators, operators, OPERATORS)
        for replica in self.replicas.values():
            replica.start()
        self.readers.start()
        await asyncio.sleep(4.0)
        actions = Actions(self)
        begun = self.loop.time()
        for step in sorted(self.schedule.steps, key=attrgetter("at")):
            await asyncio.sleep(max(0.0, begun + step.at - self.loop.time()))
            self._spawn("step", self._step(actions, step))
        await asyncio.sleep(max(0.0, begun + self.schedule.seconds - self.loop.time()))
        self.say("the faults end")
        self._healed = True
        await actions.heal()
        await Judge(self, actions).judge()

    async def _step(self, actions: Actions, step: Step) -> None:
        if (step.when and not await self._reached(step.when, step.of)) or self._healed:
            return
        self.say(str(step)[9:].strip())
        try:
            await actions.do(step)
        except ApiError as error:
            self.say(f"  {step.verb}: {error}")


def play_schedule(schedule: Schedule, crash: CrashPoint | None = None, *, watched: bool = False) -> Outcome:
    return World(schedule, crash, watched=watched).run()
