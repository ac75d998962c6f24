"""What Budgets give, and what is reserved and used of them, for metrics."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Final

from queuectl.core.feature import Number
from queuectl.core.features.budgets.balances import Balances, SubjectsKey
from queuectl.core.model.budgets import Budget, OnExhausted
from queuectl.core.model.resources import CPU
from queuectl.core.model.usage_limits import SubjectKind

SECOND: Final = 1_000_000
"""In microseconds."""
_AMOUNT: Final = "What a Budget of one subject gives in its period, in cores, bytes or devices times seconds."
_RESERVED: Final = "What all subjects of a Budget have reserved of its period."
_USED: Final = "What all subjects of a Budget have used of its period."
_LOWERED: Final = "Workloads whose priority a Budget with onExhausted LowerClass lowers."


def numbers(
    budgets: Collection[Budget], balances: Balances, lowered: Mapping[str, int], now: datetime
) -> Iterator[Number]:
    """Yield what each Budget gives, what all its subjects have reserved and used of it, and how many
    workloads it lowers, which is `lowered` by its name.

    Where each user or account has its own amount, no amount stands beside the sums.
    """
    present = dict[str, SubjectsKey]()
    for budget in budgets:
        if (period := budget.periods.at(now)) is not None:
            present[budget.name] = SubjectsKey(budget.name, budget.resource, period)
    totals = balances.totals(present, now)
    for budget in budgets:
        reserved, used = totals.get(budget.name, (0, 0))
        if budget.subject.kind not in (SubjectKind.EACH_USER, SubjectKind.EACH_ACCOUNT):
            key = present.get(budget.name)
            granted = budget.granted(budget.subject.name, key.period) if key is not None else 0
            yield _number("seconds", _AMOUNT, budget, budget.amount + granted)
        yield _number("reserved_seconds", _RESERVED, budget, reserved)
        yield _number("used_seconds", _USED, budget, used)
        if budget.on_exhausted is OnExhausted.LOWER_CLASS:
            many = lowered.get(budget.name, 0)
            yield Number("budget_lowered_workloads", _LOWERED, many, (("budget", budget.name),))


def _number(name: str, text: str, budget: Budget, amount: int) -> Number:
    unit = SECOND * (1000 if budget.resource == CPU else 1)
    return Number(
        f"budget_{name}", text, amount / unit, (("budget", budget.name), ("resource", budget.resource))
    )
