"""A sink is told when the expected start of a pending workload moved: at least once, the same each time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from queuectl.core.model.workload import ObjectRef, WorkloadId
from queuectl.notifications.delivery import Sink
from queuectl.notifications.rules import Selection
from queuectl.notifications.starts import FORECASTS, StartWatch
from queuectl.ports.ledger import LedgerUnavailable
from queuectl.ports.outbox import ToldStart
from queuectl.ports.reader import StartForecast
from queuectl.settings.notifications import RuleSettings
from tests.unit.notifications.books import NOW, Counts, Receiver

MOVED = Selection((RuleSettings(event="StartMoved", moved_more_than_seconds=600),))


@dataclass
class Known:
    """ports.outbox.ToldStarts in memory."""

    starts: list[ToldStart]
    """Those asked longest ago first."""
    calls: int = 0
    failing: int = 0
    """The call of this number fails."""

    def _reached(self) -> None:
        self.calls += 1
        if self.calls == self.failing:
            raise LedgerUnavailable("no connection")

    async def waiting(
        self, sink: str, namespaces: Collection[str], queues: Collection[str], limit: int
    ) -> tuple[datetime, list[ToldStart]]:
        self._reached()
        return NOW, sorted(self.starts, key=lambda one: one.moved is None)[:limit]

    async def found(self, known: ToldStart, start: datetime | None) -> None:
        self._keep(replace(known, start=known.start or start))

    async def moved(self, known: ToldStart, start: datetime, at: datetime) -> ToldStart:
        # Time passes between two forecasts.
        return self._keep(replace(known, moved=start, moved_at=at + timedelta(microseconds=self.calls)))

    async def accepted(self, known: ToldStart) -> None:
        self._keep(replace(known, start=known.moved, told=known.told + 1, moved=None, moved_at=None))

    async def forget(self) -> None:
        self._reached()

    def _keep(self, known: ToldStart) -> ToldStart:
        self._reached()
        self.starts = [*(one for one in self.starts if one.workload != known.workload), known]
        return known


@dataclass
class Oracle:
    """ports.reader.Forecasts: all workloads start after as many minutes, or it is unknown when."""

    minutes: float | None = None
    asked: list[WorkloadId] = field(default_factory=list)

    async def start_of(self, workload: WorkloadId, now: datetime) -> StartForecast:
        self.asked.append(workload)
        if self.minutes is None:
            return StartForecast(now, 1, "the history is shorter than a day")
        return StartForecast(now, 1, None, None, self.minutes * 60, None, None, 9)


def known(name: str = "train") -> ToldStart:
    workload, ref = WorkloadId(f"uid-{name}"), ObjectRef("team-a", "Job", name, f"uid-{name}")
    return ToldStart(sink="team", workload=workload, ref=ref, queue="main")


class Place:
    def __init__(self, *starts: ToldStart) -> None:
        self.known = Known(list(starts) or [known()])
        self.forecasts, self.receiver, self.counts = Oracle(), Receiver(), Counts()
        sink = Sink(name="team", selection=MOVED, send=self.receiver.send)
        self.watch = StartWatch("c", [sink], self.known, self.forecasts, self.counts)

    async def rounds(self, *minutes: float | None) -> None:
        for each in minutes:
            self.forecasts.minutes = each
            await self.watch.round()


async def test_a_start_that_moves_is_told_once() -> None:
    place = Place()
    await place.rounds(60, 75, 75, 75)
    (message,) = place.receiver.got
    assert message.text == (
        "Job team-a/train is expected to start at 2026-01-05T01:15:00Z, 15 min later than before, "
        "LocalQueue main"
    )
    assert message.document["startsAt"] == "2026-01-05T01:15:00Z"
    assert message.document["toldBefore"] == "2026-01-05T01:00:00Z"
    assert message.event == "StartMoved"
    assert message.id == f"c/start/uid-train/{_microseconds(message.at)}"
    assert place.counts.sent_by == {"team": 1}


async def test_a_start_that_moves_back_is_told_again() -> None:
    place = Place()
    await place.rounds(60, 75, 60)
    first, second = place.receiver.got
    assert first.id != second.id
    assert "15 min earlier" in place.receiver.got[1].text


async def test_small_moves_are_told_once_they_add_up() -> None:
    place = Place()
    await place.rounds(60, 64, 68, 70)
    assert place.receiver.got == []
    await place.rounds(72)
    assert "12 min later" in place.receiver.got[0].text


@pytest.mark.parametrize("minutes", [(None, None), (60, None), (None, 60), (60, None, 65)])
async def test_what_is_not_known_has_not_moved(minutes: tuple[float | None, ...]) -> None:
    place = Place()
    await place.rounds(*minutes)
    assert place.receiver.got == []


async def test_a_start_that_was_not_known_for_a_time_is_compared_with_the_one_before() -> None:
    place = Place()
    await place.rounds(60, None, 75)
    assert "15 min later" in place.receiver.got[0].text


async def test_a_message_that_is_sent_again_is_the_same_whatever_is_forecast_meanwhile() -> None:
    place = Place()
    place.receiver.refusals = 2
    await place.rounds(60, 75, 30)
    assert (place.receiver.got, place.counts.failed_by) == ([], {"team": 2})
    await place.rounds(30)
    (message,) = place.receiver.got
    assert "15 min later" in message.text
    await place.rounds(30)
    assert "45 min earlier" in place.receiver.got[1].text


@pytest.mark.parametrize("failing", range(1, 12))
async def test_a_move_is_told_at_least_once_whatever_call_of_the_ledger_fails(failing: int) -> None:
    place = Place()
    place.known.failing = failing
    for minutes in (60, 60, 75, 75, 75):
        try:
            await place.rounds(minutes)
        except LedgerUnavailable:
            continue
    assert len(set(place.receiver.ids)) == 1
    assert len({message.body for message in place.receiver.got}) == 1


async def test_a_round_asks_for_a_few_workloads_only_and_for_the_others_in_the_next() -> None:
    place = Place(*(known(f"train-{number:03}") for number in range(FORECASTS + 5)))
    await place.rounds(60)
    assert len(place.forecasts.asked) == FORECASTS
    await place.rounds(60)
    assert len(set(place.forecasts.asked)) == FORECASTS + 5


async def test_a_start_that_a_restored_ledger_tells_again_has_an_id_of_its_own() -> None:
    """The backup does not have that a move was told."""
    place = Place()
    await place.rounds(60)
    backup = place.known.starts
    await place.rounds(75)
    place.known.starts = backup
    await place.rounds(60, 75)
    assert len(set(place.receiver.ids)) == len(place.receiver.ids) > 1


def _microseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)
