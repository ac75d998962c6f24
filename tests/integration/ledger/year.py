"""A year of 200,000 workloads: usage by user and month is the integral of what was held, to the unit.

`python -m tests.integration.ledger.year [--workloads 200000] [--days 365] [--seed 1]`

Each is admitted, may shrink, may be evicted and admitted again, and ends. The integral is computed beside
the ledger, with months that begin in Berlin; `verify` computes it from the holds.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from benchmarks.machine import scratch
from queuectl.core.decisions import Decision
from queuectl.ledger.admin import schema
from queuectl.ledger.history.usage_hours import roll_up
from queuectl.ledger.pool import connection_pool
from queuectl.ports.reader import UsageSumOf
from queuectl.sandbox.postgres import EmbeddedPostgres
from tests.integration.ledger.accounting import HOUR, Cluster, booked, findings
from tests.integration.ledger.plans import GPU, configure, enqueue, release, retire, shrink

ZONE: Final = "Europe/Berlin"
BEGINS: Final = datetime(2027, 1, 1, tzinfo=ZoneInfo(ZONE)).astimezone(UTC)
_USERS: Final = 1_000
_MICROSECOND: Final = timedelta(microseconds=1)


class Held(NamedTuple):
    """What a workload holds since a time."""

    user: str
    number: int
    gpus: int
    """Of each worker."""
    workers: int
    since: datetime

    @property
    def amounts(self) -> dict[str, int]:
        """As `plans.pod_sets` has them: a driver, and workers."""
        return {"cpu": 500 + 1500 * self.workers, GPU: self.gpus * self.workers}


class Year:
    """The decisions, hour by hour, and the integral of what they hold."""

    def __init__(self, seed: int, workloads: int, days: int) -> None:
        self._random, self._workloads, self._hours = random.Random(seed), workloads, 24 * days
        self.now = BEGINS
        self._held: dict[str, Held] = {}
        self._due: list[tuple[datetime, str]] = []
        self.months = months(BEGINS, BEGINS + (self._hours + 200) * HOUR)
        self.integral: Counter[tuple[str, str, str]] = Counter()
        """By month, user and resource, in base units times microseconds."""
        self.decisions = 0

    def batches(self) -> Iterator[list[Decision]]:
        """Yield the decisions of each time that is `now`, until all are over."""
        yield [configure("team-a", 10**9)]
        begun = 0
        for hour in range(self._hours):
            self.now = BEGINS + hour * HOUR + self._random.randrange(1, 3_599_999_999) * _MICROSECOND
            until = self._workloads * (hour + 1) // self._hours
            made = [one for name in self._over() for one in self._happens(name)]
            made += [one for number in range(begun, until) for one in self._admit(f"w-{number}", 1)]
            begun = until
            self.decisions += len(made)
            yield made
        while self._due:
            self.now = max(self.now + _MICROSECOND, self._due[0][0])
            made = [one for name in self._over() for one in self._end(name)]
            self.decisions += len(made)
            yield made

    def _over(self) -> Iterator[str]:
        while self._due and self._due[0][0] <= self.now:
            yield heappop(self._due)[1]

    def _admit(self, name: str, number: int) -> list[Decision]:
        user, gpus = f"user-{self._random.randrange(_USERS)}", self._random.randint(1, 8)
        self._held[name] = Held(user, number, gpus, 2, self.now)
        self._wait(name)
        first = [enqueue(name)] if number == 1 else []
        return [*first, booked(name, number, self.now, user, gpus)]

    def _happens(self, name: str) -> list[Decision]:
        choice = self._random.random()
        held = self._held[name]
        if choice < 0.1 and held.workers == 2:
            self._count(held)
            self._held[name] = held._replace(workers=1, since=self.now)
            self._wait(name)
            return [shrink(name, held.number, workers=1, gpus=held.gpus)]
        if choice < 0.2:
            self._count(held)
            return [release(name, held.number), *self._admit(name, held.number + 1)]
        return self._end(name)

    def _end(self, name: str) -> list[Decision]:
        held = self._held.pop(name)
        self._count(held)
        return [retire(name, held.number)]

    def _wait(self, name: str) -> None:
        heappush(self._due, (self.now + self._random.expovariate(1 / 12) * HOUR, name))

    def _count(self, held: Held) -> None:
        for month, begins, ends in self.months:
            lasted = max(timedelta(), min(ends, self.now) - max(begins, held.since)) // _MICROSECOND
            for resource, amount in held.amounts.items() if lasted else ():
                self.integral[month, held.user, resource] += amount * lasted


def months(since: datetime, until: datetime) -> list[tuple[str, datetime, datetime]]:
    """Return each month that begins in the zone from `since` to `until`, with its begin and end in UTC."""
    borders = [
        datetime(year, month, 1, tzinfo=ZoneInfo(ZONE)).astimezone(UTC)
        for year in range(since.year, until.year + 2)
        for month in range(1, 13)
    ]
    pairs = [(begins, ends) for begins, ends in pairwise(borders) if ends > since and begins < until]
    return [(f"{begins.astimezone(ZoneInfo(ZONE)):%Y-%m}", begins, ends) for begins, ends in pairs]


async def played(year: Year, one: Cluster) -> int:
    """Commit it all, rolled up every thirty days and at the end. Return how many hours were rolled up."""
    hours = 0
    for number, made in enumerate(year.batches()):
        if made:
            await one.commit(year.now, *made)
        if number % 720 == 719:
            hours += await roll_up(one.pool, one.cluster, ZONE)
    await one.commit(year.now + 2 * HOUR, enqueue("later"))
    hours += await roll_up(one.pool, one.cluster, ZONE)
    assert await roll_up(one.pool, one.cluster, ZONE) == 0
    return hours


async def differences(year: Year, one: Cluster) -> list[str]:
    """Compare usage by month, and of the whole time, with the integral."""
    found: Counter[tuple[str, str, str]] = Counter()
    for month, begins, ends in year.months:
        usage = await one.readings.usage(since=begins, until=ends)
        found += by_user(month, usage.rows)
    whole = await one.readings.usage(since=BEGINS, until=year.months[-1][2])
    sums, expected = by_user("", whole.rows), Counter[tuple[str, str, str]]()
    for (_, user, resource), amount in year.integral.items():
        expected["", user, resource] += amount
    keys = found.keys() | year.integral.keys()
    wrong = [(key, found[key], year.integral[key]) for key in keys if found[key] != year.integral[key]]
    wrong += [(key, sums[key], expected[key]) for key in sums | expected if sums[key] != expected[key]]
    return [f"{key}: usage is {used}, the integral {held}" for key, used, held in wrong]


def by_user(month: str, rows: Iterable[UsageSumOf]) -> Counter[tuple[str, str, str]]:
    found: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        assert row.booked is not None
        assert row.booked.user is not None
        found[month, row.booked.user, row.resource] += row.amount
    return found


async def checked(url: str, cluster: str, year: Year) -> list[str]:
    """Play the year, print what it was, and return what is wrong."""
    async with connection_pool(url) as pool:
        one = Cluster(pool, cluster)
        hours = await played(year, one)
        problems = await differences(year, one)
    problems += map(str, await findings(url, cluster))
    sums = len(year.integral)
    print(f"{year.decisions:,} decisions, {hours:,} hours rolled up, {sums:,} sums, {len(problems)} problems")
    return problems


async def _main(given: argparse.Namespace) -> int:
    with scratch() as folder:
        async with EmbeddedPostgres(folder / "postgres", settings={"fsync": "off"}) as postgres:
            await schema.migrate(postgres.url)
            started = time.process_time()
            year = Year(given.seed, given.workloads, given.days)
            problems = await checked(postgres.url, "year", year)
            print(f"{given.workloads:,} workloads, {time.process_time() - started:.0f} s of CPU time here")
    for problem in problems[:20]:
        print(problem)
    return 1 if problems else 0


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.integration.ledger.year", description=__doc__)
    parser.add_argument("--workloads", type=int, default=200_000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--seed", type=int, default=1)
    return asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
