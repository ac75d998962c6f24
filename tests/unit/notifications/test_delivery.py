"""Each message at least once and in order, whatever fails: on virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuectl.core.decisions import Verdict
from queuectl.core.model.budgets import HOUR, Budget, BudgetMode, BudgetPeriods, Period, PeriodKind
from queuectl.core.model.usage_limits import LimitSubject, LimitTarget, SubjectKind
from queuectl.notifications.delivery import (
    GIVE_UP_AFTER,
    MAX_PAUSE,
    POLL_SECONDS,
    SPAN,
    Delivery,
    Sink,
    SinkFailed,
)
from queuectl.notifications.messages import Message
from queuectl.notifications.rules import Selection, selected
from queuectl.ports.ledger import LedgerUnavailable
from queuectl.ports.outbox import BudgetLevel, Cursor
from queuectl.settings.notifications import RuleSettings
from tests.unit.core import profiles
from tests.unit.notifications.books import (
    NEVER,
    PREEMPTED,
    WAITS,
    Book,
    Counts,
    Receiver,
    each_event,
    occurrence,
    row,
)

ALL = Selection(each_event())


def book(*verdicts: Verdict) -> Book:
    return Book(rows=[row(n, one, reason=PREEMPTED) for n, one in enumerate(verdicts, 1)])


def told_from_the_start(of: Book, *sinks: str) -> None:
    for sink in sinks:
        of.cursors[sink] = Cursor(sink=sink, sequence=0)


def delivery(
    of: Book, receiver: Receiver, name: str = "sink", selection: Selection = ALL, counts: Counts | None = None
) -> Delivery:
    sink = Sink(name=name, selection=selection, send=receiver.send)
    return Delivery("c", sink, of, counts or Counts())


async def played(running: Delivery, of: Book) -> float:
    """Run a delivery until all is told, in virtual time. Returns how long that took."""
    now = 0.0
    for _ in range(1000):
        pause = await running.step()
        if of.cursors["sink"].sequence == len(of.rows):
            return now
        now += pause
    raise AssertionError("it never comes to rest")


async def test_a_sink_is_told_of_what_its_rules_select_in_order() -> None:
    of, receiver, counts = book(*[Verdict.EVICTED, Verdict.QUEUED, Verdict.EVICTED]), Receiver(), Counts()
    told_from_the_start(of, "sink")
    assert await delivery(of, receiver, counts=counts).step() == POLL_SECONDS
    assert receiver.ids == ["c/1/1", "c/1/3"]
    assert of.cursors["sink"].sequence == 3
    assert of.cursors["sink"].sent == 2
    assert (counts.sent_by, counts.behind_by) == ({"sink": 2}, {"sink": 0})


LEVEL = BudgetLevel(
    Budget(
        name="lab",
        target=LimitTarget("ClusterQueue", "cq"),
        subject=LimitSubject(SubjectKind.EACH_USER),
        resource="nvidia.com/gpu",
        amount=100 * HOUR,
        periods=BudgetPeriods(PeriodKind.MONTH),
        mode=BudgetMode.SAFE,
    ),
    "ada",
    Period(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)),
    80,
)


async def test_a_budget_that_passes_a_level_is_told_before_the_start_that_took_it_there() -> None:
    of, receiver = book(Verdict.QUEUED, Verdict.ADMITTED, Verdict.EVICTED), Receiver(refusing=frozenset({2}))
    of.levels[2] = (LEVEL,)
    told_from_the_start(of, "sink")
    running = delivery(of, receiver)
    await running.step()  # the start is refused
    assert (of.cursors["sink"].sequence, of.cursors["sink"].sent) == (1, 1)
    await running.step()
    assert of.cursors["sink"].sent == 3
    of.cursors["sink"] = replace(of.cursors["sink"], sequence=1)  # as if that was not stored
    await delivery(of, receiver).step()
    budget, again = (one for one in receiver.got if one.event == "Budget")
    assert receiver.ids == ["c/1/2/lab/2026-01-01T00:00:00Z", "c/1/2", "c/1/3"] * 2
    assert budget == again
    assert budget.text == (
        "Budget/lab: 80 % of the 100 nvidia.com/gpu hours of ada until 2026-02-01T00:00:00Z are reserved or "
        "used, with Job team-a/train"
    )
    assert budget.document["budget"] == {
        "name": "lab",
        "subject": "ada",
        "resource": "nvidia.com/gpu",
        "percent": 80,
        "periodBegins": "2026-01-01T00:00:00Z",
        "periodEnds": "2026-02-01T00:00:00Z",
    }


@pytest.mark.parametrize(
    "selection",
    [
        Selection((RuleSettings(event="Started"),)),
        Selection((RuleSettings(event="Budget"),), namespaces=frozenset({"team-b"})),
    ],
)
async def test_a_sink_is_told_of_budgets_by_a_rule_and_of_its_own_workloads_only(
    selection: Selection,
) -> None:
    of, receiver = book(Verdict.QUEUED, Verdict.ADMITTED), Receiver()
    of.levels[2] = (LEVEL,)
    told_from_the_start(of, "sink")
    await delivery(of, receiver, selection=selection).step()
    assert "Budget" not in {one.event for one in receiver.got}


async def test_a_new_sink_is_not_told_of_the_past() -> None:
    of, receiver = book(*[Verdict.EVICTED] * 3), Receiver()
    running = delivery(of, receiver)
    await running.step()
    of.rows.append(row(4, Verdict.EVICTED, reason=PREEMPTED))
    await running.step()
    assert receiver.ids == ["c/1/4"]


async def test_a_message_that_was_sent_and_not_noted_is_sent_again_with_the_same_id() -> None:
    of, receiver = book(Verdict.EVICTED, Verdict.EVICTED), Receiver()
    told_from_the_start(of, "sink")

    async def send_and_lose_the_ledger(message: Message) -> None:
        await receiver.send(message)
        of.down = 1

    crashing = Delivery("c", Sink(name="sink", selection=ALL, send=send_and_lose_the_ledger), of, Counts())
    with pytest.raises(LedgerUnavailable):
        await crashing.step()
    assert receiver.ids == ["c/1/1"]
    await delivery(of, receiver).step()
    assert receiver.ids == ["c/1/1", "c/1/1", "c/1/2"]
    assert receiver.got[0].body == receiver.got[1].body


async def test_what_was_decided_while_a_sink_was_down_for_an_hour_arrives_in_order() -> None:
    of, receiver = book(*[Verdict.EVICTED] * 50), Receiver(refusals=2 * 20 - GIVE_UP_AFTER)
    told_from_the_start(of, "sink")
    end = await played(delivery(of, receiver), of)
    assert end > 3600
    assert receiver.ids == [f"c/1/{n}" for n in range(1, 51)]
    pauses = [seconds for _, _, seconds in of.errors]
    assert pauses == [min(MAX_PAUSE, 2.0**n) for n in range(20)]
    assert of.cursors["sink"].failures == 0


async def test_a_sink_that_is_down_delays_no_other_one() -> None:
    of, down, up = book(*[Verdict.EVICTED] * 3), Receiver(refusals=10**6), Receiver()
    told_from_the_start(of, "down", "up")
    sinks = [Sink(name=name, selection=ALL, send=to.send) for name, to in (("down", down), ("up", up))]
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(Delivery("c", sink, of, Counts()).run()) for sink in sinks]
        while len(up.got) < 3 or not of.errors:
            await asyncio.sleep(0)
        for task in running:
            task.cancel()
    assert (down.got, of.cursors["down"].sequence, of.cursors["up"].sequence) == ([], 0, 3)


async def test_a_sink_may_ask_for_a_longer_pause_but_not_for_an_endless_one() -> None:
    of, receiver = book(Verdict.EVICTED), Receiver(refusals=2, retry_after=40.0)
    told_from_the_start(of, "sink")
    running = delivery(of, receiver)
    assert await running.step() == 40.0
    receiver.retry_after = 10**9
    assert await running.step() == MAX_PAUSE


async def test_deleted_history_is_told_once_and_what_is_left_after_it() -> None:
    of, receiver = book(*[Verdict.EVICTED] * 9), Receiver()
    told_from_the_start(of, "sink")
    of.first = 8
    running = delivery(of, receiver)
    await running.step()
    await running.step()
    assert receiver.ids == ["c/1/1-7", "c/1/8", "c/1/9"]


async def test_a_message_names_workloads_of_the_sinks_namespaces_only() -> None:
    of, receiver = Book(), Receiver()
    told_from_the_start(of, "sink")
    own = replace(PREEMPTED, by="team-a/Job/urgent")
    of.rows = [row(n, Verdict.EVICTED, reason=reason) for n, reason in enumerate((PREEMPTED, own), 1)]
    await delivery(of, receiver, selection=replace(ALL, namespaces=frozenset({"team-a"}))).step()
    other, named = (message.text for message in receiver.got)
    assert "secret-project" not in other
    assert "team-a/Job/urgent" in named


async def test_a_message_that_fails_in_the_middle_holds_back_those_after_it() -> None:
    of, receiver = book(*[Verdict.EVICTED] * 3), Receiver(refusing=frozenset({2, 3}))
    told_from_the_start(of, "sink")
    running = delivery(of, receiver)
    await running.step()
    assert (receiver.ids, of.cursors["sink"].sequence) == (["c/1/1"], 1)
    await running.step()
    await running.step()
    assert receiver.ids == ["c/1/1", "c/1/2", "c/1/3"]


async def test_a_history_of_which_nothing_is_left_is_one_gap() -> None:
    of, receiver = book(*[Verdict.EVICTED] * 9), Receiver()
    told_from_the_start(of, "sink")
    of.first = 10
    await delivery(of, receiver).step()
    assert receiver.ids == ["c/1/1-9"]
    assert of.cursors["sink"].sequence == 9


async def test_a_long_history_is_read_in_parts_without_a_pause() -> None:
    of, receiver = book(*[Verdict.QUEUED] * SPAN, Verdict.EVICTED), Receiver()
    told_from_the_start(of, "sink")
    running = delivery(of, receiver)
    assert await running.step() == 0.0
    assert await running.step() == POLL_SECONDS
    assert receiver.ids == [f"c/1/{SPAN + 1}"]


async def test_a_cursor_that_another_process_moved_is_read_again() -> None:
    of, receiver = book(*[Verdict.EVICTED] * 3), Receiver()
    told_from_the_start(of, "sink")

    async def send_twice(message: Message) -> None:
        await receiver.send(message)
        of.cursors["sink"] = replace(of.cursors["sink"], sequence=2)

    running = Delivery("c", Sink(name="sink", selection=ALL, send=send_twice), of, Counts())
    assert await running.step() == 0.0
    await running.step()
    assert receiver.ids == ["c/1/1", "c/1/3"]


async def test_decisions_of_a_restored_ledger_have_ids_of_their_own() -> None:
    """The backup has decision 1. Decisions 2 and 3 are lost, and others get their sequences."""
    of, receiver = book(*[Verdict.EVICTED] * 3), Receiver()
    told_from_the_start(of, "sink")
    running = delivery(of, receiver)
    await running.step()
    lost = receiver.ids[1:]
    of.rows[1:] = [replace(one, epoch=2) for one in of.rows[1:]]
    of.cursors["sink"] = replace(of.cursors["sink"], sequence=1)
    await running.step()
    assert receiver.ids[3:] == ["c/2/2", "c/2/3"]
    assert not set(lost) & set(receiver.ids[3:])


async def test_a_restored_ledger_is_told_from_its_own_cursor_before_it_has_as_many_decisions() -> None:
    of, receiver = book(*[Verdict.EVICTED] * 9), Receiver()
    told_from_the_start(of, "sink")
    running = delivery(of, receiver)
    await running.step()
    of.rows[4:] = [replace(one, epoch=2) for one in of.rows[4:6]]
    of.cursors["sink"] = replace(of.cursors["sink"], sequence=4)
    await running.step()
    assert receiver.ids[9:] == ["c/2/5", "c/2/6"]


VERDICTS = st.sampled_from(
    [
        (Verdict.QUEUED, None),
        (Verdict.ADMITTED, None),
        (Verdict.EVICTED, PREEMPTED),
        (Verdict.RELEASED, None),
        (Verdict.PENDING, NEVER),
        (Verdict.PENDING, WAITS),
    ]
)
HISTORY = st.lists(st.tuples(VERDICTS, st.sampled_from(["a", "b"]), st.sampled_from(["team-a", "team-b"])))
NUMBERS = st.frozensets(st.integers(1, 60))


async def stepped(running: Delivery) -> bool:
    """False: the ledger failed under it."""
    try:
        await running.step()
    except LedgerUnavailable:
        return False
    return True


@given(history=HISTORY, refusing=NUMBERS, failing=NUMBERS, crashes=NUMBERS, one_team=st.booleans())
@settings(max_examples=profiles.examples(200), deadline=None)
async def test_the_messages_are_those_of_the_rules_whatever_fails(
    history: list[tuple[tuple[Verdict, None], str, str]],
    refusing: frozenset[int],
    failing: frozenset[int],
    crashes: frozenset[int],
    one_team: bool,
) -> None:
    rows = [
        row(n, verdict, reason=reason, name=name, namespace=namespace)
        for n, ((verdict, reason), name, namespace) in enumerate(history, 1)
    ]
    namespaces = frozenset({"team-a"}) if one_team else frozenset[str]()
    selection = replace(ALL, namespaces=namespaces)
    of, receiver = Book(failing=failing), Receiver(refusing=refusing)
    told_from_the_start(of, "sink")
    running = delivery(of, receiver, selection=selection)
    for number in range(1, 61):
        of.rows = rows[: 4 * number]
        if not await stepped(running) or number in crashes:
            running = delivery(of, receiver, selection=selection)
    of.rows, of.failing = rows, frozenset()
    await played(delivery(of, receiver, selection=selection), of)
    chosen = [one for one in rows if selected(selection, occurrence(rows, one)) is not None]
    assert list(dict.fromkeys(receiver.ids)) == [f"c/1/{one.sequence}" for one in chosen]
    by_id: dict[str, set[bytes]] = {}
    for message in receiver.got:
        by_id.setdefault(message.id, set()).add(message.body)
    assert all(len(bodies) == 1 for bodies in by_id.values())


async def test_a_message_that_a_sink_refuses_for_good_is_given_up_once_the_next_one_is_accepted() -> None:
    of, receiver = book(*[Verdict.EVICTED] * 4), Receiver()
    told_from_the_start(of, "sink")
    tried: list[str] = []

    async def send(message: Message) -> None:
        tried.append(message.id)
        if message.id == "c/1/2":
            raise SinkFailed("answers 400")
        await receiver.send(message)

    refusing = Delivery("c", Sink(name="sink", selection=ALL, send=send), of, Counts())
    await played(refusing, of)
    assert receiver.ids == ["c/1/1", "c/1/3", "c/1/4"]
    assert tried.count("c/1/2") == GIVE_UP_AFTER + 2
    assert of.cursors["sink"].sent == 3


async def test_no_message_is_given_up_while_the_sink_accepts_none() -> None:
    of, receiver = book(*[Verdict.EVICTED] * 3), Receiver()
    told_from_the_start(of, "sink")
    receiver.refusals = 5 * GIVE_UP_AFTER
    await played(delivery(of, receiver), of)
    assert receiver.ids == ["c/1/1", "c/1/2", "c/1/3"]


async def test_no_message_is_lost_if_a_sink_comes_back_between_two_tries() -> None:
    of, receiver = book(*[Verdict.EVICTED] * 3), Receiver(refusals=GIVE_UP_AFTER + 1)
    told_from_the_start(of, "sink")
    await played(delivery(of, receiver), of)
    assert sorted(receiver.ids) == ["c/1/1", "c/1/2", "c/1/3"]
