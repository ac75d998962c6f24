"""Random holds, rates and corrections: a statement and its corrections are integral x rates (B12)."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from queuectl.app import statements as app
from queuectl.core.decisions import Configure, Decision
from queuectl.core.observed_events import CONFIGURATION
from queuectl.ledger.history.usage_hours import roll_up
from queuectl.ledger.pool import create_pool
from queuectl.ledger.read.statements import LedgerStatements
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.ports.periods import month_after, month_bounds
from queuectl.ports.statements import StatementLine
from queuectl.settings import Settings
from tests.doubles.readers import ReadableLedger
from tests.integration.ledger.accounting import Story, findings
from tests.integration.ledger.plans import GPU, plan
from tests.unit.core import profiles

BEGINS = datetime(2027, 1, 20, 7, 30, tzinfo=UTC)
DAY = 86_400 * 10**6
PAUSES = (1, 3_599_999_999, 7 * 3_600_000_000, 3 * DAY + 1, 9 * DAY)
UNITS = {GPU: 1, "cpu": 1000, "memory": 1 << 30}
Prices = dict[str, dict[datetime, int]]
"""Millionths by resource and begin."""

_runs = iter(range(10**9))


def random_prices(rng: random.Random) -> Prices:
    """For GPUs always, for cpu mostly, for memory never; from times in the middle of months."""
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    return {
        resource: {
            when: rng.randint(0, 5_000_000)
            for when in (long_ago, *(datetime(2027, rng.randint(1, 12), rng.randint(1, 28), 5, tzinfo=UTC),))
        }
        for resource in ((GPU, "cpu") if rng.random() < 0.8 else (GPU,))
    }


def configured(prices: Prices, zone: str) -> Configure:
    rates = [
        {"resource": resource, "from": f"{when:%Y-%m-%dT%H:%M:%SZ}", "price": f"{price / 10**6:.6f}"}
        for resource, by_begin in prices.items()
        for when, price in by_begin.items()
    ]
    card = {"currency": "EUR", "rates": rates}
    return Configure(CONFIGURATION, json.dumps({"accounting": {"zone": zone, "rateCard": card}}))


class Year:
    """The same holds in Postgres, and in memory for the integral."""

    def __init__(self, url: str, seed: int, zone: str) -> None:
        self.url, self.zone, self.cluster = url, zone, f"statements-{next(_runs)}"
        self._random = random.Random(seed)
        self.story = Story(seed, BEGINS, PAUSES)
        self._memory = ReadableLedger(lambda: self.story.now)
        self._pool = create_pool(url)
        self._ledger = PostgresLedger(self._pool, self.cluster)
        self._statements = LedgerStatements(self._pool, self.cluster)
        self._settings = Settings.model_validate({"database": {"url": url}})
        self._prices = random_prices(self._random)
        self._epochs = (0, 0)
        self._batch = 0
        self.closed: dict[str, Prices] = {}
        """At which prices a month was computed last."""
        self._lines: dict[str, list[StatementLine]] = {}
        """As they were when the month was closed."""

    async def play(self, months: int) -> None:
        try:
            self._epochs = (await self._ledger.take_epoch("t"), await self._memory.take_epoch("t"))
            await self._commit([configured(self._prices, self.zone)])
            open_month = "2027-01"
            for decisions in self.story.batches(10**6):
                await self._commit(decisions)
                while self.story.now >= month_bounds(open_month, ZoneInfo(self.zone)).ends:
                    await self._close(open_month)
                    open_month = month_after(open_month)
                    await self._correct_some()
                if len(self.closed) >= months:
                    break
            for month in self.closed:
                await self._check(month)
            totals = [one.total for one in await self._statements.statements()]
            later = await self._statements.lines(open_month)
            assert sum(totals) + _cost(later) == sum([await self._expected(month) for month in self.closed])
            assert await findings(self.url, self.cluster) == []
        finally:
            await self._pool.dispose()

    async def _commit(self, decisions: list[Decision]) -> None:
        self._batch += 1
        made, batch = plan(*decisions, now=self.story.now), str(self._batch)
        await self._ledger.commit(made, (), epoch=self._epochs[0], batch=batch)
        await self._memory.commit(made, (), epoch=self._epochs[1], batch=batch)

    async def _close(self, month: str) -> None:
        await roll_up(self._pool, self.cluster, self.zone)
        await app.close(self._settings, month, self.cluster)
        self.closed[month], self._lines[month] = self._prices, await self._statements.lines(month)
        await self._check(month)

    async def _correct_some(self) -> None:
        if self._random.random() < 0.5:
            self._prices = random_prices(self._random)
            await self._commit([configured(self._prices, self.zone)])
        for month in self.closed:
            if self._random.random() < 0.4:
                await app.correct(self._settings, month, "a test", self.cluster)
                self.closed[month] = self._prices
                await self._check(month)

    async def _check(self, month: str) -> None:
        assert await self._statements.lines(month) == self._lines[month], month
        own = [line for line in self._lines[month] if line.of_month is None]
        assert _cost([*own, *await self._statements.corrections(month)]) == await self._expected(month), month

    async def _expected(self, month: str) -> int:
        """Millionths: of each booking and resource, between two begins of rates."""
        prices, period = self.closed[month], month_bounds(month, ZoneInfo(self.zone))
        borders = {when for by_begin in prices.values() for when in by_begin}
        times = sorted({*period, *(when for when in borders if period.begins < when < period.ends)})
        cost = 0
        for since, until in pairwise(times):
            for row in (await self._memory.usage(since=since, until=until)).rows:
                known = {when: price for when, price in prices.get(row.resource, {}).items() if when <= since}
                price = known[max(known)] if known else 0
                cost += round(Fraction(row.amount * price, UNITS[row.resource] * 3_600_000_000))
        return cost


def _cost(lines: Iterable[StatementLine]) -> int:
    return sum(line.cost for line in lines)


@pytest.mark.acceptance
@settings(
    max_examples=profiles.examples(3),
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 10**6), zone=st.sampled_from(("UTC", "Europe/Berlin", "Asia/Kathmandu")))
def test_statements_of_a_year_and_their_corrections_are_what_was_held_at_its_rates(
    migrated: str, seed: int, zone: str
) -> None:
    asyncio.run(Year(migrated, seed, zone).play(12))
