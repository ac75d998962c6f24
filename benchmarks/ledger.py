"""Admissions committed per second, as whole transactions on a Postgres with fsync.

The plans are the engine's, of a steady state: each transaction observes, admits and charges a number of
workloads, acknowledges as many starts, and retires the workloads of the transaction before. Only commits
are timed.

The ceiling is raw COPY of the rows that are in the ledger at the end, in as many transactions, into tables
without an index; and for the smallest batch a transaction of one row, which is an fsync and a round trip.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import asyncpg

from benchmarks.machine import cpu_seconds, scratch
from benchmarks.profiles import Samples, sampled
from benchmarks.progress import bar
from benchmarks.report import Detail, Figure, Goal, Report, percentile
from benchmarks.worlds import World, job
from queuectl.core.decisions import Admit, Plan
from queuectl.core.model.workload import EffectKey
from queuectl.ledger.admin import schema
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.sandbox.postgres import EmbeddedPostgres

BATCHES = {1: 1_000, 10: 4_000, 100: 20_000, 1000: 20_000}
"""Total of admissions, by admissions in one transaction."""
_GOAL_AT = 100
_QUEUES = 200
_TABLES = ("decision", "workload", "attempt", "hold_line", "effect")


class Commit(NamedTuple):
    plan: Plan
    acknowledged: tuple[EffectKey, ...]


class Timing(NamedTuple):
    admissions: int
    rows: int
    waits: list[float]
    """Seconds of each commit."""
    client: float
    """CPU seconds of this process."""
    server: float
    """CPU seconds of all Postgres processes."""

    @property
    def rate(self) -> float:
        return self.admissions / sum(self.waits)


def run(scale: int = 1) -> Report:
    return asyncio.run(_run(scale))


async def _run(scale: int) -> Report:
    with scratch() as folder:
        async with EmbeddedPostgres(folder / "postgres") as postgres:
            await schema.migrate(postgres.url)
            found = {}
            with bar("ledger", sum(BATCHES.values()) // scale) as done:
                for batch, admissions in BATCHES.items():
                    count = max(4, admissions // scale)
                    found[batch] = await _measured(postgres, f"bench-{batch}", min(batch, count // 4), count)
                    done(sum(timing.admissions for timing, _ in found.values()))
            return _report(found, await _single_rows(postgres.url, max(20, 1_000 // scale)))


def plans(batch: int, admissions: int, now: datetime) -> tuple[list[Commit], list[Commit]]:
    """Commits that create the queues, and commits that admit `batch` each."""
    commits: list[Commit] = []
    world = World(
        _QUEUES, gpus=10 * batch, now=now, record=lambda plan, done: commits.append(Commit(plan, done))
    )
    setting_up = len(commits)
    before: list[Any] = []
    for first in range(0, admissions, batch):
        fresh = [job(number, f"lq-{number % _QUEUES}", 1) for number in range(first, first + batch)]
        world.submit(fresh)
        world.finish(before)
        world.run()
        before = fresh
    return commits[:setting_up], commits[setting_up:]


async def _measured(
    postgres: EmbeddedPostgres, cluster: str, batch: int, admissions: int
) -> tuple[Timing, float]:
    """Times of commits, and admissions per second that COPY of the same rows would allow."""
    async with connection_pool(postgres.url) as pool:
        ledger = PostgresLedger(pool, cluster)
        epoch = await ledger.take_epoch("benchmark")
        prepared, commits = plans(batch, admissions, await ledger.now())
        for number, commit in enumerate(prepared):
            await ledger.commit(commit.plan, commit.acknowledged, epoch=epoch, batch=f"0-{number}")
        waits = []
        client, server = time.process_time(), cpu_seconds(postgres.pid, family=True)
        for number, commit in enumerate(commits):
            started = time.perf_counter()
            await ledger.commit(commit.plan, commit.acknowledged, epoch=epoch, batch=f"1-{number}")
            waits.append(time.perf_counter() - started)
        client, server = time.process_time() - client, cpu_seconds(postgres.pid, family=True) - server
    admitted = sum(isinstance(one, Admit) for commit in commits for one in commit.plan.decisions)
    seconds, rows = await _copied(postgres.url, cluster, len(commits))
    return Timing(admitted, rows, waits, client, server), admitted / seconds


async def _copied(url: str, cluster: str, transactions: int) -> tuple[float, int]:
    """Seconds to COPY the cluster's rows in that many transactions, and the number of rows."""
    connection = await asyncpg.connect(url)
    try:
        found: dict[str, Sequence[Any]] = {}
        for table in _TABLES:
            await connection.execute(f"DROP TABLE IF EXISTS raw_{table}")
            await connection.execute(f"CREATE TABLE raw_{table} AS SELECT * FROM queuectl.{table} LIMIT 0")
            question = f"SELECT * FROM queuectl.{table} WHERE cluster_id = $1"
            found[table] = [tuple(row) for row in await connection.fetch(question, cluster)]
        seconds = 0.0
        for number in range(transactions):
            parts = {table: _slice(rows, number, transactions) for table, rows in found.items()}
            started = time.perf_counter()
            async with connection.transaction():
                for table, rows in parts.items():
                    await connection.copy_records_to_table(f"raw_{table}", records=rows)
            seconds += time.perf_counter() - started
        return seconds, sum(map(len, found.values()))
    finally:
        await connection.close()


def _slice(rows: Sequence[Any], number: int, of: int) -> Sequence[Any]:
    return rows[len(rows) * number // of : len(rows) * (number + 1) // of]


async def _single_rows(url: str, count: int) -> float:
    """Transactions of one row, per second."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("CREATE TABLE raw_single (at bigint, what text)")
        started = time.perf_counter()
        for number in range(count):
            await connection.execute("INSERT INTO raw_single VALUES ($1, $2)", number, "admitted")
        return count / (time.perf_counter() - started)
    finally:
        await connection.close()


def _report(found: dict[int, tuple[Timing, float]], single: float) -> Report:
    figures, rows = [], []
    for batch, (timing, raw) in found.items():
        alone = batch == 1
        figures.append(
            Figure(
                name="one admission a transaction" if alone else f"{batch} admissions a transaction",
                value=timing.rate,
                unit="admissions/s",
                ceiling=single if alone else raw,
                bound="transactions of one row" if alone else "COPY of the same rows",
                goal=Goal("value", "least", 1_000) if batch == _GOAL_AT else None,
            )
        )
        waits = timing.waits
        rows.append(
            (
                *(batch, len(waits), timing.rows / timing.admissions),
                *(percentile(waits, 0.5) * 1e3, percentile(waits, 0.99) * 1e3),
                *(timing.client / timing.admissions * 1e6, timing.server / timing.admissions * 1e6),
            )
        )
    columns = ("batch", "commits", "rows each", "p50 ms", "p99 ms", "our CPU µs each", "Postgres CPU µs each")
    title = "one admission: seen, admitted, start acknowledged, retired; at the end rows of the ledger"
    return Report("ledger", figures, [Detail(title, columns, tuple(rows))])


def profiled(scale: int = 1) -> dict[str, Samples]:
    """Commits of ten admissions, as in a cluster with a hundred Jobs per second."""
    return {"its writer": asyncio.run(_profiled(max(2_000 // scale, 200)))}


async def _profiled(admissions: int) -> Samples:
    with scratch() as folder:
        async with EmbeddedPostgres(folder / "postgres") as postgres:
            await schema.migrate(postgres.url)
            async with connection_pool(postgres.url) as pool:
                ledger = PostgresLedger(pool, "profile")
                epoch = await ledger.take_epoch("benchmark")
                prepared, commits = plans(10, admissions, await ledger.now())
                for number, commit in enumerate(prepared):
                    await ledger.commit(commit.plan, commit.acknowledged, epoch=epoch, batch=f"0-{number}")
                with sampled() as found:
                    for number, commit in enumerate(commits):
                        await ledger.commit(
                            commit.plan, commit.acknowledged, epoch=epoch, batch=f"1-{number}"
                        )
    return found
