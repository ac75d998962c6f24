"""What changes are tried with beside the state that readers have: rows of the ledger, read when asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from queuectl.api.view import AnswerSource, Sight, now
from queuectl.core.model.budgets import Budget
from queuectl.core.model.events import OutcomesRead, PolicyGone, PolicyObserved
from queuectl.core.model.start_conditions import NamedWorkload
from queuectl.core.model.workload import (
    LedgerSnapshot,
    Phase,
    StoredWorkload,
    Workload,
    WorkloadId,
    WorkloadOutcome,
)
from queuectl.ports.budgets import BudgetBalances, BudgetReadings
from queuectl.ports.history import history_of
from queuectl.ports.reader import Basis, EvictionTimes


class WhatIfRows:
    def __init__(self, source: AnswerSource, budgets: BudgetReadings | None) -> None:
        """Without `budgets` each Budget counts as unused."""
        self._source = source
        self._budgets = budgets

    async def added_to(
        self, of: Basis, sight: Sight, changes: Iterable[PolicyObserved | PolicyGone] = ()
    ) -> Basis:
        """Add when workloads were evicted, and the balances of budgets, where the state or `changes` have a
        Budget."""
        state, at = sight.state, now(sight)
        since = at - state.configuration.preemptions_count_for
        evicted = await self._source.ask(self._source.readings.eviction_times(state.sequence, since))
        policies = (*state.policies.values(), *(getattr(one, "value", None) for one in changes))
        balances = BudgetBalances((), ())
        if self._budgets is not None and any(isinstance(one, Budget) for one in policies):
            balances = await self._source.ask(
                self._budgets.budget_balances(state.sequence, at, state.workloads.values())
            )
        return replace(of, snapshot=lambda: with_rows(of.snapshot(), evicted, balances))

    async def outcomes(self, workload: Workload, last: int) -> OutcomesRead:
        """How those ended that it is to start after, as far as they are over after decision `last` (V2)."""
        readings = self._source.readings
        after = workload.start.after if workload.start is not None else ()
        names = {NamedWorkload(workload.ref.namespace, one.kind, one.name) for one in after}
        over = [(name, await self._source.ask(readings.find(*name, ended_by=last))) for name in sorted(names)]
        known = [one.id for _, one in over if one is not None]
        lives = await self._source.ask(readings.lives(known, until=last)) if known else {}
        ends = {one: history_of(rows).outcome for one, rows in lives.items()}
        return OutcomesRead(
            tuple(
                (name, WorkloadOutcome(end) if one is not None and (end := ends.get(one.id)) else None)
                for name, one in over
            )
        )


def with_rows(
    snapshot: LedgerSnapshot, evicted: Mapping[WorkloadId, EvictionTimes], balances: BudgetBalances
) -> LedgerSnapshot:
    workloads = tuple(_evicted(one, evicted.get(one.id)) for one in snapshot.workloads)
    return replace(snapshot, workloads=workloads, budget_sums=balances.sums, budget_entries=balances.entries)


def _evicted(one: StoredWorkload, times: EvictionTimes | None) -> StoredWorkload:
    if times is None:
        return one
    if one.phase is not Phase.EVICTING:
        return replace(one, preempted_at=times.preempted_at)
    return replace(one, **times._asdict())
