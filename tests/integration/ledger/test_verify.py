from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import text

from queuectl.core.decisions import Enqueue
from queuectl.core.model.workload import Observation, WorkloadOutcome
from queuectl.ledger.admin.rebuild import Found, rebuild
from queuectl.ledger.admin.verify import Verifier, verify
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.ports.ledger import LedgerRefused
from tests.doubles.open_holds import open_holds
from tests.integration.ledger.edits import EDITS, Edit, World
from tests.integration.ledger.plans import (
    admit,
    attempt,
    configure,
    enqueue,
    evict,
    plan,
    ref,
    release,
    retire,
    shrink,
    wid,
    workload,
)


async def test_a_ledger_written_only_by_queuectl_has_no_findings(busy: World) -> None:
    assert await verify(busy.url, busy.cluster) == []
    assert await busy.codes() == set()


@pytest.mark.acceptance
@pytest.mark.parametrize("edit", EDITS)
async def test_a_manual_edit_is_found_and_named(busy: World, edit: Edit) -> None:
    await busy.tamper(edit.statement)
    found = await verify(busy.url, busy.cluster)
    assert edit.code in {finding.code for finding in found}, [str(finding) for finding in found]


async def test_podsets_that_were_changed_are_found(busy: World) -> None:
    await busy.tamper("UPDATE queuectl.shape SET pod_sets = '[]' WHERE cluster_id = :c")
    assert await busy.codes() == {"Shapes"}


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


async def test_an_admission_is_judged_by_the_policy_that_is_older_than_the_retained_history(
    world: World,
) -> None:
    await world.write(configure("team-a", 16), enqueue("one"), await world.admit("one"))
    await world.tamper("DELETE FROM queuectl.decision WHERE cluster_id = :c")
    verifier = Verifier(world.pool, world.cluster)
    assert await verifier.run() == []
    await world.write(enqueue("two", arrival=2), await world.admit("two"))
    assert await verifier.run() == []
    assert await verify(world.url, world.cluster) == []
    await world.write(enqueue("big", arrival=3), await world.admit("big", gpus=5))
    assert await world.codes() == {"OverQuota"}


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
            found("ended", 1, 6, finished=WorkloadOutcome.SUCCEEDED),
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
