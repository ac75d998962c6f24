"""Which decisions take a subject of a Budget past 50, 80, 95 and 100 % of its hours."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta

from queuectl.core.decisions import Configure, Plan, Verdict
from queuectl.core.model.budgets import HOUR, Budget, BudgetMode, BudgetPeriods, PeriodKind
from queuectl.core.model.events import PodsCounted, WorkloadGone
from queuectl.core.model.usage_limits import LimitSubject, LimitTarget, SubjectKind
from queuectl.core.model.workload import ConfigKey, WorkloadId
from queuectl.ledger.admin.verify import verify
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.read.budgets import LedgerBudgetReadings
from queuectl.ledger.read.outbox import PostgresOutbox
from tests.builders import GPU, T0, World, local_queue, queue, workload
from tests.integration.ledger.accounting import Cluster

SPEC = {
    "target": {"kind": "ClusterQueue", "name": "cq"},
    "subject": {"kind": "EachUser"},
    "resource": GPU,
    "hours": 100,
    "period": {"kind": "Month"},
    "mode": "Safe",
}
BUDGET = Budget(
    name="b",
    target=LimitTarget("ClusterQueue", "cq"),
    subject=LimitSubject(SubjectKind.EACH_USER),
    resource=GPU,
    amount=100 * HOUR,
    periods=BudgetPeriods(PeriodKind.MONTH),
    mode=BudgetMode.SAFE,
)


class Recorded(World):
    def __init__(self, mode: BudgetMode = BudgetMode.SAFE) -> None:
        self.plans: list[Plan] = []
        super().__init__(queue("cq", 100), local_queue("lq", "cq"), replace(BUDGET, mode=mode))

    def commit(self, plan: Plan) -> None:
        super().commit(plan)
        self.plans.append(plan)

    def arrives(self, name: str, user: str, hours: int) -> None:
        """It reserves so many GPU-hours."""
        self.submit(workload(name, gpus=1, submitter=user, max_run_seconds=3600 * hours))
        self.run()
        self.settle()

    def ends(self, name: str) -> None:
        self.tell(WorkloadGone(WorkloadId(f"uid-{name}")))
        self.run()
        for probe in self.probes:
            self.tell(PodsCounted(probe.workload, probe.attempt, alive=False))
        self.run()


async def levels(outbox: PostgresOutbox, after: int) -> list[tuple[str, str, int]]:
    """Workload, subject and percent of each."""
    found = (await outbox.occurrences(after, 1000)).found
    return [
        (one.decision.ref.name, level.subject, level.percent)
        for one in found
        if one.decision.ref is not None
        for level in one.budgets
    ]


async def test_each_level_is_found_once_wherever_the_reading_begins(migrated: str, cluster: str) -> None:
    made = Recorded()
    made.arrives("a", "ada", 40)
    made.arrives("b", "bob", 60)
    made.arrives("c", "ada", 10)
    made.arrives("d", "ada", 46)
    made.arrives("e", "ada", 4)
    made.ends("d")
    made.arrives("f", "ada", 45)
    async with connection_pool(migrated) as pool:
        one = Cluster(pool, cluster)
        for plan in made.plans:
            if plan.decisions:
                await one.commit(plan.now, *plan.decisions)
        outbox = PostgresOutbox(pool, cluster)
        assert await levels(outbox, 0) == []
        await one.commit(_last(made), Configure(ConfigKey("Budget", "", "b"), json.dumps(SPEC)))
        expected = [
            ("b", "bob", 50),
            ("c", "ada", 50),
            ("d", "ada", 95),
            ("e", "ada", 100),
            ("f", "ada", 95),
        ]
        assert await levels(outbox, 0) == expected
        found = (await outbox.occurrences(0, 1000)).found
        sequences = [0, *(one.decision.sequence for one in found)]
        parts = [await outbox.occurrences(first, 1) for first in range(sequences[-1])]
        in_parts = [level for part in parts for one in part.found for level in one.budgets]
        assert [(level.subject, level.percent) for level in in_parts] == [one[1:] for one in expected]


async def test_levels_of_a_metered_budget_are_found_while_its_attempts_run(
    migrated: str, cluster: str
) -> None:
    made = Recorded(BudgetMode.METERED)
    made.submit(*(workload(name, gpus=1, submitter=user) for name, user in (("a", "ada"), ("b", "bob"))))
    made.run()
    for hours in (49, 1, 30, 14, 1, 4, 2):
        made.pass_time(3600 * hours)
        made.run()
    made.ends("a")
    async with connection_pool(migrated) as pool:
        one = Cluster(pool, cluster)
        for plan in made.plans:
            if plan.decisions:
                await one.commit(plan.now, *plan.decisions)
        spec = json.dumps(SPEC | {"mode": "Metered"})
        await one.commit(_last(made), Configure(ConfigKey("Budget", "", "b"), spec))
        outbox = PostgresOutbox(pool, cluster)
        found = (await outbox.occurrences(0, 1000)).found
        told = [
            (level.subject, level.percent, one.decision.now)
            for one in found
            for level in one.budgets
            if one.decision.verdict == Verdict.AMENDED
        ]
        at = [made.plans[0].now + timedelta(hours=hours) for hours in (50, 80, 95, 101)]
        expected = [
            (user, percent, when)
            for percent, when in zip((50, 80, 95, 100), at, strict=True)
            for user in ("ada", "bob")
        ]
        assert told == expected
        assert len(await levels(outbox, 0)) == len(expected)  # none at an end
        findings = [one.code for one in await verify(migrated, cluster)]
        assert [code for code in findings if code.startswith("Budget")] == []


async def test_what_was_granted_and_taken_back_has_the_author_of_the_edit(
    migrated: str, cluster: str
) -> None:
    one = {"hours": 5, "at": "2030-01-02T00:00:00Z", "reason": "x"}
    two = one | {"hours": 7, "workload": "ns/Job/a", "subject": "ada"}
    later = one | {"at": "2030-02-02T00:00:00Z"}
    key = ConfigKey("Budget", "", "b")
    async with connection_pool(migrated) as pool:
        ledger = Cluster(pool, cluster)
        for author, grants in (("eve", []), ("eve", [one]), ("joe", [one, one, later]), ("max", [two, one])):
            await ledger.commit(T0, Configure(key, json.dumps(SPEC | {"grants": grants}), author))
        period = BUDGET.periods.at(T0)
        assert period is not None
        rows = await LedgerBudgetReadings(pool, cluster).budget_grants("b", period)
        found = [(row.author, row.amount // HOUR, row.grant.workload) for row in rows]
        assert found == [("max", -5, None), ("max", 7, "ns/Job/a"), ("joe", 5, None), ("eve", 5, None)]
        assert len({row.sequence for row in rows}) == 3
        assert all(row.at == T0 for row in rows)


def _last(made: Recorded) -> datetime:
    return made.plans[-1].now
