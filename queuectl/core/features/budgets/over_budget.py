"""What a Budget does with what it does not cover, beside letting it wait (Y8, Y9)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from queuectl.core.directory import Directory
from queuectl.core.model import priorities
from queuectl.core.model.budgets import Budget, OnExhausted
from queuectl.core.model.priorities import LoweredPriority
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import PastAttempts
from queuectl.core.subjects import Place, SubjectRules

KIND: Final = "Budget"
LONGEST: Final = timedelta(days=366)
"""The longest run time that a Safe budget reserves: bounds the rows of one admission."""


class OverBudget:
    """Which Budgets lower what they do not cover, and which refuse it."""

    def __init__(self, rules: SubjectRules[Budget], directory: Directory) -> None:
        self._rules = rules
        self._directory = directory

    @property
    def refuses(self) -> bool:
        """Whether any Budget refuses what arrives."""
        return any(one.on_exhausted is OnExhausted.REFUSE for one in self._rules.limits.values())

    def lowers(self, name: str) -> bool:
        budget = self._rules.limits.get(name)
        return budget is not None and budget.on_exhausted is OnExhausted.LOWER_CLASS

    def lowering(self, name: str) -> LoweredPriority | None:
        """Return what a Budget lowers those to that it does not cover; None: it lets them wait."""
        budget = self._rules.limits.get(name)
        if budget is None or budget.on_exhausted is not OnExhausted.LOWER_CLASS or not budget.lower_class:
            return None
        priority = self._directory.priority_of_class(budget.lower_class)
        return None if priority is None else LoweredPriority(f"{KIND}/{name}", budget.lower_class, priority)

    def charged(self, past: PastAttempts, places: tuple[Place, ...]) -> tuple[Place, ...]:
        """Return those of `places` that are charged: what a Budget lowers is charged to none that lowers."""
        if lowered_by(past) is None:
            return places
        return tuple(one for one in places if not self.lowers(one.limit))

    def of_attempt(self, past: PastAttempts) -> PastAttempts:
        """Return `past` of an attempt: it stays lowered while its Budget lowers, since it is not charged."""
        lowered = lowered_by(past)
        if lowered is None:
            return past
        name = budget_of(lowered)
        return with_mark(past, self.lowering(name) or lowered if self.lowers(name) else None)

    def remedy(self, budget: Budget) -> str:
        """Return in words what happens to a workload that `budget` does not cover, beside its waiting."""
        if not self.lowers(budget.name):
            return ""
        named = f"WorkloadPriorityClass/{budget.lower_class}"
        if self.lowering(budget.name) is None:
            return f"; {named} of spec.lowerClass not found"
        return f"; until then it is queued with the priority of {named}, and not charged"


def lowered_by(past: PastAttempts) -> LoweredPriority | None:
    """Return what a Budget has lowered a workload to; None: none has."""
    return priorities.lowered_by(past.lowered, KIND)


def with_mark(past: PastAttempts, by: LoweredPriority | None) -> PastAttempts:
    """Return `past` with this as what a Budget lowers the workload to."""
    return replace(past, lowered=priorities.with_lowered(past.lowered, KIND, by))


def budget_of(lowered: LoweredPriority) -> str:
    """Return the name of the Budget."""
    return lowered.policy.removeprefix(f"{KIND}/")


def needs_limit(budget: Budget) -> Reason:
    """Return why a Safe budget cannot reserve for a workload that may run for any time (Y6)."""
    most = LONGEST // timedelta(seconds=1)
    detail = (
        "it reserves run time in advance: set label queuectl.dev/max-exec-time-seconds to at most "
        f"{most}, or ask for a default of the queue"
    )
    return Reason(code=Code.BUDGET_NEEDS_LIMIT, node=f"{KIND}/{budget.name}", detail=detail)
