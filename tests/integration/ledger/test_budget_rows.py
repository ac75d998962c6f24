"""The rows of budgets in Postgres, and what a process loads of them, after random histories."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuectl.core.decisions import Plan
from queuectl.core.features.budgets.balances import Balances
from queuectl.core.model.budgets import Period
from queuectl.core.model.policy import SchedulingConfiguration
from queuectl.core.model.workload import LedgerSnapshot
from queuectl.ledger.admin.sums_check import compare_budgets
from queuectl.ledger.admin.verify import Verifier, verify
from queuectl.ledger.history.state_at import LedgerPast
from queuectl.ledger.pool import create_pool
from queuectl.ledger.read.budgets import LedgerBudgetReadings
from queuectl.ledger.write.postgres import PostgresLedger
from tests.unit.core import actions
from tests.unit.core.features.budgets.test_laws import NAMES, PERIODS, with_budgets

Commit = tuple[Plan, Any, LedgerSnapshot]


def history(seed: int) -> list[Commit]:
    """Return the plans of a random history, each with what a ledger in memory has after it."""
    dice = random.Random(seed)
    driver = with_budgets(dice.randbytes(420))
    commits: list[Commit] = []
    store = driver.ledger.commit

    async def commit(plan: Plan, acknowledged: Any, **given: Any) -> int:
        first = await store(plan, acknowledged, **given)
        commits.append((plan, acknowledged, await driver.ledger.load()))
        return first

    driver.ledger.commit = commit  # type: ignore[method-assign]
    jobs = [dice.randbytes(36) for _ in range(6)]
    actions.play(driver, jobs, [dice.randbytes(28) for _ in range(14)])
    driver.come_to_rest()
    return commits


async def balances(
    pool: AsyncEngine, cluster: str, now: datetime, periods: dict[str, Period]
) -> Counter[tuple[str, str, Period]]:
    """Return what REST has of the present periods, and check it against the rows that it has."""
    readings, found = LedgerBudgetReadings(pool, cluster), Counter[tuple[str, str, Period]]()
    use = [
        one for one in await readings.budget_use(now, periods) if one.period.begins <= now < one.period.ends
    ]
    for one in use:
        found[one.budget, one.subject, one.period] += one.reserved + one.used
    for name in {one.budget for one in use}:
        rows = await readings.budget_rows(name, now, 10_000)
        assert [one.sequence for one in rows] == sorted((one.sequence for one in rows), reverse=True)
        assert all(one.ref is not None and one.ref.uid == one.entry.workload for one in rows)
        of_rows = sum(one.entry.reserved + one.entry.used for one in rows)
        assert of_rows == sum(
            one.reserved + one.used for one in use if one.budget == name and one.namespace is not None
        )
    return +found


def expected_balances(
    expected: LedgerSnapshot, now: datetime, periods: dict[str, Period]
) -> Counter[tuple[str, str, Period]]:
    found = Counter[tuple[str, str, Period]]()
    for one in expected.budget_sums:
        found[one.budget, one.subject, one.period] += one.used
    for entry in expected.budget_entries:
        found[entry.budget, entry.subject, entry.period] += entry.reserved + entry.used
    running = Balances()
    running.restore((), expected.budget_entries)
    for charges in running.charges.values():
        for place, charge in charges.items():
            if charge.until is None and (period := periods.get(place.limit)) is not None:
                found[(*place, period)] += charge.used(period, now)
    return +Counter({key: one for key, one in found.items() if key[2].begins <= now < key[2].ends})


@pytest.mark.acceptance
async def test_postgres_has_the_balance_that_memory_has_after_each_plan(migrated: str) -> None:
    """In a database of its own: the time of these histories has no partitions."""
    pool, kinds, runs_on = create_pool(migrated), Counter[str](), False
    try:
        for seed in range(8):
            ledger = PostgresLedger(pool, f"random-{seed}")
            epoch = await ledger.take_epoch("test")
            for number, (plan, acknowledged, expected) in enumerate(history(seed)):
                await ledger.commit(plan, acknowledged, epoch=epoch, batch=str(number))
                found = await ledger.load()
                assert found.budget_entries == expected.budget_entries
                assert found.budget_sums == expected.budget_sums
                for decision in plan.decisions:
                    kinds.update(one.kind.value for one in getattr(decision, "budget", ()))
            for now in (plan.now, plan.now + timedelta(days=40)):  # in the next periods, too
                periods = {
                    name: current
                    for name, one in zip(NAMES, PERIODS, strict=False)
                    if (current := one.at(now)) is not None
                }
                left = await balances(pool, f"random-{seed}", now, periods)
                assert left == expected_balances(expected, now, periods)
                runs_on |= now > plan.now and bool(left)
            past = LedgerPast(pool, f"random-{seed}", lambda _: SchedulingConfiguration())
            then = await past.at(plan.now)
            assert (then.budget_sums, then.budget_entries) == (expected.budget_sums, expected.budget_entries)
            now = plan.now
            readings = LedgerBudgetReadings(pool, f"random-{seed}")
            present = await readings.budget_balances(expected.sequence, now, expected.workloads)
            assert present.sums == expected.budget_sums
            assert present.entries == expected.budget_entries
            findings = [one.code for one in await verify(migrated, f"random-{seed}")]
            assert set(findings) <= {"OverQuota", "DefaultPartition"}
        async with pool.connect() as connection:
            counted = text("SELECT kind, count(*) FROM queuectl.budget_entry GROUP BY kind")
            assert dict(tuple(row) for row in await connection.execute(counted)) == kinds
    finally:
        await pool.dispose()
    assert kinds.keys() == {"Reserve", "Settle", "Refund"}
    assert runs_on, "nothing is used in a period in which no row was made"


RESERVED = "UPDATE queuectl.budget_entry SET reserved = reserved + 1 WHERE until IS NOT NULL AND kind = "
BROKEN = (
    ("UPDATE queuectl.budget_entry SET used = used + 1 WHERE kind = 'Settle'", {"BudgetUsed"}),
    ("UPDATE queuectl.budget_entry SET used = -9e18 WHERE kind = 'Refund'", {"BudgetUsed"}),
    (f"{RESERVED} 'Reserve'", {"BudgetUsed", "BudgetReserved"}),
    (f"{RESERVED} 'Settle'", {"BudgetReserved"}),
    ("DELETE FROM queuectl.budget_entry WHERE kind <> 'Reserve' AND until IS NULL", {"BudgetReserved"}),
    ("DELETE FROM queuectl.budget_entry WHERE kind = 'Reserve'", {"BudgetUsed", "BudgetReserved"}),
)
OVER = (
    "DELETE FROM queuectl.attempt WHERE open AND cluster_id = 'changed-3' "
    "AND workload IN (SELECT workload FROM queuectl.budget_entry)"
)


async def tamper(connection: AsyncConnection, statement: str) -> None:
    """Run SQL as a superuser, without the triggers."""
    await connection.execute(text("SET LOCAL session_replication_role = replica"))
    assert (await connection.execute(text(statement))).rowcount


async def test_rows_of_budgets_that_were_changed_are_found(migrated: str) -> None:
    """Of two histories, which together have rows of each kind and mode."""
    pool, clusters = create_pool(migrated), ("changed-3", "changed-5")
    verifier = Verifier(pool, "changed-3")

    async def found() -> set[str]:
        return {one.code for one in await verifier.run() if one.code.startswith("Budget")}

    try:
        for cluster in clusters:
            ledger = PostgresLedger(pool, cluster)
            epoch = await ledger.take_epoch("test")
            for number, (plan, acknowledged, _) in enumerate(history(int(cluster[-1]))):
                await ledger.commit(plan, acknowledged, epoch=epoch, batch=str(number))
                assert await found() == set()
        for statement, expected in BROKEN:
            async with pool.connect() as connection:
                await tamper(connection, statement)
                codes = {
                    one.code
                    for cluster in clusters
                    for one in (await compare_budgets(connection, cluster, 0, ()))[0]
                }
                await connection.rollback()
            assert codes == expected, statement
        # Of a run that reads only what is new: an attempt is not open any more, and no row says so.
        async with pool.begin() as connection:
            await tamper(connection, OVER)
        assert await found() == {"BudgetReserved"}
        assert await found() == {"BudgetReserved"}
    finally:
        await pool.dispose()
