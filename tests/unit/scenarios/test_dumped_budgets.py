"""A dump has the balances of budgets: what is run on it waits for them as it would have."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

from queuectl.answers import trial_snapshot
from queuectl.answers.state import CommittedState
from queuectl.core.model.budgets import HOUR, BudgetEntry, BudgetPeriods, BudgetSum, EntryKind, PeriodKind
from queuectl.core.model.policy import DEFAULT_CONFIGURATION
from queuectl.core.model.workload import ConfigKey, LedgerSnapshot
from queuectl.kinds.policy import parse_policy
from queuectl.scenarios.anonymous import anonymous
from queuectl.scenarios.dump import dump
from tests.builders import GPU
from tests.unit.api.canned import EPOCH_START, queue_spec
from tests.unit.api.test_what_ifs import ledger
from tests.unit.core.driver import wait_for
from tests.unit.scenarios.test_past_hours import MANY, run_of, sizes

SPEC = {
    "target": {"kind": "ClusterQueue", "name": "team-a"},
    "subject": {"kind": "EachUser"},
    "resource": GPU,
    "hours": 100,
    "period": {"kind": "Month"},
    "mode": "Metered",
}
ONE = {"subject": {"kind": "User", "name": "yves"}}


def snapshot(used: float) -> LedgerSnapshot:
    """There is quota for `waits`, with 6 GPUs. alice has used some hours, and has held 6 GPUs for one."""
    readings = ledger()
    readings.commit(
        configs={
            ConfigKey("ClusterQueue", "", "team-a"): queue_spec(13),
            ConfigKey("Budget", "", "each"): json.dumps(SPEC),
            ConfigKey("Budget", "", "one"): json.dumps(SPEC | ONE),
        }
    )
    state = CommittedState().advance(wait_for(readings.since(0)), parse_policy)
    now = EPOCH_START + timedelta(hours=2)
    found = trial_snapshot.everything(state, now).snapshot()
    period = BudgetPeriods(PeriodKind.MONTH).at(now)
    assert period is not None
    runs = readings.stored("runs")
    charge = BudgetEntry(
        kind=EntryKind.RESERVE,
        budget="each",
        subject="alice",
        resource=GPU,
        period=period,
        workload=runs.id,
        attempt=1,
        at=now - timedelta(hours=1),
        rate=6,
        until=None,
    )
    sums = (
        BudgetSum("each", "alice", GPU, period, round(used * HOUR)),
        BudgetSum("each", "zoe", GPU, period, 2**70),
    )
    return replace(found, budget_sums=sums, budget_entries=(charge,))


def dumped(used: float) -> dict[str, Any]:
    found = snapshot(used)
    assert found.now is not None
    return json.loads(json.dumps(dump(found, DEFAULT_CONFIGURATION, now=found.now)))  # type: ignore[no-any-return]


def test_what_is_run_on_a_dump_has_the_balances_of_the_ledger() -> None:
    for used, admitted in ((82, 1), (82.1, 0)):  # 6 are used, 6 are kept for what runs, 6 are needed
        document = dumped(used)
        now = snapshot(used).now
        assert now is not None
        decided = run_of(document).decide(now, MANY)
        assert [one.verdict.value for one in decided.decisions].count("Admitted") == admitted
        assert sizes(run_of(anonymous(document)).decide(now, MANY)) == sizes(decided)


def test_a_dump_without_names_has_no_subject_of_a_budget() -> None:
    text = json.dumps(anonymous(dumped(1)))
    assert not [name for name in ("alice", "zoe", "yves", "each", "uid-") if f'"{name}' in text]
