"""Usage is the integral of the holds, to the unit: in memory and in Postgres, rolled up or not."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.core.model.device_use import IDLE_OF
from queuectl.ledger.admin.partitions import drop_history
from queuectl.ledger.device_use import LedgerDeviceUse
from queuectl.ledger.history.usage_hours import roll_up, roll_up_some, rolled
from queuectl.ledger.pool import create_pool
from queuectl.ledger.read.queries import LedgerReadings
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.ports.periods import Piece, days_of, hours_of
from queuectl.ports.reader import CapacitySum, TooMuchHistory, UsageOfTime
from tests.doubles.readers import ReadableLedger
from tests.integration.ledger.accounting import HOUR, Cluster, Story, booked, capacity, findings, judged
from tests.integration.ledger.plans import GPU, configure, enqueue, month_before, plan, release, retire
from tests.unit.core import profiles

BERLIN_SPRING = datetime(2027, 3, 27, 12, tzinfo=UTC)
"""Before the day with 23 hours, and a new month."""
ZONES = ("UTC", "Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe")

_runs = iter(range(10**9))


@pytest.fixture
async def pool(migrated: str) -> AsyncIterator[AsyncEngine]:
    """To a database of its own: its rows are in default partitions."""
    pool = create_pool(migrated)
    yield pool
    await pool.dispose()


async def _check(url: str, seed: int, zone: str, count: int = 25) -> None:
    cluster, story, rng = f"usage-{next(_runs)}", Story(seed, BERLIN_SPRING), random.Random(seed)
    memory = ReadableLedger(lambda: story.now)
    pool = create_pool(url)
    try:
        ledger, readings = PostgresLedger(pool, cluster), LedgerReadings(pool, cluster)
        epochs = (await ledger.take_epoch("t"), await memory.take_epoch("t"))
        await LedgerDeviceUse(pool, cluster).store_check(None, [GPU])
        for number, decisions in enumerate(story.batches(count)):
            made = plan(*decisions, now=story.now)
            await ledger.commit(made, (), epoch=epochs[0], batch=str(number))
            await memory.commit(made, (), epoch=epochs[1], batch=str(number))
            if rng.random() < 0.5:
                await roll_up(pool, cluster, zone)
                assert await roll_up(pool, cluster, zone) == 0
            whole = story.now - BERLIN_SPRING
            times = sorted(BERLIN_SPRING + rng.random() * whole for _ in range(2))
            for since, until in ((BERLIN_SPRING, story.now), times):
                found = await readings.usage(since=since, until=until)
                expected = await memory.usage(since=since, until=until)
                held = [row for row in found.rows if row.resource != f"{IDLE_OF}{GPU}"]
                assert held == expected.rows, (seed, number, since, until)
                idle = Counter[str]()
                for key, amount in _by_user(found).items():
                    idle[key[-1]] += amount if f"{IDLE_OF}{GPU}" in key else 0
                assert +idle == story.idle(since, until), (seed, number, since, until)
            for half_life, longest in ((3600, 3600), (4 * 86_400, 3600), (40 * 86_400, 25 * 3600)):
                found = await readings.decayed_usage(until=story.now, half_life=half_life)
                exact = await memory.decayed_usage(until=story.now, half_life=half_life)
                undecayed = await memory.usage(since=BERLIN_SPRING, until=story.now)
                _alike(found, exact, undecayed, half_life, longest)
        if ends := story.ends():
            await ledger.commit(plan(*ends, now=story.now), (), epoch=epochs[0], batch="ends")
        used, of_attempts = Counter[str](), Counter[str]()
        for row in (await readings.usage(since=BERLIN_SPRING, until=story.now)).rows:
            used[row.resource] += row.amount
        workloads = {row.workload for row in memory.store.decisions if row.workload is not None}
        for attempt in (await readings.held_by_attempts(workloads, until=10**6)).values():
            of_attempts.update(attempt)
        assert of_attempts == {name: sum for name, sum in used.items() if not name.startswith(IDLE_OF)}
        assert await findings(url, cluster) == []
    finally:
        await pool.dispose()


def _alike(found: UsageOfTime, exact: UsageOfTime, whole: UsageOfTime, half_life: int, longest: int) -> None:
    """But for what is too old to count, and for the place of what was held in `longest` seconds."""
    amounts, held = _by_user(found), _by_user(whole)
    assert amounts.keys() <= held.keys()
    for key, amount in _by_user(exact).items():
        most = (2 ** (longest / 2 / half_life) - 1) * amount + held[key] / 2**10 + 50  # rows are rounded
        assert abs(amounts[key] - amount) <= most, (key, half_life)


def _by_user(found: UsageOfTime) -> Counter[tuple[str, ...]]:
    sums: Counter[tuple[str, ...]] = Counter()
    for one, *cell, amount in found.rows:
        sums[*cell, (one is not None and one.user) or ""] += amount
    return sums


@pytest.mark.acceptance
@settings(
    max_examples=profiles.examples(20),
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 10**6), zone=st.sampled_from(ZONES))
def test_usage_in_postgres_is_that_in_memory_after_each_step(migrated: str, seed: int, zone: str) -> None:
    asyncio.run(_check(migrated, seed, zone))


@pytest.mark.parametrize(
    "zone", [*(pytest.param(zone, marks=pytest.mark.acceptance) for zone in ZONES[:-1]), ZONES[-1]]
)
async def test_usage_is_the_integral_of_the_holds_in_each_zone(migrated: str, zone: str) -> None:
    await _check(migrated, seed=len(zone), zone=zone, count=12)


@pytest.fixture
def one(pool: AsyncEngine, cluster: str) -> Cluster:
    return Cluster(pool, cluster)


def gpu_hours(found: UsageOfTime) -> dict[str | None, float]:
    return {
        row.booked.user if row.booked else None: row.amount / 3_600_000_000
        for row in found.rows
        if row.resource == GPU
    }


async def test_what_was_idle_is_rolled_up_from_its_decision_to_the_next_or_to_the_end_of_the_hold(
    one: Cluster, migrated: str
) -> None:
    start, minutes = BERLIN_SPRING, timedelta(minutes=1)
    until = start + 5 * HOUR
    await one.commit(start, configure("team-a", 1000), enqueue("x"), booked("x", 1, start, "ada"))
    await one.commit(start, enqueue("y"), booked("y", 1, start, "bob"))
    await one.commit(start + 30 * minutes, judged("x", 1, 3, start))
    await one.commit(start + 60 * minutes, judged("y", 1, 8, start))
    await one.commit(start + 150 * minutes, judged("x", 1, 0, start))
    await one.commit(start + 180 * minutes, retire("y", 1))
    await one.commit(until + HOUR, release("x"))

    async def idle() -> dict[str | None, float]:
        found = await one.readings.usage(since=start, until=until)
        assert {row.resource for row in found.rows} <= {GPU, f"{IDLE_OF}{GPU}", "cpu"}
        rows = [row._replace(resource=GPU) for row in found.rows if row.resource == f"{IDLE_OF}{GPU}"]
        return gpu_hours(found._replace(rows=rows))

    assert await idle() == {}  # no resource is checked
    await LedgerDeviceUse(one.pool, one.cluster).store_check(None, [GPU[:-1] + "*"])
    expected = {"ada": 3 * 2.0, "bob": 8 * 2.0}
    assert await idle() == expected
    await roll_up(one.pool, one.cluster, "Asia/Kathmandu")
    assert await findings(migrated, one.cluster) == []
    await one.rows("DELETE FROM queuectl.hold_line WHERE cluster_id = :c")
    assert await idle() == expected
    decayed = await one.readings.decayed_usage(until=until, half_life=10**9)
    assert {row.resource for row in decayed.rows} == {GPU, "cpu"}


@pytest.mark.parametrize(
    ("zone", "begins", "ends", "hours"),
    [
        ("Europe/Berlin", "2027-03-27T23:00Z", "2027-03-28T22:00Z", 23),
        ("Europe/Berlin", "2027-10-30T22:00Z", "2027-10-31T23:00Z", 25),
        ("Asia/Kathmandu", "2027-03-31T18:15Z", "2027-04-01T18:15Z", 24),
    ],
)
async def test_a_day_of_a_zone_is_cut_where_it_begins_without_its_holds(
    one: Cluster, zone: str, begins: str, ends: str, hours: int
) -> None:
    since, until = datetime.fromisoformat(begins), datetime.fromisoformat(ends)
    start = since - timedelta(hours=30)
    await one.commit(start, configure("team-a", 1000), enqueue("x"), booked("x", 1, start, "ada"))
    await one.commit(until + 2 * HOUR, release("x"))
    await roll_up(one.pool, one.cluster, zone)
    # Only roll-ups are left: what was held must come from them alone.
    await one.rows("DELETE FROM queuectl.hold_line WHERE cluster_id = :c")
    for table in ("usage_day", "usage_hour"):
        assert gpu_hours(await one.readings.usage(since=since, until=until)) == {"ada": 8.0 * hours}, table
        # Of the day that is left out the hours tell the same, if the zone counts only from now on.
        await one.rows("DELETE FROM queuectl.usage_day WHERE cluster_id = :c")
        await one.rows("UPDATE queuectl.rolled SET zone_since = until WHERE zone NOT LIKE 'Asia/%'")
        if zone.startswith("Asia/"):
            break


@pytest.mark.acceptance
async def test_usage_stays_when_the_months_of_its_holds_are_dropped(one: Cluster) -> None:
    ((today,),) = await one.rows("SELECT now()")
    first, second = month_before(today, 3), month_before(today, 2)
    start = first + timedelta(days=9, hours=10, minutes=30)
    partitions = [f"{table}_closed_{first:%Y_%m}" for table in ("attempt", "hold_line")]
    for partition in partitions:
        await one.rows(
            f"CREATE TABLE queuectl.{partition} PARTITION OF queuectl.{partition[:-8]} "
            f"FOR VALUES FROM ('{first:%Y-%m-%d}Z') TO ('{second:%Y-%m-%d}Z')"
        )
    await one.commit(start, configure("team-a", 1000), enqueue("x"), booked("x", 1, start, "ada"))
    await one.commit(start + 39 * HOUR, judged("x", 1, 8, start))
    await one.commit(start + 40 * HOUR, retire("x", 1))
    await LedgerDeviceUse(one.pool, one.cluster).store_check(None, [GPU])
    assert {*partitions} <= {*await drop_history(one.pool, keep_months=1)}
    for table in ("hold_line", "idle_time"):
        assert await one.rows(f"SELECT 1 FROM queuectl.{table} WHERE cluster_id = :c") == []
    found = await one.readings.usage(since=start - HOUR, until=start + 100 * HOUR)
    assert gpu_hours(found) == {"ada": 8.0 * 40}
    assert sum(row.amount for row in found.rows if row.resource == f"{IDLE_OF}{GPU}") == 8 * 3_600_000_000


async def test_a_time_whose_edges_are_dropped_must_begin_at_an_hour(one: Cluster) -> None:
    start = datetime(2027, 1, 1, 10, tzinfo=UTC)
    await one.commit(start, configure("team-a", 1000), enqueue("x"), booked("x", 1, start, "ada"))
    await one.commit(start + 5 * HOUR, retire("x", 1))
    await one.commit(start + 9 * HOUR, enqueue("y"))
    await roll_up(one.pool, one.cluster, "UTC")
    for table, column in (("decision", "now"), ("hold_line", "closed_at")):
        trigger = "ALTER TABLE queuectl.decision {} TRIGGER decision_is_final"
        await one.rows(trigger.format("DISABLE"))
        await one.rows(
            f"DELETE FROM queuectl.{table} WHERE cluster_id = :c AND {column} < '2027-01-01T19:00Z'"
        )
        await one.rows(trigger.format("ENABLE"))
    assert gpu_hours(await one.readings.usage(since=start + HOUR, until=start + 3 * HOUR)) == {"ada": 16.0}
    with pytest.raises(TooMuchHistory):
        await one.readings.usage(since=start + HOUR / 2, until=start + 3 * HOUR)


async def test_verify_finds_an_hour_that_was_changed_and_one_that_is_missing(
    one: Cluster, migrated: str
) -> None:
    start = datetime(2027, 1, 1, 10, tzinfo=UTC)
    await one.commit(start, configure("team-a", 1000), enqueue("x"), booked("x", 1, start, "ada"))
    await one.commit(start + 5 * HOUR, retire("x", 1))
    assert await roll_up(one.pool, one.cluster, "UTC") == 5
    assert await findings(migrated, one.cluster) == []
    await one.rows(
        "UPDATE queuectl.usage_hour SET amount = amount + 1 WHERE cluster_id = :c AND resource = 'cpu' "
        "AND begins_at = '2027-01-01T11:00Z'"
    )
    await one.rows(
        "DELETE FROM queuectl.usage_hour WHERE cluster_id = :c AND begins_at = '2027-01-01T12:00Z'"
    )
    found = await findings(migrated, one.cluster)
    assert {(finding.code, finding.subject.split(", ")[2][:13]) for finding in found} == {
        ("UsageHours", "2027-01-01T11"),
        ("UsageHours", "2027-01-01T12"),
    }
    assert len(found) == 3


async def test_what_was_held_free_unmanaged_and_broken_adds_up_to_what_nodes_had(one: Cluster) -> None:
    start = datetime(2027, 1, 1, 10, tzinfo=UTC)
    flavor = configure("a100", 0, kind="ResourceFlavor")
    await one.commit(start, flavor, configure("team-a", 1000), for_readers=capacity(16, 0, 1))
    await one.commit(start + HOUR, enqueue("x"), booked("x", 1, start + HOUR, "ada"))
    await one.commit(start + 1.5 * HOUR, for_readers=capacity(4, 12, 1))
    await one.commit(start + 2 * HOUR, release("x"))
    for rolled_up in (False, True):
        if rolled_up:
            assert await roll_up(one.pool, one.cluster, "UTC") == 2
        found = await one.readings.usage(since=start, until=start + 2 * HOUR)
        (sums,) = (row for row in found.capacity if row.resource == GPU)
        hours = {
            name: value / 3_600_000_000 for name, value in sums._asdict().items() if isinstance(value, int)
        }
        assert hours == {
            "usable": 16 * 1.5 + 4 * 0.5,
            "unusable": 6.0,
            "unmanaged": 2.0,
            "held": 8.0,
            "free": 15.0 + 7 * 0.5,
            "overcommitted": 5 * 0.5,
        }


async def test_hours_and_days_of_a_trend_add_up_to_what_nodes_had_in_all(one: Cluster) -> None:
    zone = ZoneInfo("Asia/Kathmandu")
    start = datetime(2027, 1, 1, 10, 20, tzinfo=UTC)
    flavor = configure("a100", 0, kind="ResourceFlavor")
    await one.commit(start, flavor, configure("team-a", 1000), for_readers=capacity(16, 0, 1))
    await one.commit(start + 3.5 * HOUR, enqueue("x"), booked("x", 1, start + 3.5 * HOUR, "ada"))
    await one.commit(start + 20.25 * HOUR, for_readers=capacity(4, 12, 1))
    await one.commit(start + 30 * HOUR, release("x"))
    until = start + 49 * HOUR
    await one.commit(until + 2 * HOUR, enqueue("y"))
    hours = hours_of(start - 5 * HOUR, until)

    async def trend(steps: list[Piece]) -> list[tuple[Piece, CapacitySum]]:
        found = await one.readings.capacity_trend(flavor="a100", steps=steps)
        return [(step, had) for step, had in found if had.resource == GPU]

    async def check() -> list[tuple[Piece, CapacitySum]]:
        for steps in (hours, days_of(start, until, zone)):
            found = await trend(steps)
            whole = await one.readings.usage(since=steps[0].begins, until=steps[-1].ends)
            (total,) = (had for had in whole.capacity if had.resource == GPU)
            assert [sum(amounts) for amounts in zip(*(had[2:] for _, had in found), strict=True)] == [
                *total[2:]
            ]
            assert found[0][0].begins == start, "a mean of the step counts the time before"
        return await trend(hours)

    expected = await check()
    assert len(expected) == 50
    assert expected[0][1].usable == 16 * 40 * 60 * 1_000_000  # known from 10:20 on
    by_begin = {step.begins: had for step, had in expected}
    partly = by_begin[datetime(2027, 1, 2, 6, tzinfo=UTC)]  # nodes broke at 06:35
    assert (partly.usable, partly.unusable) == ((16 * 35 + 4 * 25) * 60_000_000, 12 * 25 * 60_000_000)
    async with one.pool.begin() as connection:
        assert await roll_up_some(connection, one.cluster, zone.key) == 25  # the rest is of the holds
    assert await check() == expected
    assert await roll_up(one.pool, one.cluster, zone.key) > 25
    assert await check() == expected
    assert await one.readings.capacity_trend(flavor="h100", steps=hours) == []


async def test_the_last_step_of_a_trend_ends_now_and_no_later_one_is_there(one: Cluster) -> None:
    ((now,),) = await one.rows("SELECT now()")
    flavor = configure("a100", 0, kind="ResourceFlavor")
    await one.commit(now, flavor, for_readers=capacity(16))
    steps = [Piece(now - HOUR, now + 5 * HOUR), Piece(now + 5 * HOUR, now + 6 * HOUR)]
    found = await one.readings.capacity_trend(flavor="a100", steps=steps)
    (last,) = (step for step, had in found if had.resource == GPU)
    ((later,),) = await one.rows("SELECT now()")
    assert now < last.ends <= later


async def test_each_hour_stays_cut_when_the_zone_is_changed(one: Cluster) -> None:
    start = datetime(2027, 1, 1, 10, tzinfo=UTC)
    await one.commit(start, configure("team-a", 1000), enqueue("x"), booked("x", 1, start, "ada"))
    for number, zone in enumerate(("Asia/Kathmandu", "UTC", "Europe/Berlin", "Asia/Kathmandu"), start=1):
        await one.commit(start + number * 8.3 * HOUR, enqueue(f"y{number}"))
        await roll_up(one.pool, one.cluster, zone)
    async with one.pool.connect() as connection:
        state = await rolled(connection, one.cluster)
    assert state is not None
    assert gpu_hours(await one.readings.usage(since=start, until=state.until)) == {
        "ada": 8 * (state.until - start) / HOUR
    }
    stored = await one.rows(
        "SELECT begins_at, ends_at FROM queuectl.usage_hour "
        "WHERE cluster_id = :c AND resource = 'cpu' ORDER BY 1"
    )
    assert [end for _, end in stored[:-1]] == [begin for begin, _ in stored[1:]]


@pytest.mark.acceptance
async def test_months_and_years_are_sums_of_months_of_the_zone(one: Cluster, migrated: str) -> None:
    begins, ends = (datetime.fromisoformat(f"2026-12-{day}T18:15Z") for day in ("20", "25"))
    ends += timedelta(days=150)
    await one.commit(begins, configure("team-a", 1000), enqueue("x"), booked("x", 1, begins, "ada"))
    await one.commit(ends, retire("x", 1))
    await roll_up(one.pool, one.cluster, "Asia/Kathmandu")
    months = await one.rows(
        "SELECT begins_at FROM queuectl.usage_month WHERE cluster_id = :c AND resource = 'cpu' ORDER BY 1"
    )
    assert [f"{when:%m-%d %H:%M}" for (when,) in months] == [
        *("12-31 18:15", "01-31 18:15", "02-28 18:15", "03-31 18:15")
    ]
    for since, until in (
        (begins, ends),
        (begins + 1.5 * HOUR, ends - 0.25 * HOUR),
        (months[1][0], months[3][0]),
        (months[0][0] - HOUR, months[1][0] + 30 * HOUR),
    ):
        found = gpu_hours(await one.readings.usage(since=since, until=until))
        assert found == {"ada": 8 * (until - since) / HOUR}
    assert await findings(migrated, one.cluster) == []
    await one.rows("DELETE FROM queuectl.usage_day WHERE cluster_id = :c AND begins_at = '2027-02-10T18:15Z'")
    assert {f.subject[:25] for f in await findings(migrated, one.cluster)} == {"the month from 2027-01-31"}


async def test_verify_finds_a_day_that_is_not_the_sum_of_its_hours(one: Cluster, migrated: str) -> None:
    start = datetime(2027, 1, 1, 10, tzinfo=UTC)
    await one.commit(start, configure("team-a", 1000), enqueue("x"), booked("x", 1, start, "ada"))
    await one.commit(start + 72 * HOUR, retire("x", 1))
    await roll_up(one.pool, one.cluster, "UTC")
    assert await findings(migrated, one.cluster) == []
    await one.rows(
        "UPDATE queuectl.usage_day SET amount = amount + 1 WHERE cluster_id = :c AND resource = 'cpu' "
        "AND begins_at = '2027-01-03T00:00Z'"
    )
    (found,) = await findings(migrated, one.cluster)
    assert (found.code, found.subject) == ("UsageSums", "the day from 2027-01-03T00:00:00+00:00")


async def test_other_programs_read_a_view(one: Cluster) -> None:
    start = datetime(2027, 1, 1, 10, tzinfo=UTC)
    await one.commit(start, configure("team-a", 1000), enqueue("x"), booked("x", 1, start, "ada"))
    await one.commit(start + HOUR, retire("x", 1))
    await roll_up(one.pool, one.cluster, "UTC")
    assert await one.rows(
        "SELECT begins_at, cluster_queue, namespace, local_queue, user_name, flavor, amount_hours "
        f"FROM queuectl.usage_v1 WHERE cluster_id = :c AND resource = '{GPU}'"
    ) == [(start, "team-a", "ns-ada", "lq", "ada", "a100", 8)]
