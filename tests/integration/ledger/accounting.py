"""A ledger with bookings and capacity, for tests of usage and of statements."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.core.decisions import Amend, Decision
from queuectl.core.model.capacity import NO_FLAVOR, FlavorCapacity, FlavorResourceCapacity
from queuectl.core.model.device_use import DeviceUse, UseFinding, UseVerdict
from queuectl.core.model.policy import CapacityMode
from queuectl.core.model.workload import NOTHING_FOR_READERS, Attribution, ForReaders, PastAttempts
from queuectl.ledger.admin.verify import verify
from queuectl.ledger.history.replay import LedgerFinding
from queuectl.ledger.read.queries import LedgerReadings
from queuectl.ledger.write.postgres import PostgresLedger
from tests.integration.ledger.plans import (
    GPU,
    admit,
    amend,
    configure,
    enqueue,
    plan,
    release,
    retire,
    shrink,
)

HOUR = timedelta(hours=1)
USERS = ("ada", "bob", None)
PAUSES = (1, 10**6, 1_799_999_999, 3_600_000_000, 10**11)
"""Microseconds between two batches."""


def booked(name: str, number: int, now: datetime, user: str | None, gpus: int = 4) -> Decision:
    one = Attribution(namespace=f"ns-{user}", queue="lq", submitter=user, user=user)
    return replace(admit(name, number, now=now, gpus=gpus), attribution=None if user is None else one)


def judged(name: str, number: int, idle: int, since: datetime) -> Amend:
    """A finding about an attempt, of 8 devices."""
    finding = UseFinding(UseVerdict.IDLE if idle else UseVerdict.BUSY, 8, idle)
    use = DeviceUse(attempt=number, since=since, finding=finding, wasted_ms=1)
    return amend(name, number, 0, PastAttempts(use=use))


async def findings(url: str, cluster: str) -> list[LedgerFinding]:
    """Without those about times for which there are no partitions."""
    return [one for one in await verify(url, cluster) if one.code not in ("OverQuota", "DefaultPartition")]


class Cluster:
    """A ledger with what its tests need."""

    def __init__(self, pool: AsyncEngine, cluster: str) -> None:
        self.pool, self.cluster = pool, cluster
        self.ledger = PostgresLedger(pool, cluster)
        self.readings = LedgerReadings(pool, cluster)
        self._batches = iter(range(10**6))
        self._epoch = 0

    async def commit(
        self, now: datetime, *decisions: Decision, for_readers: ForReaders = NOTHING_FOR_READERS
    ) -> None:
        self._epoch = self._epoch or await self.ledger.take_epoch("test")
        await self.ledger.commit(
            plan(*decisions, now=now),
            (),
            epoch=self._epoch,
            batch=str(next(self._batches)),
            for_readers=for_readers,
        )

    async def rows(self, query: str) -> list[tuple[Any, ...]]:
        async with self.pool.begin() as connection:
            result = await connection.execute(text(query), {"c": self.cluster})
            return [tuple(row) for row in result] if result.returns_rows else []


def capacity(ready: int, broken: int = 0, pods: int = 0) -> ForReaders:
    gpus = FlavorResourceCapacity(
        resource=GPU,
        mode=CapacityMode.ENFORCE,
        allocatable=(("NotReady", broken), ("Ready", ready)),
        unmanaged=(("kube-system", pods),) if pods else (),
    )
    a100 = FlavorCapacity(flavor="a100", resources=(gpus,))
    return ForReaders(past_capacities=(FlavorCapacity(flavor=NO_FLAVOR), a100))


class Story:
    """Random admissions, shrinks, verdicts, releases and ends of a few workloads, one batch after another."""

    def __init__(self, seed: int, begins: datetime, pauses: Sequence[int] = PAUSES) -> None:
        self._random = random.Random(seed)
        self._pauses = pauses
        self.now = begins
        self._held: dict[str, list[int]] = {}
        """Number of the attempt, GPUs of a pod, and workers of those that hold quota."""
        self._attempts: dict[str, int] = {}
        self._idle: dict[str, str] = {}
        """Users of those whose devices are all idle."""
        self._users: dict[str, str] = {}
        self._ended: Counter[str] = Counter()
        self._spans: list[tuple[datetime, datetime, str, int]] = []
        """Begin and end, user, and GPUs that were idle."""

    def batches(self, count: int) -> Iterator[list[Decision]]:
        yield [configure("team-a", 10**6)]
        for _ in range(count):
            before = self.now
            self.now += timedelta(microseconds=self._random.choice(self._pauses))
            for name, user in self._idle.items():
                _, gpus, workers = self._held[name]
                self._spans.append((before, self.now, user, gpus * workers))
            slots = ("one", "two", "three")
            yield [one for slot in slots for one in self._step(f"{slot}-{self._ended[slot]}", slot)]

    def ends(self) -> list[Decision]:
        """Of all that hold quota."""
        return [retire(name, held[0]) for name, held in self._held.items()]

    def idle(self, since: datetime, until: datetime) -> Counter[str]:
        """Return what was idle of each user, in devices times microseconds."""
        found: Counter[str] = Counter()
        for begins, ends, user, gpus in self._spans:
            overlap = max(timedelta(), min(ends, until) - max(begins, since))
            found[user] += gpus * (overlap // timedelta(microseconds=1))
        return +found

    def _step(self, name: str, slot: str) -> list[Decision]:
        choice = self._random.random()
        if (held := self._held.get(name)) is None:
            if choice < 0.5:
                return []
            number = self._attempts[name] = self._attempts.get(name, 0) + 1
            self._held[name] = [number, gpus := self._random.randint(1, 7), 2]
            first = [enqueue(name)] if number == 1 else []
            user = self._random.choice(USERS)
            self._users[name] = user or ""
            return [*first, booked(name, number, self.now, user, gpus)]
        number, gpus, workers = held
        if choice < 0.2 and workers:
            held[2] = self._random.randint(0, workers - 1)
            return [shrink(name, number, workers=held[2], gpus=gpus)]
        if choice < 0.5:
            del self._held[name]
            self._idle.pop(name, None)
            if choice < 0.4:
                return [release(name, number)]
            self._ended[slot] += 1
            return [retire(name, number)]
        if choice < 0.7:
            self._idle.pop(name, None)
            if is_idle := self._random.random() < 0.7:
                self._idle[name] = self._users[name]
            return [judged(name, number, 8 * is_idle, self.now)]
        return []
