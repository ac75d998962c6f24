"""What nodes had at past times is what was stored last."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.core.decisions import Configure
from queuectl.core.model.capacity import NO_FLAVOR, FlavorCapacity
from queuectl.core.model.policy import SchedulingConfiguration
from queuectl.core.model.workload import ConfigKey, ForReaders
from queuectl.ledger.history.state_at import LedgerPast
from queuectl.ledger.pool import create_pool
from queuectl.ledger.read.queries import LedgerReadings
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.sandbox.postgres import EmbeddedPostgres
from tests.integration.ledger.plans import plan

START = datetime(2026, 11, 30, 23, 58, tzinfo=UTC)
"""A few minutes before a new month: rows of one history are in two partitions."""
FLAVORS = ("a100", "b200")


def there(flavor: str, nodes: int) -> FlavorCapacity:
    return FlavorCapacity(flavor=flavor, nodes=(("Ready", nodes),))


STORED = st.lists(
    st.tuples(
        st.integers(0, 90),
        st.dictionaries(st.sampled_from((*FLAVORS, NO_FLAVOR)), st.integers(0, 9), max_size=3),
    ),
    max_size=8,
)
"""Seconds since the last commit, and numbers of nodes by flavor."""

_runs = iter(range(10**9))


async def _told(ledger: PostgresLedger, past: LedgerPast, stored: list[tuple[int, dict[str, int]]]) -> None:
    epoch = await ledger.take_epoch("test")
    flavors = [Configure(ConfigKey("ResourceFlavor", "", name), "{}") for name in FLAVORS]
    then, expected, first = START, [(START, dict[str, FlavorCapacity]())], None
    for number, (seconds, nodes) in enumerate([(0, {}), *stored]):
        then += timedelta(seconds=seconds)
        told = tuple(there(flavor, count) for flavor, count in nodes.items())
        made = plan(*(() if number else flavors), now=then)
        readers = ForReaders(past_capacities=told)
        await ledger.commit(made, (), epoch=epoch, batch=str(number), for_readers=readers)
        expected.append((then, {**expected[-1][1], **{row.flavor: row for row in told}}))
        first = then if first is None and NO_FLAVOR in nodes else first
    for when, _ in expected:
        for moment in (when, when + timedelta(seconds=0.5)):
            last = [state for at, state in expected if at <= moment][-1]
            state = await past.at(moment)
            assert state.capacities == tuple(last[flavor] for flavor in sorted(last)), moment
    assert await past.first_capacity() == first


async def _run(url: str, stored: list[tuple[int, dict[str, int]]]) -> None:
    pool = create_pool(url)
    try:
        cluster = f"past-capacity-{next(_runs)}"
        past = LedgerPast(pool, cluster, lambda _: SchedulingConfiguration())
        await _told(PostgresLedger(pool, cluster), past, stored)
    finally:
        await pool.dispose()


@pytest.mark.acceptance
@settings(
    max_examples=15,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(stored=STORED)
def test_as_of_each_time_capacity_is_what_was_stored_last(
    server: EmbeddedPostgres, stored: list[tuple[int, dict[str, int]]]
) -> None:
    asyncio.run(_run(server.url, stored))


async def test_a_flavor_that_was_not_there_has_no_capacity(pool: AsyncEngine, cluster: str) -> None:
    ledger = PostgresLedger(pool, cluster)
    past = LedgerReadings(pool, cluster)
    epoch = await ledger.take_epoch("test")
    told = ForReaders(past_capacities=(there("a100", 2), there(NO_FLAVOR, 1)))
    key = ConfigKey("ResourceFlavor", "", "a100")
    await ledger.commit(plan(Configure(key, "{}"), now=START), (), epoch=epoch, batch="1", for_readers=told)
    later = START + timedelta(seconds=10)
    await ledger.commit(plan(Configure(key, None), now=later), (), epoch=epoch, batch="2")
    assert await past.first_capacity() == START
    assert (await past.at(START)).capacities == (there(NO_FLAVOR, 1), there("a100", 2))
    assert (await past.at(later)).capacities == (there(NO_FLAVOR, 1),)
