"""How long it takes to lead, and how much memory: with a long history and a short one, and much that waits.

History is written by SQL, as it is after months: for each finished workload four decisions, an attempt, a
hold line and an effect, by month. What waits is committed by the ledger, as an engine decides it. A new
process then does what a new leader does: it takes the epoch, loads, restores, observes every object, and
admits one new Job.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

import asyncpg

from benchmarks.machine import cpu_seconds, memory, scratch
from benchmarks.profiles import Samples, sampled
from benchmarks.progress import console as aside
from benchmarks.report import Detail, Figure, Goal, Report
from benchmarks.worlds import World, job, seen
from queuectl.core.decisions import Admit
from queuectl.core.engine import Engine
from queuectl.core.model.events import Event, Listed, WorkloadObserved
from queuectl.core.model.policy import AdmissionFairSharing, SchedulingConfiguration
from queuectl.core.model.workload import WorkloadId
from queuectl.ledger.admin import schema
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.sandbox.postgres import EmbeddedPostgres

DECISIONS = 10_000_000
FEW = 10_000
WAITING = 50_000
MONTHS = 12
_QUEUES = 200
USERS = 1_000
_CHUNK = 100_000
"""Workloads written by one statement."""
_SETTINGS = {"fsync": "off", "max_wal_size": "8GB", "shared_buffers": "512MB"}

_MONTH = "CREATE TABLE queuectl.{0}_{1} PARTITION OF queuectl.{0} FOR VALUES FROM ('{2}') TO ('{3}')"
_ENDS = "timestamptz '{now}' - interval '{days} days' * (1 - n::float / {total})"
_FROM = "FROM generate_series($2::bigint, $3::bigint - 1) n"
_HISTORY = (
    """
    INSERT INTO queuectl.decision
    SELECT $1, 4 * n + v.k, {ends}, 1, n, v.verdict, 'old-' || n, 'bench', 'Job', 'old-' || n, 'old-' || n,
      CASE WHEN v.k > 2 THEN 1 END, CASE WHEN v.k = 2 THEN '{{"code": "WaitingForQuota"}}'::jsonb END,
      CASE WHEN v.k = 1 THEN '{{"queue": "lq-0"}}'::jsonb ELSE '{{}}'::jsonb END, 1, 1, 1
    {numbers}, (VALUES (1, 'Queued'), (2, 'Pending'), (3, 'Admitted'), (4, 'Retired')) v(k, verdict)
    ORDER BY 2""",
    """
    INSERT INTO queuectl.workload
    SELECT $1, 'old-' || n, 'bench', 'Job', 'old-' || n, 'old-' || n, 'lq-0', 'cq-0', 0, {ends}, n, NULL,
      '{{}}', 'shape', 'Finished', 1, NULL, 4 * n + 1, 4 * n + 4, false, 4 * n + 4, {ends}, NULL
    {numbers}""",
    """
    INSERT INTO queuectl.attempt
    SELECT $1, 'old-' || n, 1, 'Closed', 'cq-0', {ends} - interval '1 hour', 4 * n + 3, false, '[]', false,
      4 * n + 4, {ends}
    {numbers}""",
    """
    INSERT INTO queuectl.hold_line
    SELECT $1, 'old-' || n, 1, 'cq-0', 'main', 1, 'a100', 'nvidia.com/gpu', 1, 4 * n + 3,
      {ends} - interval '1 hour', false, 4 * n + 4, {ends}, 'user-' || n % {users}
    {numbers}""",
    """
    INSERT INTO queuectl.effect
    SELECT $1, 4 * n + 3, 'old-' || n, 1, 'Start', false, {ends}, {ends} {numbers}""",
)


_BOOKINGS = """
    INSERT INTO queuectl.attribution
    SELECT $1, 'user-' || n, 'bench', 'lq-' || n % 10, 'user-' || n, 'user-' || n, NULL, '{}'
    FROM generate_series(0, $2::int - 1) n"""


async def fill(url: str, cluster: str, decisions: int) -> None:
    """Write a history of that many decisions over MONTHS months, all of workloads that are over.

    They are of USERS users, and have held one GPU for an hour each.
    """
    connection = await asyncpg.connect(url)
    total = decisions // 4
    try:
        # Without the triggers that check each statement: they are tested elsewhere.
        await connection.execute("SET session_replication_role = replica")
        await _months(connection)
        now = await connection.fetchval("SELECT now()")  # a time of a workload is the same in each table
        for first in range(0, total, _CHUNK):
            for statement in _HISTORY:
                ends = _ENDS.format(now=now, days=30 * MONTHS, total=total)
                await connection.execute(
                    statement.format(ends=ends, numbers=_FROM, users=USERS),
                    *(cluster, first, min(first + _CHUNK, total)),
                )
        await connection.execute(
            "INSERT INTO queuectl.leadership VALUES ($1, 1, $2, 0, 1, now(), 'gone', now())",
            cluster,
            4 * total,
        )
        await connection.execute(_BOOKINGS, cluster, USERS)
        await connection.execute("ANALYZE")
    finally:
        await connection.close()


async def _months(connection: asyncpg.Connection) -> None:
    for parent in ("decision", "workload_closed", "attempt_closed", "hold_line_closed", "effect_closed"):
        for back in range(1, MONTHS + 2):
            month = f"date_trunc('month', now()) - interval '{back} months'"
            start, end = await connection.fetchrow(f"SELECT {month}, {month} + interval '1 month'")
            await connection.execute(
                _MONTH.format(parent, f"{start:%Y_%m}", f"{start:%Y-%m-%d}", f"{end:%Y-%m-%d}")
            )


async def wait(url: str, cluster: str, waiting: int) -> None:
    """Commit what fills every queue but the last, and that many workloads that wait for it."""
    async with connection_pool(url) as pool:
        ledger = PostgresLedger(pool, cluster)
        epoch = await ledger.take_epoch("before")
        commits: list[Any] = []
        world = World(_QUEUES, 1, now=await ledger.now(), record=lambda *one: commits.append(one))
        world.submit(jobs(waiting))
        world.run()
        for number, (plan, done) in enumerate(commits):
            await ledger.commit(plan, done, epoch=epoch, batch=str(number))


def jobs(count: int) -> list[Any]:
    return [job(number, f"lq-{number % (_QUEUES - 1)}", 1) for number in range(count)]


async def lead(url: str, cluster: str, waiting: int, half_life: int) -> dict[str, float]:
    """Seconds of each step of a new leader, and bytes of memory at the peak."""
    objects, world = jobs(waiting), World(_QUEUES, 1)
    new = job(waiting, f"lq-{_QUEUES - 1}", 1)
    sharing = AdmissionFairSharing(half_life=half_life) if half_life else None
    settings = SchedulingConfiguration(usage_sharing=sharing)
    found: dict[str, float] = {"memory before": memory(os.getpid())[1]}
    async with connection_pool(url) as pool:
        ledger = PostgresLedger(pool, cluster, settings=settings)
        begun = started = time.perf_counter()
        cpu = time.process_time()

        def done(step: str) -> None:
            nonlocal started
            now = time.perf_counter()
            found[step], started = now - started, now

        epoch = await ledger.take_epoch("after")
        done("epoch")
        snapshot = await ledger.load()
        done("load")
        engine = Engine(frozenset({"policy", "Job"}), settings)
        engine.restore(snapshot)
        done("restore")
        held = {one.id for one in snapshot.workloads if one.attempt is not None}
        states = {True: seen(generation=2, suspended=False), False: seen()}
        events: list[Event] = [WorkloadObserved(one, states[one.id in held]) for one in (*objects, new)]
        ids = frozenset(WorkloadId(one.id) for one in (*objects, new))
        engine.handle([*world.policy, *events, Listed("Job", ids)])
        done("observe")
        for batch in range(100):
            plan = engine.decide(await ledger.now(), 10_000)
            first = await ledger.commit(plan, (), epoch=epoch, batch=f"after-{batch}")
            engine.commit(plan, first)
            if any(isinstance(one, Admit) and one.attempt.workload == new.id for one in plan.decisions):
                break
        done("decide and commit")
        found["total"], found["our CPU"] = time.perf_counter() - begun, time.process_time() - cpu
    found["memory"] = memory(os.getpid())[1]
    return found


def run(scale: int = 1) -> Report:
    return asyncio.run(_run(scale))


async def _run(scale: int) -> Report:
    waiting, rows = max(WAITING // scale, 500), []
    for decisions in (FEW, max(DECISIONS // scale, 2 * FEW)):
        with scratch() as folder:
            async with EmbeddedPostgres(folder / "postgres", settings=_SETTINGS) as postgres:
                await schema.migrate(postgres.url)
                aside.print(f"lead: {decisions} decisions, {waiting} waiting …", style="dim")
                await fill(postgres.url, "bench", decisions)
                await wait(postgres.url, "bench", waiting)
                rows += [
                    (decisions, half_life, await _in_process(postgres, waiting, half_life))
                    for half_life in (0, 86_400)
                ]
    return _report(rows, waiting)


async def _in_process(postgres: EmbeddedPostgres, waiting: int, half_life: int) -> dict[str, float]:
    """`lead` in a process of its own, so that its memory counts alone."""
    url, server = postgres.url, cpu_seconds(postgres.pid, family=True)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.lead", url, str(waiting), str(half_life)),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await child.communicate()
    if child.returncode != 0:
        raise RuntimeError(f"the new leader ended with {child.returncode}")
    found: dict[str, float] = json.loads(out)
    found["Postgres CPU"] = cpu_seconds(postgres.pid, family=True) - server
    return found


def profiled(scale: int = 1) -> Samples:
    """A new leader after few decisions: the number that wait is what costs CPU time."""
    return asyncio.run(_profiled(max(WAITING // scale, 500)))


async def _profiled(waiting: int) -> Samples:
    with scratch() as folder:
        async with EmbeddedPostgres(folder / "postgres", settings=_SETTINGS) as postgres:
            await schema.migrate(postgres.url)
            await fill(postgres.url, "bench", FEW)
            await wait(postgres.url, "bench", waiting)
            with sampled() as found:
                await lead(postgres.url, "bench", waiting, 0)
    return found


def _report(rows: list[tuple[int, int, dict[str, float]]], waiting: int) -> Report:
    total = {(decisions, half_life): found for decisions, half_life, found in rows}
    few, many = sorted({decisions for decisions, _, _ in rows})
    figures = [
        Figure(
            name=f"to the first admission, {'past usage counts' if half_life else 'without past usage'}",
            value=total[many, half_life]["total"],
            unit="s",
            ceiling=total[few, half_life]["total"],
            bound=f"the same with {few} decisions",
            goal=Goal("ratio", "most", 1.5) if not half_life else None,
        )
        for half_life in (0, 86_400)
    ]
    steps = ("epoch", "load", "restore", "observe", "decide and commit", "total", "our CPU", "Postgres CPU")
    table = tuple(
        (decisions, half_life, *(found[step] for step in steps), found["memory"] / 2**20)
        for decisions, half_life, found in rows
    )
    title = f"a new leader, {waiting} waiting: seconds of each step"
    columns = ("decisions", "half-life s", *steps, "peak memory MiB")
    return Report("lead", figures, [Detail(title, columns, table)])


if __name__ == "__main__":
    print(json.dumps(asyncio.run(lead(sys.argv[1], "bench", int(sys.argv[2]), int(sys.argv[3])))))
