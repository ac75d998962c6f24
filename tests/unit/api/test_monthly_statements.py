"""Statements over REST: what months cost, rows of FOCUS, and what a tenant sees of others (B6, B15)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from queuectl.api import usage_routes
from queuectl.ports.periods import month_bounds
from queuectl.ports.reader import BookedOn, TooMuchHistory, UsageSumOf
from queuectl.ports.statements import ChargeKind, ClosedMonth, StatementLine
from tests.unit.api.canned import GPU, CannedReadings, two_teams
from tests.unit.api.conftest import Rest, Serve
from tests.unit.api.reviews import CannedReviews
from tests.unit.api.test_usage import CountedRows

HOUR = 3_600_000_000
KATHMANDU = ZoneInfo("Asia/Kathmandu")
PATH = "/api/v1/statements"


def held(hours: int, user: str | None, namespace: str = "default", **account: str) -> UsageSumOf:
    booked = BookedOn(namespace, "main", "ci", user, "high", account) if user is not None else None
    return UsageSumOf(booked, "team-a", "a100", GPU, hours * HOUR)


def closed(month: str, *lines: StatementLine) -> ClosedMonth:
    """A month of which nothing is configured as it is now."""
    total = sum(line.cost for line in lines)
    when = datetime(2026, 1, 3, tzinfo=UTC)
    period = month_bounds(month, KATHMANDU)
    return ClosedMonth(
        month, "Asia/Kathmandu", *period, "CHF", 0, None, len(lines), total, "d" * 64, when, "finance"
    )


def line(month: str, cost: int, user: str = "ada", **more: Any) -> StatementLine:
    booked = BookedOn("default", "main", None, user, None, {})
    period = month_bounds(month, KATHMANDU)
    return StatementLine(
        *(ChargeKind.USAGE, *period, booked, "team-a", "a100", GPU),
        *(HOUR, cost, cost, cost),
        **more,
    )


@pytest.fixture
def readings() -> CannedReadings:
    """Its last commit is of January 2026."""
    readings = two_teams()
    readings.booked = [
        held(5, "ada", project="blue"),
        held(7, "bob", project="red"),
        held(11, "zz-eve", "zz-eves", project="zz-secret"),
        held(3, None),
        UsageSumOf(
            BookedOn("default", "main", "ci", "ada", "high", {}), "team-a", "spot", "cpu", 4000 * HOUR
        ),
    ]
    lines = line("2025-12", 4_600_000), line("2025-12", 3_500_000, "bob")
    readings.statements.closed = [closed("2025-12", *lines)]
    readings.statements.stored = {
        "2025-12": list(lines),
        "2026-01": [line("2025-12", -600_000, of_month="2025-12", reason="a rebate")],
    }
    return readings


@pytest.fixture
async def rest(serve: Serve, readings: CannedReadings) -> Rest:
    return await serve(readings)


def costs(found: Any, *names: str) -> list[tuple[Any, ...]]:
    return [(*(item["keys"][name] for name in names), item["cost"]) for item in found["items"]]


async def test_closed_months_and_the_open_ones_after_them_are_listed(
    rest: Rest, readings: CannedReadings
) -> None:
    found = await rest.get(PATH)
    months = [(item["month"], item["status"], item["total"], item["currency"]) for item in found["items"]]
    assert months == [("2026-01", "Open", None, None), ("2025-12", "Closed", "8.100000", "CHF")]
    readings.statements.closed = []
    readings.statements.since = datetime(2025, 11, 30, 23, tzinfo=UTC)
    assert [item["month"] for item in (await rest.get(PATH))["items"]] == ["2026-01", "2025-12"]


async def test_an_open_month_costs_what_is_booked_at_the_configured_rates_and_its_corrections(
    rest: Rest,
) -> None:
    found = await rest.get(f"{PATH}/2026-01")
    assert costs(found, "user") == [
        ("zz-eve", "27.50"),
        ("bob", "17.50"),
        ("ada", "11.90"),
        (None, "7.50"),
    ]
    assert (found["status"], found["total"], found["rounded"]) == ("Open", "64.400000", "64.40")
    assert (found["currency"], found["unpriced"]) == ("EUR", ["spot/cpu"])
    assert (found["since"], found["until"]) == ("2025-12-31T18:15:00Z", "2026-01-31T18:15:00Z")
    found = await rest.get(f"{PATH}/2026-01", by="project,kind")
    assert costs(found, "project", "kind")[-2:] == [
        (None, "Usage", "7.50"),
        (None, "Correction of 2025-12", "-0.60"),
    ]
    found = await rest.get(f"{PATH}/2026-01", by="resource")
    assert [(item["keys"]["resource"], item["amount"]) for item in found["items"]] == [
        (GPU, str(27 * HOUR)),
        ("cpu", str(4000 * HOUR)),
    ]


async def test_a_closed_month_is_as_it_was_closed_whatever_is_configured_now(
    rest: Rest, readings: CannedReadings
) -> None:
    async def answers() -> list[dict[str, Any]]:
        found = [await rest.get(f"{PATH}/2025-12"), await rest.get(f"{PATH}/2025-12/focus")]
        return [{**document, "ageSeconds": None, "controller": None} for document in found]

    before = await answers()
    # Francs without decimals: 4.6 and 3.5 are 8.1.
    assert costs(before[0], "user") == [("ada", "5"), ("bob", "3")]
    assert (before[0]["rounded"], before[0]["total"]) == ("8", "8.100000")
    assert (before[0]["corrections"], before[0]["closedBy"]) == ("-0.600000", "finance")
    assert {row["BillingAccountId"] for row in before[1]["items"]} == {"queuectl"}
    readings.statements.card = None
    readings.booked = []
    assert await answers() == before


async def test_rows_of_focus_add_up_to_the_statement(rest: Rest) -> None:
    rows = (await rest.get(f"{PATH}/2026-01/focus", version="1.2"))["items"]
    assert sum(Decimal(row["BilledCost"]) for row in rows) == Decimal("64.4")
    first, *_, correction = rows
    expected = {
        **{"BillingAccountId": "blue", "BillingCurrency": "EUR", "BilledCost": "12.500000"},
        **{"ChargeCategory": "Usage", "ChargeClass": None, "InvoiceId": None},
        **{"ConsumedQuantity": "5.000000000", "ConsumedUnit": "GPU-Hours", "ListUnitPrice": "2.500000"},
        **{"BillingPeriodStart": "2025-12-31T18:15:00Z", "ChargePeriodEnd": "2026-01-31T18:15:00Z"},
        **{"SkuId": "a100", "SubAccountId": "team-a"},
    }
    assert {name: first[name] for name in expected} == expected
    assert json.loads(first["Tags"])["queuectl/user"] == "ada"
    # A correction is in the open billing period, for the time that it corrects.
    assert (correction["ChargeClass"], correction["BillingPeriodStart"]) == (
        "Correction",
        "2025-12-31T18:15:00Z",
    )
    assert (correction["ChargePeriodStart"], correction["x_CorrectedMonth"]) == (
        "2025-11-30T18:15:00Z",
        "2025-12",
    )
    assert correction["BillingAccountId"] == "unassigned"


@pytest.mark.parametrize(
    ("path", "status", "problem"),
    [
        ("/2026-1", 404, ""),
        ("/2026-13", 404, ""),
        ("/2026-02", 404, ""),
        ("/0000-01", 404, ""),
        ("/9999-12", 404, ""),
        ("/2026-01?by=who", 400, "nothing was booked on 'who' in that time; there are user"),
        ("/2026-01?by=kind,kind", 400, "parameter by must be 1 to 4 different names"),
        (
            "/2026-01/focus?version=1.3",
            400,
            "parameter version must be one of the versions that are written: 1.2",
        ),
    ],
)
async def test_what_there_is_not_is_said(rest: Rest, path: str, status: int, problem: str) -> None:
    assert problem in await rest.refused(rest.client.get(f"{PATH}{path}"), status)


async def test_a_month_that_cannot_be_computed_says_why(
    rest: Rest, readings: CannedReadings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuectl.api.statement_routes.MOST_ROWS", 5)
    assert "2026-01 has 6 lines: an export has at most 5" in await rest.refused(
        rest.client.get(f"{PATH}/2026-01/focus"), 400
    )

    async def gone(_: object) -> None:
        raise TooMuchHistory

    monkeypatch.setattr(readings.statements, "billable", gone)
    assert "2026-01: history of that month is gone" in await rest.refused(
        rest.client.get(f"{PATH}/2026-01"), 400
    )
    readings.statements.card = None
    assert "no rates are configured (accounting.rateCard)" in await rest.refused(
        rest.client.get(f"{PATH}/2026-01"), 400
    )


async def test_a_tenant_sees_its_own_part_and_one_item_of_all_others(
    serve: Serve, readings: CannedReadings
) -> None:
    reviews = CannedReviews()
    reviews.tenant("alice", "default")
    reviews.tenant("eve", "zz-eves")
    reviews.admin("root")
    rest = await serve(readings, reviews)
    found = await rest.get(f"{PATH}/2026-01", token="alice", by="user,project,clusterqueue")
    items = [(*item["keys"].values(), item["others"], item["cost"]) for item in found["items"]]
    assert items == [
        ("bob", "red", "team-a", False, "17.50"),
        ("ada", "blue", "team-a", False, "12.50"),
        ("ada", None, "team-a", False, "-0.60"),
        (None, None, None, True, "35.00"),
    ]
    assert (found["rounded"], found["unpriced"]) == ("64.40", ["spot/cpu"])
    rows = await rest.get(f"{PATH}/2026-01/focus", token="alice")
    assert [row["BilledCost"] for row in rows["items"]] == ["12.500000", "17.500000", "-0.600000"]
    assert "zz-" not in json.dumps([found, rows])
    other = await rest.get(f"{PATH}/2026-01", token="eve", by="user,flavor")
    assert (costs(other, "user"), other["unpriced"]) == ([("zz-eve", "27.50"), (None, "36.90")], [])
    rows = await rest.get(f"{PATH}/2026-01/focus", token="root")
    assert sum(Decimal(row["BilledCost"]) for row in rows["items"]) == Decimal("64.4")
    assert await rest.status(PATH) == 401


@pytest.mark.parametrize("path", ["2025-12", "2025-12/focus"])
async def test_lines_are_added_up_beside_the_event_loop(
    rest: Rest, readings: CannedReadings, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    rows = CountedRows(readings.statements.stored["2025-12"])

    async def lines(month: str) -> list[StatementLine]:
        return rows

    monkeypatch.setattr(readings.statements, "lines", lines)
    await rest.get(f"{PATH}/{path}")
    assert rows.on_the_loop == 0
    assert rows.elsewhere > 0


async def test_more_items_than_an_answer_may_have_are_refused(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_routes, "MOST_ITEMS", 2)
    assert len((await rest.get(f"{PATH}/2025-12"))["items"]) == 2
    monkeypatch.setattr(usage_routes, "MOST_ITEMS", 1)
    problem = await rest.refused(rest.client.get(f"{PATH}/2025-12"), 400)
    assert "parameter by: user gives 2 items: an answer has at most 1" in problem
