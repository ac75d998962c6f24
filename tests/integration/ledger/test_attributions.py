"""Each hold names whom it is booked on, as it was at the admission (B1)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text

from queuectl.core.decisions import Admit, Decision
from queuectl.core.model.policy import AccountSource
from queuectl.core.model.workload import AccountValue, Attribution, WorkloadId
from queuectl.ledger.read.queries import LedgerReadings
from tests.integration.ledger.edits import World
from tests.integration.ledger.plans import admit, configure, enqueue, plan, release, shrink

START = datetime(2026, 11, 1, tzinfo=UTC)
ADA = Attribution(
    namespace="ns",
    queue="lq",
    submitter="system:serviceaccount:ci:bot",
    user="ada\0",
    account=(
        AccountValue("cost-center", "42", AccountSource.NAMESPACE),
        AccountValue("project", None, None),
    ),
)


def booked(name: str, attribution: Attribution | None, number: int = 1) -> Admit:
    return replace(admit(name, number, now=START), attribution=attribution)


async def commit(world: World, number: int, *decisions: Decision) -> None:
    made = plan(*decisions, now=START + timedelta(seconds=number))
    await world.ledger.commit(made, (), epoch=world.epoch, batch=str(number))


async def rows(world: World, query: str) -> list[tuple[Any, ...]]:
    async with world.pool.connect() as connection:
        return [tuple(row) for row in await connection.execute(text(query), {"c": world.cluster})]


HOLDS = (
    "SELECT h.workload, h.pod_set, h.count, h.open, a.user_name FROM queuectl.hold_line h "
    "LEFT JOIN queuectl.attribution a ON a.cluster_id = h.cluster_id AND a.id = h.attribution "
    "WHERE h.cluster_id = :c AND h.resource = 'cpu' ORDER BY 1, 2, h.from_seq"
)


async def test_all_lines_of_an_attempt_are_booked_on_one_row_which_others_share(world: World) -> None:
    await commit(
        world,
        1,
        configure("team-a", 1000),
        *(enqueue("one"), enqueue("two"), booked("one", ADA), booked("two", ADA)),
    )
    found = await rows(
        world,
        "SELECT namespace, queue, submitter, user_name, priority_class, account "
        "FROM queuectl.attribution WHERE cluster_id = :c",
    )
    account = {"cost-center": {"value": "42", "source": "Namespace"}}
    assert found == [("ns", "lq", "system:serviceaccount:ci:bot", "ada", None, account)]
    assert {(*row[:1], row[-1]) for row in await rows(world, HOLDS)} == {
        ("uid-one", "ada"),
        ("uid-two", "ada"),
    }


async def test_readers_have_what_open_attempts_are_booked_on(world: World) -> None:
    """Both a reader that begins, and one that reads what is new."""
    await commit(world, 1, configure("team-a", 1000), enqueue("one"), enqueue("two"))
    readings = LedgerReadings(world.pool, world.cluster)
    known = (await readings.since(0)).sequence
    await commit(world, 2, booked("one", ADA))
    stored = replace(ADA, user="ada", account=ADA.account[:1])
    for sequence in (0, known):
        found = {one.id: one.attribution for one in (await readings.since(sequence)).workloads}
        assert found.get(WorkloadId("uid-one")) == stored
        assert found.get(WorkloadId("uid-two")) is None


async def test_a_hold_that_shrinks_stays_booked_and_the_next_attempt_is_booked_anew(world: World) -> None:
    await commit(world, 1, configure("team-a", 1000), enqueue("one"), booked("one", ADA))
    await commit(world, 2, shrink("one", workers=1))
    await commit(world, 3, release("one"))
    await commit(world, 4, booked("one", replace(ADA, user="bob"), 2))
    assert await rows(world, HOLDS) == [
        ("uid-one", "driver", 1, False, "ada"),
        ("uid-one", "driver", 1, True, "bob"),
        ("uid-one", "worker", 2, False, "ada"),
        ("uid-one", "worker", 1, False, "ada"),
        ("uid-one", "worker", 2, True, "bob"),
    ]
    assert await world.codes() == set()


async def test_a_leader_of_an_older_version_books_on_nobody(world: World) -> None:
    await commit(world, 1, configure("team-a", 1000), enqueue("one"), booked("one", None))
    assert {row[-1] for row in await rows(world, HOLDS)} == {None}
    assert await world.codes() == set()
