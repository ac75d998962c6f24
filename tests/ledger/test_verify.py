from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.core.decisions import Admit, Decision, Enqueue
from queuectl.core.model import Observation, Outcome
from queuectl.ledger.postgres import PostgresLedger
from queuectl.ledger.rebuild import Found, open_holds, rebuild
from queuectl.ledger.verify import Verifier, verify
from queuectl.ports import LedgerRefused
from queuectl.sandbox.postgres import EmbeddedPostgres
from tests.ledger.plans import (
    BACKING_OFF,
    admit,
    amend,
    attempt,
    configure,
    enqueue,
    evict,
    keep,
    plan,
    ref,
    release,
    retire,
    shrink,
    wid,
    workload,
)


@dataclass
class World:
    pool: AsyncEngine
    url: str
    cluster: str
    ledger: PostgresLedger
    epoch: int
    batches: int = 0

    async def write(self, *decisions: Decision) -> int:
        self.batches += 1
        now = await self.ledger.now()
        batch = f"{self.cluster}-{self.batches}"
        return await self.ledger.commit(plan(*decisions, now=now), [], epoch=self.epoch, batch=batch)

    async def admit(self, name: str, number: int = 1, *, gpus: int = 4, debt: bool = False) -> Admit:
        return admit(name, number, now=await self.ledger.now(), gpus=gpus, debt=debt)

    async def tamper(self, statement: str) -> None:
        """Run SQL as a superuser, without the triggers."""
        async with self.pool.begin() as connection:
            await connection.execute(text("SET LOCAL session_replication_role = replica"))
            result = await connection.execute(text(statement), {"c": self.cluster})
            assert result.rowcount > 0

    async def codes(self) -> set[str]:
        return {finding.code for finding in await verify(self.url, self.cluster)}


@pytest.fixture
async def world(pool: AsyncEngine, server: EmbeddedPostgres, cluster: str) -> World:
    ledger = PostgresLedger(pool, cluster)
    return World(pool, server.url, cluster, ledger, await ledger.take_epoch("test"))


@pytest.fixture
async def busy(world: World) -> World:
    """A ledger in which each kind of decision was stored once."""
    await world.write(configure("team-a", 100), configure("old", 1), configure("old", None))
    names = ("runs", "waits", "leaves", "ended", "adopted", "again")
    await world.write(*(enqueue(name, arrival=i) for i, name in enumerate(names)), keep("waits"))
    await world.write(
        *[await world.admit(name) for name in ("runs", "leaves", "ended", "again")],
        await world.admit("adopted", debt=True),
    )
    await world.write(evict("leaves"), evict("again"), release("again"), retire("ended", 1))
    await world.write(amend("runs", past=BACKING_OFF), shrink("adopted", workers=1))
    await world.write(await world.admit("again", 2, gpus=2))
    assert await verify(world.url, world.cluster) == []
    return world


async def test_a_ledger_written_only_by_queuectl_has_no_findings(busy: World) -> None:
    assert await verify(busy.url, busy.cluster) == []
    assert await busy.codes() == set()


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("DELETE FROM queuectl.decision WHERE cluster_id = :c AND sequence = 9", "Gap"),
        (
            "DELETE FROM queuectl.decision WHERE cluster_id = :c AND "
            "sequence = (SELECT max(sequence) FROM queuectl.decision WHERE cluster_id = :c)",
            "Gap",
        ),
        ("UPDATE queuectl.decision SET epoch = 1 WHERE cluster_id = :c AND sequence = 9", "OldEpoch"),
        (
            "UPDATE queuectl.decision SET now = now - interval '1 minute' "
            "WHERE cluster_id = :c AND sequence = 11",
            "TimeRanBack",
        ),
        (
            "UPDATE queuectl.workload SET past = NULL WHERE cluster_id = :c AND name = 'runs'",
            "Past",
        ),
        (
            "UPDATE queuectl.hold_line SET count = 2 WHERE cluster_id = :c AND open "
            "AND workload = 'uid-adopted' AND pod_set = 'worker'",
            "OpenHolds",
        ),
        (
            "UPDATE queuectl.hold_line SET count = 3 WHERE cluster_id = :c AND NOT open "
            "AND workload = 'uid-adopted'",
            "ClosedHolds",
        ),
        (
            "UPDATE queuectl.attempt SET pod_sets = jsonb_set(pod_sets, '{1,count}', '2') "
            "WHERE cluster_id = :c AND workload = 'uid-adopted'",
            "Attempt",
        ),
        ("UPDATE queuectl.leadership SET sequence = sequence + 1 WHERE cluster_id = :c", "Gap"),
        (
            "UPDATE queuectl.workload SET phase = 'Evicting' WHERE cluster_id = :c AND name = 'runs'",
            "Workload",
        ),
        (
            "UPDATE queuectl.workload SET attempts = 7 WHERE cluster_id = :c AND name = 'waits'",
            "Workload",
        ),
        ("DELETE FROM queuectl.workload WHERE cluster_id = :c AND name = 'waits'", "MissingWorkload"),
        (
            "UPDATE queuectl.attempt SET workload = 'uid-waits' WHERE cluster_id = :c "
            "AND workload = 'uid-runs'",
            "ExtraAttempt",
        ),
        ("DELETE FROM queuectl.attempt WHERE cluster_id = :c AND workload = 'uid-runs'", "MissingAttempt"),
        (
            "UPDATE queuectl.attempt SET debt = true WHERE cluster_id = :c AND workload = 'uid-runs'",
            "Attempt",
        ),
        (
            "UPDATE queuectl.hold_line SET amount = amount + 1 WHERE cluster_id = :c "
            "AND workload = 'uid-runs' AND resource = 'cpu'",
            "Usage",
        ),
        ("DELETE FROM queuectl.hold_line WHERE cluster_id = :c AND workload = 'uid-runs'", "OpenHolds"),
        (
            "UPDATE queuectl.hold_line SET cluster_queue = 'other' WHERE cluster_id = :c "
            "AND workload = 'uid-runs'",
            "Usage",
        ),
        (
            "UPDATE queuectl.hold_line SET amount = 1 WHERE cluster_id = :c AND workload = 'uid-ended'",
            "ClosedHolds",
        ),
        (
            "UPDATE queuectl.hold_line SET to_seq = to_seq + 1 WHERE cluster_id = :c "
            "AND workload = 'uid-ended'",
            "ClosedHolds",
        ),
        ("DELETE FROM queuectl.hold_line WHERE cluster_id = :c AND workload = 'uid-ended'", "ClosedHolds"),
        ("DELETE FROM queuectl.effect WHERE cluster_id = :c AND workload = 'uid-runs'", "MissingEffect"),
        (
            "UPDATE queuectl.effect SET verb = 'Stop' WHERE cluster_id = :c AND workload = 'uid-runs'",
            "ExtraEffect",
        ),
        (
            "UPDATE queuectl.config_revision SET spec = '{}' WHERE cluster_id = :c AND name = 'team-a'",
            "Policy",
        ),
        ("DELETE FROM queuectl.config_revision WHERE cluster_id = :c AND name = 'team-a'", "Policy"),
        (
            "UPDATE queuectl.config_revision SET to_seq = NULL, to_at = NULL "
            "WHERE cluster_id = :c AND name = 'old'",
            "Policy",
        ),
    ],
)
async def test_a_manual_edit_is_found_and_named(busy: World, statement: str, code: str) -> None:
    await busy.tamper(statement)
    found = await verify(busy.url, busy.cluster)
    assert code in {finding.code for finding in found}, [str(finding) for finding in found]


async def test_an_admission_over_the_quota_of_its_time_is_found(world: World) -> None:
    # 8 GPUs each: one fits, and the second was admitted too.
    await world.write(configure("team-a", 8), enqueue("one"), enqueue("two", arrival=2))
    await world.write(await world.admit("one"))
    assert await verify(world.url, world.cluster) == []
    await world.write(await world.admit("two"))
    [finding] = await verify(world.url, world.cluster)
    assert finding.code == "OverQuota"
    assert "decision 5 on ns/Job/two" in finding.subject
    assert finding.detail == "was given 8 of a100/nvidia.com/gpu, 0 was available to ClusterQueue/team-a then"


async def test_borrowed_quota_is_no_finding_and_more_than_the_cohort_lends_is(world: World) -> None:
    await world.write(configure("team-b", 8, cohort="all", lends=4), configure("team-a", 4, cohort="all"))
    await world.write(enqueue("one"), enqueue("two", arrival=2), await world.admit("one"))
    assert await verify(world.url, world.cluster) == []
    await world.write(await world.admit("two", gpus=1))
    [finding] = await verify(world.url, world.cluster)
    assert finding.detail == "was given 2 of a100/nvidia.com/gpu, 0 was available to ClusterQueue/team-a then"
    # From here on no quota is lent: earlier admissions stay correct.
    await world.write(configure("team-b", None))
    assert len(await verify(world.url, world.cluster)) == 1


async def test_a_later_cut_of_quota_and_debt_are_no_finding(world: World) -> None:
    await world.write(configure("team-a", 16), enqueue("one"), enqueue("two", arrival=2))
    await world.write(await world.admit("one"))
    await world.write(configure("team-a", 1), await world.admit("two", debt=True))
    assert await verify(world.url, world.cluster) == []


async def test_the_quota_of_the_same_plan_counts(world: World) -> None:
    await world.write(
        enqueue("one"), configure("team-a", 8), await world.admit("one"), configure("team-a", 4)
    )
    assert await verify(world.url, world.cluster) == []


async def test_each_cluster_of_a_database_is_verified_separately(busy: World) -> None:
    other = PostgresLedger(busy.pool, f"{busy.cluster}-other")
    epoch = await other.take_epoch("other")
    now = await other.now()
    await other.commit(plan(configure("team-a", 8), enqueue("runs"), now=now), [], epoch=epoch, batch="1")
    await other.commit(plan(admit("runs", now=now), now=now), [], epoch=epoch, batch="2")
    assert await verify(busy.url, busy.cluster) == []
    assert await verify(busy.url, f"{busy.cluster}-other") == []
    await busy.tamper("DELETE FROM queuectl.hold_line WHERE cluster_id = :c AND open")
    assert await verify(busy.url, f"{busy.cluster}-other") == []
    assert await verify(busy.url, busy.cluster) != []


async def test_verifying_again_reads_only_what_is_new(busy: World) -> None:
    verifier = Verifier(busy.pool, busy.cluster)
    assert await verifier.run() == []
    await busy.write(release("leaves"), retire("runs", 1), enqueue("new", arrival=9))
    await busy.write(await busy.admit("new"), configure("team-a", 50))
    # Rows that were verified before are not read again.
    await busy.tamper("UPDATE queuectl.decision SET epoch = 1 WHERE cluster_id = :c AND sequence = 2")
    assert await verifier.run() == []
    await busy.tamper(
        "UPDATE queuectl.attempt SET debt = true WHERE cluster_id = :c AND workload = 'uid-new'"
    )
    assert {finding.code for finding in await verifier.run()} == {"Attempt"}
    # After a finding, all rows are.
    assert {finding.code for finding in await verifier.run()} == {"Attempt", "OldEpoch"}


async def test_rows_older_than_the_retained_history_are_assumed_correct(busy: World) -> None:
    await busy.write(evict("runs"), release("leaves"))
    await busy.tamper("DELETE FROM queuectl.decision WHERE cluster_id = :c AND sequence <= 16")
    assert await verify(busy.url, busy.cluster) == []
    await busy.write(enqueue("new", arrival=9), release("runs"))
    assert await verify(busy.url, busy.cluster) == []


# --- rebuild


def found(name: str, number: int, sequence: int, *, suspended: bool = False, **seen: object) -> Found:
    given: dict[str, object] = {"resource_version": "1", "generation": 1, "annotated": True}
    admission = replace(attempt(name, number, now=workload(name).created_at), sequence=sequence)
    observation = Observation(suspended=suspended, admission=admission, **(given | seen))  # type: ignore[arg-type]
    return Found(workload(name), observation, "team-a", 5)


async def test_rebuilt_holds_equal_those_before(world: World) -> None:
    await world.write(configure("team-a", 100))
    await world.write(*(enqueue(name, arrival=i) for i, name in enumerate(("one", "two", "waits"))))
    first = await world.write(await world.admit("one"), await world.admit("two", 3, gpus=1))
    before = await open_holds(world.url, world.cluster)
    assert len(before) == 6
    state = {one.id: one.attempt for one in (await world.ledger.load()).workloads}
    seen = [
        replace(found(name, 1, 1), observation=replace(found(name, 1, 1).observation, admission=held))
        for name in ("one", "two")
        if (held := state[wid(name)])
    ]
    lost = f"{world.cluster}-rebuilt"
    assert await rebuild(world.url, lost, seen) == 2
    assert await open_holds(world.url, lost) == before
    assert await verify(world.url, lost) == []
    ledger = PostgresLedger(world.pool, lost)
    snapshot = await ledger.load()
    assert {one.id: one.attempt for one in snapshot.workloads} == {
        id: held for id, held in state.items() if held is not None
    }
    assert {one.attempts for one in snapshot.workloads} == {1, 3}
    assert snapshot.effects == ()
    assert snapshot.sequence == first + 1 + 4
    epoch = await ledger.take_epoch("controller")
    now = await ledger.now()
    at = await ledger.commit(plan(evict("one"), now=now), [], epoch=epoch, batch="1")
    assert at == snapshot.sequence + 1
    await ledger.commit(plan(release("one"), configure("team-a", 9), now=now), [], epoch=epoch, batch="2")
    assert await verify(world.url, lost) == []


async def test_only_workloads_that_may_have_live_pods_are_held_again(world: World) -> None:
    await rebuild(
        world.url,
        world.cluster,
        [
            found("stopping", 2, 7, suspended=True),
            found("stopped", 1, 5, suspended=True, quiet=True),
            found("ended", 1, 6, finished=Outcome.SUCCEEDED),
            replace(
                found("never", 1, 1), observation=replace(found("never", 1, 1).observation, admission=None)
            ),
        ],
    )
    [one] = (await world.ledger.load()).workloads
    assert (one.ref, one.phase.value, one.attempts) == (ref("stopping"), "Evicting", 2)
    assert [key.verb.value for key in (await world.ledger.load()).effects] == ["Stop"]
    assert await verify(world.url, world.cluster) == []


async def test_a_ledger_with_open_holds_is_not_rebuilt_and_its_controller_continues(busy: World) -> None:
    before = await open_holds(busy.url, busy.cluster)
    with pytest.raises(LedgerRefused, match="has 4 open attempts"):
        await rebuild(busy.url, busy.cluster, [found("one", 1, 1)])
    assert await open_holds(busy.url, busy.cluster) == before
    await busy.write(enqueue("other"))


async def test_a_rebuilt_workload_may_already_be_pending_in_the_new_ledger(world: World) -> None:
    await world.write(Enqueue(workload("one"), "team-a", 0, 1), enqueue("two", arrival=2))
    await rebuild(world.url, world.cluster, [found("one", 1, 1)])
    assert await verify(world.url, world.cluster) == []
    assert len(await open_holds(world.url, world.cluster)) == 3


async def test_a_workload_that_shrinks_is_charged_in_full_until_then_and_less_afterwards(busy: World) -> None:
    await busy.write(enqueue("big"), await busy.admit("big"))
    first = await busy.write(shrink("big", workers=1))
    second = await busy.write(shrink("big", workers=0))
    query = text(
        "SELECT count, from_seq, to_seq FROM queuectl.hold_line WHERE cluster_id = :c "
        "AND workload = 'uid-big' AND pod_set = :p AND resource = 'cpu' ORDER BY from_seq"
    )
    async with busy.pool.connect() as connection:
        worker = list(await connection.execute(query, {"c": busy.cluster, "p": "worker"}))
        driver = list(await connection.execute(query, {"c": busy.cluster, "p": "driver"}))
    assert worker == [(2, first - 1, first), (1, first, second), (0, second, None)]
    assert driver == [(1, first - 1, None)], "what stays as it is stays one line"
    assert await busy.codes() == set()
    await busy.write(retire("big", 1))
    assert await busy.codes() == set()


async def test_a_history_in_which_a_workload_grew_is_reported(busy: World) -> None:
    await busy.tamper(
        "UPDATE queuectl.decision SET payload = jsonb_set(payload, '{podSets,1,count}', '5') "
        "WHERE cluster_id = :c AND verdict = 'Shrunk'"
    )
    assert "Grown" in await busy.codes()
