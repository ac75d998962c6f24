"""The rows of budgets in Postgres, and what a process loads of them, after random histories."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from sqlalchemy import text

from queuectl.core.decisions import Plan
from queuectl.core.model.workload import LedgerSnapshot
from queuectl.ledger.admin.verify import verify
from queuectl.ledger.pool import create_pool
from queuectl.ledger.write.postgres import PostgresLedger
from tests.unit.core import actions
from tests.unit.core.features.budgets.test_laws import with_budgets

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


async def test_postgres_has_the_balance_that_memory_has_after_each_plan(migrated: str) -> None:
    """In a database of its own: the time of these histories has no partitions."""
    pool, kinds = create_pool(migrated), Counter[str]()
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
            findings = [one.code for one in await verify(migrated, f"random-{seed}")]
            assert set(findings) <= {"OverQuota", "DefaultPartition"}
        async with pool.connect() as connection:
            counted = text("SELECT kind, count(*) FROM queuectl.budget_entry GROUP BY kind")
            assert dict(tuple(row) for row in await connection.execute(counted)) == kinds
    finally:
        await pool.dispose()
    assert kinds.keys() == {"Reserve", "Settle", "Refund"}
