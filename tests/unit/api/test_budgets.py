"""What is left of budgets over REST, its rows, and what a tenant sees of others."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from queuectl.api import budget_routes
from queuectl.core.model.budgets import (
    HOUR,
    BudgetEntry,
    BudgetGrant,
    BudgetPeriods,
    EntryKind,
    Period,
    PeriodKind,
)
from queuectl.core.model.workload import ConfigKey, ObjectRef
from queuectl.ports.budgets import BudgetRow, BudgetUse, GrantRow
from tests.builders import GPU
from tests.unit.api.canned import EPOCH_START, CannedReadings, two_teams
from tests.unit.api.conftest import Rest, Serve
from tests.unit.api.reviews import CannedReviews

PATH = "/api/v1/budgets"
SPEC = {
    "target": {"kind": "Cohort", "name": "all"},
    "subject": {"kind": "EachUser"},
    "resource": GPU,
    "hours": 100,
    "period": {"kind": "Month"},
    "mode": "Safe",
}


def with_budgets(readings: CannedReadings) -> Period:
    """Two users of Budget `users`, of two namespaces, and Budget `whole`, of which nothing is used."""
    now = EPOCH_START
    period = BudgetPeriods(PeriodKind.MONTH).at(now)
    assert period is not None
    whole = SPEC | {"subject": {"kind": "All"}}
    readings.commit(
        configs={
            ConfigKey("Budget", "", "users"): json.dumps(SPEC),
            ConfigKey("Budget", "", "whole"): json.dumps(whole),
        }
    )

    def use(subject: str, namespace: str, reserved: int, used: int, of: Period = period) -> BudgetUse:
        return BudgetUse("users", subject, GPU, of, namespace, reserved * HOUR, used * HOUR)

    former = Period(period.begins - timedelta(days=7), period.ends)
    readings.budgets.use = [
        use("alice", "default", 20, 5),
        use("alice", "default", 1, 1, former),  # of another definition of its periods
        use("bob", "other", 8, 0),
    ]
    entry: dict[str, Any] = {"budget": "users", "resource": GPU, "period": period, "attempt": 1, "rate": 2}
    readings.budgets.rows = [
        BudgetRow(
            sequence,
            BudgetEntry(
                kind=EntryKind.RESERVE,
                subject=subject,
                workload=f"uid-{name}",
                at=now,
                until=now + timedelta(hours=4),
                reserved=8 * HOUR,
                **entry,
            ),
            ObjectRef(namespace, "Job", name, f"uid-{name}"),
        )
        for sequence, subject, namespace, name in ((9, "bob", "other", "b"), (7, "alice", "default", "a"))
    ]
    return period


@pytest.fixture
def readings() -> CannedReadings:
    readings = two_teams()
    with_budgets(readings)
    return readings


async def test_each_subject_has_what_is_left_of_its_period(serve: Serve, readings: CannedReadings) -> None:
    found = await (await serve(readings)).get(PATH)
    items = [
        (one["budget"], one["subject"], one["used"], one["reserved"], one["left"]) for one in found["items"]
    ]
    assert items == [("users", "alice", 5, 20, 75), ("users", "bob", 0, 8, 92), ("whole", "", 0, 0, 100)]
    assert found["rows"] is None


async def test_the_rows_of_one_budget_say_why(serve: Serve, readings: CannedReadings) -> None:
    found = await (await serve(readings)).get(PATH, budget="users")
    assert [one["subject"] for one in found["items"]] == ["alice", "bob"]
    rows = [(one["sequence"], one["kind"], one["workload"], one["reserved"]) for one in found["rows"]]
    assert rows == [(9, "Reserve", "other/Job/b", 8), (7, "Reserve", "default/Job/a", 8)]


async def test_a_tenant_sees_subjects_of_its_own_namespaces_alone(
    serve: Serve, readings: CannedReadings
) -> None:
    reviews = CannedReviews()
    reviews.tenant("alice", "default")
    reviews.admin("root")
    rest: Rest = await serve(readings, reviews)
    found = await rest.get(PATH, token="alice", budget="users")
    assert [one["subject"] for one in found["items"]] == ["alice"]
    assert [one["workload"] for one in found["rows"]] == ["default/Job/a"]
    assert "bob" not in json.dumps(found)
    assert (await rest.get(PATH, token="alice", budget="whole"))["items"] == []
    assert len((await rest.get(PATH, token="root"))["items"]) == 3


async def test_a_budget_that_does_not_exist_has_no_rows(serve: Serve, readings: CannedReadings) -> None:
    found = await (await serve(readings)).get(PATH, budget="missing")
    assert (found["items"], found["rows"]) == ([], [])


async def test_of_more_subjects_than_an_answer_has_those_that_use_most_are_told(
    serve: Serve, readings: CannedReadings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each user has a balance, and the service accounts of a namespace are users."""
    monkeypatch.setattr(budget_routes, "MOST_SUBJECTS", 2)
    (alice, *_, bob), rest = readings.budgets.use, await serve(readings)
    readings.budgets.use += [bob._replace(subject=f"made-up-{n}", reserved=n) for n in range(9)]
    found = await rest.get(PATH, budget="users")
    assert [one["subject"] for one in found["items"]] == [alice.subject, bob.subject]
    assert [one["subject"] for one in found["rows"]] == [bob.subject, alice.subject]


def granted(readings: CannedReadings) -> None:
    """Edits grant 10 hours to alice, refund 2 of a Job of bob, and take 4 back that all had."""
    grant = BudgetGrant(amount=10 * HOUR, at=EPOCH_START, subject="alice", workload=None, reason="a deadline")
    refund = replace(grant, amount=2 * HOUR, subject="bob", workload="other/Job/b", reason="a broken disk")
    each = replace(grant, amount=4 * HOUR, subject=None, reason="too many")
    readings.budgets.grants = [
        GrantRow(20, EPOCH_START, "eve", each, -each.amount),
        GrantRow(8, EPOCH_START, "eve", refund, refund.amount),
        GrantRow(6, EPOCH_START, None, grant, grant.amount),
    ]
    texts = [
        {"hours": 10, "at": EPOCH_START.isoformat(), "subject": "alice", "reason": "a deadline"},
        {
            "hours": 2,
            "at": EPOCH_START.isoformat(),
            "subject": "bob",
            "workload": "other/Job/b",
            "reason": "x",
        },
    ]
    readings.commit(configs={ConfigKey("Budget", "", "users"): json.dumps(SPEC | {"grants": texts})})


async def test_what_is_granted_by_hand_is_a_row_with_its_reason_and_author(
    serve: Serve, readings: CannedReadings
) -> None:
    granted(readings)
    found = await (await serve(readings)).get(PATH, budget="users")
    items = [(one["subject"], one["hours"], one["granted"], one["left"]) for one in found["items"]]
    assert items == [("alice", 100, 10, 85), ("bob", 100, 2, 94)]
    rows = [
        (one["sequence"], one["kind"], one["subject"], one["workload"], one["granted"], one["author"])
        for one in found["rows"]
        if one["attempt"] is None
    ]
    assert rows == [
        (20, "Grant", "", None, -4, "eve"),
        (8, "Refund", "bob", "other/Job/b", 2, "eve"),
        (6, "Grant", "alice", None, 10, None),
    ]
    assert [one["sequence"] for one in found["rows"]] == [20, 9, 8, 7, 6]
    reasons = [one["reason"] for one in found["rows"] if one["attempt"] is None]
    assert reasons == ["too many", "a broken disk", "a deadline"]


async def test_a_tenant_sees_of_a_refund_of_others_neither_workload_nor_reason(
    serve: Serve, readings: CannedReadings
) -> None:
    granted(readings)
    reviews = CannedReviews()
    reviews.tenant("alice", "default")
    reviews.tenant("eve", "nowhere")
    rest = await serve(readings, reviews)
    assert (await rest.get(PATH, token="eve", budget="users"))["rows"] == []
    found = await rest.get(PATH, token="alice", budget="users")
    assert [(one["kind"], one["subject"]) for one in found["rows"]] == [
        ("Grant", ""),
        ("Reserve", "alice"),
        ("Grant", "alice"),
    ]
    assert "broken" not in json.dumps(found)
