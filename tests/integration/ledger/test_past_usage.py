"""Past usage (U5) and recent preemptions (P11) from the ledger: the same as without a restart."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.core.decisions import Admit, Decision, Enqueue
from queuectl.core.features.usage_history.decay import UsageHistory, counted_from
from queuectl.core.model.policy import (
    HALF_LIVES,
    AdmissionFairSharing,
    LocalQueueName,
    SchedulingConfiguration,
)
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import Assignment, Attribution, LedgerSnapshot, usage_accounts
from queuectl.ledger.history import past_usage
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.ports.ledger import Ledger, LedgerRefused
from tests.integration.ledger.plans import (
    admit,
    enqueue,
    evict,
    keep,
    plan,
    release,
    retire,
    shrink,
    wid,
    workload,
)

START = datetime(2026, 5, 5, tzinfo=UTC)
HALF_LIFE = 60
SHARING = AdmissionFairSharing(half_life=HALF_LIFE, sampling_interval=30)
SETTINGS = SchedulingConfiguration(usage_sharing=SHARING, eviction_window=600)
QUEUES = tuple(LocalQueueName("ns", name) for name in ("lq", "left", "right"))
USERS = ("alice", "bob", None)
ACCOUNTS = (*QUEUES, *((*queue, user or "") for queue in QUEUES for user in USERS), ("team-a",))


def booked(admitted: Admit, queue: LocalQueueName = QUEUES[0], user: str | None = "alice") -> Admit:
    return replace(admitted, attribution=Attribution(namespace="ns", queue=queue.name, user=user))


@dataclass
class Book:
    """A ledger with a clock that the test sets."""

    ledger: Ledger
    now: datetime = START
    epoch: int = 0
    batches: int = 0

    async def begin(self) -> None:
        self.epoch = await self.ledger.take_epoch("first")
        self.now = await self.ledger.now()  # the partitions of its month exist

    async def write(self, *decisions: Decision, after: float = 0) -> None:
        """Write rows; `after`: seconds since the last write."""
        self.now += timedelta(seconds=after)
        self.batches += 1
        name = f"batch-{self.batches}"
        await self.ledger.commit(plan(*decisions, now=self.now), (), epoch=self.epoch, batch=name)


MakeBook = Callable[[SchedulingConfiguration], Book]


@pytest.fixture
def make(cluster: str, pool: AsyncEngine) -> MakeBook:
    return lambda settings: Book(PostgresLedger(pool, cluster, settings=settings))


@pytest.fixture
async def book(make: MakeBook) -> Book:
    book = make(SETTINGS)
    await book.begin()
    return book


def queued(name: str, queue: LocalQueueName, arrival: int = 1) -> Enqueue:
    return replace(enqueue(name, arrival=arrival), workload=workload(name, queue=queue.name))


def restarted(snapshot: LedgerSnapshot) -> UsageHistory:
    """The history that a controller starts with."""
    history = UsageHistory(SHARING)
    history.restore(snapshot.past_usage)
    for stored in snapshot.workloads:
        if (attempt := stored.attempt) is not None:
            accounts = usage_accounts(attempt.assignment.cluster_queue, stored.attribution)
            amounts = held(attempt.assignment)
            begun = counted_from(attempt.admitted_at, snapshot.now or attempt.admitted_at)
            history.opened(accounts, (stored.id, attempt.number), amounts, begun)
    return history


def held(assignment: Assignment) -> dict[str, int]:
    found: dict[str, int] = {}
    for (_, resource), amount in assignment.usage().items():
        found[resource] = found.get(resource, 0) + amount
    return found


@dataclass
class Life:
    """State of one workload in a random history."""

    queue: LocalQueueName
    attempt: int = 0
    holds: bool = False
    gpus: int = 0
    """GPUs of each worker of its last attempt."""
    workers: int = 0


@dataclass
class RandomHistory:
    """Workloads that arrive, shrink, end, are evicted and moved, with their usage as without a restart."""

    seed: int
    live: UsageHistory = field(default_factory=lambda: UsageHistory(SHARING))
    lives: dict[str, Life] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)

    def step(self, now: datetime, number: int) -> list[Decision]:
        holding = [name for name, life in self.lives.items() if life.holds]
        waiting = [name for name, life in self.lives.items() if not life.holds]
        shrinkable = [name for name in holding if self.lives[name].workers]
        what = self.dice.choice(["arrive", "admit", "admit", "shrink", "release", "move", "end", "end"])
        if what == "shrink" and shrinkable:
            return self.shrink(self.dice.choice(shrinkable), now)
        if what == "release" and holding:
            return self.release(self.dice.choice(holding), now)
        if what == "end" and holding:
            return self.end(self.dice.choice(holding), now)
        if what == "move" and waiting:
            return self.move(self.dice.choice(waiting))
        if what == "admit" and waiting:
            return self.admit(self.dice.choice(waiting), now)
        life = self.lives[f"w{number}"] = Life(self.dice.choice(QUEUES))
        return [queued(f"w{number}", life.queue, number), *self.admit(f"w{number}", now)]

    def admit(self, name: str, now: datetime) -> list[Decision]:
        life = self.lives[name]
        life.attempt, life.holds = life.attempt + 1, True
        life.gpus, life.workers = self.dice.randint(1, 9), 2
        user = self.dice.choice(USERS)
        admitted = booked(admit(name, life.attempt, now=now, gpus=life.gpus), life.queue, user)
        accounts = usage_accounts("team-a", admitted.attribution)
        self.live.opened(accounts, (wid(name), life.attempt), held(admitted.attempt.assignment), now)
        return [admitted]

    def shrink(self, name: str, now: datetime) -> list[Decision]:
        life = self.lives[name]
        life.workers -= 1
        shrunk = shrink(name, life.attempt, workers=life.workers, gpus=life.gpus)
        self.live.resized((wid(name), life.attempt), held(shrunk.assignment), now)
        return [shrunk]

    def release(self, name: str, now: datetime) -> list[Decision]:
        life = self.lives[name]
        life.holds = False
        self.live.closed((wid(name), life.attempt), now)
        return [evict(name, life.attempt), release(name, life.attempt)]

    def end(self, name: str, now: datetime) -> list[Decision]:
        life = self.lives.pop(name)
        self.live.closed((wid(name), life.attempt), now)
        return [retire(name, life.attempt)]

    def move(self, name: str) -> list[Decision]:
        self.lives[name].queue = self.dice.choice(QUEUES)
        return [queued(name, self.lives[name].queue)]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.acceptance) for seed in (1, 2))])
async def test_usage_is_exactly_the_same_after_a_restart(
    book: Book, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_usage, "_WINDOW", 9)  # so that a short history needs several
    history = RandomHistory(seed)
    for number in range(1, 91):
        book.now += timedelta(seconds=history.dice.choice([0, 0.25, 7, 40, 3 * HALF_LIFE]))
        await book.write(*history.step(book.now, number))
        if number % 30:
            continue
        again = restarted(await book.ledger.load())
        for seconds in (0, 0.5, 29, 31, 1_000):
            then = book.now + timedelta(seconds=seconds)
            values = [history.live.usage(account, 1000, then) for account in ACCOUNTS]
            assert [again.usage(account, 1000, then) for account in ACCOUNTS] == values
            assert len({*values[: len(QUEUES)]}) == len(QUEUES), "equal values would prove nothing"
            assert any(values[len(QUEUES) : -1])


async def test_usage_that_is_too_old_to_count_is_left_out(book: Book) -> None:
    await book.write(enqueue("old"), booked(admit("old", now=book.now)))
    await book.write(retire("old", 1), after=1)
    found = {one.account for one in (await book.ledger.load()).past_usage}
    assert found == {("team-a",), QUEUES[0], ("ns", "lq", "alice")}
    await book.write(enqueue("new"), after=(HALF_LIVES + 1) * HALF_LIFE)
    assert (await book.ledger.load()).past_usage == ()


@pytest.mark.parametrize("sharing", [None, AdmissionFairSharing(half_life=0)])
async def test_no_past_usage_is_read_if_it_does_not_count(
    make: MakeBook, sharing: AdmissionFairSharing | None
) -> None:
    book = make(SchedulingConfiguration(usage_sharing=sharing))
    await book.begin()
    await book.write(enqueue("one"), admit("one", now=book.now))
    await book.write(retire("one", 1), after=1)
    assert (await book.ledger.load()).past_usage == ()


async def test_a_refused_commit_leaves_no_usage(book: Book) -> None:
    await book.write(enqueue("one"), admit("one", now=book.now))
    with pytest.raises(LedgerRefused):
        await book.write(retire("one", 1), evict("one", 1), after=1)
    assert (await book.ledger.load()).past_usage == ()


@pytest.mark.parametrize("days", [1, -1], ids=["admitted before", "by a clock that was ahead"])
async def test_a_rebuilt_hold_counts_from_its_rebuild_open_and_closed(
    pool: AsyncEngine, cluster: str, days: int
) -> None:
    book = Book(PostgresLedger(pool, cluster, settings=SETTINGS))
    await book.begin()
    running = booked(admit("one", now=book.now - timedelta(days=days)))
    await book.write(enqueue("one"), running)
    expected = UsageHistory(SHARING)
    amounts = held(running.attempt.assignment)
    accounts = usage_accounts("team-a", running.attribution)
    expected.add_interval(accounts, amounts, book.now, book.now + timedelta(seconds=45))
    still = restarted(await book.ledger.load())
    await book.write(retire("one", 1), after=45)
    still.closed((wid("one"), 1), book.now)
    assert (await book.ledger.load()).past_usage == expected.sums(book.now)
    assert still.sums(book.now) == expected.sums(book.now)


# --- preemptions

HELD = Reason(code=Code.USER_HOLD)


async def preempted_at(book: Book, name: str) -> list[float]:
    """Seconds before now."""
    [found] = [one for one in (await book.ledger.load()).workloads if one.id == wid(name)]
    return [(book.now - at).total_seconds() for at in found.preempted_at]


async def preempt(book: Book, name: str, number: int, *, reason: Reason | None = None) -> None:
    await book.write(admit(name, number, now=book.now))
    stopped = evict(name, number) if reason is None else evict(name, number, reason)
    await book.write(stopped, after=10)
    await book.write(release(name, number))


async def test_recent_preemptions_are_read_with_their_times(book: Book) -> None:
    await book.write(enqueue("one"), enqueue("other", arrival=2))
    await preempt(book, "one", 1)
    await preempt(book, "one", 2, reason=HELD)
    await preempt(book, "one", 3)
    assert await preempted_at(book, "one") == [20, 0]
    assert await preempted_at(book, "other") == []


async def test_preemptor_and_time_of_an_eviction_are_read_while_it_lasts(book: Book) -> None:
    async def preemptor() -> str | None:
        [found] = [one for one in (await book.ledger.load()).workloads if one.id == wid("one")]
        assert found.evicted_at == (book.now if found.preemptor else None)
        return found.preemptor

    await book.write(enqueue("one"))
    await preempt(book, "one", 1)
    await book.write(admit("one", 2, now=book.now))
    assert await preemptor() is None
    await book.write(evict("one", 2), after=3600)
    assert await preemptor() == wid("urgent")
    await book.write(release("one", 2))
    assert await preemptor() is None


async def test_preemptions_before_two_eviction_windows_are_left_out(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_usage, "_WINDOW", 1)  # so that a short history needs a search
    await book.write(enqueue("one"))
    await preempt(book, "one", 1)
    await preempt(book, "one", 2)
    await book.write(keep("one"), after=1195)
    assert await preempted_at(book, "one") == [1195]


async def test_the_last_sixteen_preemptions_are_kept(book: Book) -> None:
    await book.write(enqueue("one"))
    for number in range(1, 20):
        await preempt(book, "one", number)
    assert await preempted_at(book, "one") == [10.0 * n for n in reversed(range(16))]


async def test_a_new_workload_with_the_id_of_an_ended_one_has_no_preemptions(book: Book) -> None:
    await book.write(enqueue("one"))
    await preempt(book, "one", 1)
    await book.write(retire("one"))
    await book.write(enqueue("one"))
    await preempt(book, "one", 1, reason=HELD)
    assert await preempted_at(book, "one") == []
