"""What is left of budgets, and why: schemas and the endpoint (docs/accounting.md)."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Final

from pydantic import Field

from queuectl.api import schemas
from queuectl.api.http import unavailable
from queuectl.api.requests import WORKLOADS, Allowed, Parameter, Question, always, endpoint
from queuectl.api.schemas import Committed, Document
from queuectl.api.view import AnswerSource, Routes, committed, now
from queuectl.core.model.budgets import HOUR, Budget, Period
from queuectl.core.model.usage_limits import SubjectKind
from queuectl.ports.budgets import BudgetReadings, BudgetRow, BudgetUse, GrantRow

BUDGETS: Final = "budgets"
MOST_ROWS: Final = 1000
"""Rows of one answer."""
MOST_SUBJECTS: Final = 10_000
"""Of one answer: users may be made up."""
BUDGET: Final = Parameter(
    "budget",
    Annotated[str, Field(max_length=253)],
    "Only this Budget, with its rows.",
)


class BudgetBalance(Document):
    """What one subject has of a Budget in its present period."""

    budget: str
    subject: str = Field(description="The user, or the value of the account key. Empty: all together.")
    target: str = Field(description="The object whose workloads count, as `ClusterQueue/gpu`.")
    resource: str
    mode: str
    on_exhausted: str = Field(description="Wait, LowerClass or Refuse.")
    begins: datetime
    ends: datetime
    hours: float = Field(description="Of the spec, in base units times hours: GPU-hours, milli-cpu-hours.")
    granted: float = Field(description="Beside them, by hand, in this period.")
    used: float = Field(description="By attempts that are over, and by those that run on a Metered budget.")
    reserved: float = Field(description="By attempts that run on a Safe budget.")
    left: float = Field(description="Below 0: a Metered budget is exceeded, or `hours` were lowered.")


class BudgetChange(Document):
    """A row of a budget, which a decision has added."""

    sequence: int = Field(description="Of that decision.")
    at: datetime
    kind: str = Field(
        description="Reserve, Settle, or Refund of what an attempt has used; Grant or Refund by hand."
    )
    subject: str
    workload: str | None = Field(
        description="As `namespace/kind/name`. Null: the caller may not list it, or it is not kept any more."
    )
    attempt: int | None = Field(description="Null: by hand.")
    reserved: float = Field(description="Change of what is reserved, in base units times hours.")
    used: float = Field(description="Change of what is used.")
    granted: float = Field(description="What an edit has granted by hand. Below 0: what it took back.")
    reason: str | None = Field(description="Of what is granted.")
    author: str | None = Field(description="Of that edit. Null: unknown, or of an attempt.")


class BudgetReport(Committed):
    """What is left of budgets."""

    items: tuple[BudgetBalance, ...] = Field(
        description="Of Budgets that the caller may get, and of subjects with workloads in namespaces "
        f"where it may list them. Of more than {MOST_SUBJECTS}, those that have used and reserved most."
    )
    rows: tuple[BudgetChange, ...] | None = Field(
        description=f"Of the present period, the newest first, at most {MOST_ROWS}. Null: not asked for."
    )


class BudgetRoutes(Routes):
    def __init__(self, source: AnswerSource, budgets: BudgetReadings | None) -> None:
        """Without `budgets` every answer is a 503."""
        self._source = source
        self._budgets = budgets

    @endpoint(
        "/api/v1/budgets", "What is left of budgets, and by which rows", BudgetReport, (BUDGET,), heavy=always
    )
    async def budgets(self, question: Question) -> schemas.Committed:
        if self._budgets is None:
            raise unavailable("this server has no budgets")
        sight, wanted = self._source.sight(), question.values.get("budget")
        at = now(sight)
        known = {
            one.name: one
            for one in sight.state.policies.values()
            if isinstance(one, Budget) and wanted in (None, one.name)
        }
        periods = {name: found for name, one in known.items() if (found := one.periods.at(at)) is not None}
        use = await self._source.ask(self._budgets.budget_use(at, periods))
        rows = (
            None
            if wanted is None
            else await self._source.ask(self._budgets.budget_rows(wanted, at, MOST_ROWS))
        )
        period = periods.get(wanted or "")
        grants = (
            []
            if wanted is None or period is None
            else await self._source.ask(self._budgets.budget_grants(wanted, period))
        )
        namespaces = {one.namespace for one in use} | {one.ref.namespace for one in rows or () if one.ref}
        namespaces |= {(one.grant.workload or "").partition("/")[0] for one in grants}
        allowed = await question.caller.namespaces("list", WORKLOADS, {one for one in namespaces if one})
        readable = await question.caller.names(BUDGETS, known)
        items = await asyncio.to_thread(_items, known, use, periods, allowed, readable)
        subjects = {one.subject for one in items}
        of_grants = {None, *subjects} if items else set()
        changes = [_row(one, allowed) for one in rows or () if one.entry.subject in subjects]
        changes += [_grant(one, allowed) for one in grants if one.grant.subject in of_grants]
        changes.sort(key=lambda one: one.sequence, reverse=True)
        return BudgetReport(
            items=items,
            rows=None if rows is None else tuple(changes[:MOST_ROWS]),
            **committed(sight),
        )


def _items(
    known: Mapping[str, Budget],
    found: Iterable[BudgetUse],
    periods: Mapping[str, Period],
    allowed: Allowed,
    readable: Allowed,
) -> tuple[BudgetBalance, ...]:
    sums: dict[tuple[str, str], list[int]] = {}
    visible: set[tuple[str, str]] = set()
    for name, budget in known.items():
        if budget.subject.kind not in (SubjectKind.EACH_USER, SubjectKind.EACH_ACCOUNT):
            sums[name, budget.subject.name] = [0, 0]
    for one in found:
        if one.budget in known and one.resource == known[one.budget].resource:
            if one.period == periods.get(one.budget):
                total = sums.setdefault((one.budget, one.subject), [0, 0])
                total[0] += one.reserved
                total[1] += one.used
            if one.namespace is not None and one.namespace in allowed:
                visible.add((one.budget, one.subject))
    shown = [key for key in sums if key[0] in periods and (key[0] in readable or key in visible)]
    shown = heapq.nlargest(MOST_SUBJECTS, shown, key=lambda key: sum(sums[key]))
    return tuple(_item(known[key[0]], key[1], periods[key[0]], *sums[key]) for key in sorted(shown))


def _grant(row: GrantRow, allowed: Allowed) -> BudgetChange:
    """Who may not list the refunded workload sees neither its name nor the reason."""
    grant = row.grant
    visible = grant.workload is None or grant.workload.partition("/")[0] in allowed
    return BudgetChange(
        sequence=row.sequence,
        at=row.at,
        kind="Grant" if grant.workload is None else "Refund",
        subject=grant.subject or "",
        workload=grant.workload if visible else None,
        attempt=None,
        reserved=0.0,
        used=0.0,
        granted=row.amount / HOUR,
        reason=grant.reason if visible else None,
        author=row.author,
    )


def _item(budget: Budget, subject: str, period: Period, reserved: int, used: int) -> BudgetBalance:
    return BudgetBalance(
        budget=budget.name,
        subject=subject,
        target=str(budget.target),
        resource=budget.resource,
        mode=budget.mode,
        on_exhausted=budget.on_exhausted,
        begins=period.begins,
        ends=period.ends,
        hours=budget.amount / HOUR,
        granted=budget.granted(subject, period) / HOUR,
        used=used / HOUR,
        reserved=reserved / HOUR,
        left=(budget.allowed(subject, period) - reserved - used) / HOUR,
    )


def _row(row: BudgetRow, allowed: Allowed) -> BudgetChange:
    entry, ref = row.entry, row.ref
    return BudgetChange(
        sequence=row.sequence,
        at=entry.at,
        kind=entry.kind,
        subject=entry.subject,
        workload=str(ref) if ref is not None and ref.namespace in allowed else None,
        attempt=entry.attempt,
        reserved=entry.reserved / HOUR,
        used=entry.used / HOUR,
        granted=0.0,
        reason=None,
        author=None,
    )
