"""A month of a lab with three teams: what finance, the admin and each user see (docs/examples/month.txt)."""

from __future__ import annotations

import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from queuectl.core.decisions import Admit, Decision, Evict, Keep, Plan
from queuectl.core.model.budgets import HOUR as BUDGET_HOUR
from queuectl.core.model.budgets import Budget, BudgetMode, BudgetPeriods, Period, PeriodKind
from queuectl.core.model.device_use import IdlePolicy, UseFinding, UseVerdict
from queuectl.core.model.events import DeviceUseFound, PodsCounted, WorkloadGone
from queuectl.core.model.policy import Cohort, Policy, Preemption, PreemptionPolicy
from queuectl.core.model.reasons import Code
from queuectl.core.model.usage_limits import LimitSubject, LimitTarget, SubjectKind
from queuectl.core.model.workload import Workload, WorkloadId
from queuectl.ledger.device_use import LedgerDeviceUse
from queuectl.ledger.history.usage_hours import roll_up
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.read.budgets import LedgerBudgetReadings
from queuectl.ports.rates import money
from queuectl.ports.statements import ChargeKind
from tests.builders import GPU, T0, World, local_queue, observed, queue, workload
from tests.integration.ledger.accounting import findings
from tests.integration.ledger.test_statements import Books, rates

SHOWN: Final = Path(__file__).parents[3] / "docs" / "examples" / "month.txt"
TEAMS: Final = ("vision", "speech", "robots")
USERS: Final = {"vision": "hana", "speech": "sam", "robots": "rob"}
FEBRUARY: Final = datetime(2030, 2, 1, tzinfo=UTC)
PERIODS: Final = BudgetPeriods(PeriodKind.MONTH)


def policies() -> list[Policy]:
    """8 GPUs and 3000 GPU-hours a month for each team; what others leave is borrowed."""
    found: list[Policy] = [Cohort(name="lab")]
    for team in TEAMS:
        target = LimitTarget("ClusterQueue", team)
        reclaim = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
        found += [queue(team, 8, cohort="lab", preemption=reclaim), local_queue(team, team)]
        found.append(
            Budget(
                name=team,
                target=target,
                subject=LimitSubject(SubjectKind.ALL),
                resource=GPU,
                amount=3000 * BUDGET_HOUR,
                periods=PERIODS,
                mode=BudgetMode.SAFE,
                refund_preempted=100,
            )
        )
    target = LimitTarget("Cohort", "lab")
    found.append(
        IdlePolicy(name="lab", target=target, notify_after=2 * 3600, hold_after=4 * 3600, dry_run=False)
    )
    return found


class Lab(World):
    """Each workload ends after its hours, and what is evicted is gone at once."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        super().__init__(*policies())
        self.jobs: dict[str, Workload] = {}
        self.left: dict[str, timedelta] = {}
        """What each has still to run: what is evicted goes on later."""
        self.running: dict[str, tuple[int, datetime]] = {}
        """By name: the attempt, and when it was admitted."""
        self.hangs: set[str] = set()
        self.generation = 0
        self.story: list[str] = []
        """What users are told, with the time."""
        self.started: dict[str, datetime] = {}

    def commit(self, plan: Plan) -> None:
        super().commit(plan)
        self.plans.append(plan)

    def arrives(self, name: str, team: str, limit: int, lasts: float) -> None:
        """A workload with 8 GPUs, a limit of run time and what it needs of it, in hours."""
        one = workload(
            name,
            team,
            gpus=8,
            created=(self.now - T0).total_seconds(),
            submitter=USERS[team],
            max_run_seconds=limit * 3600,
        )
        self.jobs[name], self.left[name] = one, timedelta(hours=lasts)
        self.submit(one)
        self.work()

    def work(self) -> None:
        """Decide until nothing happens any more."""
        while (made := self.run()) or self.probes:
            for decision in made:
                self._happens(decision)
            for probe in self.probes:
                self.tell(PodsCounted(probe.workload, probe.attempt, alive=False))
            self.probes.clear()

    def _happens(self, decision: Decision) -> None:
        name = decision.ref.name if isinstance(decision, Admit | Evict) else ""
        if isinstance(decision, Admit):
            self.running[name] = decision.attempt.number, self.now
            self.started.setdefault(name, self.now)
            self.generation += 2
            self.settle(generation=self.generation)
            self._observe(name, suspended=False)
        elif isinstance(decision, Evict):
            _, since = self.running.pop(name)
            self.left[name] -= self.now - since
            self.story.append(f"{self.now:%d %b %H:%M} {name}: {decision.reason.message}")
            self.generation += 2
            self.settle(generation=self.generation)
            self._observe(name, suspended=True, quiet=True)
        elif isinstance(decision, Keep) and decision.reason.code is Code.BUDGET_EXHAUSTED:
            self.story.append(f"{self.now:%d %b %H:%M} {decision.ref.name}: {decision.reason.message}")
        for alarm in self.engine.take_alarms():
            self.story.append(f"{self.now:%d %b %H:%M} {alarm.ref.name}: {alarm.message}")

    def _observe(self, name: str, **state: object) -> None:
        self.tell(observed(self.jobs[name], generation=self.generation, **state))

    def until(self, when: datetime) -> None:
        """Pass the time by the hour."""
        while self.now < when:
            self.pass_time(3600)
            for name, (attempt, since) in list(self.running.items()):
                verdict = UseVerdict.HANG if name in self.hangs else UseVerdict.BUSY
                idle = 8 if name in self.hangs else 0
                finding, lasts = UseFinding(verdict, 8, idle, 1.0), self.now + timedelta(hours=2)
                self.tell(DeviceUseFound(WorkloadId(f"uid-{name}"), attempt, finding, self.now, lasts))
                if name not in self.hangs and self.now - since >= self.left[name]:
                    self.running.pop(name)
                    self.tell(WorkloadGone(WorkloadId(f"uid-{name}")))
            self.pass_time(0)
            self.work()


def day(number: int, hour: int = 0) -> datetime:
    return datetime(2030, 1, number, hour, tzinfo=UTC)


def play(lab: Lab) -> None:
    for number in range(1, 5):
        lab.arrives(f"hog-{number}", "vision", limit=120, lasts=119)
    lab.until(day(2))
    lab.arrives("asr", "speech", limit=60, lasts=48)
    lab.arrives("sim", "robots", limit=240, lasts=200)
    lab.until(day(2, 12))
    lab.hangs.add("sim")
    lab.until(FEBRUARY + timedelta(hours=1))
    lab.arrives("asr-2", "speech", limit=60, lasts=48)


async def store(lab: Lab, books: Books) -> None:
    """Commit what the lab has decided, and close January."""
    await books.commit(T0, rates(lost="Nobody"))
    for plan in lab.plans:
        if plan.decisions:
            await books.commit(plan.now, *plan.decisions)
    await LedgerDeviceUse(books.pool, books.cluster).store_check(None, ["nvidia.com/*"])
    await roll_up(books.pool, books.cluster, "UTC")
    await books.close("2030-01")


async def finance(books: Books) -> list[str]:
    """The statement, and its total."""
    found = [f"{'finance':<10}{'user':<7}{'kind':<6}{'GPU-hours':>10}{'EUR':>10}"]
    lines = [one for one in await books.statements.lines("2030-01") if one.resource.endswith(GPU)]
    for line in lines:
        assert line.booked is not None
        hours, cost = money(line.amount * 10**6 // BUDGET_HOUR, 1), money(line.cost, 2)
        sign = "-" if line.kind is ChargeKind.LOST else ""
        kind = line.kind.value if line.resource == GPU else "idle"
        cells = f"{line.cluster_queue:<10}{line.booked.user:<7}{kind:<6}"
        found.append(f"{cells}{sign + hours:>10}{cost:>10}")
    (closed,) = await books.statements.statements()
    assert closed.total == sum(one.cost for one in lines)
    return [*found, f"{'total':<33}{money(closed.total, 2):>10}"]


async def admin(books: Books) -> list[str]:
    """Balances at the end of January."""
    at = FEBRUARY - timedelta(hours=1)
    found = [f"{'admin':<10}{'hours':>7}{'used':>7}{'reserved':>10}{'left':>7}"]
    periods = {team: Period(T0, FEBRUARY) for team in TEAMS}
    use = await LedgerBudgetReadings(books.pool, books.cluster).budget_use(at, periods)
    for team in TEAMS:
        mine = [one for one in use if one.budget == team and one.period.begins == T0]
        used = sum(one.used for one in mine) // BUDGET_HOUR
        reserved = sum(one.reserved for one in mine) // BUDGET_HOUR
        found.append(f"{team:<10}{3000:>7}{used:>7}{reserved:>10}{3000 - used - reserved:>7}")
    return found


def users(lab: Lab) -> list[str]:
    """Why what is theirs waited or was stopped."""
    told = [*lab.story, f"{lab.started['hog-4']:%d %b %H:%M} hog-4: starts"]
    wrapped = [textwrap.wrap(one, 132, subsequent_indent="  ", break_long_words=False) for one in told]
    return ["users", *(line for one in wrapped for line in one)]


@pytest.mark.acceptance
async def test_a_month_of_a_lab(migrated: str, cluster: str) -> None:
    lab = Lab()
    play(lab)
    async with connection_pool(migrated) as pool:
        books = Books(pool, cluster, migrated)
        await store(lab, books)
        assert await findings(books.url, books.cluster) == []
        shown = "\n\n".join(
            "\n".join(part) for part in (await finance(books), await admin(books), users(lab))
        )
    assert SHOWN.read_text() == f"{shown}\n", shown
