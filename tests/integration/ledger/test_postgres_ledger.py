"""What the ledger in Postgres stores, refuses and reads back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.event import listen, remove
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.answers.outcomes import end_of
from queuectl.core.decisions import Decision, Enqueue
from queuectl.core.model.budgets import BudgetEntry, EntryKind, Period
from queuectl.core.model.capacity import (
    NO_FLAVOR,
    AwaitedLimit,
    ClusterQueueDemand,
    FlavorCapacity,
    FlavorResourceCapacity,
    FreeNodes,
    NodeFacts,
    PodDemand,
    PodsOnNode,
    QuotaWarning,
)
from queuectl.core.model.policy import CapacityMode, Node, Taint
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.start_conditions import (
    AfterOutcome,
    AfterWorkload,
    NamedWorkload,
    StartConditions,
)
from queuectl.core.model.workload import (
    NO_PAST_ATTEMPTS,
    NOTHING_FOR_READERS,
    Assignment,
    AttemptState,
    ConfigKey,
    EffectKey,
    ForReaders,
    LedgerSnapshot,
    PendingLine,
    Phase,
    PodSetAssignment,
    PodsReady,
    StoredWorkload,
    UserOptions,
    Verb,
    WorkloadOutcome,
)
from queuectl.ledger import published_facts
from queuectl.ledger.pool import reading
from queuectl.ledger.read.queries import LedgerReadings
from queuectl.ledger.shared_rows import Shapes
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.ports.ledger import Ledger, LedgerRefused, LedgerUnavailable, LostLeadership, PlanFailed
from queuectl.ports.reader import EffectRow, Readings
from tests.integration.ledger.plans import (
    BACKING_OFF,
    CREATED,
    GPU,
    PREEMPTED,
    WAITING,
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
class Book:
    """A ledger under test, with an epoch taken and ids for batches."""

    ledger: Ledger
    readings: Readings
    another: Callable[[], Ledger]
    """A second process over the same rows."""
    epoch: int = 0
    batches: int = 0

    async def write(
        self,
        *decisions: Decision,
        acknowledged: Sequence[EffectKey] = (),
        for_readers: ForReaders = NOTHING_FOR_READERS,
    ) -> int:
        self.batches += 1
        return await self.ledger.commit(
            plan(*decisions, now=await self.ledger.now()),
            acknowledged,
            epoch=self.epoch,
            batch=f"batch-{self.batches}",
            for_readers=for_readers,
        )

    async def now(self) -> datetime:
        return await self.ledger.now()

    async def one(self, name: str) -> StoredWorkload:
        [found] = [w for w in (await self.ledger.load()).workloads if w.id == wid(name)]
        return found


@pytest.fixture
async def book(cluster: str, pool: AsyncEngine) -> Book:
    book = Book(
        PostgresLedger(pool, cluster), LedgerReadings(pool, cluster), lambda: PostgresLedger(pool, cluster)
    )
    book.epoch = await book.ledger.take_epoch("first")
    return book


async def test_a_new_ledger_is_empty(book: Book) -> None:
    assert await book.ledger.load() == LedgerSnapshot(sequence=0, now=None)


async def test_each_taken_epoch_is_higher_than_the_last(book: Book) -> None:
    assert await book.ledger.take_epoch("second") > book.epoch


async def test_a_queued_workload_is_read_back_as_it_was_observed(book: Book) -> None:
    first = await book.write(enqueue("one", priority=-7, arrival=3))
    assert first == 1
    assert await book.one("one") == StoredWorkload(
        id=wid("one"),
        ref=ref("one"),
        queue="lq",
        cluster_queue="team-a",
        priority=-7,
        created_at=CREATED,
        arrival=3,
        phase=Phase.PENDING,
        attempts=0,
        attempt=None,
        reason=None,
        pod_sets=workload("one").pod_sets,
        submitter="alice",
        labels=(("team", "a"),),
    )


async def test_conditions_of_a_start_are_read_back(book: Book) -> None:
    start = StartConditions(
        after=(AfterWorkload(AfterOutcome.ANY, "Job", "two"),), begin_at=CREATED, max_running=3, array="sweep"
    )
    first = enqueue("one")
    await book.write(replace(first, workload=replace(first.workload, start=start)))
    assert (await book.one("one")).options == UserOptions(start=start)


async def test_the_outcome_of_a_name_is_that_of_the_workload_that_ended_last(book: Book) -> None:
    names = [NamedWorkload("ns", "Job", name) for name in ("one", "two", "three")]
    await book.write(enqueue("one"), enqueue("two", arrival=2), enqueue("three", arrival=3))
    await book.write(
        retire("one", None, WorkloadOutcome.FAILED), retire("two", None, WorkloadOutcome.DELETED)
    )
    await book.write(enqueue("one", arrival=4))
    expected = [WorkloadOutcome.FAILED, WorkloadOutcome.DELETED, None]
    assert await book.ledger.outcomes(names) == list(zip(names, expected, strict=True))
    await book.write(retire("one", None, WorkloadOutcome.SUCCEEDED))
    assert await book.another().outcomes(names[:1]) == [(names[0], WorkloadOutcome.SUCCEEDED)]
    assert await book.ledger.outcomes([NamedWorkload("other", "Job", "one")]) == [
        (NamedWorkload("other", "Job", "one"), None)
    ]


async def test_the_outcomes_of_many_names_are_read_by_as_many_statements_as_that_of_one(
    book: Book, pool: AsyncEngine
) -> None:
    """A tenant may name 16 workloads in each of its own, and no workload is admitted while they are read."""
    names = [NamedWorkload("ns", "Job", f"many-{number}") for number in range(1000)]
    await book.write(*(enqueue(one.name, arrival=number) for number, one in enumerate(names[:5], start=1)))
    await book.write(*(retire(one.name, None, WorkloadOutcome.TIMED_OUT) for one in names[:5]))
    statements: list[str] = []

    def count(*arguments: Any) -> None:
        statements.append(arguments[2])

    engine = pool.sync_engine
    listen(engine, "before_cursor_execute", count)
    try:
        await book.ledger.outcomes(names[:1])
        of_one = len(statements)
        found = await book.ledger.outcomes(names)
    finally:
        remove(engine, "before_cursor_execute", count)
    assert [how for _, how in found] == [WorkloadOutcome.TIMED_OUT] * 5 + [None] * 995
    assert [name for name, _ in found] == names
    assert len(statements) == 2 * of_one


async def test_podsets_are_those_of_the_last_decision_that_queued_it(book: Book) -> None:
    await book.write(enqueue("one"), enqueue("two", arrival=2))
    smaller = (replace(workload("one").pod_sets[0], count=1),)
    again = enqueue("one")
    await book.write(replace(again, workload=replace(again.workload, pod_sets=smaller)))
    assert (await book.one("one")).pod_sets == smaller
    assert (await book.one("two")).pod_sets == workload("two").pod_sets
    read = {one.id: one.pod_sets for one in (await book.readings.since(0)).workloads}
    assert read == {wid("one"): smaller, wid("two"): workload("two").pod_sets}
    found = await book.readings.find(*ref("one")[:3])
    assert found is not None
    assert found.pod_sets == smaller


async def test_more_shapes_are_read_at_once_than_a_statement_takes_parameters(pool: AsyncEngine) -> None:
    shapes = Shapes("many")
    async with reading(pool) as connection:
        await shapes.read(connection, [f"{number}" for number in range(40_000)])
    assert shapes.get("1") == ()


async def test_an_admission_opens_an_attempt_with_its_sequence_and_a_due_start(book: Book) -> None:
    now = await book.now()
    await book.write(enqueue("one"), keep("one"))
    first = await book.write(admit("one", now=now))
    assert first == 3
    found = await book.one("one")
    assert found.attempt == replace(attempt("one", now=now), sequence=3)
    assert (found.phase, found.attempts, found.reason) == (Phase.ADMITTED, 1, None)
    snapshot = await book.ledger.load()
    assert snapshot.effects == (EffectKey(wid("one"), 1, Verb.START),)
    assert snapshot.sequence == 3


async def test_a_workload_that_already_runs_is_charged_and_not_started(book: Book) -> None:
    await book.write(enqueue("one"), admit("one", now=await book.now(), debt=True))
    found = await book.one("one")
    assert found.attempt is not None
    assert found.attempt.debt
    assert (await book.ledger.load()).effects == ()


async def test_a_reason_is_read_back_with_all_its_numbers(book: Book) -> None:
    huge = replace(WAITING, requested=2**80, short_by=2**80 - 3)
    await book.write(enqueue("one"), enqueue("two"), keep("one", huge), keep("two", PREEMPTED))
    assert (await book.one("one")).reason == huge
    assert (await book.one("two")).reason == PREEMPTED


async def test_changes_for_memory_alone_are_not_stored(book: Book) -> None:
    await book.write(enqueue("one"), keep("one", recorded=False))
    assert (await book.one("one")).reason is None
    assert (await book.ledger.load()).sequence == 1


async def test_an_eviction_holds_its_quota_until_the_release(book: Book) -> None:
    now = await book.now()
    await book.write(enqueue("one"), admit("one", now=now))
    await book.write(evict("one"))
    found = await book.one("one")
    assert found.attempt == replace(attempt("one", now=now), sequence=2, state=AttemptState.EVICTING)
    assert (found.phase, found.reason) == (Phase.EVICTING, PREEMPTED)
    # The unacknowledged start is withdrawn.
    assert (await book.ledger.load()).effects == (EffectKey(wid("one"), 1, Verb.STOP),)
    await book.write(release("one"))
    found = await book.one("one")
    assert (found.phase, found.attempt, found.attempts) == (Phase.PENDING, None, 1)
    assert (await book.ledger.load()).effects == ()


async def test_a_workload_may_be_admitted_evicted_and_admitted_again_in_one_plan(book: Book) -> None:
    now = await book.now()
    first = await book.write(
        enqueue("one"),
        admit("one", now=now),
        evict("one"),
        release("one"),
        keep("one"),
        admit("one", 2, now=now, gpus=1),
    )
    found = await book.one("one")
    assert found.attempt == replace(attempt("one", 2, now=now, gpus=1), sequence=first + 5)
    assert (await book.ledger.load()).effects == (EffectKey(wid("one"), 2, Verb.START),)


async def test_an_ended_workload_is_not_open_but_can_be_found(book: Book) -> None:
    await book.write(enqueue("one"), enqueue("two", arrival=2), admit("one", now=await book.now()))
    failed = replace(retire("one", 1, WorkloadOutcome.FAILED), detail="OOM\x00Killed")
    at = await book.write(failed, retire("two", None, WorkloadOutcome.DELETED))
    assert (await book.ledger.load()).workloads == ()
    assert (await book.ledger.load()).effects == ()
    found = await book.readings.find("ns", "Job", "one")
    assert found is not None
    assert (found.phase, found.attempt, found.attempts) == (Phase.FINISHED, None, 1)
    ended = await book.readings.finished(before=None, since=None, limit=10)
    assert [(seq, one.id, one.phase) for seq, one in ended] == [
        (at + 1, wid("two"), Phase.DELETED),
        (at, wid("one"), Phase.FINISHED),
    ]
    assert [seq for seq, _ in await book.readings.finished(before=at + 1, since=None, limit=10)] == [at]
    assert len(await book.readings.finished(before=None, since=None, limit=1)) == 1
    now = await book.now()
    for since, count in ((now - timedelta(hours=1), 2), (now + timedelta(hours=1), 0)):
        assert len(await book.readings.finished(before=None, since=since, limit=10)) == count
    lives = await book.readings.lives([wid("one"), wid("two"), wid("three")], until=at + 1)
    assert {one: [row.verdict for row in rows] for one, rows in lives.items()} == {
        wid("one"): ["Queued", "Admitted", "Retired"],
        wid("two"): ["Queued", "Retired"],
    }
    held = await book.readings.held_by_attempts([wid("one"), wid("two")], until=at + 1)
    assert list(held) == [at]
    ends = {one: end_of(rows, held) for one, rows in lives.items()}
    assert {one: end and (end.outcome, end.failure) for one, end in ends.items()} == {
        wid("one"): ("Failed", "OOMKilled"),
        wid("two"): ("Cancelled", None),
    }
    before = await book.readings.lives([wid("one"), wid("two")], until=at)
    assert [row.verdict for row in before[wid("two")]] == ["Queued"]


async def test_labels_are_those_of_the_last_enqueue(book: Book) -> None:
    first = enqueue("one")
    await book.write(replace(first, workload=replace(first.workload, labels=(("b", "2"), ("a", "1")))))
    assert (await book.one("one")).labels == (("a", "1"), ("b", "2"))
    await book.write(replace(first, workload=replace(first.workload, labels=(("c", "3"),))))
    assert (await book.one("one")).labels == (("c", "3"),)


async def test_a_workload_may_be_observed_again_after_it_ended(book: Book) -> None:
    now = await book.now()
    await book.write(enqueue("one"), admit("one", now=now), retire("one", 1), enqueue("one", arrival=9))
    found = await book.one("one")
    assert (found.phase, found.attempts, found.arrival) == (Phase.PENDING, 0, 9)
    await book.write(admit("one", now=await book.now()))
    assert await book.readings.find("ns", "Job", "one") == await book.one("one")


async def test_acknowledged_effects_are_not_dispatched_again(book: Book) -> None:
    start = EffectKey(wid("one"), 1, Verb.START)
    await book.write(enqueue("one"), admit("one", now=await book.now()))
    await book.write(acknowledged=[start, start])
    assert (await book.ledger.load()).effects == ()
    await book.write(acknowledged=[start, EffectKey(wid("nobody"), 4, Verb.STOP)])
    assert (await book.ledger.load()).sequence == 2


async def test_an_effect_may_be_acknowledged_in_the_commit_that_evicts(book: Book) -> None:
    await book.write(enqueue("one"), admit("one", now=await book.now()))
    await book.write(evict("one"), acknowledged=[EffectKey(wid("one"), 1, Verb.START)])
    assert (await book.ledger.load()).effects == (EffectKey(wid("one"), 1, Verb.STOP),)


async def test_the_same_batch_again_stores_nothing_and_has_the_same_result(book: Book) -> None:
    await book.write(enqueue("zero"))
    again = plan(enqueue("one"), admit("one", now=await book.now()), now=await book.now())
    answers = [await book.ledger.commit(again, [], epoch=book.epoch, batch="the same") for _ in range(3)]
    assert answers == [2, 2, 2]
    assert (await book.ledger.load()).sequence == 3
    assert await book.write(keep("zero")) == 4


async def test_an_empty_commit_returns_the_next_free_sequence(book: Book) -> None:
    assert await book.write() == 1
    await book.write(enqueue("one"))
    assert await book.write() == 2


async def test_a_deposed_leader_stores_nothing(book: Book) -> None:
    await book.write(enqueue("one"))
    newer = await book.another().take_epoch("second")
    with pytest.raises(LostLeadership, match=f"epoch {book.epoch} is over: second took epoch {newer}"):
        await book.write(enqueue("two"))
    with pytest.raises(LostLeadership):
        await book.write(acknowledged=[EffectKey(wid("one"), 1, Verb.START)])
    assert (await book.ledger.load()).sequence == 1


async def test_what_a_leader_had_read_when_it_stopped_is_known_until_the_next_commit(book: Book) -> None:
    await book.write(enqueue("one"))
    await book.ledger.hand_over(book.epoch, {"Job": 7, "Cohort": 5})
    new = book.another()
    book.epoch, book.ledger = await new.take_epoch("second"), new
    assert (await new.load()).read_up_to == (("Cohort", 5), ("Job", 7))
    await book.write(enqueue("two"))
    assert (await new.load()).read_up_to == ()


async def test_a_deposed_leader_hands_nothing_over(book: Book) -> None:
    await book.another().take_epoch("second")
    await book.ledger.hand_over(book.epoch, {"Job": 7})
    assert (await book.ledger.load()).read_up_to == ()


async def test_who_reads_the_ledger_again_makes_values_of_new_rows_alone(book: Book) -> None:
    await book.write(enqueue("one"), enqueue("two"))
    standby = book.another()
    first = {stored.id: stored for stored in (await standby.load()).workloads}
    await book.write(admit("one", 1, now=await book.now()), keep("two"))
    await book.write(enqueue("three"))
    second = {stored.id: stored for stored in (await standby.load()).workloads}
    assert second == {stored.id: stored for stored in (await book.another().load()).workloads}
    third = await standby.load()
    assert first.keys() < second.keys()
    assert all(stored is second[stored.id] for stored in third.workloads if stored.attempt is None)
    assert second[wid("one")].attempt is not None


async def test_the_past_attempts_of_a_workload_are_read_back_as_they_were_written(book: Book) -> None:
    await book.write(enqueue("one"), admit("one", now=await book.now()))
    assert (await book.one("one")).past == NO_PAST_ATTEMPTS
    await book.write(evict("one", past=BACKING_OFF))
    assert (await book.one("one")).past == BACKING_OFF
    await book.write(release("one"))
    assert (await book.one("one")).past == BACKING_OFF, "a release without past attempts keeps them"
    await book.write(enqueue("one", past=NO_PAST_ATTEMPTS))
    assert (await book.one("one")).past == NO_PAST_ATTEMPTS
    await book.write(admit("one", 2, now=await book.now()), release("one", 2, past=BACKING_OFF))
    assert (await book.one("one")).past == BACKING_OFF


async def test_a_running_workload_s_priority_and_past_are_amended(book: Book) -> None:
    await book.write(enqueue("one"), admit("one", now=await book.now()))
    before = await book.one("one")
    await book.write(amend("one", priority=-3, past=BACKING_OFF))
    assert await book.one("one") == replace(before, priority=-3, past=BACKING_OFF)


async def test_the_reason_of_a_running_workload_is_that_of_its_last_amendment(book: Book) -> None:
    unknown = Reason(code=Code.PRIORITY_NOT_FOUND, detail="WorkloadPriorityClass hihg not found")
    await book.write(enqueue("one"), admit("one", now=await book.now()), amend("one", reason=unknown))
    assert (await book.one("one")).reason == unknown
    await book.write(amend("one"))
    assert (await book.one("one")).reason is None


async def test_an_attempt_that_shrinks_holds_the_smaller_podsets_from_then_on(book: Book) -> None:
    await book.write(enqueue("one"), admit("one", now=await book.now()))
    before = (await book.one("one")).attempt
    assert before is not None
    await book.write(shrink("one", workers=1))
    await book.write(shrink("one", workers=0))
    found = await book.one("one")
    assert found.attempt == replace(before, assignment=shrink("one", workers=0).assignment)
    assert (found.phase, found.attempts) == (Phase.ADMITTED, 1)
    await book.write(evict("one"), release("one"))
    assert (await book.one("one")).attempt is None


async def test_an_epoch_not_yet_taken_is_refused(book: Book) -> None:
    book.epoch += 1
    with pytest.raises(LostLeadership):
        await book.write(enqueue("one"))


async def test_the_ledger_s_time_never_decreases(book: Book) -> None:
    await book.write(enqueue("one"))
    before = plan(enqueue("two"), now=await book.now() - timedelta(hours=1))
    with pytest.raises(LedgerRefused, match="time ran back"):
        await book.ledger.commit(before, [], epoch=book.epoch, batch="late")
    ahead = await book.now() + timedelta(minutes=1)
    await book.ledger.commit(plan(enqueue("two"), now=ahead), [], epoch=book.epoch, batch="ahead")
    assert await book.now() >= ahead


@pytest.mark.parametrize(
    ("before", "bad"),
    [
        ((), lambda now: keep("one")),
        ((), lambda now: admit("one", now=now)),
        ((), lambda now: evict("one")),
        ((), lambda now: release("one")),
        ((), lambda now: retire("one")),
        (("queued",), lambda now: evict("one")),
        (("queued",), lambda now: release("one")),
        (("queued",), lambda now: retire("one", 1)),
        (("queued", "admitted"), lambda now: admit("one", 2, now=now)),
        (("queued", "admitted"), lambda now: evict("one", 2)),
        (("queued", "admitted"), lambda now: release("one", 2)),
        (("queued", "admitted"), lambda now: retire("one")),
        (("queued", "admitted", "evicted"), lambda now: evict("one")),
        (("queued",), lambda now: amend("one")),
        (("queued",), lambda now: shrink("one", workers=1)),
        (("queued", "admitted"), lambda now: shrink("one", 2, workers=1)),
        (("queued", "admitted"), lambda now: shrink("one", workers=3)),
        (("queued", "admitted"), lambda now: shrink("one", workers=1, gpus=3)),
        (("queued", "admitted", "evicted"), lambda now: shrink("one", workers=1)),
        (("queued", "admitted", "released"), lambda now: admit("one", 1, now=now)),
        (("queued", "retired"), lambda now: keep("one")),
    ],
)
async def test_a_plan_that_contradicts_the_ledger_is_refused_as_a_whole(
    book: Book, before: tuple[str, ...], bad: Callable[[datetime], Decision]
) -> None:
    now = await book.now()
    steps: dict[str, Decision] = {
        "queued": enqueue("one"),
        "admitted": admit("one", now=now),
        "evicted": evict("one"),
        "released": release("one"),
        "retired": retire("one"),
    }
    if before:
        await book.write(*(steps[name] for name in before))
    state = await book.ledger.load()
    with pytest.raises(LedgerRefused):
        await book.write(enqueue("other", arrival=2), bad(now))
    assert await book.ledger.load() == state
    assert await book.write(enqueue("other", arrival=2)) == state.sequence + 1


@pytest.mark.parametrize(
    ("count", "amount"), [(1, -1), (-1, 1), (1, 2**63), (2**63, 1)], ids=["less", "fewer", "more", "many"]
)
async def test_an_amount_that_no_row_can_hold_is_refused_and_named(
    book: Book, count: int, amount: int
) -> None:
    await book.write(enqueue("one"))
    bad = PodSetAssignment(name="main", count=count, requests=((GPU, amount),), flavors=((GPU, "a100"),))
    good = admit("one", now=await book.now())
    assignment = Assignment(cluster_queue="team-a", pod_sets=(bad,))
    with pytest.raises(PlanFailed, match=r"attempt 1 of ns/Job/one: podset main, .* is -?\d+, must be"):
        await book.write(replace(good, attempt=replace(good.attempt, assignment=assignment)))
    assert (await book.one("one")).attempt is None


async def test_the_largest_amount_fits(book: Book) -> None:
    top = PodSetAssignment(
        name="main", count=2**63 - 1, requests=((GPU, 2**63 - 1),), flavors=((GPU, "a100"),)
    )
    good = admit("one", now=await book.now())
    assignment = Assignment(cluster_queue="team-a", pod_sets=(top,))
    await book.write(enqueue("one"), replace(good, attempt=replace(good.attempt, assignment=assignment)))
    found = await book.one("one")
    assert found.attempt is not None
    assert found.attempt.assignment == assignment


async def test_what_all_pods_hold_of_a_budget_is_refused_and_named_where_no_row_can_hold_it(
    book: Book,
) -> None:
    await book.write(enqueue("one"))
    now = await book.now()
    entry = BudgetEntry(
        kind=EntryKind.RESERVE,
        budget="x",
        subject="",
        resource=GPU,
        period=Period(now - timedelta(days=1), now + timedelta(days=1)),
        workload="uid-one",
        attempt=1,
        at=now,
        rate=2**63,
        until=None,
    )
    with pytest.raises(PlanFailed, match=r"attempt 1 of ns/Job/one: Budget x, rate is \d+, must be"):
        await book.write(replace(admit("one", now=now), budget=(entry,)))
    assert (await book.one("one")).attempt is None


async def test_strings_lose_only_the_characters_that_postgres_cannot_hold(book: Book) -> None:
    hostile = workload("one", submitter="al\0ice \ud800", labels=(("a\0", "\0"),))
    reason = Reason(code=Code.ON_HOLD, detail="\0\u2028ok\udfff")
    await book.write(Enqueue(hostile, "team-a", 0, 1), keep("one", reason))
    found = await book.one("one")
    assert found.submitter == "alice ?"
    assert found.reason == Reason(code=Code.ON_HOLD, detail="\u2028ok?")


async def test_the_policy_in_force_is_the_last_configured_one(book: Book) -> None:
    a, b = ConfigKey("ClusterQueue", "", "a"), ConfigKey("ClusterQueue", "", "b")
    await book.write(configure("a", 1), configure("b", 1), configure("a", 2))
    snapshot = await book.ledger.load()
    assert snapshot.configs == ((a, configure("a", 2).spec), (b, configure("b", 1).spec))
    await book.write(configure("a", None), configure("c", None))
    assert (await book.ledger.load()).configs == ((b, configure("b", 1).spec),)
    await book.write(configure("a", 3))
    assert dict((await book.ledger.load()).configs)[a] == configure("a", 3).spec


async def test_a_waiting_workload_may_change_queue_and_priority(book: Book) -> None:
    await book.write(enqueue("one"), keep("one"))
    moved = Enqueue(workload("one", queue="other", submitter=None), None, 5, 1)
    await book.write(moved)
    found = await book.one("one")
    assert (found.queue, found.cluster_queue, found.priority) == ("other", None, 5)
    assert (found.submitter, found.reason) == ("alice", WAITING)


# --- reads


async def test_readers_see_what_changed_since_a_sequence(book: Book) -> None:
    now = await book.now()
    await book.write(configure("a", 1), configure("b", 1))
    await book.write(enqueue("one"), enqueue("two", arrival=2), enqueue("three", arrival=3))
    whole = await book.readings.since(0)
    assert [one.id for one in whole.workloads] == [wid("one"), wid("two"), wid("three")]
    assert len(whole.configs) == 2
    assert (whole.sequence, whole.epoch) == (5, book.epoch)
    assert whole.committed_at <= whole.read_at
    await book.write(admit("two", now=now), retire("one"), configure("b", None))
    news = await book.readings.since(whole.sequence)
    assert [(one.id, one.phase) for one in news.workloads] == [
        (wid("two"), Phase.ADMITTED),
        (wid("one"), Phase.FINISHED),
    ]
    assert news.configs == ((ConfigKey("ClusterQueue", "", "b"), None),)
    assert news.workloads[0].attempt is not None
    nothing = await book.readings.since(news.sequence)
    assert (nothing.workloads, nothing.configs, nothing.sequence) == ((), (), 8)
    assert [one.id for one in (await book.readings.since(0)).workloads] == [wid("three"), wid("two")]


async def test_readers_see_how_many_pods_are_ready_since_a_batch(book: Book) -> None:
    one, two = PodsReady(wid("one"), 1, 3, "train-1"), PodsReady(wid("two"), 1, 0)
    await book.write(enqueue("one"), enqueue("two", arrival=2))
    await book.write(for_readers=ForReaders((one, two, PodsReady(wid("unknown"), 1, 1))))
    whole = await book.readings.since(0)
    assert sorted(whole.for_readers.pods_ready) == [one, two]
    later = two._replace(attempt=2, ready=1)
    await book.write(for_readers=ForReaders((later,)))
    news = await book.readings.since(whole.sequence, whole.batch)
    assert news.for_readers == ForReaders((later,))
    assert news.workloads == ()
    assert (await book.readings.since(news.sequence, news.batch)).for_readers == NOTHING_FOR_READERS
    await book.write(retire("one"), for_readers=ForReaders((one,)))
    left = (await book.readings.since(0)).for_readers.pods_ready
    assert [one.workload for one in left] == [wid("two")]


async def test_readers_see_the_newest_order_of_each_pending_queue(book: Book) -> None:
    a, b = PendingLine("a", (wid("two"), wid("one"))), PendingLine("b", ())
    await book.write(for_readers=ForReaders(lines=(a, b)))
    whole = await book.readings.since(0)
    assert sorted(whole.for_readers.lines) == [a, b]
    turned = PendingLine("a", (wid("one"), wid("two")))
    await book.write(for_readers=ForReaders(lines=(turned,)))
    assert (await book.readings.since(whole.sequence, whole.batch)).for_readers.lines == (turned,)
    assert sorted((await book.readings.since(0)).for_readers.lines) == [turned, b]


async def test_readers_see_the_newest_capacity_of_each_flavor(book: Book) -> None:
    gpus = FlavorResourceCapacity(
        resource="nvidia.com/gpu",
        mode=CapacityMode.ENFORCE,
        allocatable=(("Ready", 16), ("Cordoned", 8)),
        used=4,
        unmanaged=(("kube-system", 2),),
        expected=1,
        free=9,
        shapes=(FreeNodes(8, 1), FreeNodes(1, 1)),
    )
    a100 = FlavorCapacity(flavor="a100", nodes=(("Ready", 2), ("Cordoned", 1)), resources=(gpus,))
    strays = QuotaWarning("NodesWithoutFlavor", None, "1 node has the labels of no ResourceFlavor")
    stray = FlavorCapacity(flavor=NO_FLAVOR, nodes=(("Ready", 1),), warnings=(strays,))
    await book.write(for_readers=ForReaders(capacities=(a100, stray)))
    whole = await book.readings.since(0)
    assert set(whole.for_readers.capacities) == {a100, stray}
    emptied = FlavorCapacity(flavor="a100")
    await book.write(for_readers=ForReaders(capacities=(emptied,)))
    news = await book.readings.since(whole.sequence, whole.batch)
    assert news.for_readers == ForReaders(capacities=(emptied,))


async def test_readers_see_the_newest_demand_of_each_cluster_queue(book: Book) -> None:
    one = PodDemand(
        flavor="a100",
        awaits=AwaitedLimit.ROOM,
        workloads=2,
        pods=16,
        requests=(("cpu", 4000), ("nvidia.com/gpu", 8)),
        node_selector=(("zone", "a"),),
    )
    demand = ClusterQueueDemand("team-a", (one,))
    await book.write(for_readers=ForReaders(demands=(demand, ClusterQueueDemand("team-b", ()))))
    whole = await book.readings.since(0)
    assert set(whole.for_readers.demands) == {demand, ClusterQueueDemand("team-b", ())}
    await book.write(for_readers=ForReaders(demands=(ClusterQueueDemand("team-a", ()),)))
    news = await book.readings.since(whole.sequence, whole.batch)
    assert news.for_readers == ForReaders(demands=(ClusterQueueDemand("team-a", ()),))


A = Node(
    "a",
    (("kubernetes.io/hostname", "a"), ("pool", "\u00e9")),
    (("cpu", 64_000), (GPU, 8)),
    ready=False,
    ready_since=datetime(2026, 5, 5, 3, tzinfo=UTC),
    created_at=datetime(2026, 5, 4, tzinfo=UTC),
    cordoned=True,
    taints=(Taint("spot", "", "NoSchedule"),),
    conditions=(("DiskPressure", "False"), ("GpuHealthy", "Unknown")),
)
USED = NodeFacts(
    name="a",
    node=A,
    pods=(
        PodsOnNode("kube-system", None, (("cpu", 250),)),
        PodsOnNode("team", None, ((GPU, 1),), terminating=True),
        PodsOnNode("team", wid("one"), (("cpu", 4000), (GPU, 1)), 3),
        PodsOnNode("team", wid("two"), ()),
    ),
    avoided_until=datetime(2026, 5, 5, 4, tzinfo=UTC),
)
EMPTY = NodeFacts(name="b", node=Node("b"))
LOST = NodeFacts(name="c", node=None, pods=(PodsOnNode("team", wid("one"), ((GPU, 1),)),))


def gone(name: str) -> NodeFacts:
    return NodeFacts(name=name, node=None)


async def test_readers_see_the_newest_facts_of_each_node_and_those_that_are_gone(book: Book) -> None:
    await book.write(enqueue("one"), for_readers=ForReaders(nodes=(USED, EMPTY, LOST)))
    whole = await book.readings.since(0)
    assert set(whole.for_readers.nodes) == {USED, EMPTY, LOST}
    assert (await book.readings.at(None)).nodes == (USED, EMPTY, LOST)
    changed = replace(EMPTY, node=Node("b", cordoned=True))
    await book.write(for_readers=ForReaders(nodes=(USED, changed, gone("c"))))
    news = await book.readings.since(whole.sequence, whole.batch)
    assert set(news.for_readers.nodes) == {changed, gone("c")}, "what did not change is not told again"
    assert (await book.readings.at(None)).nodes == (USED, changed)
    assert (await book.readings.at(await book.now())).nodes == (), "of a past time nodes are not known"
    assert (await book.ledger.load()).nodes == (), "a controller reads them from the cluster"


async def test_what_an_earlier_controller_told_of_other_nodes_is_gone(book: Book) -> None:
    await book.write(enqueue("one"), for_readers=ForReaders(nodes=(USED, EMPTY, LOST)))
    before = await book.readings.since(0)
    await book.write(for_readers=ForReaders(nodes=(USED,), all_nodes=("a", "b")))
    news = await book.readings.since(before.sequence, before.batch)
    assert news.for_readers.nodes == (gone("c"),)
    assert (await book.readings.at(None)).nodes == (USED, EMPTY)
    await book.write(for_readers=ForReaders(all_nodes=()))
    assert (await book.readings.at(None)).nodes == ()


async def test_a_node_is_forgotten_when_readers_have_been_told_long_enough(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_facts, "GONE_KEPT", 2)
    await book.write(for_readers=ForReaders(nodes=(USED, EMPTY)))
    await book.write(for_readers=ForReaders(nodes=(gone("a"),)))
    for _ in range(2):
        assert gone("a") in (await book.readings.since(0)).for_readers.nodes
        await book.write(for_readers=ForReaders(nodes=(gone("b"),)))
    assert (await book.readings.since(0)).for_readers.nodes == (gone("b"),)


async def test_a_workload_that_ended_and_was_observed_again_is_read_in_that_order(book: Book) -> None:
    await book.write(enqueue("one"))
    await book.write(retire("one"), enqueue("one", arrival=2))
    news = await book.readings.since(1)
    assert [one.phase for one in news.workloads] == [Phase.FINISHED, Phase.PENDING]


async def test_history_has_every_decision_in_order(book: Book) -> None:
    now = await book.now()
    await book.write(enqueue("one"), enqueue("two", arrival=2), keep("one"))
    await book.write(admit("one", now=now), evict("one"), release("one"), retire("one"))
    rows = await book.readings.history(wid("one"), after=0, limit=100)
    assert [(row.sequence, row.verdict) for row in rows] == [
        (1, "Queued"),
        (3, "Pending"),
        (4, "Admitted"),
        (5, "Evicted"),
        (6, "Released"),
        (7, "Retired"),
    ]
    assert rows[1].reason == WAITING
    assert rows[3].reason == PREEMPTED
    assert {row.ref for row in rows} == {ref("one")}
    assert {row.epoch for row in rows} == {book.epoch}
    assert rows[2].payload["clusterQueue"] == "team-a"
    assert rows[3].payload == {"preemptor": wid("urgent")}
    assert rows[5].payload == {"outcome": "Succeeded"}
    assert [row.sequence for row in await book.readings.history(wid("one"), after=3, limit=2)] == [4, 5]
    everything = await book.readings.decisions(after=0, limit=100)
    assert [row.sequence for row in everything] == list(range(1, 8))
    assert [row.sequence for row in await book.readings.decisions(after=5, limit=1)] == [6]


async def test_a_story_has_the_last_decisions_and_the_writes_that_they_request(book: Book) -> None:
    one, start, stop = wid("one"), EffectKey(wid("one"), 1, Verb.START), EffectKey(wid("one"), 1, Verb.STOP)
    await book.write(enqueue("one"), admit("one", now=await book.now()))
    await book.write(enqueue("two", arrival=2), admit("two", now=await book.now()))
    await book.write(evict("one"), acknowledged=[start])
    rows, effects = await book.readings.story(one, until=100, limit=100)
    assert [(row.sequence, row.verdict) for row in rows] == [(1, "Queued"), (2, "Admitted"), (5, "Evicted")]
    evicted_at = rows[-1].now
    assert effects == [
        EffectRow(2, Verb.START, 1, acknowledged_at=evicted_at),
        EffectRow(5, Verb.STOP, 1),
    ]
    await book.write(acknowledged=[stop])
    await book.write(release("one"))
    await book.write(admit("one", 2, now=await book.now()))
    await book.write(retire("one", 2))
    rows, effects = await book.readings.story(one, until=100, limit=3)
    assert [(row.sequence, row.verdict) for row in rows] == [(6, "Released"), (7, "Admitted"), (8, "Retired")]
    assert effects == [EffectRow(7, Verb.START, 2, withdrawn_at=rows[-1].now)]
    rows, (_, stopped) = await book.readings.story(one, until=5, limit=100)
    assert [row.sequence for row in rows] == [1, 2, 5]
    assert stopped.acknowledged_at is not None
    assert stopped.acknowledged_at > evicted_at
    assert await book.readings.story(wid("nobody"), until=100, limit=100) == ([], [])


async def test_readers_have_the_times_of_evictions_that_the_controller_has(book: Book) -> None:
    started = await book.now()
    await book.write(*(enqueue(name, arrival=number) for number, name in enumerate("abc")))
    await book.write(*(admit(name, now=started) for name in "abc"))
    await book.write(evict("a"), evict("b"))
    await book.write(release("b"))
    last = len(await book.readings.decisions(after=0, limit=100))
    found = await book.readings.eviction_times(last, started - timedelta(hours=1))
    loaded = {one.id: one for one in (await book.ledger.load()).workloads}
    assert found.keys() == {wid("a"), wid("b")}
    for name, preemptor in (("a", wid("urgent")), ("b", None)):
        known, times = loaded[wid(name)], found[wid(name)]
        assert times == (known.preempted_at, known.evicted_at, known.preemptor)
        assert (times.preemptor, len(times.preempted_at)) == (preemptor, 1)
    assert await book.readings.eviction_times(last, await book.now() + timedelta(hours=1)) == {
        wid("a"): ((), *found[wid("a")][1:])
    }


async def test_a_policy_decision_shows_its_spec(book: Book) -> None:
    await book.write(configure("a", 4), configure("a", None))
    made, gone = await book.readings.decisions(after=0, limit=9)
    assert made.payload["name"] == "a"
    assert isinstance(made.payload["spec"], dict)
    assert gone.payload["spec"] is None


async def test_find_returns_no_workload_of_another_cluster(book: Book) -> None:
    await book.write(enqueue("one"))
    assert await book.readings.find("ns", "Job", "two") is None
    assert await book.readings.find("ns", "PyTorchJob", "one") is None


async def test_the_life_of_a_workload_that_had_ended_by_a_decision_is_found(book: Book) -> None:
    await book.write(enqueue("one"))
    first = await book.write(retire("one"))
    await book.write(enqueue("one", arrival=2))
    second = await book.write(retire("one"))
    await book.write(enqueue("one", arrival=3))
    found = {
        end: await book.readings.find("ns", "Job", "one", ended_by=end)
        for end in (first - 1, first, second - 1, second, second + 1)
    }
    assert [life and life.arrival for life in found.values()] == [None, 1, 1, 2, 2]


async def test_the_local_queue_of_a_workload_is_the_one_that_it_was_queued_in_up_to_a_decision(
    book: Book,
) -> None:
    first = await book.write(enqueue("one"))
    moved = replace(enqueue("one"), workload=workload("one", queue="left"))
    second = await book.write(moved, enqueue("two", arrival=2))
    for until, queues in (
        (first - 1, {}),
        (first, {wid("one"): "lq"}),
        (second, {wid("one"): "left"}),
        (second + 1, {wid("one"): "left", wid("two"): "lq"}),
    ):
        assert await book.readings.queues_of([wid("one"), wid("two")], until=until) == queues


async def test_a_cluster_that_never_had_a_leader_is_reported(pool: AsyncEngine, cluster: str) -> None:
    with pytest.raises(LedgerUnavailable, match="no controller has led"):
        await LedgerReadings(pool, cluster).since(0)
