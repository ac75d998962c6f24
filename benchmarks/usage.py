"""Roll-ups of a year with 10,000,000 decisions, and usage of a month: 200,000 workloads of 1,000 users.

History is that of `lead`, with a booking for each user. Seconds of wall time, of this process and
Postgres together; the median of several tries.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from statistics import median
from typing import Final

from benchmarks.lead import _SETTINGS, DECISIONS, MONTHS, USERS, fill
from benchmarks.machine import scratch
from benchmarks.progress import console as aside
from benchmarks.report import Detail, Figure, Goal, Report
from queuectl.answers.usage import usage_by
from queuectl.ledger.admin import schema
from queuectl.ledger.history.usage_hours import roll_up
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.read.queries import LedgerReadings
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.ports.reader import UsageOfTime
from queuectl.sandbox.postgres import EmbeddedPostgres

TRIES: Final = 7
WEEK: Final = 7 * 86_400


def run(scale: int = 1) -> Report:
    return asyncio.run(_run(max(DECISIONS // scale, 10_000)))


async def _run(decisions: int) -> Report:
    with scratch() as folder:
        async with EmbeddedPostgres(folder / "postgres", settings=_SETTINGS) as postgres:
            await schema.migrate(postgres.url)
            aside.print(f"usage: {decisions} decisions …", style="dim")
            await fill(postgres.url, "bench", decisions)
            async with connection_pool(postgres.url) as pool:
                started = time.perf_counter()
                hours = await roll_up(pool, "bench", "UTC")
                rolled = time.perf_counter() - started
                readings = LedgerReadings(pool, "bench")
                now: datetime = await PostgresLedger(pool, "bench").now()
                ends = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
                begins, back = (ends - timedelta(days=1)).replace(day=1), timedelta(days=10, hours=5)
                whole = await _seconds(lambda: readings.usage(since=begins, until=ends), by_user=True)
                days = await _seconds(
                    lambda: readings.usage(since=begins - back, until=ends - back), by_user=True
                )
                decayed = await _seconds(lambda: readings.decayed_usage(until=ends, half_life=WEEK))
    workloads = decisions // 4 // MONTHS
    goal = Goal("value", "most", 0.3)
    figures = [
        Figure(name=f"usage by user of a month of {workloads:,} workloads", value=whole, unit="s", goal=goal),
        Figure(name="the same of 30 days in two months, with hours", value=days, unit="s", goal=goal),
        Figure(name="past usage with a half-life of a week", value=decayed, unit="s"),
        Figure(name=f"roll-ups of {decisions:,} decisions", value=rolled, unit="s"),
    ]
    rows = ((decisions, hours, rolled, 1000 * rolled / hours),)
    detail = Detail(f"roll-ups, {USERS:,} users", ("decisions", "hours", "seconds", "ms an hour"), rows)
    return Report("usage", figures, [detail])


async def _seconds(ask: Callable[[], Awaitable[UsageOfTime]], *, by_user: bool = False) -> float:
    found = []
    for _ in range(TRIES):
        started = time.perf_counter()
        answer = await ask()
        assert answer.rows, "nothing was held"
        if by_user:
            usage_by(answer.rows, ("user",), lambda namespace: True)
        found.append(time.perf_counter() - started)
    return median(found)
