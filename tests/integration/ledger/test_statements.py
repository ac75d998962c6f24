"""Statements: closed months never change, corrections are lines of the open month (B10 to B13)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.answers.focus import Bill, focus_rows
from queuectl.app import statements as app
from queuectl.core.decisions import Configure
from queuectl.core.observed_events import CONFIGURATION
from queuectl.ledger.admin.partitions import drop_history
from queuectl.ledger.history.usage_hours import roll_up
from queuectl.ledger.pool import create_pool
from queuectl.ledger.read.statements import LedgerStatements
from queuectl.ports.ledger import LedgerRefused
from queuectl.ports.periods import Piece, month_bounds
from queuectl.ports.rates import money
from queuectl.settings import Settings
from tests.integration.ledger.accounting import HOUR, Cluster, booked, capacity, findings
from tests.integration.ledger.plans import (
    GPU,
    PREEMPTED,
    configure,
    enqueue,
    evict,
    month_before,
    release,
    retire,
    shrink,
)

START = datetime(2027, 1, 29, 10, tzinfo=UTC)
"""Late in its month: each day until the end of it is rolled up."""
FEBRUARY = datetime(2027, 2, 1, tzinfo=UTC)


def rates(price: str = "2.50", *more: dict[str, Any], **card: Any) -> Configure:
    """The configuration of the component: 8 devices cost 20.00 an hour."""
    first = {"resource": GPU, "from": "2020-01-01", "price": price}
    found = {"currency": "EUR", "rates": [first, *more], **card}
    return Configure(CONFIGURATION, json.dumps({"accounting": {"rateCard": found}, "scheduling": {}}))


class Books(Cluster):
    """With statements."""

    def __init__(self, pool: AsyncEngine, cluster: str, url: str) -> None:
        super().__init__(pool, cluster)
        self.url = url
        self.settings = Settings.model_validate({"database": {"url": url}})
        self.statements = LedgerStatements(pool, cluster)

    async def close(self, month: str) -> str:
        """Its total."""
        return money((await app.close(self.settings, month, self.cluster)).total, 6)

    async def correct(self, month: str) -> tuple[str, int, str]:
        """The open month, the number of lines, and what they cost."""
        found = await app.correct(self.settings, month, "a test", self.cluster)
        return found.open_month, found.lines, money(found.cost, 6)

    async def costs(self, month: str) -> list[tuple[str, str | None, str]]:
        """Of GPUs: kind, user and cost of each line."""
        return [
            (line.kind.value, line.booked and line.booked.user, money(line.cost, 2))
            for line in await self.statements.lines(month)
            if line.resource == GPU
        ]


@pytest.fixture
async def books(migrated: str, cluster: str) -> AsyncIterator[Books]:
    pool = create_pool(migrated)
    yield Books(pool, cluster, migrated)
    await pool.dispose()


async def ran(books: Books, hours: float = 5, until: datetime = FEBRUARY + HOUR) -> None:
    """ada held 8 GPUs for some hours of January, and it is over."""
    await books.commit(START, rates(), configure("team-a", 1000), enqueue("x"), booked("x", 1, START, "ada"))
    await books.commit(START + hours * HOUR, retire("x", 1))
    await books.commit(until, enqueue("later"))
    await roll_up(books.pool, books.cluster, "UTC")


async def test_a_closed_month_has_what_was_held_at_its_rates(books: Books) -> None:
    await ran(books)
    assert await books.close("2027-01") == "100.000000"
    assert await books.costs("2027-01") == [("Usage", "ada", "100.00")]
    (found,) = await books.statements.statements()
    assert (found.month, found.currency, found.lines, found.total) == ("2027-01", "EUR", 2, 100 * 10**6)
    assert (found.begins, found.ends) == month_bounds("2027-01", ZoneInfo("UTC"))
    assert await findings(books.url, books.cluster) == []


FORBIDDEN = (
    "UPDATE queuectl.statement SET total = 0",
    "DELETE FROM queuectl.statement",
    "TRUNCATE queuectl.statement",
    "UPDATE queuectl.statement_line SET cost = 0",
    "DELETE FROM queuectl.statement_line",
    "TRUNCATE queuectl.statement_line",
    "INSERT INTO queuectl.statement_line SELECT cluster_id, month, number + 9, kind, begins_at, ends_at, "
    "booked, namespace, queue, submitter, user_name, priority_class, account, cluster_queue, flavor, "
    "resource, amount, price, list_price, cost FROM queuectl.statement_line",
)


async def test_the_database_refuses_to_change_a_closed_month(books: Books) -> None:
    await ran(books)
    await books.close("2027-01")
    for statement in FORBIDDEN:
        with pytest.raises(DBAPIError, match=r"statements are never changed|the month is closed"):
            await books.rows(statement)


async def test_verify_finds_what_was_changed_behind_the_triggers(books: Books) -> None:
    await ran(books)
    await books.close("2027-01")
    for table, change in (
        ("statement_line", f"cost = cost + 1 WHERE resource = '{GPU}'"),
        ("statement_line", f"amount = amount - 1 WHERE resource = '{GPU}'"),
        ("statement", "total = total + 1 WHERE true"),
    ):
        await books.rows(f"ALTER TABLE queuectl.{table} DISABLE TRIGGER USER")
        await books.rows(f"UPDATE queuectl.{table} SET {change}")
        await books.rows(f"ALTER TABLE queuectl.{table} ENABLE TRIGGER USER")
        found = await findings(books.url, books.cluster)
        assert {one.code for one in found} == {"Statements"}, change
    assert {one.subject for one in found} == {
        "the statement of 2027-01",
        f"the statement of 2027-01, ClusterQueue team-a, a100/{GPU}",
    }


async def test_what_cannot_be_closed_is_said(books: Books) -> None:
    await ran(books)
    with pytest.raises(LedgerRefused, match=r"2027-02 ends at .* usage is rolled up up to 2027-02-01T01"):
        await books.close("2027-02")
    with pytest.raises(LedgerRefused, match=r"2026-12 is over before 2027-01-29T10:00:00.*, from when on"):
        await books.close("2026-12")
    await books.close("2027-01")
    with pytest.raises(LedgerRefused, match="2027-01 is closed already"):
        await books.close("2027-01")
    with pytest.raises(LedgerRefused, match="2027-03 cannot be closed: 2027-02 is the next"):
        await books.close("2027-03")
    with pytest.raises(LedgerRefused, match="2026-12 cannot be closed"):
        await books.close("2026-12")
    with pytest.raises(LedgerRefused, match="2027-02 is not closed: there is nothing to correct"):
        await books.correct("2027-02")


async def test_a_new_rate_corrects_a_closed_month_in_the_open_one(books: Books) -> None:
    await ran(books)
    await books.close("2027-01")
    before = await books.statements.statements(), await books.statements.lines("2027-01")
    assert await books.correct("2027-01") == ("2027-01", 0, "0.000000")
    await books.commit(FEBRUARY + 2 * HOUR, rates("2.00"))
    assert await books.correct("2027-01") == ("2027-02", 2, "-20.000000")
    assert await books.correct("2027-01") == ("2027-01", 0, "0.000000")
    assert (await books.statements.statements(), await books.statements.lines("2027-01")) == before
    lines = await books.statements.corrections("2027-01")
    assert {(line.begins, line.ends, line.of_month) for line in lines} == {
        (*month_bounds("2027-01", ZoneInfo("UTC")), "2027-01")
    }
    assert await findings(books.url, books.cluster) == []
    await books.commit(datetime(2027, 3, 1, 1, tzinfo=UTC), enqueue("march"))
    await roll_up(books.pool, books.cluster, "UTC")
    # Nothing was held in February: its statement has the correction alone.
    assert await books.close("2027-02") == "-20.000000"
    assert sorted(await books.costs("2027-02")) == [("Usage", "ada", "-100.00"), ("Usage", "ada", "80.00")]
    assert await findings(books.url, books.cluster) == []


async def test_of_two_that_close_at_the_same_time_one_stores_the_month(books: Books) -> None:
    await ran(books)
    found = await asyncio.gather(*(books.close("2027-01") for _ in range(2)), return_exceptions=True)
    totals, refused = ([one for one in found if isinstance(one, kind)] for kind in (str, LedgerRefused))
    assert totals == ["100.000000"]
    assert ["2027-01 is closed already" in str(one) for one in refused] == [True]
    assert await books.costs("2027-01") == [("Usage", "ada", "100.00")]
    assert await findings(books.url, books.cluster) == []


async def test_of_two_that_correct_at_the_same_time_one_stores_the_difference(books: Books) -> None:
    await ran(books)
    await books.close("2027-01")
    await books.commit(FEBRUARY + 2 * HOUR, rates("2.00"))
    found = await asyncio.gather(*(books.correct("2027-01") for _ in range(2)), return_exceptions=True)
    costs = sorted(one[2] if isinstance(one, tuple) else str(one) for one in found)
    assert costs[0] == "-20.000000"
    assert costs[1] == "0.000000" or "corrected at the same time" in costs[1]
    assert len(await books.statements.corrections("2027-01")) == 2


async def test_a_correction_of_a_correction_ends_where_the_month_began(books: Books) -> None:
    await ran(books)
    await books.close("2027-01")
    await books.commit(FEBRUARY + 2 * HOUR, rates("2.00"))
    assert (await books.correct("2027-01"))[2] == "-20.000000"
    await books.commit(datetime(2027, 3, 1, 1, tzinfo=UTC), rates("2.50"))
    await roll_up(books.pool, books.cluster, "UTC")
    assert await books.close("2027-02") == "-20.000000"
    # February has nothing of its own: what it says of January is no part of it.
    assert await books.correct("2027-02") == ("2027-02", 0, "0.000000")
    assert await books.correct("2027-01") == ("2027-03", 2, "20.000000")
    assert sum(line.cost for line in await books.statements.corrections("2027-01")) == 0
    assert await findings(books.url, books.cluster) == []


async def test_a_cluster_queue_that_is_deleted_and_made_again_is_one(books: Books) -> None:
    """What it holds goes on meanwhile; free capacity of the month is that of the quota of the month."""
    flavor = configure("a100", 0, kind="ResourceFlavor")
    card = rates(free="ByQuota")
    await books.commit(START, card, flavor, configure("team-a", 1000), for_readers=capacity(16))
    await books.commit(START, enqueue("x"), booked("x", 1, START, "ada"))
    await books.commit(START + HOUR, configure("team-a", None))
    await books.commit(START + 2 * HOUR, configure("team-a", 1000))
    await books.commit(START + 3 * HOUR, retire("x", 1), for_readers=capacity(0))
    await books.commit(FEBRUARY + HOUR, enqueue("later"))
    await roll_up(books.pool, books.cluster, "UTC")
    await books.close("2027-01")
    assert await books.costs("2027-01") == [("Usage", "ada", "60.00"), ("Free", None, "60.00")]
    assert {line.cluster_queue for line in await books.statements.lines("2027-01")} == {"team-a"}
    assert await findings(books.url, books.cluster) == []


NAMES = ("=cmd|' /C calc'!A0", 'Åda "O\'Brien", 愛', "a\nb\x00c", "-1")
"""Of users, as an identity provider may have them."""


async def test_hostile_names_of_users_are_kept_apart_in_statements_and_in_focus(books: Books) -> None:
    await books.commit(START, rates(), configure("team-a", 1000))
    for number, user in enumerate(NAMES):
        await books.commit(
            START, enqueue(f"x{number}", arrival=number + 1), booked(f"x{number}", 1, START, user)
        )
    await books.commit(START + HOUR, *(retire(f"x{number}", 1) for number in range(len(NAMES))))
    await books.commit(FEBRUARY + HOUR, enqueue("later"))
    await roll_up(books.pool, books.cluster, "UTC")
    assert await books.close("2027-01") == "80.000000"
    stored = [name.replace("\0", "") for name in NAMES]
    assert sorted(await books.costs("2027-01")) == sorted(("Usage", name, "20.00") for name in stored)
    bill = Bill(month_bounds("2027-01", ZoneInfo("UTC")), "EUR", None)
    rows = list(focus_rows(await books.statements.lines("2027-01"), bill))
    assert sorted(json.loads(row["Tags"] or "")["queuectl/user"] for row in rows) == sorted(stored)
    assert await findings(books.url, books.cluster) == []


async def test_a_month_in_another_currency_is_not_computed_again(books: Books) -> None:
    await ran(books)
    await books.close("2027-01")
    await books.commit(FEBRUARY + 2 * HOUR, rates(currency="USD"))
    with pytest.raises(LedgerRefused, match="2027-01 is in EUR, and rates are in USD"):
        await books.correct("2027-01")


async def test_a_rate_that_begins_within_a_hold_divides_it(books: Books) -> None:
    later = {"resource": GPU, "from": "2027-01-29T12:00:00Z", "price": "5"}
    await books.commit(START, rates("2.50", later))
    await ran(books)
    await books.commit(FEBRUARY + 2 * HOUR, rates("2.50", later))
    assert await books.close("2027-01") == "160.000000"
    assert await books.costs("2027-01") == [("Usage", "ada", "40.00"), ("Usage", "ada", "120.00")]


async def test_what_a_preempted_attempt_held_is_credited_where_nobody_pays_for_it(books: Books) -> None:
    await books.commit(
        START, rates(lost="Nobody"), configure("team-a", 1000), enqueue("x"), booked("x", 1, START, "ada")
    )
    await books.commit(START + HOUR, enqueue("y"), booked("y", 1, START + HOUR, "bob"))
    await books.commit(START + 3 * HOUR, shrink("x", workers=1))
    await books.commit(START + 5 * HOUR, evict("x", reason=PREEMPTED))
    await books.commit(START + 6 * HOUR, release("x"))
    # A second attempt that ends by itself is paid, and so is what no preemption ended.
    await books.commit(START + 7 * HOUR, booked("x", 2, START + 7 * HOUR, "ada"))
    await books.commit(START + 8 * HOUR, retire("x", 2), retire("y", 1))
    await books.commit(FEBRUARY + HOUR, enqueue("later"))
    await roll_up(books.pool, books.cluster, "UTC")
    await books.close("2027-01")
    assert sorted(await books.costs("2027-01")) == [
        # 3 hours of 8 GPUs and 2 of 4 until the eviction; one more hour until the pods were gone is paid.
        ("Lost", "ada", "-80.00"),
        ("Usage", "ada", "110.00"),
        ("Usage", "bob", "140.00"),
    ]


async def test_free_capacity_is_paid_by_those_that_hold_or_have_quota(books: Books) -> None:
    flavor = configure("a100", 0, kind="ResourceFlavor")
    await books.commit(
        START, rates(free="ByQuota"), flavor, configure("team-a", 1000), for_readers=capacity(16)
    )
    await books.commit(START + HOUR, enqueue("x"), booked("x", 1, START + HOUR, "ada"))
    await books.commit(START + 2 * HOUR, retire("x", 1), for_readers=capacity(0))
    await books.commit(FEBRUARY + HOUR, enqueue("later"))
    await roll_up(books.pool, books.cluster, "UTC")
    await books.close("2027-01")
    assert await books.costs("2027-01") == [("Usage", "ada", "20.00"), ("Free", None, "60.00")]


@pytest.mark.acceptance
@pytest.mark.parametrize(
    ("zone", "month", "hours"),
    [
        ("Europe/Berlin", "2027-03", 31 * 24 - 1),
        ("Europe/Berlin", "2027-10", 31 * 24 + 1),
        ("Asia/Kathmandu", "2027-04", 30 * 24),
    ],
)
async def test_a_month_of_a_zone_has_its_hours(books: Books, zone: str, month: str, hours: int) -> None:
    period: Piece = month_bounds(month, ZoneInfo(zone))
    start = period.begins - timedelta(hours=30)
    await books.commit(start, rates(), configure("team-a", 1000), enqueue("x"), booked("x", 1, start, "ada"))
    await books.commit(period.ends + 2 * HOUR, release("x"))
    await roll_up(books.pool, books.cluster, zone)
    assert await books.close(month) == f"{20 * hours}.000000"
    assert await findings(books.url, books.cluster) == []


@pytest.mark.acceptance
async def test_statements_stay_when_the_months_of_their_holds_are_dropped(books: Books) -> None:
    ((today,),) = await books.rows("SELECT now()")
    first, second = month_before(today, 3), month_before(today, 2)
    for table in ("hold_line_closed", "decision"):
        column = f"queuectl.{table}"
        await books.rows(
            f"CREATE TABLE queuectl.{table}_{first:%Y_%m} PARTITION OF {column} "
            f"FOR VALUES FROM ('{first:%Y-%m-%d}Z') TO ('{second:%Y-%m-%d}Z')"
        )
    start = first + timedelta(days=9, hours=10, minutes=30)
    await books.commit(
        start, rates(lost="Nobody"), configure("team-a", 1000), enqueue("x"), booked("x", 1, start, "ada")
    )
    await books.commit(start + 40 * HOUR, evict("x", reason=PREEMPTED))
    await books.commit(start + 41 * HOUR, retire("x", 1))
    await books.commit(second + HOUR, rates(lost="Nobody"), enqueue("later"))
    await roll_up(books.pool, books.cluster, "UTC")
    assert await books.close(f"{first:%Y-%m}") == "20.000000"
    before = await books.statements.lines(f"{first:%Y-%m}")
    assert len(await drop_history(books.pool, keep_months=1)) >= 2
    assert await books.rows("SELECT 1 FROM queuectl.hold_line WHERE cluster_id = :c") == []
    assert await books.statements.lines(f"{first:%Y-%m}") == before
    assert await findings(books.url, books.cluster) == []
    # What is known of the month still needs no correction: credits of what is gone are left alone.
    assert await books.correct(f"{first:%Y-%m}") == (f"{first:%Y-%m}", 0, "0.000000")


async def test_a_month_whose_losses_are_no_longer_known_is_not_closed(books: Books) -> None:
    await ran(books, until=FEBRUARY + 30 * HOUR)
    await books.commit(FEBRUARY + 31 * HOUR, rates(lost="Nobody"))
    trigger = "ALTER TABLE queuectl.decision {} TRIGGER decision_is_final"
    await books.rows(trigger.format("DISABLE"))
    await books.rows("DELETE FROM queuectl.decision WHERE cluster_id = :c AND now < '2027-02-01Z'")
    await books.rows(trigger.format("ENABLE"))
    with pytest.raises(LedgerRefused, match=r"the history for lines of kind Lost is gone"):
        await books.close("2027-01")
